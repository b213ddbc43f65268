internal import ReceiptModel
internal import ReceiptWire

/// How an attempt at a request has ended.
enum Outcome {
  /// The reply is in the lane, or goes there when it may leave.
  case answered
  case refused(RefusedRequest)
  /// The shard's ``WaitingRequests`` keep the request.
  case waits(WaitReason)

  static func refused(
    _ code: ErrorCode,
    retryAfterMilliseconds: UInt32 = 0,
    _ detail: String,
    _ replyTiming: ReplyLane.Timing = .now
  ) -> Outcome {
    .refused(RefusedRequest(code, retryAfterMilliseconds: retryAfterMilliseconds, detail, replyTiming))
  }

  /// Answers a duplicate that would change something now. Either its original was applied to something that is gone, or
  /// the original was refused and the session no longer remembers that.
  static var unknownOutcome: Outcome {
    .refused(.outcomeUnknown, "a command with this counter was received before; its outcome is unknown")
  }

  static func refused(_ fault: (code: ErrorCode, detail: String)) -> Outcome {
    .refused(fault.code, fault.detail)
  }
}

/// The error that answers a request, and when it may leave. A refused command is not applied: a resend is decided
/// again.
struct RefusedRequest: Error {
  var code: ErrorCode
  var retryAfterMilliseconds: UInt32
  var detail: String
  var replyTiming: ReplyLane.Timing

  init(
    _ code: ErrorCode,
    retryAfterMilliseconds: UInt32 = 0,
    _ detail: String,
    _ replyTiming: ReplyLane.Timing = .now
  ) {
    self.code = code
    self.retryAfterMilliseconds = retryAfterMilliseconds
    self.detail = detail
    self.replyTiming = replyTiming
  }
}
