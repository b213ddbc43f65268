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
///
/// Under load each query passes through it, so tables are searched once for each operation.
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

    /// Add an entry. Returns whether the share is new.
    mutating func append(_ id: ID) -> Bool {
      ids.append(id)
      count += 1
      return ids.count == 1
    }
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
    let earlier = entries.updateValue(Waiting(entry: entry, share: share), forKey: id)
    assert(earlier == nil, "an entry waits twice")
    if shares[share, default: Share()].append(id) { turns.append(share) }
    idCount += 1
    addedCount &+= 1
  }

  /// Remove and return the entry whose turn is next, if it may begin.
  mutating func popFirst(where mayBegin: (Entry) -> Bool = { _ in true }) -> Entry? {
    while let share = turns.first {
      switch popOldest(of: share, where: mayBegin) {
      case .refused: return nil
      case .none: turns.removeFirst()
      case .popped(let entry, hasMore: let hasMore):
        turns.removeFirst()
        if hasMore { turns.append(share) }
        if entries.isEmpty, idCount > 0 { removeCancelledIDs() }
        return entry
      }
    }
    return nil
  }

  /// Remove and return the oldest entries of each share, as far as they match, at most `countMax`.
  mutating func popOldest(countMax: Int, while matches: (Entry) -> Bool) -> [Entry] {
    var popped: [Entry] = []
    for _ in 0..<turns.count where popped.count < countMax {
      let share = turns.removeFirst()
      while popped.count < countMax, case .popped(let entry, _) = popOldest(of: share, where: matches) {
        popped.append(entry)
      }
      if shares[share] != nil { turns.append(share) }
    }
    if entries.isEmpty, idCount > 0 { removeCancelledIDs() }
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

  private enum Popped {
    /// The share had no entries, and is removed.
    case none
    /// Its oldest entry may not begin, and stays.
    case refused
    case popped(Entry, hasMore: Bool)
  }

  /// Remove and return the oldest entry of a share, if it may begin. A share without entries is removed.
  private mutating func popOldest(of share: UInt64, where mayBegin: (Entry) -> Bool) -> Popped {
    guard let position = shares.index(forKey: share) else { return .none }
    while let id = shares.values[position].ids.first {
      if let found = entries.index(forKey: id) {
        let entry = entries.values[found].entry
        guard mayBegin(entry) else { return .refused }
        entries.remove(at: found)
        shares.values[position].ids.removeFirst()
        shares.values[position].count -= 1
        idCount -= 1
        let hasMore = !shares.values[position].ids.isEmpty
        if !hasMore { shares.remove(at: position) }
        return .popped(entry, hasMore: hasMore)
      }
      shares.values[position].ids.removeFirst()
      idCount -= 1
    }
    shares.remove(at: position)
    return .none
  }

  private mutating func removeCancelledIDs() {
    for share in shares.keys { shares[share]?.ids.removeAll { entries[$0] == nil } }
    shares = shares.filter { !$0.value.ids.isEmpty }
    turns.removeAll { shares[$0] == nil }
    idCount = entries.count
  }
}
