/// The result of a charge, small enough to be stored beside a stream until its response is written.
struct RateCharge {
  let share: RateLimiter.Share
  let decision: RateDecision

  init(share: RateLimiter.Share, decision: RateDecision) {
    self.share = share
    self.decision = decision
  }

  /// Decode a ``packed`` answer; nil where it is empty.
  init?(packed: UInt64) {
    guard let share = RateLimiter.Share(rawValue: packed >> 62) else { return nil }
    self.share = share
    decision = RateDecision(
      isAllowed: true,
      remaining: Int(packed & 0x7FFF_FFFF),
      resetSeconds: Int(packed >> 31 & 0x7FFF_FFFF),
      retryAfterSeconds: 0
    )
  }

  /// The values that the headers need, packed into one number; never 0.
  var packed: UInt64 {
    share.rawValue << 62 | UInt64(min(decision.resetSeconds, 0x7FFF_FFFF)) << 31
      | UInt64(min(decision.remaining, 0x7FFF_FFFF))
  }
}
