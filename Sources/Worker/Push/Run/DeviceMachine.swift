/// The attempts to push one message to one device. A pure state machine.
package struct DeviceMachine: Sendable {
  /// What the handler does next.
  package enum Action: Sendable, Hashable {
    /// Ask the provider's gate, then make a request.
    case attempt
    /// Wait until a time in milliseconds since 1970, ask whether the user still lacks the message, then attempt.
    case wait(until: Int64)
    case finish(PushOutcome)
  }

  /// Maximum delay between attempts, in milliseconds, if the provider asks for none.
  package static let delayMax: Int64 = 60_000

  private let deadline: Int64
  /// Requests so far.
  package private(set) var attempts = 0
  private var hasRenewedToken = false

  /// - Parameter deadline: time of the last attempt, in milliseconds since 1970.
  package init(deadline: Int64) { self.deadline = deadline }

  /// The gate does not admit a request.
  package func delayed(until time: Int64) -> Action {
    guard time <= deadline else {
      return .finish(.failed(code: "throttled", detail: "the provider asks to wait for longer than retry_for"))
    }
    return .wait(until: time)
  }

  /// The provider is paused.
  package func refused(code: String) -> Action {
    .finish(.failed(code: "provider_paused", detail: "the provider has refused the credentials: \(code)"))
  }

  /// Take the answer to a request.
  ///
  /// - Parameter jitter: from 0 to 1; a delay is shortened by up to half.
  package mutating func answered(_ answer: PushAnswer, now: Int64, jitter: Double) -> Action {
    attempts += 1
    switch answer {
    case .accepted(let id): return .finish(.accepted(id: id))
    case .gone(let code): return .finish(.gone(code: code))
    case .rejected(let code, let detail): return .finish(.rejected(code: code, detail: detail))
    case .credentialsRefused(let code, let detail): return .finish(.failed(code: code, detail: detail))
    case .tokenExpired:
      guard !hasRenewedToken else {
        return retry(code: "token_expired", detail: "a new token has expired, too", nil, now: now, jitter: jitter)
      }
      hasRenewedToken = true
      return .attempt
    case .throttled(_, let delay):
      return retry(code: "throttled", detail: "", delay, now: now, jitter: jitter)
    case .unavailable(let code, let detail, let delay):
      return retry(code: code, detail: detail, delay, now: now, jitter: jitter)
    }
  }

  private func retry(code: String, detail: String, _ asked: Int64?, now: Int64, jitter: Double) -> Action {
    let delay = max(
      RetrySchedule.backoff(afterAttempts: attempts, jitter: jitter, max: Self.delayMax),
      min(asked ?? 0, RetrySchedule.retryAfterMax)
    )
    guard now + delay <= deadline else { return .finish(.failed(code: code, detail: detail)) }
    return .wait(until: now + delay)
  }
}
