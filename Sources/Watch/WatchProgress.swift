/// How one connection of a watch came to its end.
package enum WatchEnd: Hashable, Sendable {
  /// As many events came as were wanted.
  case enough
  /// The stream ended well: the gateway drains, or the token's time was over.
  case finished
  /// Any other answer than 200.
  case refused(status: Int, code: String, detail: String, retryAfterSeconds: Int?)
  /// The gateway's certificate is not accepted: no other try mends that.
  case untrusted(String)
  /// No connection, or none any more.
  case lost(String)
  /// Not even a comment came for a while.
  case silent
  /// What came is no event stream.
  case unreadable(String)
}

/// Decides what follows the end of a connection. A watch goes on for as long as the gateway may take it again.
package struct WatchProgress: Sendable {
  package enum Step: Hashable, Sendable {
    case stop
    /// In so many milliseconds.
    case again(afterMilliseconds: Int, because: String)
    case fail(String)
  }

  /// Milliseconds before the first try, where the stream says nothing else.
  package static let delayDefault = 1_000
  /// Each try that brings nothing waits twice as long as the one before, up to this.
  package static let delayMax = 30_000

  private var fruitless = 0

  package init() {}

  /// - Parameters:
  ///   - hasOpened: the connection was answered with 200.
  ///   - retryMilliseconds: what the stream said about coming back.
  package mutating func ended(_ end: WatchEnd, hasOpened: Bool, retryMilliseconds: Int?) -> Step {
    fruitless = hasOpened ? 0 : fruitless + 1
    let first = min(max(retryMilliseconds ?? Self.delayDefault, 1), Self.delayMax)
    let delay = min(first << min(max(fruitless - 1, 0), 8), Self.delayMax)
    switch end {
    case .enough: return .stop
    case .finished: return .again(afterMilliseconds: delay, because: "the gateway ended the stream")
    case .lost(let reason): return .again(afterMilliseconds: delay, because: reason)
    case .silent: return .again(afterMilliseconds: delay, because: "nothing came, not even a comment")
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
      return .again(
        afterMilliseconds: max(delay, min((retryAfter ?? 0), 3_600) * 1_000),
        because: "the gateway answered \(words)"
      )
    }
  }
}
