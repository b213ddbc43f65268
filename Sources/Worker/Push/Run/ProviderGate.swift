/// What a push service has asked for: whether it may be called now. A pure state machine.
package struct ProviderGate: Sendable {
  /// Whether a request may be made.
  package enum Admission: Sendable, Hashable {
    case send
    /// Not before a time, in milliseconds since 1970.
    case wait(until: Int64)
    /// The credentials were refused shortly before.
    case refuse(code: String)
  }

  private enum State: Sendable {
    /// Becomes `throttled` or `paused`.
    case open
    /// Becomes `open` by time, or `paused`.
    case throttled(until: Int64)
    /// Becomes `probing` with the first request after `until`.
    case paused(until: Int64, code: String)
    /// One request tries the credentials. Becomes `paused` or `open` with its answer.
    case probing(code: String)
  }

  /// Delay if the provider asks for none, in milliseconds.
  package static let throttleMilliseconds: Int64 = 10_000

  private let pauseMilliseconds: Int64
  private var state = State.open

  /// - Parameter pauseMilliseconds: duration of a pause after the credentials were refused.
  package init(pauseMilliseconds: Int64) { self.pauseMilliseconds = pauseMilliseconds }

  /// Whether the credentials are refused.
  package var isPaused: Bool {
    switch state {
    case .open, .throttled: false
    case .paused, .probing: true
    }
  }

  /// Ask for a request.
  package mutating func admit(now: Int64) -> Admission {
    switch state {
    case .open: return .send
    case .throttled(let until):
      if now < until { return .wait(until: until) }
      state = .open
      return .send
    case .paused(let until, let code):
      if now < until { return .refuse(code: code) }
      state = .probing(code: code)
      return .send
    case .probing(let code): return .refuse(code: code)
    }
  }

  /// Take the answer of an admitted request.
  package mutating func answered(_ answer: PushAnswer, now: Int64) {
    switch answer {
    case .credentialsRefused(let code, _): state = .paused(until: now + pauseMilliseconds, code: code)
    case .throttled(.provider, let delay):
      let delay = min(delay ?? Self.throttleMilliseconds, RetrySchedule.retryAfterMax)
      switch state {
      case .throttled(let until): state = .throttled(until: max(until, now + delay))
      case .open, .probing: state = .throttled(until: now + delay)
      case .paused: break
      }
    case .accepted, .gone, .rejected, .throttled(.device, _), .unavailable, .tokenExpired:
      if case .probing = state { state = .open }
    }
  }
}
