internal import DequeModule
internal import HTTP2Session
internal import NIOCore
internal import Operations

/// Limiter of the queries that the store has to answer at once. The rest wait in a ``QueryQueue``.
final class QueriesPart: GatewayPart {
  private var queue = QueryQueue()
  /// Queries that had to wait, since the start.
  private var delayed: UInt64 = 0
  private var isChecking = false
  private var isContinuing = false

  /// Queries that wait.
  var waitingCount: Int { queue.count }

  /// Begin a query if it may be sent now; otherwise enqueue it to be handled again later.
  ///
  /// - Returns: whether the query may be sent now.
  /// - Throws: `store_busy` where too many wait.
  func beginOrEnqueue(_ route: Route, _ context: RequestContext) throws(Problem) -> Bool {
    if context.hasWaited || queue.count == 0 && hasRoom { return true }
    guard queue.count < loop.limits.queriesWaiting else { throw Self.tooMany }
    queue.append(
      QueryQueue.Waiting(
        connection: context.connection,
        stream: context.stream,
        caller: context.caller,
        route: route,
        deadline: loop.eventLoop.now + loop.limits.queryWait
      )
    )
    delayed &+= 1
    if !isChecking { scheduleCheck() }
    return false
  }

  private static let tooMany = Problem(.storeBusy, "too many queries wait for the store")
  /// Queries that begin, or are refused, in one turn of the loop.
  private static let countPerTurn = 256

  private var hasRoom: Bool { loop.pendingQueries < loop.limits.queriesInFlight }

  /// Send queries that have room now.
  func beginWaiting() {
    var remaining = Self.countPerTurn
    while hasRoom, remaining > 0, let query = queue.next() {
      remaining -= 1
      guard let connection = loop.connections.answering(query.stream, on: query.connection) else { continue }
      loop.resumeRequest(query.stream, connection, caller: query.caller)
    }
    // The others of this turn have been refused, or are gone: no reply continues with what waits.
    if queue.count > 0, hasRoom { continueLater() }
  }

  /// Answer queries that have waited too long, as when the store answers nothing.
  private func refuseOverdue() {
    let overdue = queue.takeOverdue(now: loop.eventLoop.now, countMax: Self.countPerTurn)
    for query in overdue {
      guard let connection = loop.connections.answering(query.stream, on: query.connection) else { continue }
      loop.answer(Self.tooMany, route: query.route, stream: query.stream, connection: connection)
    }
    if overdue.count == Self.countPerTurn { continueLater() }
  }

  /// Continue in a later turn, after other events of the loop.
  private func continueLater() {
    guard !isContinuing else { return }
    isContinuing = true
    runInLaterTurn { [self] in
      isContinuing = false
      proceed()
    }
  }

  private func proceed() {
    refuseOverdue()
    beginWaiting()
    loop.endTurn()
  }

  private func scheduleCheck() {
    isChecking = true
    runLater(in: .milliseconds(500)) { [self] in
      isChecking = false
      queue.removeAll { query in
        !(loop.connections.connection(query.connection)?.isOpen(query.stream) ?? false)
      }
      proceed()
      if queue.count > 0, !isChecking { scheduleCheck() }
    }
  }

  override func collect(into samples: inout MetricSamples) {
    samples.gauge(
      "tidemark_gateway_queries_waiting",
      help: "Queries waiting until the store has answered earlier ones.",
      Double(waitingCount)
    )
    samples.counter(
      "tidemark_gateway_queries_delayed_total",
      help: "Queries that had to wait for earlier ones.",
      Int64(clamping: delayed)
    )
  }
}

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
