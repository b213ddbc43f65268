internal import NIOCore

/// Token bucket for frames that ask for work and carry none.
struct ControlFrameBudget {
  private let burst: Int
  private let perSecond: Int
  private var tokens: Int
  private var refilled: NIODeadline

  init(limits: HTTP2Limits, now: NIODeadline) {
    burst = limits.controlFrameBurst
    perSecond = limits.controlFramesPerSecond
    tokens = burst
    refilled = now
  }

  /// Add tokens for a request or for data sent: clients send control frames, mainly priorities and window updates, in
  /// proportion to these.
  @inline(__always)
  mutating func addTokens(_ count: Int) {
    tokens = min(burst, tokens + count)
  }

  /// Take a token; returns false if there is none.
  mutating func takeToken(now: NIODeadline) -> Bool {
    if tokens < burst {
      let elapsed = (now - refilled).nanoseconds / 1_000_000
      if elapsed > 0 {
        let earned = elapsed >= 60_000 ? burst : Int(elapsed) * perSecond / 1_000
        if earned > 0 {
          tokens = min(burst, tokens + earned)
          refilled = now
        }
      }
    } else {
      refilled = now
    }
    guard tokens > 0 else { return false }
    tokens -= 1
    return true
  }
}
