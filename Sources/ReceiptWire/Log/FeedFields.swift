package import NIOCore
package import ReceiptModel

// The feed's stored records, and its consumers in the log (Proto/frames.md, "The feed").

/// A block of the feed: the records of one batch.
///
/// Layout: format version, base time, count, and the records. A record: kind, channel, thread, member or 0, sequence,
/// milliseconds since the base time, two values and two strings; of `reminder.due`, also the members who fall short.
package struct FeedBlockHeader: Hashable, Sendable {
  package static let formatVersion: UInt8 = 1

  /// Time of the first record.
  package var time: Timestamp
  package var count: Int

  package init(time: Timestamp, count: Int) {
    self.time = time
    self.count = count
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeByte(Self.formatVersion)
    buffer.writeTime(time)
    buffer.writeVarint(count)
  }

  /// Read the header; the reader stands at the first record.
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    guard try reader.byte() == Self.formatVersion else { throw .badValue(.format) }
    time = try reader.time()
    count = try reader.count(elementBytesMin: FeedRecord.byteCountMin)
  }
}

extension FeedRecord {
  /// Size of the shortest record.
  static let byteCountMin = 10
}

extension ByteBuffer {
  /// Write a record of a block that begins with this time.
  package mutating func writeFeedRecord(_ record: FeedRecord, base: Timestamp) {
    writeByte(record.kind.rawValue)
    writeVarint(record.channel.rawValue)
    writeSequence(record.thread)
    writeOptional(record.member.map { UInt64($0) })
    writeSequence(record.sequence)
    writeVarint(UInt64(max(0, record.at.milliseconds - base.milliseconds)))
    writeVarint(record.first)
    writeVarint(record.second)
    writeField(record.text)
    writeField(record.detail)
    guard record.kind == .reminderDue else { return }
    writeVarint(record.members.count)
    for member in record.members { writeVarint(member) }
  }
}

extension FieldReader {
  /// Read what `writeFeedRecord` writes.
  @_lifetime(self: copy self)
  package mutating func feedRecord(base: Timestamp) throws(WireError) -> FeedRecord {
    guard let kind = FeedRecordKind(rawValue: try byte()) else { throw .badValue(.effect) }
    var record = FeedRecord(kind, at: base)
    record.channel = ChannelNumber(try varint())
    record.thread = try sequence()
    record.member = try optional32()
    record.sequence = try sequence()
    let milliseconds = try varint()
    guard milliseconds <= UInt64(Int64.max - base.milliseconds) else { throw .badVarint }
    record.at.milliseconds += Int64(milliseconds)
    record.first = try varint()
    record.second = try varint()
    record.text = try text()
    record.detail = try text()
    guard kind == .reminderDue else { return record }
    let count = try count()
    guard count <= FeedRecord.membersMax else { throw .badValue(.effect) }
    for _ in 0..<count { record.members.append(try varint32()) }
    return record
  }
}

extension FeedConsumerEffect {
  var number: EffectNumber {
    switch self {
    case .assigned: .consumerAssigned
    case .committed: .consumerCommitted
    case .opened: .consumerOpened
    case .stateAssigned: .consumerStateAssigned
    case .workersAssigned: .consumerWorkersAssigned
    case .removed: .consumerRemoved
    case .switched: .feedSwitched
    case .deletionHeld: .deletionHeld
    case .deletionEnded: .deletionEnded
    case .namesLost: .namesLost
    }
  }

  private var name: String {
    switch self {
    case .assigned(let consumer): consumer.name
    case .committed(let name, _, _, _), .opened(let name, _, _), .stateAssigned(let name, _, _),
      .workersAssigned(let name, _), .removed(let name):
      name
    case .switched, .deletionHeld, .deletionEnded, .namesLost: ""
    }
  }

  fileprivate func write(into buffer: inout ByteBuffer) {
    buffer.writeField(name)
    switch self {
    case .assigned(let consumer): buffer.writeConsumer(consumer)
    case .committed(_, let position, let positionTime, let at):
      buffer.writeVarint(position)
      buffer.writeTime(positionTime)
      buffer.writeTime(at)
    case .opened(_, let partition, let epoch):
      buffer.writePartition(partition)
      buffer.writeVarint(epoch)
    case .stateAssigned(_, let partition, let bytes):
      buffer.writePartition(partition)
      buffer.writeField(bytes.span.bytes)
    case .workersAssigned(_, let workers):
      buffer.writeVarint(workers.count)
      for worker in workers {
        buffer.writeField(worker.name)
        buffer.writeVarint(UInt64(worker.partitionCount))
        buffer.writeTime(worker.until)
        buffer.writeNumbers(worker.partitions)
      }
    case .removed: break
    case .switched(let time): buffer.writeTime(time)
    case .deletionHeld(let deletion):
      buffer.writeVarint(deletion.channel.rawValue)
      buffer.writeField(deletion.cid)
      buffer.writeVarint(deletion.namesNeededBefore)
    case .deletionEnded(let channel): buffer.writeVarint(channel.rawValue)
    case .namesLost(let number): buffer.writeVarint(number)
    }
  }
}

extension ByteBuffer {
  mutating func writeConsumerEffect(_ effect: FeedConsumerEffect) { effect.write(into: &self) }

  /// Write a consumer without its name.
  mutating func writeConsumer(_ consumer: FeedConsumer) {
    writeFilters(consumer.kinds, consumer.channelTypes)
    writeTime(consumer.since)
    writeVarint(consumer.position)
    writeTime(consumer.positionTime)
    writeTime(consumer.committedAt)
    writePartition(consumer.partition)
    writeVarint(consumer.epoch)
  }

  mutating func writeFilters(_ kinds: FeedRecordKinds, _ channelTypes: [String]) {
    writeVarint(kinds.rawValue)
    writeStrings(channelTypes)
  }

  mutating func writePartition(_ partition: FeedPartition) {
    writeVarint(UInt64(partition.index))
    writeVarint(UInt64(partition.count))
  }

  mutating func writeNumbers(_ numbers: [UInt16]) {
    writeVarint(numbers.count)
    for number in numbers { writeVarint(UInt64(number)) }
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  mutating func consumerEffect(_ number: EffectNumber) throws(WireError) -> FeedConsumerEffect {
    let name = try text()
    switch number {
    case .consumerAssigned: return .assigned(try consumer(name))
    case .consumerCommitted:
      return .committed(name: name, position: try varint(), positionTime: try time(), at: try time())
    case .consumerOpened: return .opened(name: name, try partition(), epoch: try varint())
    case .consumerStateAssigned:
      let partition = try partition()
      return .stateAssigned(name: name, partition, try byteArray())
    case .consumerWorkersAssigned:
      var workers: [FeedWorker] = []
      for _ in 0..<(try count(elementBytesMin: 4)) {
        let worker = try text()
        let partitionCount = try number16()
        let until = try time()
        workers.append(
          FeedWorker(name: worker, partitionCount: partitionCount, until: until, partitions: try numbers())
        )
      }
      return .workersAssigned(name: name, workers)
    case .feedSwitched: return .switched(offSince: try time())
    case .deletionHeld:
      let channel = ChannelNumber(try varint())
      let cid = try text()
      return .deletionHeld(HeldDeletion(channel: channel, cid: cid, namesNeededBefore: try varint()))
    case .deletionEnded: return .deletionEnded(ChannelNumber(try varint()))
    case .namesLost: return .namesLost(before: try varint())
    default: return .removed(name: name)
    }
  }

  @_lifetime(self: copy self)
  mutating func consumer(_ name: String) throws(WireError) -> FeedConsumer {
    let (kinds, channelTypes) = try filters()
    let since = try time()
    var consumer = FeedConsumer(
      name: name,
      kinds: kinds,
      channelTypes: channelTypes,
      position: try varint(),
      positionTime: try time(),
      committedAt: try time()
    )
    consumer.since = since
    consumer.partition = try partition()
    consumer.epoch = try varint()
    return consumer
  }

  @_lifetime(self: copy self)
  mutating func filters() throws(WireError) -> (FeedRecordKinds, [String]) {
    let kinds = FeedRecordKinds(rawValue: try varint32())
    var channelTypes: [String] = []
    for _ in 0..<(try count()) { channelTypes.append(try text()) }
    return (kinds, channelTypes)
  }

  @_lifetime(self: copy self)
  mutating func partition() throws(WireError) -> FeedPartition {
    let index = try number16()
    return FeedPartition(index: index, count: try number16())
  }

  /// Read a length-prefixed string of any bytes, copied out of the payload.
  @_lifetime(self: copy self)
  mutating func byteArray() throws(WireError) -> [UInt8] {
    let bytes = try string()
    return bytes.withUnsafeBytes { Array($0) }
  }

  @_lifetime(self: copy self)
  mutating func numbers() throws(WireError) -> [UInt16] {
    var numbers: [UInt16] = []
    for _ in 0..<(try count()) { numbers.append(try number16()) }
    return numbers
  }

  @_lifetime(self: copy self)
  private mutating func number16() throws(WireError) -> UInt16 {
    guard let number = UInt16(exactly: try varint()) else { throw .badVarint }
    return number
  }
}
