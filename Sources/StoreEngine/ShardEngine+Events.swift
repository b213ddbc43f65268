import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// How far a shard has told those who watch it (Proto/frames.md, "Events").
struct EventProgress {
  /// All is told up to here by frames that have left.
  private(set) var durable = Timestamp.none
  /// The same, those included that leave with the batches that are closed.
  private(set) var closed = Timestamp.none

  init(_ time: Timestamp) {
    durable = time
    closed = time
  }

  /// A frame says that all is told up to a time. It never says less than one before it: what is as old as that is told
  /// by whoever asks for what changed since then, that time included.
  mutating func tells(through time: Timestamp, _ departure: ReplyLane.Departure) {
    closed = max(closed, time)
    if case .now = departure { durable = closed }
  }

  mutating func committed() { durable = closed }
}

/// What happens in channels and to users that somebody watches: noted while it is carried out, told when the batch is
/// closed.
extension ShardEngine {
  /// The events of one frame, in bytes; what is more goes into another frame.
  private static let frameBytes = 256 << 10
  /// An idle shard tells by its clock alone how far all is told: at most so far behind the log. Its time is logged when
  /// it is half as far, in milliseconds.
  private static let unloggedMilliseconds: Int64 = 10_000
  /// A connection that has nothing to be told hears this often, in milliseconds, how far all is told; ticks come ten
  /// times a second.
  private static let throughMilliseconds: Int64 = 900

  // MARK: Noting

  /// Notes an effect, before it is assigned.
  ///
  /// - Parameter slot: of its channel; nil: the shard's own, or a channel that it creates.
  func note(_ effect: Effect, _ slot: ChannelSlot?) {
    guard effect.channel != nil else { return noteOfShard(effect) }
    guard let slot else { return }
    if let number = subscriptions.number(in: slot) {
      let place = subscriptions.place(number)
      state.note(effect, in: slot, at: state.time, &subscriptions.noted[place].notes)
      if case .messageAssigned(_, _, let record) = effect, record.receiptExpiresAt != .none {
        subscriptions.expiresToo(number, at: record.receiptExpiresAt)
      }
    } else if subscriptions.watchesUsers, state[slot].isIndex {
      noteMembership(effect, slot)
    }
  }

  private func noteOfShard(_ effect: Effect) {
    switch effect {
    case .channelTypeAssigned(let record):
      if state.channelType(record.name).options != record.options { announceOptions(ofType: record.name) }
    case .userAssigned(_, let settings):
      if settings.tokensRevokedBefore > state.userSettings(settings.user).tokensRevokedBefore {
        noteUser(settings.user, .tokensRevoked(before: settings.tokensRevokedBefore))
      }
    case .userErased(let number, _, _, let time):
      guard Int(number) < state.settings.count, !state.settings.isNameless(number) else { return }
      noteUser(state.settings[number].user, .tokensRevoked(before: time))
    default: break
    }
  }

  /// Users are watched in their home shards; settings are in all.
  private func noteUser(_ user: String, _ event: UserEvent) {
    guard subscriptions.watchesUsers else { return }
    subscriptions.note(user: Array(user.utf8), event)
  }

  /// What is said of a channel in a user's index; a rebuild that confirms an entry says nothing new.
  private func noteMembership(_ effect: Effect, _ slot: ChannelSlot) {
    switch effect {
    case .membershipAssigned(_, let place, var membership):
      let known = state[slot].memberships[place]
      if membership.isGone {
        noteGone(known, slot)
        return
      }
      membership.epoch = known?.epoch ?? 0
      membership.deletedAt = known?.deletedAt ?? .none
      guard known != membership else { return }
      subscriptions.note(
        user: IndexName.user(state[slot].cid),
        .membership(membership, at: state.time, isGone: false)
      )
    case .membershipRemoved(_, let place): noteGone(state[slot].memberships[place], slot)
    default: break
    }
  }

  /// A channel knows the user no more. Of a tombstone that is let go of that was told before.
  private func noteGone(_ known: Membership?, _ slot: ChannelSlot) {
    guard let known, !known.isGone else { return }
    subscriptions.note(
      user: IndexName.user(state[slot].cid),
      .membership(known, at: state.time, isGone: true)
    )
  }

  /// A channel was made by the batch that gathers.
  func noteCreated(_ slot: ChannelSlot) {
    guard subscriptions.entered(state[slot].cid, slot), let number = subscriptions.number(in: slot) else {
      return
    }
    let place = subscriptions.place(number)
    state.noteOptions(in: slot, at: state.time, &subscriptions.noted[place].notes)
  }

  /// A channel is being deleted by the batch that gathers, or that begins with it: what else happens in it is not told
  /// any more.
  func noteDeleted(_ slot: ChannelSlot) {
    guard let number = subscriptions.number(in: slot) else { return }
    let place = subscriptions.place(number)
    subscriptions.noted[place].deletedAt = state.time
    subscriptions.noted[place].notes = ChannelNotes()
    subscriptions.expires(number, at: .none)
    subscriptions.left(slot)
  }

  // MARK: Receipts that expire

  /// A watched channel has come into memory.
  func findExpiry(_ number: Int32, _ slot: ChannelSlot) {
    let after = subscriptions.channels[Int(number)]?.expiredThrough ?? .none
    subscriptions.expires(number, at: state.nextExpiry(in: slot, after: after))
  }

  /// Time has passed: what has expired in watched channels meanwhile is told. Those that have left memory since anybody
  /// looked are read.
  func tellExpired() {
    let first = subscriptions.nextExpiry
    guard first != .none, first <= state.advance(clock: loop.clock) else { return }
    let cids = subscriptions.takeExpiring(through: state.time)
    begin(ChannelWalk(purpose: .expiries(since: first), asker: nil, cids: Deque(cids)))
  }

  /// Notes what has expired in a watched channel, to leave with a batch of this time or later: a shard that starts
  /// again with an earlier clock cannot take it back (R20).
  func noteExpired(_ number: Int32, _ slot: ChannelSlot) {
    let now = state.advance(clock: loop.clock)
    let place = subscriptions.place(number)
    let after = subscriptions.channels[Int(number)]?.expiredThrough ?? .none
    let hasNoted = state.noteExpired(
      in: slot,
      after: after,
      through: now,
      &subscriptions.noted[place].notes
    )
    subscriptions.expired(number, through: now, next: state.nextExpiry(in: slot, after: now))
    guard hasNoted, !isGathering else { return }
    logTimeNow()
  }

  // MARK: Telling

  /// Tells what was noted, to all who watch it, in bytes that leave with everything that they tell of.
  ///
  /// - Parameter departure: with the batch that is being closed; where nothing gathers, with the closed ones, or at
  ///   once.
  func tellEvents(_ departure: ReplyLane.Departure) {
    guard !subscriptions.isEmpty else { return eventProgress.tells(through: state.time, departure) }
    eventParts.clear()
    let oldest = tellChannels()
    for item in subscriptions.takeNotedUsers() {
      let parts = eventParts.add(user: item.user, item.events)
      for watcher in subscriptions.watchers(ofUser: item.user) {
        subscriptions.update(Int(watcher)) { $0.users += parts }
      }
    }
    let logged =
      switch departure {
      case .now: durableTime
      case .withInFlight: closedTime
      case .withGathering: state.time
      }
    eventProgress.tells(through: completeTime(oldestKept: oldest, logged: logged), departure)
    for watcher in subscriptions.watchers.indices { tell(watcher, departure) }
  }

  /// Encodes what is noted of channels and may be told now, once, for all who watch them.
  ///
  /// - Returns: the time of the oldest thing that is kept for later; none: nothing is.
  private func tellChannels() -> Timestamp {
    var oldest = Timestamp.none
    for var item in subscriptions.takeNoted() {
      guard let channel = subscriptions.channels[Int(item.channel)] else { continue }
      if waits(item, channel) {
        oldest = oldest == .none ? item.notes.oldest : min(oldest, item.notes.oldest)
        if let happened = item.notes.takeHappened() { tell(happened, deletedAt: .none, channel) }
        subscriptions.keep(item)
      } else {
        tell(item.notes, deletedAt: item.deletedAt, channel)
        subscriptions.told(item.channel, elapsed: loop.elapsedMilliseconds)
      }
    }
    return oldest
  }

  private func tell(_ notes: ChannelNotes, deletedAt: Timestamp, _ channel: Subscriptions.Channel) {
    var events: [ChannelEvent] = []
    if let slot = channel.slot {
      state.refresh(slot)
      events = state.events(notes, in: slot)
    }
    let parts = eventParts.add(channel.cid, deletedAt: deletedAt, events, channel.slot, in: &state)
    guard !parts.isEmpty else { return }
    for watcher in channel.watchers { subscriptions.update(Int(watcher)) { $0.channels += parts } }
  }

  /// Whether a channel is so large that its rows and statuses are told once per interval only, and were told within it.
  private func waits(_ item: Subscriptions.Noted, _ channel: Subscriptions.Channel) -> Bool {
    guard let slot = channel.slot, item.deletedAt == .none, !item.notes.isEmpty,
      state[slot].rows.activeCount > configuration.eventIntervalMembers
    else { return false }
    return loop.elapsedMilliseconds - channel.toldAt < configuration.eventIntervalMilliseconds
  }

  /// Up to where all is told: the shard's time, but for what waits.
  ///
  /// - Parameters:
  ///   - oldest: of what is noted and not told; none: nothing is.
  ///   - logged: the time of the last batch that leaves before or with it.
  private func completeTime(oldestKept oldest: Timestamp, logged: Timestamp) -> Timestamp {
    var time = min(
      state.time,
      Timestamp(milliseconds: logged.milliseconds + Self.unloggedMilliseconds)
    )
    for before in [oldest, walks.oldest, subscriptions.nextExpiry] where before != .none {
      time = min(time, Timestamp(milliseconds: before.milliseconds - 1))
    }
    return time
  }

  /// Writes what one connection is to be told, in as many frames as that needs; only the last says how far all is told
  /// now.
  private func tell(_ number: Int, _ departure: ReplyLane.Departure) {
    guard var watcher = subscriptions.watchers[number] else { return }
    let hasEvents = !watcher.channels.isEmpty || !watcher.users.isEmpty
    let isDue = loop.elapsedMilliseconds - watcher.toldAt >= Self.throughMilliseconds
    guard hasEvents || watcher.count > 0 && (isDue || watcher.isLost) else { return }
    let (channels, users) = (watcher.channels, watcher.users)
    watcher.channels.removeAll(keepingCapacity: true)
    watcher.users.removeAll(keepingCapacity: true)
    let all = channels + users
    let byteCount = all.reduce(0) { $0 + $1.bytes.count }
    let eventCount = UInt64(all.reduce(0) { $0 + $1.events })
    if watcher.lane.isClosed {
      // Its subscriptions are on their way out.
    } else if watcher.lane.unwrittenBytes + byteCount > configuration.unwrittenBytesMax {
      watcher.isLost = true
      loop.counters.eventsDropped += eventCount
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
          departure
        )
        watcher.isLost = false
        start = end
      } while start < all.count
      watcher.toldAt = loop.elapsedMilliseconds
      loop.counters.eventsSent += eventCount
    }
    subscriptions.update(number) { $0 = watcher }
  }

  private struct EventFrame {
    var through: Timestamp
    var isLost: Bool
    var channels: ArraySlice<Subscriptions.Part>
    var users: ArraySlice<Subscriptions.Part>
  }

  private func write(_ frame: EventFrame, _ lane: ReplyLane, _ departure: ReplyLane.Departure) {
    let isFirst = lane.addUnasked(departure) { buffer in
      let start = buffer.beginFrame(FrameHeader(.events, shard: state.id))
      buffer.writeTime(frame.through)
      buffer.writeInteger(UInt8(frame.isLost ? 1 : 0))
      buffer.writeVarint(frame.channels.count)
      eventParts.write(frame.channels, into: &buffer)
      buffer.writeVarint(frame.users.count)
      eventParts.write(frame.users, into: &buffer)
      buffer.endFrame(start)
      loop.counters.eventBytes += UInt64(buffer.writerIndex - start)
    }
    if isFirst { loop.note(lane, departure) }
  }

  /// Tells now what was noted without an effect, or has waited; where a batch gathers it is told with that.
  func tellWithoutBatch() {
    guard !subscriptions.isEmpty, !isGathering else { return }
    _ = state.advance(clock: loop.clock)
    tellEvents(closed > durable ? .withInFlight : .now)
  }

  /// What an answer says of how far all is told, and how soon it may say so.
  ///
  /// The log of a shard that nobody watched and nothing happened in may have ended long ago, and an answer may be only
  /// a little ahead of it: its time is logged now, and the answer leaves with that. Said at once it would make the ids
  /// of every stream of the gateway as old.
  func toldThrough() -> (time: Timestamp, departure: ReplyLane.Departure) {
    let now = state.advance(clock: loop.clock)
    if !isGathering, closed == durable {
      let isBehind = isBehind(durableTime, now)
      let time = completeTime(oldestKept: oldestNoted, logged: isBehind ? now : durableTime)
      if isBehind {
        logTimeNow()
        return (max(time, eventProgress.closed), .withGathering)
      }
      eventProgress.tells(through: time, .now)
    } else if isBehind(eventProgress.durable, now) {
      // While something is on its way, what is told by the time that it has left.
      guard isGathering else { return (eventProgress.closed, .withInFlight) }
      let oldest = oldestNoted
      let time = completeTime(
        oldestKept: oldest == .none ? gatheringTime : min(oldest, gatheringTime),
        logged: gatheringTime
      )
      return (max(time, eventProgress.closed), .withGathering)
    }
    return (eventProgress.durable, .now)
  }

  /// The shard's time follows its clock.
  func passTime() { _ = state.advance(clock: loop.clock) }

  /// The time of the oldest thing that is noted of channels and not told; none: nothing is.
  private var oldestNoted: Timestamp {
    var oldest = Timestamp.none
    for item in subscriptions.noted where !item.notes.isEmpty {
      oldest = oldest == .none ? item.notes.oldest : min(oldest, item.notes.oldest)
    }
    return oldest
  }

  private func isBehind(_ time: Timestamp, _ now: Timestamp) -> Bool {
    now.milliseconds - time.milliseconds >= Self.unloggedMilliseconds / 2
  }

  /// Time has passed in which nothing was logged, and somebody is told of it: it is logged, from time to time.
  func logTime() {
    guard !subscriptions.isEmpty, !isGathering, closed == durable,
      isBehind(durableTime, state.advance(clock: loop.clock))
    else { return }
    logTimeNow()
  }

  /// Begins a batch with nothing but the shard's time.
  ///
  /// - Parameter session: whose request asks for it; nil: the shard itself does.
  func logTimeNow(session: Int32? = nil) {
    effects.removeAll(keepingCapacity: true)
    effects.append(.countersAssigned(nextChannel: state.nextChannel, time: state.time))
    carryOut(nil, session: session)
  }

  /// From when on what has changed is to be told to whoever was told everything up to a time. One that lies just behind
  /// where the log ended when the shard started may have been told without being logged: if the clock was put back
  /// since, things have happened at that time, or before it, that were not told (R20).
  func logged(since: Timestamp) -> Timestamp {
    let isUnlogged =
      startTime != .none && since > startTime
      && since.milliseconds - startTime.milliseconds <= Self.unloggedMilliseconds
    return isUnlogged ? startTime : since
  }

  // MARK: Connections

  /// A connection's number among those who watch something here.
  func watcher(_ lane: ReplyLane) -> Int32 {
    let known = lane.watcherNumbers[position]
    if known >= 0 { return known }
    let number = subscriptions.add(
      lane,
      through: eventProgress.durable,
      elapsed: loop.elapsedMilliseconds
    )
    lane.watcherNumbers[position] = number
    return number
  }

  /// A connection has gone.
  func ended(_ lane: ReplyLane) {
    let number = lane.watcherNumbers[position]
    guard number >= 0 else { return }
    lane.watcherNumbers[position] = -1
    subscriptions.remove(number)
  }
}
