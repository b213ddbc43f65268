internal import HeapModule
internal import ReceiptModel

/// Number of a connection among the watchers of one shard.
struct WatcherNumber: Hashable {
  let rawValue: Int32

  init(index: Int) { rawValue = Int32(index) }

  var index: Int { Int(rawValue) }
}

/// Subscriptions of the loop's connections in one shard: channels by cid, whether or not they exist or are in memory,
/// and users by name. Events of watched channels and users are recorded here until they are sent.
struct Subscriptions {
  /// Encoded events of one channel or user, as a range of the shared bytes.
  struct Part {
    var bytes: Range<Int>
    var events: Int
  }

  /// A connection's subscriptions, identified by its lane.
  struct Watcher {
    let lane: ReplyLane
    /// Number of channels and users that it watches in this shard.
    var count = 0
    /// Set if events were dropped since the last frame.
    var isLost = false
    /// Time up to which the last frame declared all events sent.
    var through: Timestamp
    /// Time at which that frame was written, in the loop's elapsed time.
    var sentAt: Int64
    /// Events to send now.
    var channels: [Part] = []
    var users: [Part] = []
  }

  /// A watched channel.
  struct Channel {
    let cid: [UInt8]
    var watchers: [WatcherNumber] = []
    /// Slot of the channel; nil if it is not in memory or does not exist.
    var slot: ChannelSlot?
    /// Position in ``unsent``; −1 if it has no unsent events.
    var unsent: Int32 = -1
    /// Rises with every event.
    var changes: UInt32 = 0
    /// Time of its last sent events, in the loop's elapsed time.
    var sentAt = Int64.min / 2
    /// Acknowledgement requests that expired up to here were reported, or expired before the channel was watched.
    var expiredThrough: Timestamp
    /// Next known acknowledgement request expiry; none if no acknowledgement request expires.
    var expiry = Timestamp.none

    init(cid: [UInt8], expiredThrough: Timestamp) {
      self.cid = cid
      self.expiredThrough = expiredThrough
    }
  }

  /// Next acknowledgement request expiry of a channel.
  private struct Expiry: Comparable {
    var at: Timestamp
    var channel: Int32

    static func < (a: Expiry, b: Expiry) -> Bool { (a.at, a.channel) < (b.at, b.channel) }
  }

  /// Unsent events of one channel.
  struct UnsentChannelEvents {
    let channel: Int32
    /// Time at which an incarnation was deleted, before the events in `pending`; none if it was not.
    var deletedAt = Timestamp.none
    var pending = PendingChannelEvents()
  }

  /// Unsent events of one user.
  struct UnsentUserEvents {
    let user: [UInt8]
    var events: [UserEvent]
  }

  /// Whether nothing is watched, so that look-ups can be skipped.
  var isEmpty: Bool { channelNumbers.isEmpty && users.isEmpty }
  /// By number; nil for a free one.
  private(set) var watchers: [Watcher?] = []
  private var freeWatchers: [WatcherNumber] = []
  /// By number; nil for a free one.
  private(set) var channels: [Channel?] = []
  private var freeChannels: [Int32] = []
  private var channelNumbers: [[UInt8]: Int32] = [:]
  /// Channel numbers by slot; −1 if the slot's channel is not watched.
  private var slots: [Int32] = []
  /// Expiries of all channels, next one on top; outdated entries are skipped when they get there.
  private var expiries = Heap<Expiry>()
  /// Watchers of each user.
  private var users: [[UInt8]: [WatcherNumber]] = [:]
  /// Unsent channel events, in the order of each channel's first one.
  private(set) var unsent: [UnsentChannelEvents] = []
  private(set) var unsentUserEvents: [UnsentUserEvents] = []
  private var unsentUserIndices: [[UInt8]: Int] = [:]

  /// Number of watched channels and users, counted once per watcher.
  var count: Int { watchers.reduce(0) { $0 + ($1?.count ?? 0) } }

  // MARK: Watchers

  mutating func add(_ lane: ReplyLane, through: Timestamp, elapsed: Int64) -> WatcherNumber {
    let watcher = Watcher(lane: lane, through: through, sentAt: elapsed)
    if let free = freeWatchers.popLast() {
      watchers[free.index] = watcher
      return free
    }
    watchers.append(watcher)
    return WatcherNumber(index: watchers.count - 1)
  }

  /// Remove a connection with all its subscriptions.
  mutating func remove(_ watcher: WatcherNumber) {
    guard let gone = watchers[watcher.index] else { return }
    if gone.count > 0 {
      for number in channels.indices {
        guard let position = channels[number]?.watchers.firstIndex(of: watcher) else { continue }
        drop(position, ofChannel: Int32(number))
      }
      for (user, watching) in users where watching.contains(watcher) {
        let remaining = watching.filter { $0 != watcher }
        users[user] = remaining.isEmpty ? nil : remaining
      }
    }
    gone.lane.backlog.changeSubscriptions(-gone.count)
    watchers[watcher.index] = nil
    freeWatchers.append(watcher)
  }

  /// Update a watcher's record.
  mutating func update(_ watcher: WatcherNumber, _ body: (inout Watcher) -> Void) {
    guard watchers[watcher.index] != nil else { return }
    body(&watchers[watcher.index]!)
  }

  private mutating func counts(_ watcher: WatcherNumber, _ difference: Int) {
    guard let lane = watchers[watcher.index]?.lane else { return }
    watchers[watcher.index]?.count += difference
    lane.backlog.changeSubscriptions(difference)
  }

  // MARK: Channels

  func number(of cid: [UInt8]) -> Int32? { channelNumbers[cid] }

  /// Return the number of the watched channel in a slot.
  func number(in slot: ChannelSlot) -> Int32? {
    let position = Int(slot.rawValue)
    guard position < slots.count, slots[position] >= 0 else { return nil }
    return slots[position]
  }

  func isWatched(_ cid: [UInt8], by watcher: WatcherNumber) -> Bool {
    channelNumbers[cid].map { channels[Int($0)]!.watchers.contains(watcher) } ?? false
  }

  /// Subscribe to a channel that the watcher does not watch yet.
  ///
  /// - Parameters:
  ///   - slot: the channel's slot if it is in memory.
  ///   - time: the shard's time.
  /// - Returns: whether the channel was not watched before.
  mutating func watch(_ cid: [UInt8], at slot: ChannelSlot?, by watcher: WatcherNumber, at time: Timestamp) -> Bool {
    let isNew = channelNumbers[cid] == nil
    let number: Int32
    if let known = channelNumbers[cid] {
      number = known
    } else {
      if let free = freeChannels.popLast() {
        number = free
        channels[Int(free)] = Channel(cid: cid, expiredThrough: time)
      } else {
        number = Int32(channels.count)
        channels.append(Channel(cid: cid, expiredThrough: time))
      }
      channelNumbers[cid] = number
      if let slot { enter(number, slot) }
    }
    channels[Int(number)]!.watchers.append(watcher)
    counts(watcher, 1)
    return isNew
  }

  mutating func unwatch(_ cid: [UInt8], by watcher: WatcherNumber) {
    guard let number = channelNumbers[cid], let position = channels[Int(number)]!.watchers.firstIndex(of: watcher)
    else { return }
    drop(position, ofChannel: number)
    counts(watcher, -1)
  }

  /// Remove a watcher from a channel. Removes the channel and its unsent events with its last watcher.
  private mutating func drop(_ position: Int, ofChannel number: Int32) {
    channels[Int(number)]!.watchers.remove(at: position)
    guard let channel = channels[Int(number)], channel.watchers.isEmpty else { return }
    if let slot = channel.slot { slots[Int(slot.rawValue)] = -1 }
    if channel.unsent >= 0 {
      unsent.remove(at: Int(channel.unsent))
      for later in Int(channel.unsent)..<unsent.count {
        channels[Int(unsent[later].channel)]!.unsent = Int32(later)
      }
    }
    channelNumbers[channel.cid] = nil
    channels[Int(number)] = nil
    freeChannels.append(number)
  }

  // MARK: Memory

  /// Record the slot of a channel that was loaded or created.
  ///
  /// - Returns: whether the channel is watched.
  @discardableResult
  mutating func channelLoaded(_ cid: [UInt8], _ slot: ChannelSlot) -> Bool {
    guard !channelNumbers.isEmpty, let number = channelNumbers[cid] else { return false }
    enter(number, slot)
    return true
  }

  private mutating func enter(_ number: Int32, _ slot: ChannelSlot) {
    let position = Int(slot.rawValue)
    if position >= slots.count {
      slots.append(contentsOf: repeatElement(-1, count: position + 1 - slots.count))
    }
    slots[position] = number
    channels[Int(number)]!.slot = slot
  }

  /// Clear the slot of a channel that has left memory.
  mutating func clearSlot(_ slot: ChannelSlot) {
    guard let number = number(in: slot) else { return }
    slots[Int(slot.rawValue)] = -1
    channels[Int(number)]!.slot = nil
  }

  /// Return whether the channel has unsent events; it must stay in memory until they are sent.
  func hasUnsentEvents(_ slot: ChannelSlot) -> Bool {
    number(in: slot).map { channels[Int($0)]!.unsent >= 0 } ?? false
  }

  // MARK: Requests that expire

  /// Set a channel's next expiry; none if no acknowledgement request expires.
  mutating func expires(_ number: Int32, at time: Timestamp) {
    guard channels[Int(number)]!.expiry != time else { return }
    channels[Int(number)]!.expiry = time
    if time != .none { expiries.insert(Expiry(at: time, channel: number)) }
  }

  /// Lower a channel's next expiry for a new acknowledgement request.
  mutating func expiresToo(_ number: Int32, at time: Timestamp) {
    let known = channels[Int(number)]!.expiry
    if known == .none || time < known { expires(number, at: time) }
  }

  /// Record that a channel's expiries up to `time` are reported, and set the next one.
  mutating func expired(_ number: Int32, through time: Timestamp, next: Timestamp) {
    channels[Int(number)]!.expiredThrough = time
    expires(number, at: next)
  }

  /// Next acknowledgement request expiry of any channel; none if no acknowledgement request expires.
  var nextExpiry: Timestamp {
    mutating get {
      while let next = expiries.min {
        if channels[Int(next.channel)]?.expiry == next.at { return next.at }
        expiries.removeMin()
      }
      return .none
    }
  }

  /// Take the channels with an acknowledgement request that expires up to `time`.
  mutating func takeExpiring(through time: Timestamp) -> [[UInt8]] {
    var cids: [[UInt8]] = []
    while nextExpiry != .none, nextExpiry <= time, let next = expiries.popMin() {
      channels[Int(next.channel)]!.expiry = .none
      cids.append(channels[Int(next.channel)]!.cid)
    }
    return cids
  }

  // MARK: Unsent events

  /// Change the unsent events of the watched channel in a slot; does nothing for another channel.
  ///
  /// - Returns: the channel's number; nil if it is not watched.
  @discardableResult
  mutating func recordChange(in slot: ChannelSlot, _ change: (inout UnsentChannelEvents) -> Void) -> Int32? {
    guard let number = number(in: slot) else { return nil }
    channels[Int(number)]!.changes &+= 1
    if channels[Int(number)]!.unsent < 0 { keep(UnsentChannelEvents(channel: number)) }
    change(&unsent[Int(channels[Int(number)]!.unsent)])
    return number
  }

  /// Take all records of unsent channel events; give those that are not sent now back to ``keep(_:)``.
  mutating func takeUnsent() -> [UnsentChannelEvents] {
    var taken: [UnsentChannelEvents] = []
    swap(&taken, &unsent)
    for item in taken { channels[Int(item.channel)]!.unsent = -1 }
    return taken
  }

  mutating func keep(_ item: UnsentChannelEvents) {
    channels[Int(item.channel)]!.unsent = Int32(unsent.count)
    unsent.append(item)
  }

  mutating func recordSent(_ number: Int32, elapsed: Int64) { channels[Int(number)]!.sentAt = elapsed }

  // MARK: Users

  var watchesUsers: Bool { !users.isEmpty }

  func watchers(ofUser user: [UInt8]) -> [WatcherNumber] { users[user] ?? [] }

  mutating func watch(user: [UInt8], by watcher: WatcherNumber) {
    guard users[user]?.contains(watcher) != true else { return }
    users[user, default: []].append(watcher)
    counts(watcher, 1)
  }

  mutating func unwatch(user: [UInt8], by watcher: WatcherNumber) {
    guard let position = users[user]?.firstIndex(of: watcher) else { return }
    users[user]!.remove(at: position)
    if users[user]!.isEmpty { users[user] = nil }
    counts(watcher, -1)
  }

  /// Record an event of a user, if the user is watched.
  mutating func record(user: [UInt8], _ event: UserEvent) {
    guard users[user] != nil else { return }
    if let index = unsentUserIndices[user] {
      unsentUserEvents[index].events.append(event)
    } else {
      unsentUserIndices[user] = unsentUserEvents.count
      unsentUserEvents.append(UnsentUserEvents(user: user, events: [event]))
    }
  }

  mutating func takeUnsentUsers() -> [UnsentUserEvents] {
    var taken: [UnsentUserEvents] = []
    swap(&taken, &unsentUserEvents)
    unsentUserIndices.removeAll(keepingCapacity: true)
    return taken
  }
}

/// An event of a user.
enum UserEvent {
  /// The new state of one channel in the user's index.
  case membership(Membership, at: Timestamp, isGone: Bool)
  /// Tokens issued before this time are refused.
  case tokensRevoked(before: Timestamp)
}
