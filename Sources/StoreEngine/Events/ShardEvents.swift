import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// Event progress of a shard: the times up to which its watchers have received all events (Proto/frames.md, "Events").
struct EventProgress {
  /// All events up to this time are in frames that have left.
  private(set) var durable = Timestamp.none
  /// The same, including frames that leave with the closed batches.
  private(set) var closed = Timestamp.none

  init(_ time: Timestamp) {
    durable = time
    closed = time
  }

  /// Records that a frame declares all events up to `time` sent. A frame never declares less than an earlier one: a
  /// client that resumes from a declared time receives everything from that time on, inclusive.
  mutating func declare(through time: Timestamp, _ replyTiming: ReplyLane.Timing) {
    closed = max(closed, time)
    if case .now = replyTiming { durable = closed }
  }

  mutating func committed() { durable = closed }
}

/// Events of watched channels and users: recorded while effects are applied, sent when the batch is closed.
final class ShardEvents: ShardPart {
  private var subscriptions = Subscriptions()
  private var eventProgress = EventProgress(.none)
  /// Encoded events of the current delivery; kept for its capacity.
  private var eventParts = EventParts()

  /// Target size of an event frame, in bytes; more events go into another frame.
  private static let frameBytes = 256 << 10
  /// How far an idle shard's declared progress may run ahead of the logged time, in milliseconds. The shard logs its
  /// time when the distance reaches half of this.
  private static let unloggedMilliseconds: Int64 = 10_000
  /// How often a connection without events receives the progress, in milliseconds. Ticks come ten times a second.
  private static let throughMilliseconds: Int64 = 900

  func recovered(at time: Timestamp) { eventProgress = EventProgress(time) }

  func committed() { eventProgress.committed() }

  // MARK: Watched channels

  /// Whether nothing is watched, so that look-ups can be skipped.
  @inline(__always)
  var isUnwatched: Bool { subscriptions.isEmpty }

  /// Number of watched channels and users, counted once per watcher.
  var subscriptionCount: Int { subscriptions.count }

  /// Number of places for watched channels, and the cid of the channel in one of them; nil if the place is free.
  var channelCount: Int { subscriptions.channels.count }
  func watchedChannel(_ number: Int) -> [UInt8]? { subscriptions.channels[number]?.cid }

  /// Number of events of a channel since it has been watched.
  func changes(in cid: [UInt8]) -> UInt32 {
    subscriptions.number(of: cid).flatMap { subscriptions.channels[Int($0)]?.changes } ?? 0
  }

  /// Records the slot of a channel that was loaded.
  ///
  /// - Returns: whether the channel is watched.
  func entered(_ cid: [UInt8], _ slot: ChannelSlot) -> Bool { subscriptions.entered(cid, slot) }

  /// Clears the slot of a channel that has left memory.
  func left(_ slot: ChannelSlot) { subscriptions.left(slot) }

  /// Whether the channel has unsent events; it must stay in memory until they are sent.
  func hasUnsentEvents(_ slot: ChannelSlot) -> Bool { subscriptions.hasUnsentEvents(slot) }

  // MARK: Recording

  /// Records the events of an effect, before the effect is assigned.
  ///
  /// - Parameter slot: slot of the effect's channel; nil for an effect on the shard itself, or one that creates a
  ///   channel.
  func record(_ effect: Effect, _ slot: ChannelSlot?) {
    switch effect {
    case .channel(_, let effect): if let slot { recordChannelEvent(effect, slot) }
    case .shard(let effect): recordShardEvent(effect)
    }
  }

  private func recordChannelEvent(_ effect: ChannelEffect, _ slot: ChannelSlot) {
    if let number = subscriptions.number(in: slot) {
      let place = subscriptions.place(number)
      shard.state.record(effect, in: slot, at: shard.state.time, &subscriptions.unsent[place].pending)
      if case .messageAssigned(_, let record) = effect, record.receiptExpiresAt != .none {
        subscriptions.expiresToo(number, at: record.receiptExpiresAt)
      }
    } else if subscriptions.watchesUsers, shard.state[slot].isIndex {
      recordMembershipEvent(effect, slot)
    }
  }

  private func recordShardEvent(_ effect: ShardEffect) {
    switch effect {
    case .channelTypeAssigned(let record):
      if shard.state.channelType(record.name).options != record.options {
        shard.walks.announceOptions(ofType: record.name)
      }
    case .userAssigned(_, let settings):
      if settings.tokensRevokedBefore > shard.state.userSettings(settings.user).tokensRevokedBefore {
        recordUserEvent(settings.user, .tokensRevoked(before: settings.tokensRevokedBefore))
      }
    case .userErased(let number, _, _, let time):
      guard Int(number) < shard.state.settings.count, !shard.state.settings.isNameless(number) else { return }
      recordUserEvent(shard.state.settings[number].user, .tokensRevoked(before: time))
    default: break
    }
  }

  /// Records an event of a user. Users are watched in their home shards only, while settings are in all shards.
  private func recordUserEvent(_ user: String, _ event: UserEvent) {
    guard subscriptions.watchesUsers else { return }
    subscriptions.record(user: Array(user.utf8), event)
  }

  /// Records a membership change in a user's index. An entry that a rebuild confirms unchanged is no event.
  private func recordMembershipEvent(_ effect: ChannelEffect, _ slot: ChannelSlot) {
    switch effect {
    case .membershipAssigned(let place, var membership):
      let known = shard.state[slot].memberships[place]
      if membership.isGone {
        recordMembershipRemoval(known, slot)
        return
      }
      membership.epoch = known?.epoch ?? 0
      membership.deletedAt = known?.deletedAt ?? .none
      guard known != membership else { return }
      subscriptions.record(
        user: IndexName.user(shard.state[slot].cid),
        .membership(membership, at: shard.state.time, isGone: false)
      )
    case .membershipRemoved(let place): recordMembershipRemoval(shard.state[slot].memberships[place], slot)
    default: break
    }
  }

  /// Records that a channel no longer lists the user. A tombstone that is dropped was reported earlier, when it was
  /// made.
  private func recordMembershipRemoval(_ known: Membership?, _ slot: ChannelSlot) {
    guard let known, !known.isGone else { return }
    subscriptions.record(
      user: IndexName.user(shard.state[slot].cid),
      .membership(known, at: shard.state.time, isGone: true)
    )
  }

  /// Records that the gathering batch creates a channel.
  func recordCreation(_ slot: ChannelSlot) {
    guard subscriptions.entered(shard.state[slot].cid, slot), let number = subscriptions.number(in: slot)
    else {
      return
    }
    let place = subscriptions.place(number)
    shard.state.recordOptionsChange(in: slot, at: shard.state.time, &subscriptions.unsent[place].pending)
  }

  /// Records that the options of a watched channel's type changed at `changedAt`.
  func recordOptionsChange(in slot: ChannelSlot, since changedAt: Timestamp) {
    guard let number = subscriptions.number(in: slot) else { return }
    _ = shard.state.advance(clock: shard.loop.clock)
    let place = subscriptions.place(number)
    shard.state.recordOptionsChange(in: slot, at: shard.state.time, &subscriptions.unsent[place].pending)
    subscriptions.unsent[place].pending.extendPendingPeriod(since: changedAt)
  }

  /// Records that a user's privacy settings changed at `changedAt`.
  ///
  /// - Returns: whether the channel is watched.
  func recordSettingsChange(of user: [UInt8], in slot: ChannelSlot, since changedAt: Timestamp) -> Bool {
    guard let number = subscriptions.number(in: slot) else { return false }
    _ = shard.state.advance(clock: shard.loop.clock)
    let place = subscriptions.place(number)
    shard.state.recordSettingsChange(
      of: user.span.bytes,
      in: slot,
      at: shard.state.time,
      &subscriptions.unsent[place].pending
    )
    subscriptions.unsent[place].pending.extendPendingPeriod(since: changedAt)
    return true
  }

  /// Records that the gathering batch deletes a channel, or begins its deletion. Its other events are dropped from here
  /// on.
  func recordDeletion(_ slot: ChannelSlot) {
    guard let number = subscriptions.number(in: slot) else { return }
    let place = subscriptions.place(number)
    subscriptions.unsent[place].deletedAt = shard.state.time
    subscriptions.unsent[place].pending = PendingChannelEvents()
    subscriptions.expires(number, at: .none)
    subscriptions.left(slot)
  }

  // MARK: Receipts that expire

  /// Schedules the next expiry of a watched channel that was loaded.
  func findExpiry(_ slot: ChannelSlot) {
    guard let number = subscriptions.number(in: slot) else { return }
    let after = subscriptions.channels[Int(number)]?.expiredThrough ?? .none
    subscriptions.expires(number, at: shard.state.nextExpiry(in: slot, after: after))
  }

  /// Reports receipts in watched channels that have expired. Loads channels that were evicted since they were last
  /// checked.
  func reportExpiries() {
    let first = subscriptions.nextExpiry
    guard first != .none, first <= shard.state.advance(clock: shard.loop.clock) else { return }
    let cids = subscriptions.takeExpiring(through: shard.state.time)
    shard.walks.begin(ChannelScan(purpose: .expiries(since: first), isRequested: false, cids: Deque(cids)))
  }

  /// Records expired receipts of a watched channel. The events leave with a batch of this time or later, so a restart
  /// with an earlier clock cannot take the expiry back (R20).
  func recordExpiries(_ slot: ChannelSlot) {
    guard let number = subscriptions.number(in: slot) else { return }
    let now = shard.state.advance(clock: shard.loop.clock)
    let place = subscriptions.place(number)
    let after = subscriptions.channels[Int(number)]?.expiredThrough ?? .none
    let hasExpiries = shard.state.recordExpiries(
      in: slot,
      after: after,
      through: now,
      &subscriptions.unsent[place].pending
    )
    subscriptions.expired(number, through: now, next: shard.state.nextExpiry(in: slot, after: now))
    guard hasExpiries, !shard.log.isGathering else { return }
    shard.logTimeNow()
  }

  // MARK: Sending

  /// Sends the recorded events to all watchers. The frames leave when everything that they reveal is durable.
  ///
  /// - Parameter replyTiming: with the batch that is being closed; if nothing gathers, with the closed batches, or at
  ///   once.
  func sendEvents(_ replyTiming: ReplyLane.Timing) {
    guard !subscriptions.isEmpty else { return eventProgress.declare(through: shard.state.time, replyTiming) }
    eventParts.clear()
    let oldest = encodeChannelEvents()
    for item in subscriptions.takeUnsentUsers() {
      let parts = eventParts.add(user: item.user, item.events)
      for watcher in subscriptions.watchers(ofUser: item.user) {
        subscriptions.update(Int(watcher)) { $0.users += parts }
      }
    }
    let logged =
      switch replyTiming {
      case .now: shard.log.durableTime
      case .afterCurrentCommit: shard.log.closedTime
      case .afterNextCommit: shard.state.time
      }
    eventProgress.declare(through: completeTime(oldestKept: oldest, logged: logged), replyTiming)
    for watcher in subscriptions.watchers.indices { sendEvents(watcher, replyTiming) }
  }

  /// Encodes the recorded channel events that may be sent now, once for all watchers.
  ///
  /// - Returns: the time of the oldest event that is kept for later; none if none is kept.
  private func encodeChannelEvents() -> Timestamp {
    var oldest = Timestamp.none
    for var item in subscriptions.takeUnsent() {
      guard let channel = subscriptions.channels[Int(item.channel)] else { continue }
      if recordWaiting(item, channel) {
        oldest = oldest == .none ? item.pending.oldest : min(oldest, item.pending.oldest)
        if let happened = item.pending.takeImmediateEvents() { sendEvents(happened, deletedAt: .none, channel) }
        subscriptions.keep(item)
      } else {
        sendEvents(item.pending, deletedAt: item.deletedAt, channel)
        subscriptions.recordSent(item.channel, elapsed: shard.loop.elapsedMilliseconds)
      }
    }
    return oldest
  }

  private func sendEvents(
    _ pending: PendingChannelEvents,
    deletedAt: Timestamp,
    _ channel: Subscriptions.Channel
  ) {
    var events: [ChannelEvent] = []
    if let slot = channel.slot {
      shard.state.refresh(slot)
      events = shard.state.events(pending, in: slot)
    }
    let parts = eventParts.add(channel.cid, deletedAt: deletedAt, events, channel.slot, in: &shard.state)
    guard !parts.isEmpty else { return }
    for watcher in channel.watchers { subscriptions.update(Int(watcher)) { $0.channels += parts } }
  }

  /// Whether the channel is large enough for batched rows and statuses, and its last batch is younger than the
  /// interval.
  private func recordWaiting(_ item: Subscriptions.UnsentChannelEvents, _ channel: Subscriptions.Channel)
    -> Bool
  {
    guard let slot = channel.slot, item.deletedAt == .none, !item.pending.isEmpty,
      shard.state[slot].rows.activeCount > shard.configuration.eventIntervalMembers
    else { return false }
    return shard.loop.elapsedMilliseconds - channel.sentAt < shard.configuration.eventIntervalMilliseconds
  }

  /// The time up to which all events are sent: the shard's time, limited by pending events.
  ///
  /// - Parameters:
  ///   - oldest: time of the oldest event that is recorded but not sent; none if there is none.
  ///   - logged: time of the last batch that leaves no later than this frame.
  private func completeTime(oldestKept oldest: Timestamp, logged: Timestamp) -> Timestamp {
    var time = min(
      shard.state.time,
      Timestamp(milliseconds: logged.milliseconds + Self.unloggedMilliseconds)
    )
    for before in [oldest, shard.walks.oldest, subscriptions.nextExpiry] where before != .none {
      time = min(time, Timestamp(milliseconds: before.milliseconds - 1))
    }
    return time
  }

  /// Writes one connection's events, in as many frames as needed. Only the last frame carries the new progress.
  private func sendEvents(_ number: Int, _ replyTiming: ReplyLane.Timing) {
    guard var watcher = subscriptions.watchers[number] else { return }
    let hasEvents = !watcher.channels.isEmpty || !watcher.users.isEmpty
    let isDue = shard.loop.elapsedMilliseconds - watcher.sentAt >= Self.throughMilliseconds
    guard hasEvents || watcher.count > 0 && (isDue || watcher.isLost) else { return }
    let (channels, users) = (watcher.channels, watcher.users)
    watcher.channels.removeAll(keepingCapacity: true)
    watcher.users.removeAll(keepingCapacity: true)
    let all = channels + users
    let byteCount = all.reduce(0) { $0 + $1.bytes.count }
    let eventCount = UInt64(all.reduce(0) { $0 + $1.events })
    if watcher.lane.isClosed {
      // The connection is gone; its subscriptions are about to be removed.
    } else if watcher.lane.unwrittenBytes + byteCount > shard.configuration.unwrittenBytesMax {
      watcher.isLost = true
      shard.loop.counters.eventsDropped += eventCount
    } else {
      var start = 0
      repeat {
        var end = start
        var bytes = 0
        while end < all.count, bytes < Self.frameBytes {
          bytes += all[end].bytes.count
          end += 1
        }
        if end == all.count { watcher.through = eventProgress.closed }
        let channelEnd = min(end, channels.count)
        write(
          EventFrame(
            through: watcher.through,
            isLost: watcher.isLost,
            channels: all[min(start, channelEnd)..<channelEnd],
            users: all[max(start, channelEnd)..<end]
          ),
          watcher.lane,
          replyTiming
        )
        watcher.isLost = false
        start = end
      } while start < all.count
      watcher.sentAt = shard.loop.elapsedMilliseconds
      shard.loop.counters.eventsSent += eventCount
    }
    subscriptions.update(number) { $0 = watcher }
  }

  private struct EventFrame {
    var through: Timestamp
    var isLost: Bool
    var channels: ArraySlice<Subscriptions.Part>
    var users: ArraySlice<Subscriptions.Part>
  }

  private func write(_ frame: EventFrame, _ lane: ReplyLane, _ replyTiming: ReplyLane.Timing) {
    let isFirst = lane.addUnsolicited(replyTiming) { buffer in
      let start = buffer.beginFrame(FrameHeader(.events, shard: shard.state.id))
      buffer.writeTime(frame.through)
      buffer.writeInteger(UInt8(frame.isLost ? 1 : 0))
      buffer.writeVarint(frame.channels.count)
      eventParts.write(frame.channels, into: &buffer)
      buffer.writeVarint(frame.users.count)
      eventParts.write(frame.users, into: &buffer)
      buffer.endFrame(start)
      shard.loop.counters.eventBytes += UInt64(buffer.writerIndex - start)
    }
    if isFirst { shard.loop.replies.record(lane, replyTiming) }
  }

  /// Sends events that were recorded without an effect, or were delayed. If a batch gathers, they leave with it
  /// instead.
  func sendUnbatchedEvents() {
    guard !subscriptions.isEmpty, !shard.log.isGathering else { return }
    _ = shard.state.advance(clock: shard.loop.clock)
    sendEvents(shard.log.closed > shard.log.durable ? .afterCurrentCommit : .now)
  }

  /// The progress that an answer may declare, and the answer's earliest timing.
  ///
  /// The log of an idle shard without watchers may have ended long ago, and an answer may be only a little ahead of the
  /// log. So the shard logs its time now and the answer leaves with that batch. An immediate answer would hold back the
  /// event ids of all the gateway's streams that far.
  func progressForReply() -> (time: Timestamp, replyTiming: ReplyLane.Timing) {
    let now = shard.state.advance(clock: shard.loop.clock)
    if !shard.log.isGathering, shard.log.closed == shard.log.durable {
      let isBehind = isBehind(shard.log.durableTime, now)
      let time = completeTime(oldestKept: oldestUnsent, logged: isBehind ? now : shard.log.durableTime)
      if isBehind {
        shard.logTimeNow()
        return (max(time, eventProgress.closed), .afterNextCommit)
      }
      eventProgress.declare(through: time, .now)
    } else if isBehind(eventProgress.durable, now) {
      // While a batch is pending, declare the progress that holds once it has left.
      guard shard.log.isGathering else { return (eventProgress.closed, .afterCurrentCommit) }
      let oldest = oldestUnsent
      let time = completeTime(
        oldestKept: oldest == .none ? shard.log.gatheringTime : min(oldest, shard.log.gatheringTime),
        logged: shard.log.gatheringTime
      )
      return (max(time, eventProgress.closed), .afterNextCommit)
    }
    return (eventProgress.durable, .now)
  }

  /// Time of the oldest recorded channel event that is not sent; none if there is none.
  private var oldestUnsent: Timestamp {
    var oldest = Timestamp.none
    for item in subscriptions.unsent where !item.pending.isEmpty {
      oldest = oldest == .none ? item.pending.oldest : min(oldest, item.pending.oldest)
    }
    return oldest
  }

  private func isBehind(_ time: Timestamp, _ now: Timestamp) -> Bool {
    now.milliseconds - time.milliseconds >= Self.unloggedMilliseconds / 2
  }

  /// Logs the time of an idle shard with watchers, from time to time.
  func logTime() {
    guard !subscriptions.isEmpty, !shard.log.isGathering, shard.log.closed == shard.log.durable,
      isBehind(shard.log.durableTime, shard.state.advance(clock: shard.loop.clock))
    else { return }
    shard.logTimeNow()
  }

  /// The effective resume time for a client that has seen everything up to `since`. A time just after the end of the
  /// log at the start may have been declared without being logged. If the clock was put back since, later events may
  /// carry an equal or earlier time. The replay then begins at the end of the log (R20).
  func logged(since: Timestamp) -> Timestamp {
    let isUnlogged =
      shard.log.startTime != .none && since > shard.log.startTime
      && since.milliseconds - shard.log.startTime.milliseconds <= Self.unloggedMilliseconds
    return isUnlogged ? shard.log.startTime : since
  }

  // MARK: Connections

  /// Returns a connection's watcher number in this shard; registers the connection if needed.
  func watcher(_ lane: ReplyLane) -> Int32 {
    let known = lane.watcherNumbers[shard.position]
    if known >= 0 { return known }
    let number = subscriptions.add(
      lane,
      through: eventProgress.durable,
      elapsed: shard.loop.elapsedMilliseconds
    )
    lane.watcherNumbers[shard.position] = number
    return number
  }

  /// Removes the watcher of a closed connection.
  func ended(_ lane: ReplyLane) {
    let number = lane.watcherNumbers[shard.position]
    guard number >= 0 else { return }
    lane.watcherNumbers[shard.position] = -1
    subscriptions.remove(number)
  }

  /// Maximum number of channels in one request.
  private static let channelsMax = 1_024
  /// How far back changes are replayed, in milliseconds. Tombstones are kept as long.
  private static let sinceMilliseconds: Int64 = 7 * 86_400_000

  func performEvents(_ request: inout Request) throws(WireError) -> Outcome {
    switch request.kind {
    case .subscribe: try subscribe(&request)
    case .unsubscribe: try unsubscribe(&request)
    case .subscribeUser: try subscribeUser(&request)
    case .announceRow: try announceRow(&request)
    default: throw .unknownKind(request.kind.rawValue)
    }
  }

  private func subscribe(_ request: inout Request) throws(WireError) -> Outcome {
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
    if flags == 1, let refusal = shard.waiting.refusal(for: .walk(0)) { return refusal }
    let watcher = watcher(request.lane)
    _ = shard.state.advance(clock: shard.loop.clock)
    var added: [[UInt8]] = []
    for cid in cids where !subscriptions.isWatched(cid, by: watcher) {
      guard request.lane.account.subscriptions < shard.configuration.subscriptionsMax else {
        for cid in added { subscriptions.unwatch(cid, by: watcher) }
        return refuseMore(request)
      }
      let slot = shard.state.slot(of: cid.span.bytes)
      let isNew = subscriptions.watch(cid, at: slot, by: watcher, at: shard.state.time)
      if isNew, let slot { findExpiry(slot) }
      added.append(cid)
    }
    guard flags == 1 else { return replySubscribed(request, withList: true) }
    let now = shard.state.advance(clock: shard.loop.clock)
    guard since <= now, now.milliseconds - since.milliseconds <= Self.sinceMilliseconds else {
      return shard.walks.answerIncomplete(request.header, request.lane)
    }
    return shard.walks.begin(
      ChannelScan(purpose: .changes(since: since), isRequested: true, cids: Deque(cids)),
      for: request
    )
  }

  private func unsubscribe(_ request: inout Request) throws(WireError) -> Outcome {
    let cids: [[UInt8]]
    let list = try StringListFields(&request.fields)
    try request.fields.end()
    switch channels(list) {
    case .success(let read): cids = read
    case .failure(let refused): return .refused(refused)
    }
    if request.lane.watcherNumbers[shard.position] >= 0 {
      let watcher = watcher(request.lane)
      for cid in cids { subscriptions.unwatch(cid, by: watcher) }
    }
    return shard.reply(request, .now) { _ in }
  }

  private func subscribeUser(_ request: inout Request) throws(WireError) -> Outcome {
    let user = try request.fields.string()
    let on = try SubscribeUserRequest(&request.fields).on
    guard Identifier.isUser(user) else {
      return .refused(.invalidField, ShardEngine.userRange)
    }
    guard on <= 1 else { return .refused(.invalidField, "on: 0 or 1") }
    guard shard.isHome(user) else {
      return .refused(.wrongShard, "another shard is the user's home")
    }
    guard !shard.isRevoked(user, request) else { return shard.refused(.tokenRevoked, nil) }
    let watcher = watcher(request.lane)
    let name = user.withUnsafeBytes { Array($0) }
    if on == 0 {
      subscriptions.unwatch(user: name, by: watcher)
    } else if !subscriptions.watchers(ofUser: name).contains(watcher) {
      guard request.lane.account.subscriptions < shard.configuration.subscriptionsMax else {
        return refuseMore(request)
      }
      subscriptions.watch(user: name, by: watcher)
    }
    return replySubscribed(request, withList: false)
  }

  private func announceRow(_ request: inout Request) throws(WireError) -> Outcome {
    let user = try request.fields.string()
    let cids: [[UInt8]]
    let list = try StringListFields(&request.fields)
    try request.fields.end()
    switch channels(list) {
    case .success(let read): cids = read
    case .failure(let refused): return .refused(refused)
    }
    guard Identifier.isUser(user) else {
      return .refused(.invalidField, ShardEngine.userRange)
    }
    let watched = cids.filter { subscriptions.number(of: $0) != nil }
    if !watched.isEmpty, let refusal = shard.waiting.refusal(for: .walk(0)) { return refusal }
    let time = shard.state.advance(clock: shard.loop.clock)
    shard.effects.removeAll(keepingCapacity: true)
    shard.state.decideAnnounced(
      user: user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
      into: &shard.effects
    )
    if !shard.effects.isEmpty { shard.applyEffects(nil, session: nil) }
    guard !watched.isEmpty else {
      let outcome = shard.reply(request, shard.replyTiming(shard.dirty.usersLast)) { _ in }
      sendUnbatchedEvents()
      return outcome
    }
    let purpose = ChannelScan.Purpose.row(of: user.withUnsafeBytes { Array($0) }, at: time)
    return shard.walks.begin(
      ChannelScan(purpose: purpose, isRequested: true, cids: Deque(watched)),
      for: request
    )
  }

  // MARK: Details

  /// The channels of a request.
  private func channels(_ list: borrowing StringListFields) -> Result<[[UInt8]], RefusedRequest> {
    guard (1...Self.channelsMax).contains(list.count) else {
      return .failure(RefusedRequest(.invalidField, "channels: 1 to \(Self.channelsMax)"))
    }
    var cids: [[UInt8]] = []
    cids.reserveCapacity(list.count)
    var fault: (code: ErrorCode, detail: String)?
    list.forEach { cid in
      if !Identifier.isCID(cid) {
        fault = fault ?? (.invalidField, ShardEngine.cidRange)
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
      buffer.writeTime(through)
      guard withList else { return }
      buffer.writeInteger(UInt8(1))
      buffer.writeVarint(0)
    }
  }

  private func refuseMore(_ request: borrowing Request) -> Outcome {
    return .refused(
      .limitReached,
      "subscriptions of a connection: at most \(shard.configuration.subscriptionsMax) channels and users"
    )
  }
}
