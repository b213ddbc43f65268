internal import HTTP2Session

/// A job of several store requests, such as a scan over a user's channels. Its result is most often the response to a
/// client's request.
protocol Job: AnyObject {
  var request: ScanRequest { get }
  /// Requests to the store in flight.
  var inFlight: Int { get set }
  /// Whether the job was answered, or its client has disconnected.
  var isEnded: Bool { get }
  /// Whether the result is the response to ``request``.
  var respondsToClient: Bool { get }

  func end()
}

extension Job {
  /// Return whether the job's result is still wanted; ends the job where its client has disconnected.
  func isStillWanted(on loop: GatewayLoop) -> Bool {
    if isEnded { return false }
    guard respondsToClient else { return true }
    if loop.connections.connection(request.connection)?.isOpen(request.stream) ?? false { return true }
    end()
    return false
  }

  /// Return the registration of one of the job's store requests.
  func pendingRequest(_ target: ReplyTarget) -> PendingRequest {
    PendingRequest(target, route: request.route, isServer: request.isServer)
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

  mutating func insert(_ job: Value) -> SlotIndex { jobs.insert(job) }

  /// Remove a job whose first request was not sent.
  mutating func remove(_ index: SlotIndex) { jobs.remove(index) }

  /// Return the job of a store request that was answered or has failed, and is no longer in flight.
  func requestEnded(_ index: SlotIndex) -> Value? {
    guard let job = jobs[index] else { return nil }
    job.inFlight -= 1
    return job
  }

  /// Remove a job once it has ended and has no requests in flight.
  mutating func removeIfDone(_ job: Value, _ index: SlotIndex) {
    if job.isEnded, job.inFlight == 0 { jobs.remove(index) }
  }
}

/// The request that a scan over a user's channels answers, and who sent it.
struct ScanRequest {
  let connection: ConnectionIndex
  let stream: HTTP2StreamHandle
  let route: Route
  /// Nil: the gateway itself began the scan.
  let caller: Caller?
  /// The cost of requests to the store that is not charged yet, in twentieths of a request.
  private var unchargedCost = 0

  init(_ context: RequestContext, _ route: Route) {
    connection = context.connection
    stream = context.stream
    caller = context.caller
    self.route = route
  }

  private init() {
    connection = ConnectionIndex(0)
    stream = HTTP2StreamHandle(slot: 0, generation: 0)
    caller = nil
    route = .unreadOfUser
  }

  /// A scan without an HTTP/2 request.
  static let none = ScanRequest()

  var isServer: Bool { caller?.isServer ?? true }

  /// Key of the user that the scan counts for; 0 for a server's, and for one without a request.
  var userKey: UInt64 { caller.map { $0.isServer ? 0 : $0.key } ?? 0 }

  /// When the caller's token was issued; see ``Caller``.
  var issued: UInt32? { caller?.issued }

  /// Add work to the request's cost. Returns the whole requests that it has come to, which are to be charged.
  mutating func add(_ twentieths: Int) -> Int {
    unchargedCost += twentieths
    defer { unchargedCost %= 20 }
    return unchargedCost / 20
  }
}

extension RatesPart {
  /// Charge the caller of a scan for work that its route's own cost does not include. The caller may come into debt,
  /// and waits with their next request.
  ///
  /// - Parameter twentieths: the cost in twentieths of a request.
  func charge(_ twentieths: Int, to request: inout ScanRequest) {
    guard isOn, let caller = request.caller else { return }
    chargeMore(request.add(twentieths), caller)
  }
}
