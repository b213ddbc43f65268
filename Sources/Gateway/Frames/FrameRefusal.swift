internal import ReceiptWire
internal import StoreClient

/// The error frame for a failed store request. It never ends the stream: errors between gateway and store are reported
/// as temporary failures.
struct FrameRefusal {
  var code: ErrorCode
  var retryAfterMilliseconds: UInt32 = 0
  var detail = ""

  init(_ failure: StoreFailure) {
    switch failure {
    case .busy: code = .busy
    case .unavailable: code = .unavailable
    case .outcomeUnknown: code = .outcomeUnknown
    case .refused(let refused, let retryAfter, let detail):
      retryAfterMilliseconds = retryAfter
      switch refused {
      case .wrongShard, .malformedFrame, .unsupportedVersion, .authenticationFailed, .unknownKind,
        .handshakeRequired, .handshakeTimeout, .frameTooLarge:
        code = .unavailable
      case .sessionExpired, .superseded: code = .outcomeUnknown
      case .invalidField, .limitReached, .notImplemented:
        code = refused
        self.detail = detail
      default: code = refused
      }
    }
    switch code {
    case .busy, .unavailable, .outcomeUnknown:
      if retryAfterMilliseconds == 0 { retryAfterMilliseconds = FrameStream.retryAfterMilliseconds }
    default: break
    }
  }
}
