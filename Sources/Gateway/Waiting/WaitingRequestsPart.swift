internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import StoreClient

/// A request that was admitted and charged, whose body is checked, and of which nothing has been sent. It is handled
/// again when it may begin.
struct WaitingRequest {
  let connection: ConnectionIndex
  let stream: HTTP2StreamHandle
  let caller: Caller
  let deadline: NIODeadline
}

/// Batches and queries that wait until the store has room for them. Also the metrics and the cancellation of every
/// ``WaitingQueue`` of a loop.
///
/// A *batch* waits until the store's request window has room for all of its entries: sent at once, those that exceed
/// the window would be refused as `store_busy`, although there is room a moment later. At its deadline it begins
/// regardless. A *query*, which reads a page of rows, costs the store and the gateway ten times as much as a mark, and
/// thousands sent at once would delay everybody's marks: it waits until the store has answered earlier ones, and is
/// refused at its deadline.
final class WaitingRequestsPart: GatewayPart {
  private struct Batch {
    let request: WaitingRequest
    /// Its requests to the store.
    let entries: Int
  }

  private struct Query {
    let request: WaitingRequest
    let route: Route
  }

  private var batches: WaitingQueue<HTTP2StreamHandle, Batch>
  private var queries: WaitingQueue<HTTP2StreamHandle, Query>
  /// Whether a check of deadlines is scheduled, for as long as anything waits.
  private var isChecking = false
  /// Whether the rest of a turn's queries is scheduled.
  private var isContinuing = false

  init(_ limits: WaitingLimits) {
    batches = WaitingQueue(limit: limits.batches)
    queries = WaitingQueue(limit: limits.queries)
  }

  /// Queries that wait.
  var queryCount: Int { queries.count }

  // MARK: Beginning

  /// Let a batch of `entries` requests begin, or enqueue it if there is no room: its request is then handled again
  /// later.
  ///
  /// - Returns: whether it may begin now.
  /// - Throws: `store_busy` where too many wait.
  func beginOrEnqueue(batchOf entries: Int, _ context: RequestContext) throws(Problem) -> Bool {
    if context.hasWaited || batches.isEmpty && loop.store.hasRoom(for: entries) { return true }
    let batch = Batch(request: waiting(context, for: loop.limits.batchWait), entries: entries)
    guard batches.append(batch, id: context.stream) else { throw Self.tooManyBatches }
    scheduleCheck()
    return false
  }

  /// Let a query begin if it may be sent now, or enqueue it: its request is then handled again later.
  ///
  /// - Returns: whether it may begin now.
  /// - Throws: `store_busy` where too many wait.
  func beginOrEnqueueQuery(_ context: RequestContext) throws(Problem) -> Bool {
    if context.hasWaited || queries.isEmpty && hasRoomForQuery { return true }
    let query = Query(request: waiting(context, for: loop.limits.queryWait), route: context.route)
    guard queries.append(query, id: context.stream, share: context.caller.key) else { throw Self.tooManyQueries }
    scheduleCheck()
    return false
  }

  private func waiting(_ context: RequestContext, for timeout: TimeAmount) -> WaitingRequest {
    WaitingRequest(
      connection: context.connection,
      stream: context.stream,
      caller: context.caller,
      deadline: loop.eventLoop.now + timeout
    )
  }

  private static let tooManyBatches = Problem(.storeBusy, "too many batches wait for the store")
  private static let tooManyQueries = Problem(.storeBusy, "too many queries wait for the store")
  /// Queries that begin, or are refused, in one turn of the loop.
  private static let queriesPerTurn = 256

  private var hasRoomForQuery: Bool { loop.pendingQueries < loop.limits.queriesInFlight }

  /// Begin the requests that have room now, and the batches that have reached their deadline.
  func beginWaiting() {
    if batches.isEmpty, queries.isEmpty { return }
    let now = loop.eventLoop.now
    while let batch = batches.popFirst(where: { $0.request.deadline <= now || loop.store.hasRoom(for: $0.entries) }) {
      begin(batch.request)
    }
    var remaining = Self.queriesPerTurn
    while hasRoomForQuery, remaining > 0, let query = queries.popFirst() {
      remaining -= 1
      begin(query.request)
    }
    // The others of this turn have been refused, or are gone: no reply continues with the queries that wait.
    if !queries.isEmpty, hasRoomForQuery { continueLater() }
  }

  private func begin(_ request: WaitingRequest) {
    guard let connection = loop.connections.answering(request.stream, on: request.connection) else { return }
    loop.resumeRequest(request.stream, connection, caller: request.caller)
  }

  // MARK: End of waiting

  /// Cancel the waiting request of a stream that has closed. Long-lived streams cancel their own entries when they are
  /// removed.
  func cancel(_ stream: HTTP2StreamHandle) {
    batches.cancel(stream)
    queries.cancel(stream)
    loop.authentication.cancel(stream)
  }

  /// Answer queries that have waited too long, as when the store answers nothing.
  private func refuseOverdue() {
    let now = loop.eventLoop.now
    let overdue = queries.popOldest(countMax: Self.queriesPerTurn) { $0.request.deadline <= now }
    for query in overdue {
      let (stream, index) = (query.request.stream, query.request.connection)
      loop.answer(Self.tooManyQueries, route: query.route, stream: stream, connection: index)
    }
    if overdue.count == Self.queriesPerTurn { continueLater() }
  }

  /// Continue in a later turn, after other events of the loop.
  private func continueLater() {
    guard !isContinuing else { return }
    isContinuing = true
    runInLaterTurn { [self] in
      isContinuing = false
      check()
    }
  }

  private func check() {
    refuseOverdue()
    beginWaiting()
    loop.endTurn()
  }

  /// Check deadlines and room while requests wait: requests that filled the window may have ended without a reply.
  private func scheduleCheck() {
    guard !isChecking else { return }
    isChecking = true
    let untilDeadline = batches.first.map { $0.request.deadline - loop.eventLoop.now }
    runLater(in: min(max(untilDeadline ?? Self.checkInterval, .zero), Self.checkInterval)) { [self] in
      check()
      isChecking = false
      if !batches.isEmpty || !queries.isEmpty { scheduleCheck() }
    }
  }

  private static let checkInterval = TimeAmount.milliseconds(500)

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    let gauges = [
      ("batches_waiting", "Batches waiting for room in the store's request window.", batches.count),
      ("queries_waiting", "Queries waiting until the store has answered earlier ones.", queries.count),
      ("requests_parked", "Requests that wait for their token to be verified.", loop.authentication.waitingCount),
      ("event_openings_waiting", "Event streams waiting to be opened.", loop.events.hub.waitingCount),
    ]
    for (name, help, count) in gauges { samples.gauge("tidemark_gateway_\(name)", help: help, Double(count)) }
    let counters = [
      ("batches_delayed", "Batches that had to wait for room.", batches.addedCount),
      ("queries_delayed", "Queries that had to wait for earlier ones.", queries.addedCount),
    ]
    for (name, help, count) in counters {
      samples.counter("tidemark_gateway_\(name)_total", help: help, Int64(clamping: count))
    }
  }
}
