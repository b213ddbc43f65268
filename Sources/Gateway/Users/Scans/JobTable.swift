internal import HTTP2Session
internal import NIOCore

/// A job of several store requests, such as a scan over a user's channels. Its result is most often the response to a
/// client's request.
class Job {
  final var request: ScanRequest
  /// Requests to the store in flight.
  final var inFlight = 0
  /// Whether the job was answered, or its client has disconnected.
  private(set) final var isEnded = false
  /// Its index in the ``JobTable``.
  fileprivate(set) final var index = SlotIndex(slot: .max, generation: 0)

  init(_ origin: ScanRequest.Origin) { request = ScanRequest(origin) }

  final func end() { isEnded = true }

  /// Return whether the job's result is still wanted; ends the job where its client has disconnected.
  final func isStillWanted(on loop: GatewayLoop) -> Bool {
    if isEnded { return false }
    guard case .client(let context) = request.origin else { return true }
    if loop.connections.connection(context.connection)?.isOpen(context.stream) ?? false { return true }
    end()
    return false
  }

  /// Return the registration of one of the job's store requests.
  final func pendingRequest(_ target: ReplyTarget) -> PendingRequest {
    PendingRequest(target, route: request.route, isServer: request.isServer, isPageQuery: false)
  }

  /// Answer the client's request, if there is one, with a problem or with a body.
  final func respond(_ problem: Problem?, on loop: GatewayLoop, _ body: (inout ByteBuffer) -> Void) {
    guard case .client(let context) = request.origin,
      let connection = loop.connections.answering(context.stream, on: context.connection)
    else { return }
    // A job that ends within its request's own call needs its own end of turn.
    loop.endTurnSoon()
    if let problem {
      loop.answer(problem, route: context.route, stream: context.stream, connection: connection)
    } else {
      loop.respond(context.route, stream: context.stream, connection: connection, body: body)
    }
  }
}

/// The jobs of one kind in progress. A job keeps its slot until its last reply has arrived, even if it has ended
/// before.
struct JobTable<Value: Job> {
  private var jobs = SlotTable<Value>()

  /// Jobs in progress.
  var count: Int { jobs.count }

  /// Return the number of jobs in progress of one user (``ScanRequest/userKey``).
  func count(of userKey: UInt64) -> Int { jobs.indexes.count { jobs[$0]?.request.userKey == userKey } }

  mutating func insert(_ job: Value) { job.index = jobs.insert(job) }

  /// Remove a job whose first request was not sent.
  mutating func remove(_ job: Value) { jobs.remove(job.index) }

  /// Return the job of a store request that was answered or has failed, and is no longer in flight.
  func requestEnded(_ index: SlotIndex) -> Value? {
    guard let job = jobs[index] else { return nil }
    job.inFlight -= 1
    return job
  }

  /// Remove a job once it has ended and has no requests in flight.
  mutating func removeIfDone(_ job: Value) {
    if job.isEnded, job.inFlight == 0 { jobs.remove(job.index) }
  }
}

/// The request that a scan over a user's channels serves.
struct ScanRequest {
  /// Who began the scan.
  enum Origin {
    /// A client, whose request the result answers.
    case client(RequestContext)
    /// The gateway itself. Its requests to the store count as those of the route.
    case gateway(as: Route)
  }

  let origin: Origin
  /// The cost of requests to the store that is not charged yet, in twentieths of a request.
  private var unchargedCost = 0

  init(_ origin: Origin) { self.origin = origin }

  var route: Route {
    switch origin {
    case .client(let context): context.route
    case .gateway(let route): route
    }
  }

  /// Nil: the gateway itself began the scan.
  var caller: Caller? {
    if case .client(let context) = origin { context.caller } else { nil }
  }

  var isServer: Bool { caller?.isServer ?? true }

  /// Key of the user that the scan counts for; 0 for a server's, and for the gateway's own.
  var userKey: UInt64 {
    if case .client(let context) = origin { context.userKey } else { 0 }
  }

  /// When the caller's token was issued; see ``Caller``.
  var issued: UInt32? { caller?.issued }

  /// Add work to the request's cost. Returns the whole requests that it has come to, which are to be charged.
  mutating func add(_ twentieths: Int) -> Int {
    unchargedCost += twentieths
    defer { unchargedCost %= 20 }
    return unchargedCost / 20
  }
}
