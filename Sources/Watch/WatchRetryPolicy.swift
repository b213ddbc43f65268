/// Reason for the end of one connection of a watch.
package enum WatchEnd: Hashable, Sendable {
  /// The wanted number of events has arrived.
  case countReached
  /// The stream ended normally: the gateway drains, or the token expired.
  case finished
  /// A status other than 200.
  case refused(status: Int, code: String, detail: String, retryAfterSeconds: Int?)
  /// The gateway's certificate is not accepted; a retry would not help.
  case untrusted(String)
  /// The connection failed or was lost.
  case lost(String)
  /// Not even a comment arrived for a while.
  case silent
  /// The response is not an event stream.
  case unreadable(String)
}

/// Retry policy of a watch: it continues as long as the gateway may accept it again.
package struct WatchRetryPolicy: Sendable {
  package enum Step: Hashable, Sendable {
    case stop
    /// Retry after this many milliseconds.
    case retry(afterMilliseconds: Int, because: String)
    case fail(String)
  }

  /// Default delay in milliseconds before the first retry.
  package static let delayDefault = 1_000
  /// Maximum delay in milliseconds. The delay doubles with each unsuccessful attempt.
  package static let delayMax = 30_000

  private var failedAttempts = 0

  package init() {}

  /// - Parameters:
  ///   - hasOpened: whether the connection was answered with 200.
  ///   - retryMilliseconds: reconnection delay that the stream has set.
  package mutating func ended(_ end: WatchEnd, hasOpened: Bool, retryMilliseconds: Int?) -> Step {
    failedAttempts = hasOpened ? 0 : failedAttempts + 1
    let first = min(max(retryMilliseconds ?? Self.delayDefault, 1), Self.delayMax)
    let delay = min(first << min(max(failedAttempts - 1, 0), 8), Self.delayMax)
    switch end {
    case .countReached: return .stop
    case .finished: return .retry(afterMilliseconds: delay, because: "the gateway ended the stream")
    case .lost(let reason): return .retry(afterMilliseconds: delay, because: reason)
    case .silent: return .retry(afterMilliseconds: delay, because: "timed out without events or comments")
    case .unreadable(let reason): return .fail(reason)
    case .untrusted(let reason):
      return .fail(
        "the gateway's certificate is not accepted (\(reason)): give the certificate of its authority with --ca FILE"
      )
    case .refused(let status, let code, let detail, let retryAfter):
      let words = ["\(status)", code, detail].filter { !$0.isEmpty }.joined(separator: " ")
      guard status == 429 || status == 502 || status == 503 || status == 504 || status == 408 else {
        return .fail("the gateway answered \(words)")
      }
      return .retry(
        afterMilliseconds: max(delay, min((retryAfter ?? 0), 3_600) * 1_000),
        because: "the gateway answered \(words)"
      )
    }
  }
}
