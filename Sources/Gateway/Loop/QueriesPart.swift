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
