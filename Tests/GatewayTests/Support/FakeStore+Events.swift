import NIOCore
import ReceiptModel
import ReceiptWire

/// Subscriptions, and the events that tests publish.
struct FakeEvents {
  /// Subscribed channels and users, over all connections.
  var channels: Set<String> = []
  var users: Set<String> = []
  /// Subscriptions with a resume time, as `cid since`.
  var resumed: [String] = []
  /// The events that such a subscription replays, by channel.
  var changes: [String: [EventFields]] = [:]
  /// Such a subscription is answered as incomplete.
  var replayIsIncomplete = false
  /// The time up to which every shard has sent its events.
  var through: Int64 = 1_000
  /// Announced rows, as `user cid`, sorted.
  var announced: [String] = []
  /// Channels that users have left, for lists that request them.
  var left: [String: [String]] = [:]
  /// Deleted channels of users with their times, for lists since an earlier time.
  var deleted: [String: [(cid: String, at: Int64)]] = [:]
  /// Deletions before this time are no longer known.
  var keepsDeletedSince: Int64 = 0
}

extension FakeModel {
  /// Frames 0x30 to 0x33.
  func events(_ header: FrameHeader, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    switch header.kind {
    case .subscribe:
      let flags = try reader.varint()
      let since = try reader.time()
      var replayed: [ChannelEventsFields] = []
      for cid in try cids(header, &reader) {
        events.channels.insert(cid)
        guard flags == 1 else { continue }
        events.resumed.append("\(cid) \(since.milliseconds)")
        if let changes = events.changes[cid] { replayed.append(ChannelEventsFields(cid: cid, changes)) }
      }
      let through = Timestamp(milliseconds: events.through)
      SubscribedFields(
        through: through,
        isComplete: !events.replayIsIncomplete,
        channels: events.replayIsIncomplete ? [] : replayed
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

  /// Send an events frame of one shard over every connection.
  func sendEvents(_ shard: ShardID, _ fields: EventsFields) {
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(.events, shard: shard)) { fields.write(into: &$0) }
    broadcast(buffer)
  }

  /// Publish events of a channel, if it is subscribed to.
  func publish(_ cid: String, _ published: [EventFields], through: Int64?) {
    guard events.channels.contains(cid) else { return }
    if let through { events.through = through }
    let shard = ShardID.owning(Array(cid.utf8).span.bytes, count: Int(shardCount))
    let time = Timestamp(milliseconds: events.through)
    sendEvents(shard, EventsFields(through: time, channels: [ChannelEventsFields(cid: cid, published)]))
  }

  /// Every shard reports that all its events up to `through` have been sent.
  func advance(through: Int64) {
    events.through = through
    for shard in 0..<UInt16(shardCount) {
      sendEvents(ShardID(shard), EventsFields(through: Timestamp(milliseconds: through)))
    }
  }

  /// Publish events of a user, if it is subscribed to.
  func publish(user: String, _ published: [UserEventFields]) {
    guard events.users.contains(user) else { return }
    let shard = ShardID.owning(Array(user.utf8).span.bytes, count: Int(shardCount))
    let time = Timestamp(milliseconds: events.through)
    sendEvents(shard, EventsFields(through: time, users: [UserEventsFields(user: user, published)]))
  }
}

extension FakeStore {
  func publish(_ cid: String, _ published: EventFields..., through: Int64? = nil) async throws {
    _ = try await withModel { $0.publish(cid, published, through: through) }
  }

  func publish(user: String, _ published: UserEventFields...) async throws {
    _ = try await withModel { $0.publish(user: user, published) }
  }

  func advance(through: Int64) async throws { _ = try await withModel { $0.advance(through: through) } }
}
