/// A refusal of the server, or a lost connection (`status` 0).
public struct TidemarkError: Error, Hashable, Sendable {
  /// Status of the response; 0: no response.
  public var status: Int
  /// Stable code of the problem, such as `message_not_found`.
  public var code: String
  /// What the server says about this request; empty where it says nothing.
  public var detail: String
  /// Time after which the request may be repeated.
  public var retryAfter: Duration?

  /// Create an error, such as in a ``Transport`` of your own.
  public init(status: Int, code: String, detail: String = "", retryAfter: Duration? = nil) {
    self.status = status
    self.code = code
    self.detail = detail
    self.retryAfter = retryAfter
  }

  /// Whether the same request may succeed later. With 401 the app has to give another token first.
  public var isTemporary: Bool {
    [0, 401, 408, 429].contains(status) || status >= 500 || code == "message_not_found"
  }

  static func lostConnection(_ detail: String) -> TidemarkError {
    TidemarkError(status: 0, code: "connection_lost", detail: detail)
  }

  /// An error of any kind: what is not a refusal is a lost connection.
  static func from(_ error: any Error) -> TidemarkError {
    error as? TidemarkError ?? lostConnection(String(describing: error))
  }

  /// Codes of entries that may succeed later.
  private static let retriedCodes: Set = [
    "store_unavailable", "store_busy", "outcome_unknown", "internal_error", "clock_jump", "data_directory_lost",
  ]

  /// The refusal of one entry of a request.
  static func ofEntry(_ code: String) -> TidemarkError {
    let status = retriedCodes.contains(code) ? 503 : code.hasSuffix("_not_found") ? 404 : 400
    return TidemarkError(status: status, code: code)
  }
}

extension TidemarkError: CustomStringConvertible {
  /// Status, code and detail, for logs.
  public var description: String { "\(status) \(code)" + (detail.isEmpty ? "" : ": \(detail)") }
}
