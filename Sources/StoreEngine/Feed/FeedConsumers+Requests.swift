internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Requests about the feed's consumers (Proto/frames.md, 0x3C and 0x47 to 0x4B).
final class FeedConsumers: ShardPart {
  private var feed: ShardFeed { shard.feed }

  func putConsumer(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.text()
    try shard.begin(&request)
    let fields = try PutConsumerRequest(&request.fields)
    guard feed.isOn else { return ShardFeed.refusedOff }
    if let fault = Self.fault(name: name) ?? Self.fault(fields) { return .refused(fault) }
    let time = shard.advanceTime()
    var consumer = FeedConsumer(
      name: name,
      kinds: fields.kinds,
      channelTypes: fields.channelTypes,
      position: fields.start == .now ? feed.end : feed.first,
      positionTime: time,
      committedAt: time
    )
    if fields.start == .time { consumer.since = fields.since }
    var isNew = false
    do throws(FeedConsumerTable.Refusal) {
      isNew = try shard.state.consumers.decidePut(consumer, into: &request.effects)
    } catch {
      return refused(error)
    }
    // A duplicate has applied the original, whose answer was lost.
    shard.applyCommand(nil, request)
    return reply(request) { $0.writeFlag(isNew || request.isDuplicate) }
  }

  func removeConsumer(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.text()
    try shard.begin(&request)
    try request.fields.end()
    guard feed.isOn else { return ShardFeed.refusedOff }
    shard.state.consumers.decideRemove(name, into: &request.effects)
    shard.applyCommand(nil, request)
    feed.answerReaders()
    return reply(request) { _ in }
  }

  func openPartition(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.text()
    try shard.begin(&request)
    let fields = try OpenPartitionRequest(&request.fields)
    guard feed.isOn else { return ShardFeed.refusedOff }
    if let fault = fault(fields.partition) { return .refused(fault) }
    // There is always a higher one for the next stream.
    guard fields.epoch <= UInt64(Int64.max) else { return .refused(.invalidField, "epoch: at most 2^63 - 1") }
    let partition = fields.partition
    do throws(FeedConsumerTable.Refusal) {
      if !request.isDuplicate {
        _ = try shard.state.consumers.decideOpen(name, partition, epoch: fields.epoch, into: &request.effects)
      }
    } catch {
      return refused(error)
    }
    shard.applyCommand(nil, request)
    guard let consumer = shard.state.consumers[name] else { return refused(.notFound) }
    // Older streams end now.
    feed.answerReaders()
    let state = shard.state.consumers.state(of: name, partition)
    let answer = OpenPartitionReply(position: consumer.position, positionTime: consumer.positionTime, state: state)
    return reply(request) { answer.write(into: &$0) }
  }

  func commitConsumer(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.text()
    try shard.begin(&request)
    let fields = try CommitConsumerRequest(&request.fields)
    guard feed.isOn else { return ShardFeed.refusedOff }
    if let fault = fault(fields.partition) { return .refused(fault) }
    if let position = fields.commit.position, position.number > feed.durableEnd {
      return .refused(.invalidField, "cursor: is ahead of the feed")
    }
    if let state = fields.commit.state, state.count > FeedConsumerTable.stateBytesMax {
      return .refused(.invalidField, "state: at most \(FeedConsumerTable.stateBytesMax) bytes")
    }
    let time = shard.advanceTime()
    do throws(FeedConsumerTable.Refusal) {
      try shard.state.consumers.decideCommit(name, fields.partition, fields.commit, at: time, into: &request.effects)
    } catch {
      return refused(error)
    }
    shard.applyCommand(nil, request)
    return reply(request) { _ in }
  }

  func leasePartitions(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.string()
    let text = ShardEngine.text(name)
    guard shard.isHome(name) else { return .refused(.wrongShard, "the consumer's leases are kept by another shard") }
    try shard.begin(&request)
    let lease = try LeasePartitionsRequest(&request.fields).request
    guard feed.isOn else { return ShardFeed.refusedOff }
    if let fault = fault(lease) { return .refused(fault) }
    let time = shard.advanceTime()
    var answer: (partitions: [UInt16], workerCount: Int) = ([], 0)
    do throws(FeedConsumerTable.Refusal) {
      answer = try shard.state.consumers.decideLease(text, lease, at: time, into: &request.effects)
    } catch {
      return refused(error)
    }
    guard !request.isDuplicate else { return .unknownOutcome }
    shard.applyCommand(nil, request)
    let list = LeasePartitionsReply(workerCount: answer.workerCount, partitions: answer.partitions)
    return reply(request) { list.write(into: &$0) }
  }

  func listConsumers(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.text()
    try request.fields.end()
    guard let retention = shard.configuration.feedRetention else { return ShardFeed.refusedOff }
    let consumers = shard.state.consumers.all.filter { name.isEmpty || $0.name == name }
    let list = ConsumersReply(
      retentionMilliseconds: UInt64(max(0, retention.milliseconds)),
      end: feed.durableEnd,
      entries: consumers.map {
        // States are for the one who asks for a single consumer.
        ConsumersReply.Entry(consumer: $0, states: name.isEmpty ? [] : shard.state.consumers.states(of: $0.name))
      }
    )
    return shard.reply(request, shard.replyTiming(shard.dirty.consumersLast)) { list.write(into: &$0) }
  }

  // MARK: Checks and replies

  private func reply(_ request: borrowing Request, _ fields: (inout ByteBuffer) -> Void) -> Outcome {
    shard.reply(request, shard.replyTiming(shard.dirty.consumersLast), fields)
  }

  func refused(_ refusal: FeedConsumerTable.Refusal) -> Outcome {
    let timing = shard.replyTiming(shard.dirty.consumersLast)
    return switch refusal {
    case .notFound: .refused(.consumerNotFound, "", timing)
    case .conflict: .refused(.consumerConflict, "", timing)
    case .limitReached:
      .refused(
        .limitReached,
        "at most \(FeedConsumerTable.countMax) consumers, with \(FeedLeases.workersMax) workers each",
        timing
      )
    case .leaseLost(let epoch): .refused(.leaseLost, "\(epoch)", timing)
    }
  }

  /// Maximum length of the name of a consumer or worker, in bytes.
  private static let nameBytesMax = 64

  private static func fault(name: String) -> (ErrorCode, String)? {
    isName(name) ? nil : (.invalidField, "name: \(nameRange)")
  }

  private static var nameRange: String {
    "1 to \(nameBytesMax) characters of a-z, A-Z, 0-9, \"_\", \"-\" and \".\""
  }

  private static func isName(_ name: String) -> Bool {
    (1...nameBytesMax).contains(name.utf8.count) && name != "." && name != ".."
      && name.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"), UInt8(ascii: "."):
          true
        default: false
        }
      }
  }

  private static func fault(_ fields: PutConsumerRequest) -> (ErrorCode, String)? {
    guard fields.kinds.rawValue & ~FeedRecordKinds.known == 0 else { return (.invalidField, "types: an unknown type") }
    let most = FeedConsumerTable.channelTypesMax
    guard fields.channelTypes.count <= most else { return (.invalidField, "channel_types: at most \(most)") }
    for type in fields.channelTypes where !Self.isType(type) {
      return (.invalidField, "channel_types: not the name of a channel type")
    }
    return nil
  }

  private static func isType(_ type: String) -> Bool {
    var type = type
    return type.withUTF8 { Identifier.isType($0.span.bytes) }
  }

  private func fault(_ partition: FeedPartition) -> (ErrorCode, String)? {
    guard partition.isValid(shardCount: shard.shardCount) else {
      return (.invalidField, "partition: i/n, where i is below n, and n at most \(shard.shardCount)")
    }
    guard partition.contains(shard.state.id) else { return (.wrongShard, "the partition does not have this shard") }
    return nil
  }

  private func fault(_ lease: FeedLeases.Request) -> (ErrorCode, String)? {
    guard Self.isName(lease.worker) else {
      return (.invalidField, "worker: \(Self.nameRange)")
    }
    guard (1...shard.shardCount).contains(Int(lease.partitionCount)) else {
      return (.invalidField, "partitions: 1 to \(shard.shardCount), the number of shards")
    }
    guard lease.held.count <= Int(lease.partitionCount) else { return (.invalidField, "held: more than there are") }
    guard lease.milliseconds <= FeedLeases.millisecondsMax else {
      return (.invalidField, "ttl_seconds: at most \(FeedLeases.millisecondsMax / 1_000)")
    }
    return nil
  }
}
