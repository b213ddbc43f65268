internal import HTTP2Session

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
