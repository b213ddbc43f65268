package import HTTP2Session
package import NIOCore
internal import ReceiptWire
internal import StoreClient

/// An error response: `application/problem+json` (RFC 9457).
package struct Problem: Error, Equatable {
  package var code: ProblemCode
  /// The code's status, unless a route overrides it: a deleted message has no status (404) and cannot be registered
  /// (409).
  package var status: Int
  /// Explanation of this occurrence; empty where the title is enough.
  package var detail: String
  /// Seconds; nil where a retry does not help.
  package var retryAfterSeconds: Int?
  /// Whether a 429 is for bad tokens (``RateLimiter/badTokensPerSecond``): it has rate headers of its own.
  package var isForBadTokens = false
  /// The methods that the route allows, for 405.
  package var allow: AllowedMethods?

  package init(_ code: ProblemCode, _ detail: String = "") {
    self.code = code
    self.status = code.status
    self.detail = detail
    self.retryAfterSeconds = code.retryAfterSeconds
  }

  /// The value of an `allow` header.
  package struct AllowedMethods: Equatable, Sendable {
    package let value: String
    package init(_ value: String) { self.value = value }
  }

  /// A body that is not valid JSON.
  package init(_ error: JSONSyntaxError) { self.init(.invalidJSON, error.detail) }

  /// Return the headers of the response, besides its type and length.
  package func headers(requestID: String) -> [HTTP2Header] {
    var headers = [HTTP2Header("x-request-id", requestID)]
    if let retryAfterSeconds { headers.append(HTTP2Header("retry-after", "\(retryAfterSeconds)")) }
    if isForBadTokens {
      var fields = ResponseFields()
      RateLimiter.addHeaders(
        "token",
        perSecond: RateLimiter.badTokensPerSecond,
        remaining: 0,
        resetSeconds: retryAfterSeconds ?? 1,
        to: &fields
      )
      headers += fields.list
    }
    if let allow { headers.append(HTTP2Header("allow", allow.value)) }
    if status == 401 && code != .webhookSignatureInvalid && code != .consoleCodeInvalid {
      // RFC 6750 section 3.1: a request without a token gets the bare challenge.
      let challenge =
        code == .tokenMissing ? "Bearer" : "Bearer error=\"invalid_token\", error_description=\"\(code.rawValue)\""
      headers.append(HTTP2Header("www-authenticate", challenge))
    }
    return headers
  }

  /// Write the body.
  package func write(requestID: String, into buffer: inout ByteBuffer) {
    let title = code.title
    let detail = Array(self.detail.utf8)
    let request = Array(requestID.utf8)
    let code = Array(self.code.rawValue.utf8)
    let byteMax =
      160 + 2 * code.count + title.utf8CodeUnitCount + OutputRawSpan.jsonStringByteMax(detail.count)
      + OutputRawSpan.jsonStringByteMax(request.count)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"type\":\"urn:tidemark:problem:")
      out.bytes(code.span.bytes)
      out.literal("\",\"title\":\"")
      out.literal(title)
      out.literal("\",\"status\":")
      out.decimal(Int64(status))
      out.literal(",\"code\":\"")
      out.bytes(code.span.bytes)
      if !detail.isEmpty {
        out.literal("\",\"detail\":")
        out.jsonString(detail.span.bytes)
      } else {
        out.literal("\",\"detail\":\"")
        out.literal(title)
        out.literal("\"")
      }
      out.literal(",\"request_id\":")
      out.jsonString(request.span.bytes)
      out.literal("}")
    }
  }
}

extension Problem {
  /// Map a failed store request to the problem for the caller.
  ///
  /// - Parameters:
  ///   - isServer: whether a server asks. A server learns that the user it names is not a member; a user gets the same
  ///     answer as for a channel that does not exist.
  init(_ failure: StoreFailure, route: Route, isServer: Bool) {
    switch failure {
    case .busy: self.init(.storeBusy)
    case .unavailable: self.init(.storeUnavailable)
    case .outcomeUnknown: self.init(.outcomeUnknown)
    case .refused(let code, let retryAfterMilliseconds, let detail):
      self.init(Problem.code(of: code, isServer: isServer), Problem.shown(detail, of: code))
      // The list does not exist; this is no conflict.
      if code == .messageDeleted && route.listsMembers { status = 404 }
      if retryAfterMilliseconds > 0 && retryAfterSeconds != nil {
        retryAfterSeconds = Int((UInt64(retryAfterMilliseconds) + 999) / 1_000)
      }
    }
  }

  static func code(of code: ErrorCode, isServer: Bool) -> ProblemCode {
    switch code {
    case .busy: .storeBusy
    case .unavailable, .wrongShard, .notOwner: .storeUnavailable
    case .outcomeUnknown, .sessionExpired, .superseded: .outcomeUnknown
    case .notImplemented: .notImplemented
    case .clockJump: .clockJump
    case .dataDirectoryLost: .dataDirectoryLost
    case .invalidField: .invalidField
    case .channelNotFound: .channelNotFound
    case .notAMember: isServer ? .memberNotFound : .channelNotFound
    case .notInThread: .notInThread
    case .messageNotFound: .messageNotFound
    case .messageDeleted: .messageDeleted
    case .messageConflict: .messageConflict
    case .markUnreadOff: .markUnreadOff
    case .limitReached: .limitReached
    case .tokenRevoked: .tokenRevoked
    case .orderNotAvailable: .orderNotAvailable
    case .countsNotVisible: .countsNotVisible
    case .receiptNotRequested: .receiptNotRequested
    case .ownMessage: .ownMessage
    case .receiptExpired: .receiptExpired
    case .notExpected: .notExpected
    case .invalidCursor: .invalidCursor
    case .userErased: .userErased
    case .ticketInvalid: .ticketInvalid
    case .ticketExpired: .ticketExpired
    case .feedOff: .feedOff
    case .consumerNotFound: .consumerNotFound
    case .consumerConflict: .consumerConflict
    case .leaseLost: .leaseLost
    case .importConflict: .importConflict
    case .importGap: .importGap
    case .importOrder: .importOrder
    case .timeInFuture: .timeInFuture
    case .frameTooLarge: .bodyTooLarge
    case .malformedFrame, .unsupportedVersion, .authenticationFailed, .unknownKind, .handshakeRequired,
      .handshakeTimeout, .backupUnderWay, .backupNotFound, .backupFailed:
      .internalError
    }
  }

  /// Return the store's detail where it is about the caller's input; other details are internal to the store.
  private static func shown(_ detail: String, of code: ErrorCode) -> String {
    switch code {
    case .invalidField, .limitReached, .notImplemented: detail
    default: ""
    }
  }
}
