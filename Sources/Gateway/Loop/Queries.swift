internal import HTTP2Session
internal import NIOCore
internal import Operations

/// Limits the queries that the store has to answer at once. The rest wait in a ``QueryQueue``.
final class Queries: GatewayPart {
  private var queue = QueryQueue()
  /// Queries that had to wait, since the start.
  private var delayed: UInt64 = 0
  private var isChecking = false

  /// Queries that wait.
  var waitingCount: Int { queue.count }

  /// Whether a query may be sent now. If not, it is enqueued, and handled again later.
  func beginsOrWaits(_ route: Route, _ context: RequestContext) -> Bool {
    if context.hasWaited || queue.count == 0 && hasRoom { return true }
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

  private var hasRoom: Bool { loop.pendingQueries < loop.limits.queriesInFlight }

  /// Sends the queries that have room now.
  func beginWaiting() {
    while hasRoom, let query = queue.next() {
      guard let connection = connection(of: query) else { continue }
      loop.resumeRequest(query.stream, connection, caller: query.caller)
    }
  }

  /// Answers the queries that have waited too long, as when the store answers nothing.
  private func refuseOverdue() {
    while let query = queue.nextOverdue(now: loop.eventLoop.now) {
      guard let connection = connection(of: query) else { continue }
      let problem = Problem(.storeBusy, "too many queries wait for the store")
      loop.answer(problem, query.route.rawValue, query.stream, connection)
    }
  }

  /// The connection of a query whose stream is still open, to be flushed in this turn.
  private func connection(of query: QueryQueue.Waiting) -> HTTP2ServerConnection<GatewayLoop>? {
    guard let connection = loop.connections.connection(query.connection), connection.isOpen(query.stream)
    else { return nil }
    loop.connections.markDirty(query.connection)
    return connection
  }

  private func scheduleCheck() {
    isChecking = true
    loop.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(500)) { [self] in
      isChecking = false
      refuseOverdue()
      beginWaiting()
      loop.endTurn()
      if queue.count > 0, !isChecking { scheduleCheck() }
    }
  }

  func collect(into samples: inout MetricSamples) {
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
