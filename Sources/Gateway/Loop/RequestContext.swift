internal import HTTP2Session
internal import Operations
internal import ReceiptModel

/// Progress of a request while the loop receives it. A refusal is charged and counted by it.
struct RequestAdmission {
  /// Nil: no route was found yet.
  var route: Route?
  /// Whether the request was charged to its caller's rate limits.
  var isCharged = false
  /// Whether the request has waited (``WaitingRequestsPart``). It was charged before.
  var hasWaited = false
}

/// What a route needs to know of a request besides its bytes.
struct RequestContext {
  let route: Route
  let caller: Caller
  /// The connection's index in the ``ConnectionTable``.
  let connection: ConnectionIndex
  let stream: HTTP2StreamHandle
  /// The client address of a streamed request, if rate limits are set; nil: unknown, or not needed.
  var address: PeerAddress?
  /// Whether the request has waited (``WaitingRequestsPart``) and begins now.
  var hasWaited = false

  /// Return the user that the request acts for: a user's own id, or the one that a server names.
  ///
  /// - Parameter given: a validated `user_id`; empty where there is none.
  /// - Throws: `user_id_required` where a server names no user.
  @_lifetime(borrow self)
  func actingUser(_ given: RawSpan) throws(Problem) -> RawSpan {
    if !given.isEmpty { return _overrideLifetime(given, borrowing: self) }
    guard !caller.isServer else { throw Problem(.userIDRequired) }
    return _overrideLifetime(caller.user, borrowing: self)
  }

  /// Return the user that a request acts for, from the `user_id` of its body or its query.
  ///
  /// - Throws: `invalid_user_id`, `user_id_mismatch`, `user_id_required`.
  @_lifetime(borrow self)
  func actingUser(_ body: JSONValue, _ parameters: borrowing PositionParameters) throws(Problem) -> RawSpan {
    if !parameters.user.isEmpty { try check(parameters.user) }
    if let user = try body.optionalNonNullString("user_id") {
      try check(user)
      return try actingUser(user)
    }
    return try actingUser(parameters.user)
  }

  /// Return the user whose view a query gets; empty where a server names none.
  @_lifetime(borrow self)
  func viewingUser(_ given: RawSpan) -> RawSpan {
    given.isEmpty ? _overrideLifetime(caller.user, borrowing: self) : _overrideLifetime(given, borrowing: self)
  }

  /// Validate a `user_id`. If a request has one in its body and one in its query, both have to be valid.
  ///
  /// - Throws: `invalid_user_id`, or `user_id_mismatch` where a user names another.
  func check(_ given: RawSpan) throws(Problem) {
    guard Identifier.isUser(given) else { throw Problem(.invalidUserID) }
    if !caller.isServer && !given.equals(caller.user) { throw Problem(.userIDMismatch) }
  }

  /// Key by which the caller's own work is limited; 0 for a server.
  var userKey: UInt64 { caller.isServer ? 0 : caller.key }
}

/// Request ids for answers and logs: the caller's `x-request-id` where it is acceptable, else a new one. New ids are
/// short enough to read out, and unique among all gateways with high probability.
struct RequestIDs {
  /// Maximum length of a caller's id in bytes.
  static let byteCountMax = 64

  private let prefix: String
  private var counter: UInt64 = 0

  /// - Parameter random: distinguishes this event loop's ids from those of other loops and processes.
  init(random: UInt64) {
    prefix = String(random, radix: 36)
  }

  /// Return the caller's id, if it is 1 to 64 printable ASCII characters, else a new one.
  mutating func id(given: RawSpan) -> String {
    if let id = Self.accepted(given) { return id }
    counter += 1
    return prefix + "-" + String(counter, radix: 36)
  }

  static func accepted(_ given: RawSpan) -> String? {
    guard (1...byteCountMax).contains(given.byteCount) else { return nil }
    return given.withUnsafeBytes { bytes in
      guard bytes.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { return nil }
      return String(decoding: bytes, as: UTF8.self)
    }
  }
}
