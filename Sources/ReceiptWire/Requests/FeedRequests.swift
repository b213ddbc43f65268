package import NIOCore
package import ReceiptModel

// Requests about the change feed and its consumers (Proto/frames.md, "The feed"). Only their form is checked here; the
// store checks their ranges.

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let feedRequests: [RequestSpec] = [
    RequestSpec(
      .listConsumers,
      "list_consumers",
      "consumer",
      reply: "retention end consumers:[consumer @consumer states:[index partitions state:string]]"
    ),
    RequestSpec(
      .readFeed,
      "read_feed",
      "consumer index partitions epoch number flags limit",
      reply: "number end through gap_to records:[@record]"
    ),
    RequestSpec(
      .putConsumer,
      "put_consumer",
      "consumer counter kinds channel_types:[type] start:byte(start) since",
      reply: "created:byte"
    ),
    RequestSpec(.removeConsumer, "remove_consumer", "consumer counter"),
    RequestSpec(
      .openPartition,
      "open_partition",
      "consumer counter index partitions epoch",
      reply: "number position_time state:string"
    ),
    RequestSpec(
      .commitConsumer,
      "commit_consumer",
      "consumer counter index partitions flags number position_time epoch state:string"
    ),
    RequestSpec(
      .leasePartitions,
      "lease_partitions",
      "consumer counter worker partitions milliseconds held:[index]",
      reply: "workers granted:[index]"
    ),
  ]
}

/// The fields of put_consumer.
package struct PutConsumerRequest: Sendable {
  /// Where a new consumer begins.
  package enum Start: UInt8, Sendable {
    case now = 0
    case earliest = 1
    /// With the records from ``PutConsumerRequest/since`` on.
    case time = 2
  }

  package var kinds: FeedRecordKinds
  package var channelTypes: [String]
  package var start: Start
  package var since: Timestamp

  package init(kinds: FeedRecordKinds, channelTypes: [String], start: Start, since: Timestamp = .none) {
    self.kinds = kinds
    self.channelTypes = channelTypes
    self.start = start
    self.since = since
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    (kinds, channelTypes) = try reader.filters()
    guard let start = Start(rawValue: try reader.byte()) else { throw .badValue(.flags) }
    self.start = start
    since = try reader.time()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFilters(kinds, channelTypes)
    buffer.writeByte(start.rawValue)
    buffer.writeTime(since)
  }
}

/// The fields of open_partition.
package struct OpenPartitionRequest: Sendable {
  package var partition: FeedPartition
  package var epoch: UInt64

  package init(_ partition: FeedPartition, epoch: UInt64) {
    self.partition = partition
    self.epoch = epoch
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    partition = try reader.partition()
    epoch = try reader.varint()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writePartition(partition)
    buffer.writeVarint(epoch)
  }
}

/// The reply to open_partition.
package struct OpenPartitionReply: Sendable {
  package var position: UInt64
  package var positionTime: Timestamp
  /// What a worker has stored with the partition in this shard; empty: nothing.
  package var state: [UInt8]

  package init(position: UInt64, positionTime: Timestamp, state: [UInt8]) {
    self.position = position
    self.positionTime = positionTime
    self.state = state
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    position = try reader.varint()
    positionTime = try reader.time()
    state = try reader.byteArray()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(position)
    buffer.writeTime(positionTime)
    buffer.writeField(state.span.bytes)
  }
}

/// The fields of commit_consumer.
package struct CommitConsumerRequest: Sendable {
  private static let hasPosition: UInt64 = 1
  private static let hasState: UInt64 = 2
  private static let hasEpoch: UInt64 = 4

  package var partition: FeedPartition
  package var commit: FeedConsumerTable.Commit

  package init(_ partition: FeedPartition, _ commit: FeedConsumerTable.Commit) {
    self.partition = partition
    self.commit = commit
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    partition = try reader.partition()
    let flags = try reader.varint()
    guard flags <= 7 else { throw .badValue(.flags) }
    let number = try reader.varint()
    let time = try reader.time()
    let epoch = try reader.varint()
    let state = try reader.byteArray()
    try reader.end()
    commit = FeedConsumerTable.Commit(
      position: flags & Self.hasPosition == 0 ? nil : (number, time),
      state: flags & Self.hasState == 0 ? nil : state,
      epoch: flags & Self.hasEpoch == 0 ? nil : epoch
    )
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writePartition(partition)
    var flags: UInt64 = 0
    if commit.position != nil { flags |= Self.hasPosition }
    if commit.state != nil { flags |= Self.hasState }
    if commit.epoch != nil { flags |= Self.hasEpoch }
    buffer.writeVarint(flags)
    buffer.writeVarint(commit.position?.number ?? 0)
    buffer.writeTime(commit.position?.time ?? .none)
    buffer.writeVarint(commit.epoch ?? 0)
    let state = commit.state ?? []
    buffer.writeField(state.span.bytes)
  }
}

/// The fields of lease_partitions.
package struct LeasePartitionsRequest: Sendable {
  package var request: FeedLeases.Request

  package init(_ request: FeedLeases.Request) { self.request = request }

  package init(_ reader: inout FieldReader) throws(WireError) {
    let worker = try reader.text()
    let partitions = try reader.varint32()
    let milliseconds = try reader.varint32()
    let held = try reader.numbers()
    request = FeedLeases.Request(
      worker: worker,
      partitionCount: UInt16(exactly: partitions) ?? 0,
      held: held,
      milliseconds: Int64(milliseconds)
    )
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(request.worker)
    buffer.writeVarint(UInt64(request.partitionCount))
    buffer.writeVarint(UInt64(max(0, request.milliseconds)))
    buffer.writeNumbers(request.held)
  }
}

/// The reply to lease_partitions.
package struct LeasePartitionsReply: Sendable {
  package var workerCount: Int
  package var partitions: [UInt16]

  package init(workerCount: Int, partitions: [UInt16]) {
    self.workerCount = workerCount
    self.partitions = partitions
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    workerCount = Int(try reader.varint32())
    partitions = try reader.numbers()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(workerCount)
    buffer.writeNumbers(partitions)
  }
}

/// The reply to list_consumers: a shard's consumers, and its part of the feed.
package struct ConsumersReply: Sendable {
  package struct Entry: Sendable {
    package var consumer: FeedConsumer
    package var states: [(partition: FeedPartition, bytes: [UInt8])]

    package init(consumer: FeedConsumer, states: [(partition: FeedPartition, bytes: [UInt8])]) {
      self.consumer = consumer
      self.states = states
    }
  }

  /// How long records are kept, in milliseconds; 0: until the size is reached.
  package var retentionMilliseconds: UInt64
  /// Number of the next record.
  package var end: UInt64
  package var entries: [Entry]

  package init(retentionMilliseconds: UInt64, end: UInt64, entries: [Entry]) {
    self.retentionMilliseconds = retentionMilliseconds
    self.end = end
    self.entries = entries
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    retentionMilliseconds = try reader.varint()
    end = try reader.varint()
    entries = []
    for _ in 0..<(try reader.count(elementBytesMin: 10)) {
      let name = try reader.text()
      let consumer = try reader.consumer(name)
      var states: [(FeedPartition, [UInt8])] = []
      for _ in 0..<(try reader.count(elementBytesMin: 3)) {
        let partition = try reader.partition()
        states.append((partition, try reader.byteArray()))
      }
      entries.append(Entry(consumer: consumer, states: states))
    }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(retentionMilliseconds)
    buffer.writeVarint(end)
    buffer.writeVarint(entries.count)
    for entry in entries {
      buffer.writeField(entry.consumer.name)
      buffer.writeConsumer(entry.consumer)
      buffer.writeVarint(entry.states.count)
      for (partition, bytes) in entry.states {
        buffer.writePartition(partition)
        buffer.writeField(bytes.span.bytes)
      }
    }
  }
}

/// The fields of read_feed, after the consumer's name.
package struct ReadFeedRequest: Sendable {
  /// Answer at once, also without a record.
  package static let answersAtOnce: UInt64 = 1

  package var partition: FeedPartition
  /// 0: a read without a lease.
  package var epoch: UInt64
  /// Number of the first record to read.
  package var number: UInt64
  package var flags: UInt64
  /// Maximum number of records.
  package var limit: Int

  package init(_ partition: FeedPartition, epoch: UInt64, number: UInt64, flags: UInt64 = 0, limit: Int) {
    self.partition = partition
    self.epoch = epoch
    self.number = number
    self.flags = flags
    self.limit = limit
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    partition = try reader.partition()
    epoch = try reader.varint()
    number = try reader.varint()
    flags = try reader.varint()
    limit = Int(try reader.varint32())
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writePartition(partition)
    buffer.writeVarint(epoch)
    buffer.writeVarint(number)
    buffer.writeVarint(flags)
    buffer.writeVarint(limit)
  }
}

/// The reply to read_feed, before its records.
package struct ReadFeedReply: Sendable {
  /// Number of the first record that was not read.
  package var number: UInt64
  /// Number of the next record of the shard.
  package var end: UInt64
  /// Everything up to this time is read, if ``number`` is ``end``; else the time of the last record.
  package var through: Timestamp
  /// Time of the first record that is kept, if the requested one is not; none: nothing was skipped.
  package var gapTo: Timestamp

  package init(number: UInt64, end: UInt64, through: Timestamp, gapTo: Timestamp) {
    self.number = number
    self.end = end
    self.through = through
    self.gapTo = gapTo
  }

  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    number = try reader.varint()
    end = try reader.varint()
    through = try reader.time()
    gapTo = try reader.time()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(number)
    buffer.writeVarint(end)
    buffer.writeTime(through)
    buffer.writeTime(gapTo)
  }
}

/// A record of the feed with its names, as a gateway sends it (Proto/frames.md, *record*).
package struct NamedFeedRecord: ~Escapable {
  package let kind: FeedRecordKind
  package let number: UInt64
  package let at: Timestamp
  /// Empty: the record is about no channel.
  package let cid: RawSpan
  package let user: RawSpan
  package let message: RawSpan
  package let sequence: SequenceNumber
  package let thread: RawSpan
  package let first: UInt64
  package let second: UInt64
  package let text: RawSpan
  package let detail: RawSpan
  /// Users of ``FeedRecordKind/reminderDue``; nil for other records.
  package let users: StringListFields?

  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    guard let kind = FeedRecordKind(rawValue: try reader.byte()) else { throw .badValue(.effect) }
    self.kind = kind
    number = try reader.varint()
    at = try reader.time()
    cid = try reader.string()
    user = try reader.string()
    message = try reader.string()
    sequence = try reader.sequence()
    thread = try reader.string()
    first = try reader.varint()
    second = try reader.varint()
    text = try reader.string()
    detail = try reader.string()
    users = kind == .reminderDue ? try StringListFields(&reader) : nil
  }

  /// Size of the shortest record, for ``FieldReader/count(elementBytesMin:)``.
  package static let byteCountMin = 12
}
