internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Events of watched channels and users: recorded while effects are applied, sent when the batch is closed.
final class ShardEvents: ShardPart {
  private(set) var subscriptions = Subscriptions()
  private var eventProgress = DeclaredEventProgress(.none)
  /// Encoded events of the current delivery; kept for its capacity.
  private var eventParts = EventParts()

  /// Target size of an event frame, in bytes; more events go into another frame.
  private static let frameBytes = 256 << 10
  /// How far an idle shard's declared progress may run ahead of the logged time, in milliseconds. The shard logs its
  /// time when the distance reaches half of this.
  private static let unloggedMilliseconds: Int64 = 10_000
  /// How often a connection without events receives the progress, in milliseconds. Ticks come ten times a second.
  private static let throughMilliseconds: Int64 = 900

  /// Begin to serve: events are complete up to the last logged time.
  override func beginToServe() { eventProgress = DeclaredEventProgress(shard.log.durableTime) }

  func committed() { eventProgress.committed() }

  // MARK: Watched channels

  /// Whether nothing is watched, so that look-ups can be skipped.
  @inline(__always)
  var isUnwatched: Bool { subscriptions.isEmpty }

  /// Number of watched channels and users, counted once per watcher.
  var subscriptionCount: Int { subscriptions.count }

  /// Number of entries for watched channels, and the cid of the channel in one of them; nil if the entry is free.
  var channelCount: Int { subscriptions.channels.count }
  func watchedChannel(_ number: Int) -> [UInt8]? { subscriptions.channels[number]?.cid }

  /// Add a subscription to a channel, at most one for each watcher.
  func watch(_ cid: [UInt8], by watcher: WatcherNumber) {
    // A channel that is being deleted counts as absent.
    let slot = shard.state.slot(of: cid.span.bytes).flatMap { shard.state[$0].isBeingDeleted ? nil : $0 }
    let isNew = subscriptions.watch(cid, at: slot, by: watcher, at: shard.state.time)
    if isNew, let slot { findExpiry(slot) }
  }

  /// Remove a subscription to a channel, if there is one.
  func unwatch(_ cid: [UInt8], by watcher: WatcherNumber) { subscriptions.unwatch(cid, by: watcher) }

  /// Add a subscription to a user, at most one for each watcher.
  func watch(user: [UInt8], by watcher: WatcherNumber) { subscriptions.watch(user: user, by: watcher) }

  /// Remove a subscription to a user, if there is one.
  func unwatch(user: [UInt8], by watcher: WatcherNumber) { subscriptions.unwatch(user: user, by: watcher) }

  /// Return the number of events of a channel since it has been watched.
  func changes(in cid: [UInt8]) -> UInt32 {
    subscriptions.number(of: cid).flatMap { subscriptions.channels[Int($0)]?.changes } ?? 0
  }

  /// Record the slot of a channel that was loaded.
  ///
  /// - Returns: whether the channel is watched.
  func channelLoaded(_ cid: [UInt8], _ slot: ChannelSlot) -> Bool { subscriptions.channelLoaded(cid, slot) }

  /// Clear the slot of a channel that has left memory.
  func clearSlot(_ slot: ChannelSlot) { subscriptions.clearSlot(slot) }

  /// Return whether the channel has unsent events; it must stay in memory until they are sent.
  func hasUnsentEvents(_ slot: ChannelSlot) -> Bool { subscriptions.hasUnsentEvents(slot) }

  // MARK: Recording

  /// Record the events of an effect, before the effect is assigned.
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
    let number = subscriptions.recordChange(in: slot) {
      shard.state.record(effect, in: slot, at: shard.state.time, &$0.pending)
    }
    if let number {
      if case .messageAssigned(_, let record) = effect, record.acknowledgementExpiresAt != .none {
        subscriptions.expiresToo(number, at: record.acknowledgementExpiresAt)
      }
    } else if subscriptions.watchesUsers, shard.state[slot].isIndex {
      recordMembershipEvent(effect, slot)
    }
  }

  private func recordShardEvent(_ effect: ShardEffect) {
    switch effect {
    case .channelTypeAssigned(let record):
      if shard.state.types.record(record.name).options != record.options {
        shard.scans.announceOptions(ofType: record.name)
      }
    case .userAssigned(_, let settings):
      if settings.tokensRevokedBefore > shard.state.settings[settings.user].tokensRevokedBefore {
        recordUserEvent(settings.user, .tokensRevoked(before: settings.tokensRevokedBefore))
      }
    case .userErased(let number, _, _, let time):
      guard Int(number) < shard.state.settings.count, !shard.state.settings.isNameless(number) else { return }
      recordUserEvent(shard.state.settings[number].user, .tokensRevoked(before: time))
    // Nothing that a client sees.
    default: assert(!effect.traits.contains(.hasEvent))
    }
  }

  /// Record an event of a user. Users are watched in their home shards only, while settings are in all shards.
  private func recordUserEvent(_ user: String, _ event: UserEvent) {
    guard subscriptions.watchesUsers else { return }
    subscriptions.record(user: Array(user.utf8), event)
  }

  /// Record a membership change in a user's index. An entry that a rebuild confirms unchanged is not an event.
  private func recordMembershipEvent(_ effect: ChannelEffect, _ slot: ChannelSlot) {
    switch effect {
    case .membershipAssigned(let position, var membership):
      let known = shard.state[slot].memberships[position]
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
    case .membershipRemoved(let position): recordMembershipRemoval(shard.state[slot].memberships[position], slot)
    default:
      if case .membership = effect.target { assertionFailure("an effect on an index entry has no event") }
    }
  }

  /// Record that a channel no longer lists the user. A tombstone that is dropped was reported earlier, when it was
  /// made.
  private func recordMembershipRemoval(_ known: Membership?, _ slot: ChannelSlot) {
    guard let known, !known.isGone else { return }
    subscriptions.record(
      user: IndexName.user(shard.state[slot].cid),
      .membership(known, at: shard.state.time, isGone: true)
    )
  }

  /// Record that the open batch creates a channel.
  func recordCreation(_ slot: ChannelSlot) {
    guard subscriptions.channelLoaded(shard.state[slot].cid, slot) else { return }
    subscriptions.recordChange(in: slot) {
      shard.state.recordOptionsChange(in: slot, at: shard.state.time, &$0.pending)
    }
  }

  /// Record that the options of a watched channel's type changed at `changedAt`.
  func recordOptionsChange(in slot: ChannelSlot, since changedAt: Timestamp) {
    subscriptions.recordChange(in: slot) {
      shard.state.recordOptionsChange(in: slot, at: shard.advanceTime(), &$0.pending)
      $0.pending.extendPendingPeriod(since: changedAt)
    }
  }

  /// Record that a user's privacy settings changed at `changedAt`.
  ///
  /// - Parameter changed: where others see the user's row differently.
  /// - Returns: whether the channel is watched.
  func recordSettingsChange(
    of user: [UInt8],
    in slot: ChannelSlot,
    _ changed: [ChannelSlot],
    since changedAt: Timestamp
  ) -> Bool {
    let number = subscriptions.recordChange(in: slot) {
      shard.state.recordSettingsChange(of: user.span.bytes, in: changed, at: shard.advanceTime(), &$0.pending)
      $0.pending.extendPendingPeriod(since: changedAt)
    }
    return number != nil
  }

  /// Record that the open batch deletes a channel, or begins its deletion. Its other events are dropped from here
  /// on.
  func recordDeletion(_ slot: ChannelSlot) {
    let number = subscriptions.recordChange(in: slot) {
      $0.deletedAt = shard.state.time
      $0.pending = PendingChannelEvents()
    }
    guard let number else { return }
    subscriptions.expires(number, at: .none)
    subscriptions.clearSlot(slot)
  }

  // MARK: Requests that expire

  /// Schedule the next expiry of a watched channel that was loaded.
  func findExpiry(_ slot: ChannelSlot) {
    guard let number = subscriptions.number(in: slot) else { return }
    let after = subscriptions.channels[Int(number)]?.expiredThrough ?? .none
    subscriptions.expires(number, at: shard.state[slot].nextExpiry(after: after))
  }

  /// Report acknowledgement requests in watched channels that have expired. Loads channels that were evicted since they
  /// were last checked.
  func reportExpiries() {
    let first = subscriptions.nextExpiry
    guard first != .none, first <= shard.advanceTime() else { return }
    let cids = subscriptions.takeExpiring(through: shard.state.time)
    shard.scans.begin(ChannelScan(purpose: .expiries(since: first), isRequested: false, cids: Deque(cids)))
  }

  /// Record expired acknowledgement requests of a watched channel. The events leave with a batch of this time or later,
  /// so a restart with an earlier clock cannot take the expiry back (R20).
  func recordExpiries(_ slot: ChannelSlot) {
    guard let number = subscriptions.number(in: slot) else { return }
    let now = shard.advanceTime()
    let after = subscriptions.channels[Int(number)]?.expiredThrough ?? .none
    var hasExpiries = false
    subscriptions.recordChange(in: slot) {
      hasExpiries = shard.state[slot].recordExpiries(after: after, through: now, &$0.pending)
    }
    subscriptions.expired(number, through: now, next: shard.state[slot].nextExpiry(after: now))
    guard hasExpiries, !shard.log.hasOpenBatch else { return }
    shard.logTimeNow()
  }

  // MARK: Sending

  /// Send the recorded events to all watchers. The frames leave when everything that they reveal is durable.
  ///
  /// - Parameter replyTiming: with the batch that is being closed; if no batch is open, with the closed batches, or at
  ///   once.
  func sendEvents(_ replyTiming: ReplyLane.Timing) {
    guard !subscriptions.isEmpty else { return eventProgress.declare(through: shard.state.time, replyTiming) }
    eventParts.clear()
    let oldest = encodeChannelEvents()
    for item in subscriptions.takeUnsentUsers() {
      let parts = eventParts.add(user: item.user, item.events)
      for watcher in subscriptions.watchers(ofUser: item.user) {
        subscriptions.update(watcher) { $0.users += parts }
      }
    }
    let logged =
      switch replyTiming {
      case .now: shard.log.durableTime
      case .afterCurrentCommit: shard.log.closedTime
      case .afterNextCommit: shard.state.time
      }
    eventProgress.declare(through: completeTime(oldestKept: oldest, logged: logged), replyTiming)
    for index in subscriptions.watchers.indices { sendFrames(to: WatcherNumber(index: index), replyTiming) }
  }

  /// Encode the recorded channel events that may be sent now, once for all watchers.
  ///
  /// - Returns: the time of the oldest event that is kept for later; none if none is kept.
  private func encodeChannelEvents() -> Timestamp {
    var oldest = Timestamp.none
    for var item in subscriptions.takeUnsent() {
      guard let channel = subscriptions.channels[Int(item.channel)] else { continue }
      if isDelayed(item, channel) {
        oldest = oldest == .none ? item.pending.oldest : min(oldest, item.pending.oldest)
        if let happened = item.pending.takeImmediateEvents() {
          encode(happened, deletedAt: .none, channel)
        }
        subscriptions.keep(item)
      } else {
        encode(item.pending, deletedAt: item.deletedAt, channel)
        subscriptions.recordSent(item.channel, elapsed: shard.loop.elapsedMilliseconds)
      }
    }
    return oldest
  }

  private func encode(_ pending: PendingChannelEvents, deletedAt: Timestamp, _ channel: Subscriptions.Channel) {
    let events = channel.slot.map { shard.channelEvents(pending, in: $0) } ?? []
    let parts = eventParts.add(channel.cid, deletedAt: deletedAt, events, channel.slot, in: shard.state)
    guard !parts.isEmpty else { return }
    for watcher in channel.watchers { subscriptions.update(watcher) { $0.channels += parts } }
  }

  /// Return whether the channel is large enough for batched rows and statuses, and its last batch is younger than the
  /// interval.
  private func isDelayed(_ item: Subscriptions.UnsentChannelEvents, _ channel: Subscriptions.Channel) -> Bool {
    guard let slot = channel.slot, item.deletedAt == .none, !item.pending.isEmpty,
      shard.state[slot].rows.activeCount > shard.configuration.eventIntervalMembers
    else { return false }
    return shard.loop.elapsedMilliseconds - channel.sentAt < shard.configuration.eventIntervalMilliseconds
  }

  /// Return the time up to which all events are sent: the shard's time, limited by pending events.
  ///
  /// - Parameters:
  ///   - oldest: time of the oldest event that is recorded but not sent; none if there is none.
  ///   - logged: time of the last batch that leaves no later than this frame.
  private func completeTime(oldestKept oldest: Timestamp, logged: Timestamp) -> Timestamp {
    var time = min(shard.state.time, Timestamp(milliseconds: logged.milliseconds + Self.unloggedMilliseconds))
    for before in [oldest, shard.scans.oldest, subscriptions.nextExpiry] where before != .none {
      time = min(time, Timestamp(milliseconds: before.milliseconds - 1))
    }
    return time
  }

  /// Write one connection's events, in as many frames as needed. Only the last frame carries the new progress.
  private func sendFrames(to number: WatcherNumber, _ replyTiming: ReplyLane.Timing) {
    guard var watcher = subscriptions.watchers[number.index] else { return }
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
      buffer.writeByte(frame.isLost ? 1 : 0)
      buffer.writeVarint(frame.channels.count)
      eventParts.write(frame.channels, into: &buffer)
      buffer.writeVarint(frame.users.count)
      eventParts.write(frame.users, into: &buffer)
      buffer.endFrame(start)
      shard.loop.counters.eventBytes += UInt64(buffer.writerIndex - start)
    }
    if isFirst { shard.loop.replies.record(lane, replyTiming) }
  }

  /// Send events that were recorded without an effect, or were delayed. If a batch is open, they leave with it
  /// instead.
  func sendUnbatchedEvents() {
    guard !subscriptions.isEmpty, !shard.log.hasOpenBatch else { return }
    shard.advanceTime()
    sendEvents(shard.log.closed > shard.log.durable ? .afterCurrentCommit : .now)
  }

  /// Return the progress that a reply may declare, and the reply's earliest timing.
  ///
  /// The log of an idle shard without watchers may have ended long ago, and a reply may be only a little ahead of the
  /// log. So the shard logs its time now and the reply leaves with that batch. An immediate answer would hold back the
  /// event ids of all the gateway's streams that far.
  func progressForReply() -> (time: Timestamp, replyTiming: ReplyLane.Timing) {
    let now = shard.advanceTime()
    if !shard.log.hasOpenBatch, shard.log.closed == shard.log.durable {
      let isBehind = isBehind(shard.log.durableTime, now)
      let time = completeTime(oldestKept: oldestUnsent, logged: isBehind ? now : shard.log.durableTime)
      if isBehind {
        shard.logTimeNow()
        return (max(time, eventProgress.closed), .afterNextCommit)
      }
      eventProgress.declare(through: time, .now)
    } else if isBehind(eventProgress.durable, now) {
      // While a batch is pending, declare the progress that holds once it has left.
      guard shard.log.hasOpenBatch else { return (eventProgress.closed, .afterCurrentCommit) }
      let oldest = oldestUnsent
      let time = completeTime(
        oldestKept: oldest == .none ? shard.log.openBatchTime : min(oldest, shard.log.openBatchTime),
        logged: shard.log.openBatchTime
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

  /// Log the time of an idle shard with watchers, from time to time.
  func logTime() {
    guard !subscriptions.isEmpty, !shard.log.hasOpenBatch, shard.log.closed == shard.log.durable,
      isBehind(shard.log.durableTime, shard.advanceTime())
    else { return }
    shard.logTimeNow()
  }

  /// Return the effective resume time for a client that has seen everything up to `since`. A time just after the end of
  /// the log at the start may have been declared without being logged. If the clock was put back since, later events
  /// may carry an equal or earlier time. The replay then begins at the end of the log (R20).
  func logged(since: Timestamp) -> Timestamp {
    let isUnlogged =
      shard.log.startTime != .none && since > shard.log.startTime
      && since.milliseconds - shard.log.startTime.milliseconds <= Self.unloggedMilliseconds
    return isUnlogged ? shard.log.startTime : since
  }

  // MARK: Connections

  /// Return a connection's watcher number in this shard; register the connection if needed.
  func watcher(_ lane: ReplyLane) -> WatcherNumber {
    if let known = lane.watcherNumbers[shard.indexInLoop] { return known }
    let number = subscriptions.add(lane, through: eventProgress.durable, elapsed: shard.loop.elapsedMilliseconds)
    lane.watcherNumbers[shard.indexInLoop] = number
    return number
  }

  /// Remove the watcher of a closed connection.
  override func close(_ lane: ReplyLane) {
    guard let number = lane.watcherNumbers[shard.indexInLoop] else { return }
    lane.watcherNumbers[shard.indexInLoop] = nil
    subscriptions.remove(number)
  }
}

/// Event progress of a shard: the times up to which its watchers have received all events (Proto/frames.md, "Events").
struct DeclaredEventProgress {
  /// All events up to this time are in frames that have left.
  private(set) var durable = Timestamp.none
  /// The same, including frames that leave with the closed batches.
  private(set) var closed = Timestamp.none

  init(_ time: Timestamp) {
    durable = time
    closed = time
  }

  /// Record that a frame declares all events up to `time` sent. A frame never declares less than an earlier one: a
  /// client that resumes from a declared time receives everything from that time on, inclusive.
  mutating func declare(through time: Timestamp, _ replyTiming: ReplyLane.Timing) {
    closed = max(closed, time)
    if case .now = replyTiming { durable = closed }
  }

  mutating func committed() { durable = closed }
}
