import NIOCore
import ReceiptModel
import ReceiptWire

/// What is subscribed to, and events that a test has told.
struct FakeEvents {
  /// What is subscribed to, over all connections.
  var channels: Set<String> = []
  var users: Set<String> = []
  /// What subscriptions with a time ask about, as `cid since`.
  var resumed: [String] = []
  /// What such a subscription is answered, by channel.
  var changes: [String: [EventFields]] = [:]
  /// They are answered that this is too much.
  var isTooMuch = false
  /// Of all shards.
  var through: Int64 = 1_000
  /// Whose rows were announced, as `user cid`, sorted.
  var announced: [String] = []
  /// Channels that users have left, which are listed where that is asked for.
  var left: [String: [String]] = [:]
  /// Channels of users that were deleted, and when, which are listed where that is asked for with a time before.
  var deleted: [String: [(cid: String, at: Int64)]] = [:]
  /// What was deleted before this is not known any more.
  var keepsDeletedSince: Int64 = 0
}

extension FakeModel {
  /// 0x30 to 0x33.
  func events(_ header: FrameHeader, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    switch header.kind {
    case .subscribe:
      let flags = try reader.varint()
      let since = try reader.time()
      var told: [ChannelEventsFields] = []
      for cid in try cids(header, &reader) {
        events.channels.insert(cid)
        guard flags == 1 else { continue }
        events.resumed.append("\(cid) \(since.milliseconds)")
        if let changes = events.changes[cid] { told.append(ChannelEventsFields(cid: cid, changes)) }
      }
      let through = Timestamp(milliseconds: events.through)
      SubscribedFields(
        through: through,
        isComplete: !events.isTooMuch,
        channels: events.isTooMuch ? [] : told
      ).write(into: &fields)
    case .unsubscribe: for cid in try cids(header, &reader) { events.channels.remove(cid) }
    case .subscribeUser:
      let user = try reader.text()
      try check(user, header)
      if try reader.byte() == 1 { events.users.insert(user) } else { events.users.remove(user) }
      fields.writeTime(Timestamp(milliseconds: events.through))
    default:
      let user = try reader.text()
      for cid in try cids(header, &reader) { events.announced.append("\(user) \(cid)") }
      events.announced.sort()
    }
    try reader.end()
  }

  private func check(_ name: String, _ header: FrameHeader) throws {
    let owner = ShardID.owning(Array(name.utf8).span.bytes, count: Int(shardCount))
    guard owner == header.shard else { throw Refused(code: .wrongShard) }
  }

  private func cids(_ header: FrameHeader, _ reader: inout FieldReader) throws -> [String] {
    var cids: [String] = []
    let count = try reader.count()
    guard (1...1_024).contains(count) else { throw Refused(code: .invalidField) }
    for _ in 0..<count {
      let cid = try reader.text()
      try check(cid, header)
      cids.append(cid)
    }
    return cids
  }

  /// Sends an events frame of one shard over every connection.
  func tell(_ shard: ShardID, _ fields: EventsFields) {
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(.events, shard: shard)) { fields.write(into: &$0) }
    broadcast(buffer)
  }

  /// Tells of a channel that somebody has subscribed to.
  func tell(_ cid: String, _ told: [EventFields], through: Int64?) {
    guard events.channels.contains(cid) else { return }
    if let through { events.through = through }
    let shard = ShardID.owning(Array(cid.utf8).span.bytes, count: Int(shardCount))
    let time = Timestamp(milliseconds: events.through)
    tell(shard, EventsFields(through: time, channels: [ChannelEventsFields(cid: cid, told)]))
  }

  /// Every shard has told everything up to here.
  func pass(_ through: Int64) {
    events.through = through
    for shard in 0..<UInt16(shardCount) {
      tell(ShardID(shard), EventsFields(through: Timestamp(milliseconds: through)))
    }
  }

  /// Tells of a user that somebody has subscribed to.
  func tell(user: String, _ told: [UserEventFields]) {
    guard events.users.contains(user) else { return }
    let shard = ShardID.owning(Array(user.utf8).span.bytes, count: Int(shardCount))
    let time = Timestamp(milliseconds: events.through)
    tell(shard, EventsFields(through: time, users: [UserEventsFields(user: user, told)]))
  }
}

extension FakeStore {
  func tell(_ cid: String, _ told: EventFields..., through: Int64? = nil) async throws {
    _ = try await ask { $0.tell(cid, told, through: through) }
  }

  func tell(user: String, _ told: UserEventFields...) async throws {
    _ = try await ask { $0.tell(user: user, told) }
  }

  func pass(_ through: Int64) async throws { _ = try await ask { $0.pass(through) } }
}
