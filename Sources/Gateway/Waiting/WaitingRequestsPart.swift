internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import StoreClient

/// A request that was admitted and charged, whose body is checked, and of which nothing has been sent. It is handled
/// again when it may begin.
struct RequestAwaitingStore {
  let connection: ConnectionIndex
  let stream: HTTP2StreamHandle
  let caller: Caller
  let deadline: NIODeadline
}

/// Batches and page queries that wait until the store has room for them.
///
/// A *batch* waits until the store's request window has room for all of its entries: sent at once, those that exceed
/// the window would be refused as `store_busy`, although there is room a moment later. At its deadline it begins
/// regardless. A *page query*, which reads a page of rows, costs the store and the gateway ten times as much as a mark,
/// and thousands sent at once would delay everybody's marks: it waits until the store has answered earlier ones, and
/// is refused at its deadline.
final class WaitingRequestsPart: GatewayPart {
  private struct Batch {
    let request: RequestAwaitingStore
    /// Its requests to the store.
    let entries: Int
  }

  private struct PageQuery {
    let request: RequestAwaitingStore
    let route: Route
  }

  private var batches: WaitingQueue<HTTP2StreamHandle, Batch>
  private var pageQueries: WaitingQueue<HTTP2StreamHandle, PageQuery>
  /// Whether a check of deadlines is scheduled, for as long as anything waits.
  private var isChecking = false
  /// Whether the rest of a turn's page queries is scheduled.
  private var isContinuing = false

  init(_ limits: WaitingLimits) {
    batches = WaitingQueue(limit: limits.batches)
    pageQueries = WaitingQueue(limit: limits.pageQueries)
  }

  /// Page queries that wait.
  var pageQueryCount: Int { pageQueries.count }

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

  /// Let a page query begin if it may be sent now, or enqueue it: its request is then handled again later.
  ///
  /// - Returns: whether it may begin now.
  /// - Throws: `store_busy` where too many wait.
  func beginOrEnqueuePageQuery(_ context: RequestContext) throws(Problem) -> Bool {
    if context.hasWaited || pageQueries.isEmpty && hasRoomForPageQuery { return true }
    let query = PageQuery(request: waiting(context, for: loop.limits.pageQueryWait), route: context.route)
    guard pageQueries.append(query, id: context.stream, share: context.caller.key) else {
      throw Self.tooManyPageQueries
    }
    scheduleCheck()
    return false
  }

  private func waiting(_ context: RequestContext, for timeout: TimeAmount) -> RequestAwaitingStore {
    RequestAwaitingStore(
      connection: context.connection,
      stream: context.stream,
      caller: context.caller,
      deadline: loop.eventLoop.now + timeout
    )
  }

  private static let tooManyBatches = Problem(.storeBusy, "too many batches wait for the store")
  private static let tooManyPageQueries = Problem(.storeBusy, "too many queries wait for the store")
  /// Page queries that begin, or are refused, in one turn of the loop.
  private static let pageQueriesPerTurn = 256

  private var hasRoomForPageQuery: Bool { loop.pendingPageQueries < loop.limits.pageQueriesInFlight }

  /// Begin the requests that have room now, and the batches that have reached their deadline.
  func beginWaiting() {
    if batches.isEmpty, pageQueries.isEmpty { return }
    let now = loop.eventLoop.now
    while let batch = batches.popFirst(where: { $0.request.deadline <= now || loop.store.hasRoom(for: $0.entries) }) {
      begin(batch.request)
    }
    var remaining = Self.pageQueriesPerTurn
    while hasRoomForPageQuery, remaining > 0, let query = pageQueries.popFirst() {
      remaining -= 1
      begin(query.request)
    }
    // The others of this turn have been refused, or are gone: no reply continues with the page queries that wait.
    if !pageQueries.isEmpty, hasRoomForPageQuery { continueLater() }
  }

  private func begin(_ request: RequestAwaitingStore) {
    guard let connection = loop.connections.answering(request.stream, on: request.connection) else { return }
    loop.resumeRequest(request.stream, connection, caller: request.caller)
  }

  // MARK: End of waiting

  /// Cancel the waiting request of a stream that has closed.
  func cancel(_ stream: HTTP2StreamHandle) {
    batches.cancel(stream)
    pageQueries.cancel(stream)
  }

  /// Answer page queries that have waited too long, as when the store answers nothing.
  private func refuseOverdue() {
    let now = loop.eventLoop.now
    let overdue = pageQueries.popOldest(countMax: Self.pageQueriesPerTurn) { $0.request.deadline <= now }
    for query in overdue {
      let (stream, index) = (query.request.stream, query.request.connection)
      loop.answer(Self.tooManyPageQueries, route: query.route, stream: stream, connection: index)
    }
    if overdue.count == Self.pageQueriesPerTurn { continueLater() }
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
      if !batches.isEmpty || !pageQueries.isEmpty { scheduleCheck() }
    }
  }

  private static let checkInterval = TimeAmount.milliseconds(500)

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    let gauges = [
      ("batches_waiting", "Batches waiting for room in the store's request window.", batches.count),
      ("queries_waiting", "Queries waiting until the store has answered earlier ones.", pageQueries.count),
    ]
    for (name, help, count) in gauges { samples.gauge("tidemark_gateway_\(name)", help: help, Double(count)) }
    let counters = [
      ("batches_delayed", "Batches that had to wait for room.", batches.addedCount),
      ("queries_delayed", "Queries that had to wait for earlier ones.", pageQueries.addedCount),
    ]
    for (name, help, count) in counters {
      samples.counter("tidemark_gateway_\(name)_total", help: help, Int64(clamping: count))
    }
  }
}
