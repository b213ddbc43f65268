internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Requests that subscribe to events, and announcements of rows.
extension ShardEvents {
  /// Maximum number of channels in one request.
  private static let channelsMax = 1_024
  /// How far back changes are replayed, in milliseconds. Tombstones are kept as long.
  private static let sinceMilliseconds: Int64 = 7 * 86_400_000

  func subscribe(_ request: inout Request) throws(WireError) -> Outcome {
    let fields = try SubscribeRequest(&request.fields)
    let flags = fields.flags
    let since = logged(since: fields.since)
    let cids: [[UInt8]]
    switch channels(fields.channels) {
    case .success(let read): cids = read
    case .failure(let refused): return .refused(refused)
    }
    guard flags <= 1 else { return .refused(.invalidField, "flags: 0 or 1") }
    guard flags == 1 || since == .none else {
      return .refused(.invalidField, "since: 0 without flag 1")
    }
    if flags == 1, let refusal = shard.waiting.refusal(for: .scan(0)) { return refusal }
    let watcher = watcher(request.lane)
    shard.advanceTime()
    var added: [[UInt8]] = []
    for cid in cids where !subscriptions.isWatched(cid, by: watcher) {
      guard request.lane.backlog.subscriptions < shard.configuration.subscriptionsMax else {
        for cid in added { unwatch(cid, by: watcher) }
        return refuseMore(request)
      }
      watch(cid, by: watcher)
      added.append(cid)
    }
    guard flags == 1 else { return replySubscribed(request, withList: true) }
    let now = shard.advanceTime()
    guard since <= now, now.milliseconds - since.milliseconds <= Self.sinceMilliseconds else {
      return shard.scans.replyIncomplete(request.header, request.lane)
    }
    return shard.scans.begin(
      ChannelScan(purpose: .changes(since: since), isRequested: true, cids: Deque(cids)),
      for: request
    )
  }

  func unsubscribe(_ request: inout Request) throws(WireError) -> Outcome {
    let cids: [[UInt8]]
    let list = try StringListFields(&request.fields)
    try request.fields.end()
    switch channels(list) {
    case .success(let read): cids = read
    case .failure(let refused): return .refused(refused)
    }
    if request.lane.watcherNumbers[shard.indexInLoop] != nil {
      let watcher = watcher(request.lane)
      for cid in cids { unwatch(cid, by: watcher) }
    }
    return shard.reply(request, .now) { _ in }
  }

  func subscribeUser(_ request: inout Request) throws(WireError) -> Outcome {
    let user = try request.fields.string()
    let on = try SubscribeUserRequest(&request.fields).on
    guard Identifier.isUser(user) else {
      return .refused(.invalidField, "\(Identifier.userRange)")
    }
    guard on <= 1 else { return .refused(.invalidField, "on: 0 or 1") }
    guard shard.isHome(user) else {
      return .refused(.wrongShard, "another shard is the user's home")
    }
    guard !shard.isRevoked(user, request) else { return shard.refused(.tokenRevoked, nil) }
    let watcher = watcher(request.lane)
    let name = user.withUnsafeBytes { Array($0) }
    if on == 0 {
      unwatch(user: name, by: watcher)
    } else if !subscriptions.watchers(ofUser: name).contains(watcher) {
      guard request.lane.backlog.subscriptions < shard.configuration.subscriptionsMax else {
        return refuseMore(request)
      }
      watch(user: name, by: watcher)
    }
    return replySubscribed(request, withList: false)
  }

  func announceRow(_ request: inout Request) throws(WireError) -> Outcome {
    let user = try request.fields.string()
    let cids: [[UInt8]]
    let list = try StringListFields(&request.fields)
    try request.fields.end()
    switch channels(list) {
    case .success(let read): cids = read
    case .failure(let refused): return .refused(refused)
    }
    guard Identifier.isUser(user) else {
      return .refused(.invalidField, "\(Identifier.userRange)")
    }
    // The feed tells the rows of all channels.
    let watched = shard.feed.isOn ? cids : cids.filter { subscriptions.number(of: $0) != nil }
    if !watched.isEmpty, let refusal = shard.waiting.refusal(for: .scan(0)) { return refusal }
    let time = shard.advanceTime()
    var effects: [Effect] = []
    shard.state.settings.decideAnnounced(ShardEngine.text(user), at: time, into: &effects)
    if !effects.isEmpty { shard.applyEffects(effects, to: nil) }
    guard !watched.isEmpty else {
      let outcome = shard.reply(request, shard.replyTiming(shard.dirty.usersLast)) { _ in }
      sendUnbatchedEvents()
      return outcome
    }
    let purpose = ChannelScan.Purpose.row(of: user.withUnsafeBytes { Array($0) }, at: time)
    return shard.scans.begin(ChannelScan(purpose: purpose, isRequested: true, cids: Deque(watched)), for: request)
  }

  // MARK: Details

  /// Return the channels of a request.
  private func channels(_ list: borrowing StringListFields) -> Result<[[UInt8]], RefusedRequest> {
    guard (1...Self.channelsMax).contains(list.count) else {
      return .failure(RefusedRequest(.invalidField, "channels: 1 to \(Self.channelsMax)"))
    }
    var cids: [[UInt8]] = []
    cids.reserveCapacity(list.count)
    var fault: (code: ErrorCode, detail: String)?
    list.forEach { cid in
      if !Identifier.isCID(cid) {
        fault = fault ?? (.invalidField, "\(Identifier.cidRange)")
      } else if ShardID.owning(cid, count: shard.shardCount) != shard.state.id {
        fault = fault ?? (.wrongShard, "a cid belongs to another shard")
      }
      cids.append(cid.withUnsafeBytes { Array($0) })
    }
    if let fault { return .failure(RefusedRequest(fault.code, fault.detail)) }
    return .success(cids)
  }

  private func replySubscribed(_ request: borrowing Request, withList: Bool) -> Outcome {
    let (through, replyTiming) = progressForReply()
    return shard.reply(request, replyTiming) { buffer in
      guard withList else { return buffer.writeTime(through) }
      SubscribedFields(through: through).write(into: &buffer)
    }
  }

  private func refuseMore(_ request: borrowing Request) -> Outcome {
    return .refused(
      .limitReached,
      "subscriptions of a connection: at most \(shard.configuration.subscriptionsMax) channels and users"
    )
  }
}
