package import NIOCore
internal import Synchronization

/// Readiness of a process: the reasons of its parts for not being ready. It is ready if there are none.
package final class Readiness: Sendable {
  private struct Reason {
    var part: String
    var text: String
    /// Time from which the reason counts.
    var start: NIODeadline
  }

  private let reasons: Mutex<[Reason]>

  /// Create a readiness that is not ready until `set("process", nil)`.
  package init() {
    reasons = Mutex([Reason(part: "process", text: "starting", start: .distantPast)])
  }

  /// Set the reason of one part, as in `set("store", "no connection")`, or clear it with nil.
  ///
  /// - Parameter start: time from which the reason counts, unless it is cleared before.
  package func set(_ part: String, _ reason: String?, from start: NIODeadline = .distantPast) {
    reasons.withLock { reasons in
      reasons.removeAll { $0.part == part }
      if let reason { reasons.append(Reason(part: part, text: reason, start: start)) }
    }
  }

  /// Whether no part currently has a reason.
  package var isReady: Bool { notReadyReasons.isEmpty }

  /// Current reasons, see ``notReadyReasons(at:)``.
  package var notReadyReasons: [String] { notReadyReasons(at: .now()) }

  /// Return the reasons, such as `store: no connection`; empty when ready.
  package func notReadyReasons(at now: NIODeadline) -> [String] {
    reasons.withLock { reasons in reasons.filter { $0.start <= now }.map { "\($0.part): \($0.text)" } }
  }
}
