import HeapModule
import ReceiptModel

/// What the connections of one shard's loop watch in it: channels by cid, whether they exist, are in memory, or not,
/// and users by name. What happened in a watched channel and was not told yet is noted here.
struct Subscriptions {
  /// Encoded events of one channel or user, in the bytes of what is being told.
  struct Part {
    var bytes: Range<Int>
    var events: Int
  }

  /// One connection's lane.
  struct Watcher {
    let lane: ReplyLane
    /// Channels and users that it watches in this shard.
    var count = 0
    /// Events were dropped since the last frame.
    var isLost = false
    /// The last frame said that all is told up to here.
    var through: Timestamp
    /// When that frame was written, in the loop's elapsed time.
    var toldAt: Int64
    /// What it is to be told now.
    var channels: [Part] = []
    var users: [Part] = []
  }

  /// A channel that somebody watches.
  struct Channel {
    let cid: [UInt8]
    /// Numbers of watchers.
    var watchers: [Int32] = []
    /// Where it is in memory; nil: it is not, or does not exist.
    var slot: ChannelSlot?
    /// Its place in ``noted``; −1: nothing happened that is not told.
    var noted: Int32 = -1
    /// Rises with everything that happens in it.
    var changes: UInt32 = 0
    /// When it was told of last, in the loop's elapsed time.
    var toldAt = Int64.min / 2
    /// Receipts that have expired up to here are told, or did so before anybody watched.
    var expiredThrough: Timestamp
    /// When the next one expires, as far as is known; none: none does.
    var expiry = Timestamp.none

    init(cid: [UInt8], expiredThrough: Timestamp) {
      self.cid = cid
      self.expiredThrough = expiredThrough
    }
  }

  /// When the next receipt of a channel expires.
  private struct Expiry: Comparable {
    var at: Timestamp
    var channel: Int32

    static func < (a: Expiry, b: Expiry) -> Bool { (a.at, a.channel) < (b.at, b.channel) }
  }

  /// What happened in one channel and is not told yet.
  struct Noted {
    let channel: Int32
    /// An incarnation of it was deleted then, before what the notes say; none: it was not.
    var deletedAt = Timestamp.none
    var notes = ChannelNotes()
  }

  /// What happened to one user and is not told yet.
  struct NotedUser {
    let user: [UInt8]
    var events: [UserEvent]
  }

  /// Nobody watches anything: nothing is looked up.
  var isEmpty: Bool { channelNumbers.isEmpty && users.isEmpty }
  /// By number, nil where it is free.
  private(set) var watchers: [Watcher?] = []
  private var freeWatchers: [Int32] = []
  /// By number, nil where it is free.
  private(set) var channels: [Channel?] = []
  private var freeChannels: [Int32] = []
  private var channelNumbers: [[UInt8]: Int32] = [:]
  /// From slots to numbers of channels; −1: not watched.
  private var slots: [Int32] = []
  /// Of all channels, the next one on top; those that are the channel's no more are passed over there.
  private var expiries = Heap<Expiry>()
  /// Watchers of each user.
  private var users: [[UInt8]: [Int32]] = [:]
  /// In the order in which something happened in them first.
  var noted: [Noted] = []
  private(set) var notedUsers: [NotedUser] = []
  private var notedUserPlaces: [[UInt8]: Int] = [:]

  /// Channels and users, each as often as it is watched.
  var count: Int { watchers.reduce(0) { $0 + ($1?.count ?? 0) } }

  // MARK: Watchers

  mutating func add(_ lane: ReplyLane, through: Timestamp, elapsed: Int64) -> Int32 {
    let watcher = Watcher(lane: lane, through: through, toldAt: elapsed)
    if let free = freeWatchers.popLast() {
      watchers[Int(free)] = watcher
      return free
    }
    watchers.append(watcher)
    return Int32(watchers.count - 1)
  }

  /// A connection has gone, and with it all that it watches.
  mutating func remove(_ watcher: Int32) {
    guard let gone = watchers[Int(watcher)] else { return }
    if gone.count > 0 {
      for number in channels.indices {
        guard let position = channels[number]?.watchers.firstIndex(of: watcher) else { continue }
        drop(position, ofChannel: Int32(number))
      }
      for (user, watching) in users where watching.contains(watcher) {
        let left = watching.filter { $0 != watcher }
        users[user] = left.isEmpty ? nil : left
      }
    }
    gone.lane.account.subscribes(-gone.count)
    watchers[Int(watcher)] = nil
    freeWatchers.append(watcher)
  }

  /// Changes what is kept of a watcher.
  mutating func update(_ watcher: Int, _ body: (inout Watcher) -> Void) {
    guard watchers[watcher] != nil else { return }
    body(&watchers[watcher]!)
  }

  private mutating func counts(_ watcher: Int32, _ difference: Int) {
    guard let lane = watchers[Int(watcher)]?.lane else { return }
    watchers[Int(watcher)]?.count += difference
    lane.account.subscribes(difference)
  }

  // MARK: Channels

  func number(of cid: [UInt8]) -> Int32? { channelNumbers[cid] }

  /// The number of the watched channel in a slot.
  func number(in slot: ChannelSlot) -> Int32? {
    let position = Int(slot.rawValue)
    guard position < slots.count, slots[position] >= 0 else { return nil }
    return slots[position]
  }

  func isWatched(_ cid: [UInt8], by watcher: Int32) -> Bool {
    channelNumbers[cid].map { channels[Int($0)]!.watchers.contains(watcher) } ?? false
  }

  /// Watches a channel that it does not watch yet.
  ///
  /// - Parameters:
  ///   - slot: where it is in memory.
  ///   - time: the shard's.
  /// - Returns: the channel's number, where nobody watched it before.
  @discardableResult
  mutating func watch(_ cid: [UInt8], at slot: ChannelSlot?, by watcher: Int32, at time: Timestamp) -> Int32?
  {
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
    return isNew ? number : nil
  }

  mutating func unwatch(_ cid: [UInt8], by watcher: Int32) {
    guard let number = channelNumbers[cid],
      let position = channels[Int(number)]!.watchers.firstIndex(of: watcher)
    else { return }
    drop(position, ofChannel: number)
    counts(watcher, -1)
  }

  /// Takes a watcher from a channel, and the channel where it was the last; what is noted of it is dropped when it is
  /// to be told.
  private mutating func drop(_ position: Int, ofChannel number: Int32) {
    channels[Int(number)]!.watchers.remove(at: position)
    guard let channel = channels[Int(number)], channel.watchers.isEmpty else { return }
    if let slot = channel.slot { slots[Int(slot.rawValue)] = -1 }
    if channel.noted >= 0 {
      noted.remove(at: Int(channel.noted))
      for later in Int(channel.noted)..<noted.count {
        channels[Int(noted[later].channel)]!.noted = Int32(later)
      }
    }
    channelNumbers[channel.cid] = nil
    channels[Int(number)] = nil
    freeChannels.append(number)
  }

  // MARK: Memory

  /// A channel has come into memory, or was made.
  ///
  /// - Returns: whether it is watched.
  @discardableResult
  mutating func entered(_ cid: [UInt8], _ slot: ChannelSlot) -> Bool {
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

  /// A channel has left memory.
  mutating func left(_ slot: ChannelSlot) {
    guard let number = number(in: slot) else { return }
    slots[Int(slot.rawValue)] = -1
    channels[Int(number)]!.slot = nil
  }

  /// Whether something happened in this channel that is not told: it stays in memory until it is.
  func isNoted(_ slot: ChannelSlot) -> Bool {
    number(in: slot).map { channels[Int($0)]!.noted >= 0 } ?? false
  }

  // MARK: Receipts that expire

  /// A channel's next receipt expires then; none: none does.
  mutating func expires(_ number: Int32, at time: Timestamp) {
    guard channels[Int(number)]!.expiry != time else { return }
    channels[Int(number)]!.expiry = time
    if time != .none { expiries.insert(Expiry(at: time, channel: number)) }
  }

  /// A channel has one more that expires then.
  mutating func expiresToo(_ number: Int32, at time: Timestamp) {
    let known = channels[Int(number)]!.expiry
    if known == .none || time < known { expires(number, at: time) }
  }

  /// Those of a channel that have expired up to a time are noted.
  mutating func expired(_ number: Int32, through time: Timestamp, next: Timestamp) {
    channels[Int(number)]!.expiredThrough = time
    expires(number, at: next)
  }

  /// When the next receipt of any channel expires; none: none does.
  var nextExpiry: Timestamp {
    mutating get {
      while let next = expiries.min {
        if channels[Int(next.channel)]?.expiry == next.at { return next.at }
        expiries.removeMin()
      }
      return .none
    }
  }

  /// Takes the channels of which a receipt expires up to a time.
  mutating func takeExpiring(through time: Timestamp) -> [[UInt8]] {
    var cids: [[UInt8]] = []
    while nextExpiry != .none, nextExpiry <= time, let next = expiries.popMin() {
      channels[Int(next.channel)]!.expiry = .none
      cids.append(channels[Int(next.channel)]!.cid)
    }
    return cids
  }

  // MARK: Notes

  /// Where what happens in a channel is noted.
  mutating func place(_ number: Int32) -> Int {
    channels[Int(number)]!.changes &+= 1
    let known = channels[Int(number)]!.noted
    if known >= 0 { return Int(known) }
    noted.append(Noted(channel: number))
    channels[Int(number)]!.noted = Int32(noted.count - 1)
    return noted.count - 1
  }

  /// Takes all that was noted; what is not told now is given back to ``keep(_:)``.
  mutating func takeNoted() -> [Noted] {
    var taken: [Noted] = []
    swap(&taken, &noted)
    for item in taken { channels[Int(item.channel)]!.noted = -1 }
    return taken
  }

  mutating func keep(_ item: Noted) {
    channels[Int(item.channel)]!.noted = Int32(noted.count)
    noted.append(item)
  }

  mutating func told(_ number: Int32, elapsed: Int64) { channels[Int(number)]!.toldAt = elapsed }

  // MARK: Users

  var watchesUsers: Bool { !users.isEmpty }

  func watchers(ofUser user: [UInt8]) -> [Int32] { users[user] ?? [] }

  mutating func watch(user: [UInt8], by watcher: Int32) {
    guard users[user]?.contains(watcher) != true else { return }
    users[user, default: []].append(watcher)
    counts(watcher, 1)
  }

  mutating func unwatch(user: [UInt8], by watcher: Int32) {
    guard let position = users[user]?.firstIndex(of: watcher) else { return }
    users[user]!.remove(at: position)
    if users[user]!.isEmpty { users[user] = nil }
    counts(watcher, -1)
  }

  /// Notes what happened to a user who is watched.
  mutating func note(user: [UInt8], _ event: UserEvent) {
    guard users[user] != nil else { return }
    if let place = notedUserPlaces[user] {
      notedUsers[place].events.append(event)
    } else {
      notedUserPlaces[user] = notedUsers.count
      notedUsers.append(NotedUser(user: user, events: [event]))
    }
  }

  mutating func takeNotedUsers() -> [NotedUser] {
    var taken: [NotedUser] = []
    swap(&taken, &notedUsers)
    notedUserPlaces.removeAll(keepingCapacity: true)
    return taken
  }
}

/// What happened to a user.
enum UserEvent {
  /// What their index of channels says of one channel now.
  case membership(Membership, at: Timestamp, isGone: Bool)
  /// Tokens issued before this time are refused.
  case tokensRevoked(before: Timestamp)
}
