internal import Operations

/// Result of an attempt to deliver a batch.
package enum DeliveryOutcome: Sendable, Hashable {
  /// The endpoint answered 2xx.
  case delivered
  case failed(DeliveryFailure)
}

/// Why an attempt failed.
package struct DeliveryFailure: Error, Sendable, Hashable {
  /// Cause, a label of metrics and the error of dead letters.
  package enum Cause: Sendable, Hashable, CustomStringConvertible {
    case status(Int)
    /// The request was not answered in time.
    case timeout
    /// The connection failed, in TLS too, or was lost.
    case connection
    /// The host has no address, or one that may not be called.
    case address
    /// The worker gave up the request, because it stops or its lease moves.
    case abandoned

    /// Status, or name of the cause.
    package var description: String {
      switch self {
      case .status(let status): "\(status)"
      case .timeout: "timeout"
      case .connection: "connection"
      case .address: "address"
      case .abandoned: "abandoned"
      }
    }

    /// Value of the metrics' label `outcome`.
    package var label: String {
      switch self {
      case .status(410): "gone"
      case .status(let status): "\(status / 100)xx"
      case .timeout, .connection, .address, .abandoned: description
      }
    }
  }

  /// What went wrong.
  package var cause: Cause
  /// Detail for the log, at most a few hundred characters.
  package var detail: String
  /// Delay that the endpoint asks for, in milliseconds.
  package var retryAfterMilliseconds: Int64?

  /// Whether the host has an address that may not be called: another attempt does not help.
  package var isAddressRefused = false

  /// Create a failure.
  package init(_ cause: Cause, _ detail: String, retryAfterMilliseconds: Int64? = nil) {
    self.cause = cause
    self.detail = detail
    self.retryAfterMilliseconds = retryAfterMilliseconds
  }

  /// Whether the endpoint says that it is gone (410).
  package var isGone: Bool { cause == .status(410) }

  /// Classify a status other than 2xx.
  ///
  /// - Parameters:
  ///   - retryAfter: the header's value.
  ///   - excerpt: the beginning of the body.
  ///   - now: in milliseconds since 1970.
  package static func status(_ status: Int, location: String?, retryAfter: String?, excerpt: String, now: Int64) -> Self
  {
    let detail: String
    if (300..<400).contains(status) {
      detail =
        "redirects are not followed: set url to the final address\(location.map { " (\($0.prefix(200)))" } ?? "")"
    } else {
      detail = String(excerpt.prefix(200))
    }
    let delay = status == 429 || status == 503 ? retryAfter.flatMap { RetryAfter.milliseconds($0, now: now) } : nil
    return DeliveryFailure(.status(status), detail, retryAfterMilliseconds: delay)
  }
}

/// Value of `Retry-After` (RFC 9110 section 10.2.3).
package enum RetryAfter {
  private static let months = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
  ]

  /// Return the delay in milliseconds, not below 0; nil for an invalid value.
  package static func milliseconds(_ text: String, now: Int64) -> Int64? {
    if let seconds = Int64(text), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
      return min(seconds, RetrySchedule.retryAfterMax / 1_000) * 1_000
    }
    // IMF-fixdate, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
    let words = text.split(separator: " ")
    guard words.count == 6, let month = months.firstIndex(of: String(words[2])), words[5] == "GMT" else { return nil }
    let number = month + 1
    let time = "\(words[3])-\(number < 10 ? "0" : "")\(number)-\(words[1])T\(words[4])Z"
    return Times.milliseconds(time).map { max($0 - now, 0) }
  }
}

/// Delays between attempts.
package enum RetrySchedule {
  /// First delay in milliseconds.
  package static let delayMin: Int64 = 1_000
  /// Maximum delay in milliseconds without `Retry-After`.
  package static let delayMax: Int64 = 600_000
  /// Bound of `Retry-After` in milliseconds.
  package static let retryAfterMax: Int64 = 3_600_000

  /// Return the delay after an attempt, in milliseconds.
  ///
  /// - Parameters:
  ///   - attempts: attempts so far, at least 1. The delay doubles with each.
  ///   - jitter: from 0 to 1; the delay is shortened by up to half.
  package static func delay(afterAttempts attempts: Int, _ failure: DeliveryFailure, jitter: Double) -> Int64 {
    if failure.isGone { return delayMax }
    let delay = backoff(afterAttempts: attempts, jitter: jitter, max: delayMax)
    return max(delay, min(failure.retryAfterMilliseconds ?? 0, retryAfterMax))
  }

  /// Return a delay that starts at ``delayMin``, doubles with each attempt up to `max`, and is shortened by up to half.
  package static func backoff(afterAttempts attempts: Int, jitter: Double, max delayMax: Int64) -> Int64 {
    let full = min(delayMin << Int64(min(max(attempts - 1, 0), 20)), delayMax)
    return full - Int64(Double(full) / 2 * min(max(jitter, 0), 1))
  }
}
