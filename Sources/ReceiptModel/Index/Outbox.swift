/// Pending membership changes from one shard to the home shards of their users, which keep the indexes of users'
/// channels (R13, R14). Holds the changes queued for each other shard and that shard's progress, and this shard's
/// progress in the changes of each other shard.
///
/// Every change has a number, assigned in order and never reused. A change is logged with the effects that caused it,
/// delivered to its shard at least once and in order, and applied there once: the receiver keeps the highest number. No
/// tombstone is needed, so an erased user leaves none.
package struct Outbox: ~Copyable, Sendable {
  /// A pending change.
  package struct QueuedChange: Hashable, Sendable {
    package var number: UInt64
    package var change: MembershipChange

    package init(number: UInt64, change: MembershipChange) {
      self.number = number
      self.change = change
    }
  }

  /// This shard's state towards another shard.
  private struct Peer {
    /// In rising order, from `head` on; earlier ones were applied there.
    var changes: [QueuedChange] = []
    var head = 0
    /// The other shard has confirmed the changes for it up to here.
    var confirmed: UInt64 = 0
    /// This shard's index includes the other shard's changes up to here.
    var received: UInt64 = 0
    /// Changes were queued since the last ``Outbox/takeQueued()``.
    var isQueued = false

    /// Return the index of the first of `changes` whose number is above `number`.
    func index(after number: UInt64) -> Int {
      var low = head
      var high = changes.count
      while low < high {
        let middle = (low + high) / 2
        if changes[middle].number > number { high = middle } else { low = middle + 1 }
      }
      return low
    }
  }

  /// Maximum number of pending changes of one shard. Beyond it, commands that would queue changes are refused as
  /// `busy`.
  package static let pendingMax = 131_072
  /// The upper bound of numbers; a higher one that is read back was never assigned.
  package static let numberMax = UInt64(1) << 62

  private let shardCount: Int
  private var peers: [Peer] = []
  private var queued: [ShardID] = []
  /// The highest assigned number.
  package private(set) var last: UInt64 = 0
  /// The epoch of queued changes; raised by every rebuild of the index.
  package private(set) var epoch: UInt64 = 0
  /// Number of changes that are not known to be applied.
  package private(set) var count = 0

  /// - Parameter shardCount: number of shards in the store, the modulus of a user's hash.
  init(shardCount: Int) { self.shardCount = shardCount }

  package var isFull: Bool { count > Self.pendingMax }

  /// Return the home shard of this user, to which the user's changes go.
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

  /// Return the number up to which another shard has confirmed this shard's changes, according to the log.
  package func confirmed(by shard: ShardID) -> UInt64 { peer(shard)?.confirmed ?? 0 }

  /// Return the number up to which changes from another shard are in the index.
  package func received(from shard: ShardID) -> UInt64 { peer(shard)?.received ?? 0 }

  // MARK: Pending changes

  /// Return the shards for which changes were queued since the last call.
  package mutating func takeQueued() -> [ShardID] {
    guard !queued.isEmpty else { return [] }
    for shard in queued { peers[Int(shard.rawValue)].isQueued = false }
    defer { queued = [] }
    return queued
  }

  /// Return at most `limit` changes for a shard with numbers above `first` and up to `end`.
  package func changes(for shard: ShardID, after first: UInt64, through end: UInt64, limit: Int) -> [QueuedChange] {
    guard Int(shard.rawValue) < peers.count else { return [] }
    let start = peers[Int(shard.rawValue)].index(after: first)
    let stop = max(start, min(peers[Int(shard.rawValue)].index(after: end), start + max(0, limit)))
    return Array(peers[Int(shard.rawValue)].changes[start..<stop])
  }

  /// Return the number of changes for a shard with numbers above `first` and up to `end`.
  package func count(for shard: ShardID, after first: UInt64, through end: UInt64) -> Int {
    guard Int(shard.rawValue) < peers.count, first < end else { return 0 }
    return peers[Int(shard.rawValue)].index(after: end) - peers[Int(shard.rawValue)].index(after: first)
  }

  /// Return whether a change with this number or a lower one is kept, applied or not.
  package func keepsChanges(through number: UInt64) -> Bool {
    peers.contains { $0.head < $0.changes.count && $0.changes[$0.head].number <= number }
  }

  /// Return whether there is a change for this shard above a number.
  package func hasChanges(for shard: ShardID, after number: UInt64) -> Bool {
    guard Int(shard.rawValue) < peers.count else { return false }
    return peers[Int(shard.rawValue)].changes.last.map { $0.number > number } ?? false
  }

  // MARK: Assignment

  /// Queue a change. Ignores a change that was applied already: pages keep changes until they are written again.
  ///
  /// - Returns: whether the change is now pending.
  @discardableResult
  package mutating func queue(_ number: UInt64, _ change: MembershipChange) -> Bool {
    last = max(last, number)
    let shard = target(of: change.user)
    var isNew = false
    let isQueued = withPeer(shard) { peer in
      guard number > peer.confirmed else { return false }
      let queued = QueuedChange(number: number, change: change)
      if number > peer.changes.last?.number ?? 0 || peer.head == peer.changes.count {
        peer.changes.append(queued)
      } else {
        // Pages are read back in ring order, not in order of numbers.
        let index = peer.index(after: number)
        if index > peer.head, peer.changes[index - 1].number == number { return false }
        peer.changes.insert(queued, at: index)
      }
      isNew = !peer.isQueued
      peer.isQueued = true
      return true
    }
    if isQueued { count += 1 }
    if isNew { queued.append(shard) }
    return isQueued
  }

  /// Record that a shard has confirmed the changes for it up to `number`.
  mutating func assignConfirmed(_ shard: ShardID, through number: UInt64) {
    last = max(last, number)
    let dropped = withPeer(shard) { peer in
      guard number > peer.confirmed else { return 0 }
      peer.confirmed = number
      let index = peer.index(after: number)
      let dropped = index - peer.head
      peer.head = index
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

  /// Record that the index includes a shard's changes up to `number`.
  mutating func assignReceived(_ shard: ShardID, through number: UInt64) {
    withPeer(shard) { $0.received = max($0.received, number) }
  }

  mutating func assign(epoch: UInt64) { self.epoch = max(self.epoch, epoch) }

  // MARK: Pages

  /// Return the pages that keep changes for a shard up to a number, each once. They must be written again once these
  /// changes are applied.
  package func pages(for shard: ShardID, through number: UInt64) -> [UInt32] {
    guard Int(shard.rawValue) < peers.count else { return [] }
    let changes = peers[Int(shard.rawValue)].changes
    var pages: [UInt32] = []
    var index = peers[Int(shard.rawValue)].head
    while index < changes.count, changes[index].number <= number {
      let page = PageID.outboxPage(of: changes[index].number)
      if pages.last != page { pages.append(page) }
      index += 1
    }
    return pages
  }

  /// Return the effects that reproduce a page of pending changes.
  func effects(of page: UInt32) -> [Effect] {
    guard
      let oldest = peers.lazy.compactMap({ $0.head < $0.changes.count ? $0.changes[$0.head].number : nil })
        .min()
    else { return [] }
    let size = PageID.changesPerOutboxPage
    // The first number that belongs to this page, not before the oldest change's page.
    let round = size * PageID.outboxPages
    var first = oldest / round * round + UInt64(page) * size
    if first + size <= oldest { first += round }
    var found: [QueuedChange] = []
    while first <= last {
      for peer in peers where peer.head < peer.changes.count {
        var index = first == 0 ? peer.head : peer.index(after: first - 1)
        while index < peer.changes.count, peer.changes[index].number < first + size {
          found.append(peer.changes[index])
          index += 1
        }
      }
      first += round
    }
    found.sort { $0.number < $1.number }
    return found.map { .shard(.membershipQueued($0.number, $0.change)) }
  }

  /// The effects that reproduce the page of the progress of confirmed and received changes.
  var indexEffects: [Effect] {
    var effects: [Effect] = epoch == 0 ? [] : [.shard(.indexEpochAssigned(epoch))]
    for (position, peer) in peers.enumerated() {
      let shard = ShardID(UInt16(position))
      if peer.confirmed > 0 { effects.append(.shard(.membershipsConfirmed(by: shard, through: peer.confirmed))) }
      if peer.received > 0 { effects.append(.shard(.membershipsReceived(from: shard, through: peer.received))) }
    }
    return effects
  }

  #if DEBUG
    func checkInvariants() -> String? {
      var pending = 0
      for (position, peer) in peers.enumerated() {
        pending += peer.changes.count - peer.head
        var before = peer.confirmed
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
      return pending == count ? nil : "\(pending) changes are pending, but count is \(count)"
    }
  #endif
}
