internal import DequeModule
internal import HTTP2Session
internal import NIOCore

/// Queries that wait until the store has answered earlier ones. A pure state machine.
///
/// A query that reads a page of rows costs the store and the gateway ten times as much as a mark. Thousands of them
/// sent at once would delay everybody's marks. Callers take turns, so that the queries of one do not delay those of
/// others. Its user limits their number.
struct QueryQueue {
  /// A query that has been admitted and charged, and of which nothing has been sent.
  struct Waiting {
    let connection: ConnectionIndex
    let stream: HTTP2StreamHandle
    let caller: Caller
    let route: Route
    let deadline: NIODeadline
  }

  /// Waiting queries by caller (``Caller/key``), oldest first. No value is empty.
  private var queries: [UInt64: Deque<Waiting>] = [:]
  /// The callers with waiting queries, in the order of their turns.
  private var turns = Deque<UInt64>()
  /// Queries that wait.
  private(set) var count = 0

  mutating func append(_ query: Waiting) {
    let key = query.caller.key
    if queries[key] == nil { turns.append(key) }
    queries[key, default: []].append(query)
    count += 1
  }

  /// Remove and return the oldest query of the caller whose turn it is; nil if none waits.
  mutating func next() -> Waiting? {
    guard let key = turns.popFirst() else { return nil }
    let (query, isLast) = takeFirst(of: key)
    if !isLast { turns.append(key) }
    return query
  }

  /// Remove and return queries whose deadline has passed, at most `countMax`. All queries have the same timeout, so
  /// that a caller's oldest is due first.
  mutating func takeOverdue(now: NIODeadline, countMax: Int) -> [Waiting] {
    var overdue: [Waiting] = []
    for _ in 0..<turns.count where overdue.count < countMax {
      let key = turns.removeFirst()
      while overdue.count < countMax, let first = queries[key]?.first, first.deadline <= now {
        if let query = takeFirst(of: key).0 { overdue.append(query) }
      }
      if queries[key] != nil { turns.append(key) }
    }
    return overdue
  }

  /// Remove queries of closed streams.
  mutating func removeAll(where isGone: (Waiting) -> Bool) {
    for key in turns {
      queries[key]?.removeAll(where: isGone)
      if queries[key]?.isEmpty ?? true { queries[key] = nil }
    }
    turns.removeAll { queries[$0] == nil }
    count = queries.values.reduce(0) { $0 + $1.count }
  }

  private mutating func takeFirst(of key: UInt64) -> (Waiting?, isLast: Bool) {
    let query = queries[key]?.popFirst()
    let isLast = queries[key]?.isEmpty ?? true
    if isLast { queries[key] = nil }
    if query != nil { count -= 1 }
    return (query, isLast)
  }
}
