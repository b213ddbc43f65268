/// Changes of memberships on their way from one shard to the home shards of their users, where the index of a user's
/// channels is kept (R13, R14): what this shard has queued for each other one and what that has taken, and what this
/// shard has taken from each.
///
/// Every change has a number, given in order and never again. A change is logged with what it tells of, brought to its
/// shard at least once and in order, and taken there once: whoever takes it keeps the highest number. No tombstone is
/// needed, so somebody who was erased leaves none.
package struct Outbox: ~Copyable, Sendable {
  /// A change that is on its way.
  package struct QueuedChange: Hashable, Sendable {
    package var number: UInt64
    package var change: MembershipChange

    package init(number: UInt64, change: MembershipChange) {
      self.number = number
      self.change = change
    }
  }

  /// What this shard has with another one.
  private struct Peer {
    /// In rising order, from `head` on; what stands before was taken.
    var changes: [QueuedChange] = []
    var head = 0
    /// It has taken the changes for it up to here.
    var sent: UInt64 = 0
    /// Its changes up to here are in the index.
    var taken: UInt64 = 0
    /// Changes were queued since ``Outbox/takeQueued()``.
    var isQueued = false

    /// The first of `changes` whose number is above this one.
    func place(after number: UInt64) -> Int {
      var low = head
      var high = changes.count
      while low < high {
        let middle = (low + high) / 2
        if changes[middle].number > number { high = middle } else { low = middle + 1 }
      }
      return low
    }
  }

  /// Changes that may be on their way from one shard; where there are more, what would queue some is `busy`.
  package static let pendingMax = 131_072
  /// Numbers end here: one that is read back and is higher was never given.
  package static let numberMax = UInt64(1) << 62

  private let shardCount: Int
  private var peers: [Peer] = []
  private var queued: [ShardID] = []
  /// The highest number that was given.
  package private(set) var last: UInt64 = 0
  /// What queued changes carry; it rises with every rebuilding of the index.
  package private(set) var epoch: UInt64 = 0
  /// Changes that are not known to be taken.
  package private(set) var count = 0

  /// - Parameter shardCount: of the whole store, which a user's hash is taken modulo.
  init(shardCount: Int) { self.shardCount = shardCount }

  package var isFull: Bool { count > Self.pendingMax }

  /// The shard to which changes for this user go.
  package func target(of user: String) -> ShardID {
    var user = user
    return user.withUTF8 { ShardID.owning($0.span.bytes, count: shardCount) }
  }

  private mutating func withPeer<Result>(_ shard: ShardID, _ body: (inout Peer) -> Result) -> Result {
    while peers.count <= Int(shard.rawValue) { peers.append(Peer()) }
    return body(&peers[Int(shard.rawValue)])
  }

  private func peer(_ shard: ShardID) -> Peer? {
    Int(shard.rawValue) < peers.count ? peers[Int(shard.rawValue)] : nil
  }

  /// The number up to which another shard has taken changes from this one, as far as the log says.
  package func sent(to shard: ShardID) -> UInt64 { peer(shard)?.sent ?? 0 }

  /// The number up to which changes from another shard are in the index.
  package func taken(from shard: ShardID) -> UInt64 { peer(shard)?.taken ?? 0 }

  // MARK: What is on its way

  /// The shards for which changes were queued since this was asked last.
  package mutating func takeQueued() -> [ShardID] {
    guard !queued.isEmpty else { return [] }
    for shard in queued { peers[Int(shard.rawValue)].isQueued = false }
    defer { queued = [] }
    return queued
  }

  /// Changes for a shard behind one number and up to another, the first so many of them.
  package func changes(for shard: ShardID, after first: UInt64, through end: UInt64, limit: Int)
    -> [QueuedChange]
  {
    guard Int(shard.rawValue) < peers.count else { return [] }
    let start = peers[Int(shard.rawValue)].place(after: first)
    let stop = max(start, min(peers[Int(shard.rawValue)].place(after: end), start + max(0, limit)))
    return Array(peers[Int(shard.rawValue)].changes[start..<stop])
  }

  /// How many changes for a shard are behind one number and not behind another.
  package func count(for shard: ShardID, after first: UInt64, through end: UInt64) -> Int {
    guard Int(shard.rawValue) < peers.count, first < end else { return 0 }
    return peers[Int(shard.rawValue)].place(after: end) - peers[Int(shard.rawValue)].place(after: first)
  }

  /// Whether a change up to this one is kept, taken or not.
  package func keepsChanges(through number: UInt64) -> Bool {
    peers.contains { $0.head < $0.changes.count && $0.changes[$0.head].number <= number }
  }

  /// Whether a change for this shard is behind a number.
  package func hasChanges(for shard: ShardID, after number: UInt64) -> Bool {
    guard Int(shard.rawValue) < peers.count else { return false }
    return peers[Int(shard.rawValue)].changes.last.map { $0.number > number } ?? false
  }

  // MARK: Assignment

  /// Queues a change. One that was taken already is left out: pages keep changes until they are written again.
  ///
  /// - Returns: whether it is on its way now.
  @discardableResult
  package mutating func queue(_ number: UInt64, _ change: MembershipChange) -> Bool {
    last = max(last, number)
    let shard = target(of: change.user)
    var isNew = false
    let isQueued = withPeer(shard) { peer in
      guard number > peer.sent else { return false }
      let queued = QueuedChange(number: number, change: change)
      if number > peer.changes.last?.number ?? 0 || peer.head == peer.changes.count {
        peer.changes.append(queued)
      } else {
        // Pages are read back in the order in which they are gone round, not in that of the numbers.
        let place = peer.place(after: number)
        if place > peer.head, peer.changes[place - 1].number == number { return false }
        peer.changes.insert(queued, at: place)
      }
      isNew = !peer.isQueued
      peer.isQueued = true
      return true
    }
    if isQueued { count += 1 }
    if isNew { queued.append(shard) }
    return isQueued
  }

  /// A shard has taken the changes for it up to here.
  mutating func assignSent(_ shard: ShardID, through number: UInt64) {
    last = max(last, number)
    let dropped = withPeer(shard) { peer in
      guard number > peer.sent else { return 0 }
      peer.sent = number
      let place = peer.place(after: number)
      let dropped = place - peer.head
      peer.head = place
      if peer.head == peer.changes.count {
        peer.changes.removeAll(keepingCapacity: peer.changes.capacity <= 1_024)
        peer.head = 0
      } else if peer.head > peer.changes.count / 2 {
        peer.changes.removeFirst(peer.head)
        peer.head = 0
      }
      return dropped
    }
    count -= dropped
  }

  /// Changes from a shard up to here are in the index.
  mutating func assignTaken(_ shard: ShardID, through number: UInt64) {
    withPeer(shard) { $0.taken = max($0.taken, number) }
  }

  mutating func assign(epoch: UInt64) { self.epoch = max(self.epoch, epoch) }

  // MARK: Pages

  /// The pages that keep changes for a shard up to a number, each once: they are to be written again once these are
  /// taken.
  package func pages(for shard: ShardID, through number: UInt64) -> [UInt32] {
    guard Int(shard.rawValue) < peers.count else { return [] }
    let changes = peers[Int(shard.rawValue)].changes
    var pages: [UInt32] = []
    var place = peers[Int(shard.rawValue)].head
    while place < changes.count, changes[place].number <= number {
      let page = PageID.outboxPage(of: changes[place].number)
      if pages.last != page { pages.append(page) }
      place += 1
    }
    return pages
  }

  /// The effects that make a page of what is on its way.
  func effects(of page: UInt32) -> [Effect] {
    guard
      let oldest = peers.lazy.compactMap({ $0.head < $0.changes.count ? $0.changes[$0.head].number : nil })
        .min()
    else { return [] }
    let size = PageID.changesPerOutboxPage
    // The first of the numbers that this page keeps, the oldest change's or after it.
    let round = size * PageID.outboxPages
    var first = oldest / round * round + UInt64(page) * size
    if first + size <= oldest { first += round }
    var found: [QueuedChange] = []
    while first <= last {
      for peer in peers where peer.head < peer.changes.count {
        var place = first == 0 ? peer.head : peer.place(after: first - 1)
        while place < peer.changes.count, peer.changes[place].number < first + size {
          found.append(peer.changes[place])
          place += 1
        }
      }
      first += round
    }
    found.sort { $0.number < $1.number }
    return found.map { .membershipQueued($0.number, $0.change) }
  }

  /// The effects that make the page of how far changes are sent and taken.
  var indexEffects: [Effect] {
    var effects: [Effect] = epoch == 0 ? [] : [.indexEpochAssigned(epoch)]
    for (position, peer) in peers.enumerated() {
      let shard = ShardID(UInt16(position))
      if peer.sent > 0 { effects.append(.membershipsSent(to: shard, through: peer.sent)) }
      if peer.taken > 0 { effects.append(.membershipsTaken(from: shard, through: peer.taken)) }
    }
    return effects
  }

  #if DEBUG
    func checkInvariants() -> String? {
      var pending = 0
      for (position, peer) in peers.enumerated() {
        pending += peer.changes.count - peer.head
        var before = peer.sent
        for queued in peer.changes[peer.head...] {
          if queued.number <= before {
            return "change \(queued.number) for shard \(position) is out of order"
          }
          if Int(target(of: queued.change.user).rawValue) != position {
            return "change \(queued.number) is queued for shard \(position), not its user's"
          }
          before = queued.number
        }
        if before > last { return "change \(before) was not numbered yet" }
      }
      return pending == count ? nil : "\(pending) changes are on their way, \(count) are counted"
    }
  #endif
}
