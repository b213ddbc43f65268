import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// Subscribing to events (Proto/frames.md, 0x30 to 0x33).
extension ShardEngine {
  /// Channels of one request.
  private static let channelsMax = 1_024
  /// What has changed is told so far back, in milliseconds: what is gone is kept as long.
  private static let sinceMilliseconds: Int64 = 7 * 86_400_000

  func performEvents(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    var reader = FieldReader(payload)
    switch header.kind {
    case .subscribe: try subscribe(header, &reader, lane)
    case .unsubscribe: try unsubscribe(header, &reader, lane)
    case .subscribeUser: try subscribeUser(header, &reader, lane)
    case .announceRow: try announceRow(header, &reader, lane)
    default: throw .unknownKind(header.kind.rawValue)
    }
  }

  private func subscribe(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let flags = try reader.varint()
    let since = logged(since: try reader.time())
    guard let cids = try channels(header, &reader, lane) else { return }
    guard flags <= 1 else { return refuse(header, .invalidField, "flags: 0 or 1", lane) }
    guard flags == 1 || since == .none else {
      return refuse(header, .invalidField, "since: 0 without flag 1", lane)
    }
    guard flags == 0 || walks.requests < configuration.walkRequestsMax else {
      return refuse(
        header,
        .busy,
        retryAfterMilliseconds: 100,
        "too many requests for what has changed",
        lane
      )
    }
    let watcher = watcher(lane)
    _ = state.advance(clock: loop.clock)
    var added: [[UInt8]] = []
    for cid in cids where !subscriptions.isWatched(cid, by: watcher) {
      guard lane.account.subscriptions < configuration.subscriptionsMax else {
        for cid in added { subscriptions.unwatch(cid, by: watcher) }
        return refuseMore(header, lane)
      }
      let slot = state.slot(of: cid.span.bytes)
      if let number = subscriptions.watch(cid, at: slot, by: watcher, at: state.time), let slot {
        findExpiry(number, slot)
      }
      added.append(cid)
    }
    guard flags == 1 else { return replySubscribed(header, lane, withList: true) }
    let now = state.advance(clock: loop.clock)
    guard since <= now, now.milliseconds - since.milliseconds <= Self.sinceMilliseconds else {
      return answerIncomplete(header, lane)
    }
    begin(
      ChannelWalk(
        purpose: .changes(since: since),
        asker: ChannelWalk.Asker(header: header, lane: lane),
        cids: Deque(cids)
      )
    )
  }

  private func unsubscribe(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    guard let cids = try channels(header, &reader, lane) else { return }
    if lane.watcherNumbers[position] >= 0 {
      let watcher = watcher(lane)
      for cid in cids { subscriptions.unwatch(cid, by: watcher) }
    }
    reply(header, .now, lane) { _ in }
  }

  private func subscribeUser(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let user = try reader.string()
    let on = try reader.byte()
    try reader.end()
    guard Identifier.isUser(user) else { return refuse(header, .invalidField, Self.userRange, lane) }
    guard on <= 1 else { return refuse(header, .invalidField, "on: 0 or 1", lane) }
    guard isHome(user) else {
      return refuse(header, .wrongShard, "another shard is the user's home", lane)
    }
    guard !isRevoked(user) else { return refuse(header, .tokenRevoked, nil, lane) }
    let watcher = watcher(lane)
    let name = user.withUnsafeBytes { Array($0) }
    if on == 0 {
      subscriptions.unwatch(user: name, by: watcher)
    } else if !subscriptions.watchers(ofUser: name).contains(watcher) {
      guard lane.account.subscriptions < configuration.subscriptionsMax else {
        return refuseMore(header, lane)
      }
      subscriptions.watch(user: name, by: watcher)
    }
    replySubscribed(header, lane, withList: false)
  }

  private func announceRow(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) {
    let user = try reader.string()
    guard let cids = try channels(header, &reader, lane) else { return }
    guard Identifier.isUser(user) else { return refuse(header, .invalidField, Self.userRange, lane) }
    let watched = cids.filter { subscriptions.number(of: $0) != nil }
    guard watched.isEmpty || walks.requests < configuration.walkRequestsMax else {
      return refuse(header, .busy, retryAfterMilliseconds: 100, "too many rows are being announced", lane)
    }
    let time = state.advance(clock: loop.clock)
    effects.removeAll(keepingCapacity: true)
    state.decideAnnounced(user: user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }, into: &effects)
    if !effects.isEmpty { carryOut(nil, session: nil) }
    begin(
      ChannelWalk(
        purpose: .row(of: user.withUnsafeBytes { Array($0) }, at: time),
        asker: ChannelWalk.Asker(header: header, lane: lane),
        cids: Deque(watched)
      )
    )
  }

  // MARK: Details

  /// The channels of a request, up to its end; nil where it is refused for one of them.
  private func channels(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ lane: ReplyLane
  ) throws(WireError) -> [[UInt8]]? {
    let count = try reader.count()
    guard (1...Self.channelsMax).contains(count) else {
      refuse(header, .invalidField, "channels: 1 to \(Self.channelsMax)", lane)
      return nil
    }
    var cids: [[UInt8]] = []
    cids.reserveCapacity(count)
    var fault: (code: ErrorCode, detail: String)?
    for _ in 0..<count {
      let cid = try reader.string()
      if !Identifier.isCID(cid) {
        fault = fault ?? (.invalidField, Self.cidRange)
      } else if ShardID.owning(cid, count: shardCount) != state.id {
        fault = fault ?? (.wrongShard, "a cid is of another shard")
      }
      cids.append(cid.withUnsafeBytes { Array($0) })
    }
    try reader.end()
    if let fault {
      refuse(header, fault.code, fault.detail, lane)
      return nil
    }
    return cids
  }

  private func replySubscribed(_ header: FrameHeader, _ lane: ReplyLane, withList: Bool) {
    let (through, departure) = toldThrough()
    reply(header, departure, lane) { buffer in
      buffer.writeTime(through)
      guard withList else { return }
      buffer.writeInteger(UInt8(1))
      buffer.writeVarint(0)
    }
  }

  private func refuseMore(_ header: FrameHeader, _ lane: ReplyLane) {
    refuse(
      header,
      .limitReached,
      "subscriptions of a connection: at most \(configuration.subscriptionsMax) channels and users",
      lane
    )
  }
}
