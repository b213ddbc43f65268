internal import DequeModule
internal import HTTP2Session
internal import NIOCore

/// Queries that wait until the store has answered earlier ones. A pure state machine.
///
/// A query that reads a page of rows costs the store and the gateway ten times as much as a mark. Thousands of them
/// sent at once would delay everybody's marks. Callers take turns, so that the queries of one do not delay those of
/// others. The queue has no limit of its own: the memory limit of open streams bounds it.
struct QueryQueue {
  /// A query that has been admitted and charged, and of which nothing has been sent.
  struct Waiting {
    let connection: UInt32
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

  /// Removes and returns the oldest query of the caller whose turn it is; nil if none waits.
  mutating func next() -> Waiting? {
    guard let key = turns.popFirst() else { return nil }
    let (query, isLast) = takeFirst(of: key)
    if !isLast { turns.append(key) }
    return query
  }

  /// Removes and returns a query whose deadline has passed; nil if there is none. All queries have the same timeout, so
  /// that a caller's oldest is due first.
  mutating func nextOverdue(now: NIODeadline) -> Waiting? {
    guard let key = turns.first(where: { key in queries[key]?.first.map { $0.deadline <= now } ?? false })
    else { return nil }
    let (query, isLast) = takeFirst(of: key)
    if isLast { turns.removeAll { $0 == key } }
    return query
  }

  private mutating func takeFirst(of key: UInt64) -> (Waiting?, isLast: Bool) {
    let query = queries[key]?.popFirst()
    let isLast = queries[key]?.isEmpty ?? true
    if isLast { queries[key] = nil }
    if query != nil { count -= 1 }
    return (query, isLast)
  }
}
