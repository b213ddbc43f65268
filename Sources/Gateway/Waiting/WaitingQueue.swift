internal import DequeModule

/// Limits on the ``WaitingQueue``s of each event loop.
package struct WaitingLimits: Sendable {
  /// Requests whose token is being verified; one more is answered 503.
  package var verifications = 4_096
  /// The same, of one connection or of one client behind a trusted proxy.
  package var verificationsPerOrigin = 512
  /// Page queries that wait until the store has answered earlier ones; one more is answered 503.
  package var pageQueries = 32_768
  /// Batches that wait for room in the store's request window; one more is answered 503. Their bodies stay in their
  /// streams, whose number and bytes HTTP/2 bounds.
  package var batches = 32_768
  /// Event streams that wait to be opened; one more is answered 503.
  package var openings = 10_000
  // Two queues need no limit of their own: streamed requests that wait for room are open
  // (``GatewayLimits/requestStreams``), and users whose totals are due have an open event stream each.

  package init() {}
}

/// Queue of entries that wait until a limit lets them begin: bounded in number, oldest first, cancelled by id. A pure
/// state machine.
///
/// Shares, such as callers, take turns, so that the many entries of one do not delay those of others.
struct WaitingQueue<ID: Hashable, Entry> {
  private struct Waiting {
    let entry: Entry
    let share: UInt64
  }

  private struct Share {
    /// The ids of its entries, oldest first. Some were cancelled since.
    var ids = Deque<ID>()
    /// Its entries.
    var count = 0
  }

  private let limit: Int
  private let limitPerShare: Int
  private var entries: [ID: Waiting] = [:]
  private var shares: [UInt64: Share] = [:]
  /// The keys of ``shares``, in the order of their turns.
  private var turns = Deque<UInt64>()
  /// Ids in ``shares``, with those of cancelled entries.
  private(set) var idCount = 0
  /// Entries added since the start.
  private(set) var addedCount: UInt64 = 0

  /// Cancelled ids that are kept before they are removed at once.
  private static var cancelledMax: Int { 1_024 }

  /// - Parameters:
  ///   - limit: maximum number of entries.
  ///   - limitPerShare: the same of each share but 0.
  init(limit: Int = .max, limitPerShare: Int = .max) {
    self.limit = limit
    self.limitPerShare = limitPerShare
  }

  var count: Int { entries.count }
  var isEmpty: Bool { entries.isEmpty }

  /// Whether the limit on all entries is reached.
  var isFull: Bool { entries.count >= limit }

  func contains(_ id: ID) -> Bool { entries[id] != nil }

  /// The entry whose turn is next.
  var first: Entry? {
    for share in turns {
      if let id = shares[share]?.ids.first(where: { entries[$0] != nil }) { return entries[id]?.entry }
    }
    return nil
  }

  /// Add an entry.
  ///
  /// - Parameters:
  ///   - id: not that of another entry.
  ///   - share: the party whose entries take turns with those of others; 0: no party.
  /// - Returns: false where a limit is reached.
  mutating func append(_ entry: Entry, id: ID, share: UInt64 = 0) -> Bool {
    guard !isFull, share == 0 || shares[share]?.count ?? 0 < limitPerShare else { return false }
    requeue(entry, id: id, share: share)
    return true
  }

  /// Add an entry that has begun before and waits to continue, whatever the limits are.
  mutating func requeue(_ entry: Entry, id: ID, share: UInt64 = 0) {
    assert(entries[id] == nil, "an entry waits twice")
    entries[id] = Waiting(entry: entry, share: share)
    if shares[share] == nil { turns.append(share) }
    shares[share, default: Share()].ids.append(id)
    shares[share]?.count += 1
    idCount += 1
    addedCount &+= 1
  }

  /// Remove and return the entry whose turn is next, if it may begin.
  mutating func popFirst(where mayBegin: (Entry) -> Bool = { _ in true }) -> Entry? {
    while let share = turns.first {
      if let next = oldest(of: share) {
        guard mayBegin(next.entry) else { return nil }
        turns.removeFirst()
        removeOldest(next.id, of: share)
        if shares[share] != nil { turns.append(share) }
        return next.entry
      }
      turns.removeFirst()
    }
    return nil
  }

  /// Remove and return the oldest entries of each share, as far as they match, at most `countMax`.
  mutating func popOldest(countMax: Int, while matches: (Entry) -> Bool) -> [Entry] {
    var popped: [Entry] = []
    for _ in 0..<turns.count where popped.count < countMax {
      let share = turns.removeFirst()
      while popped.count < countMax, let next = oldest(of: share), matches(next.entry) {
        removeOldest(next.id, of: share)
        popped.append(next.entry)
      }
      if shares[share] != nil { turns.append(share) }
    }
    return popped
  }

  /// Remove an entry whose owner has gone; nil: it does not wait.
  @discardableResult
  mutating func cancel(_ id: ID) -> Entry? {
    guard !entries.isEmpty, let cancelled = entries.removeValue(forKey: id) else { return nil }
    shares[cancelled.share]?.count -= 1
    if entries.isEmpty || idCount > 2 * entries.count + Self.cancelledMax { removeCancelledIDs() }
    return cancelled.entry
  }

  /// Return the oldest entry of a share. A share without entries is removed.
  private mutating func oldest(of share: UInt64) -> (id: ID, entry: Entry)? {
    while let id = shares[share]?.ids.first {
      if let waiting = entries[id] { return (id, waiting.entry) }
      shares[share]?.ids.removeFirst()
      idCount -= 1
    }
    shares[share] = nil
    return nil
  }

  private mutating func removeOldest(_ id: ID, of share: UInt64) {
    entries[id] = nil
    shares[share]?.ids.removeFirst()
    shares[share]?.count -= 1
    idCount -= 1
    if shares[share]?.ids.isEmpty == true { shares[share] = nil }
    if entries.isEmpty, idCount > 0 { removeCancelledIDs() }
  }

  private mutating func removeCancelledIDs() {
    for share in shares.keys { shares[share]?.ids.removeAll { entries[$0] == nil } }
    shares = shares.filter { !$0.value.ids.isEmpty }
    turns.removeAll { shares[$0] == nil }
    idCount = entries.count
  }
}
