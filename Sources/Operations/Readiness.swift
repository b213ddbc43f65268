package import NIOCore
internal import Synchronization

/// Why a process cannot serve right now, from the parts of it that know. Ready is when none has a reason.
package final class Readiness: Sendable {
  private struct Reason {
    var part: String
    var text: String
    /// It does not count before.
    var start: NIODeadline
  }

  private let reasons: Mutex<[Reason]>

  /// Not ready until `set("process", nil)`.
  package init() {
    reasons = Mutex([Reason(part: "process", text: "starting", start: .distantPast)])
  }

  /// Sets or, with nil, takes back the reason of one part, as in `set("store", "no connection")`.
  ///
  /// - Parameter start: from when on it counts, if it is not taken back before.
  package func set(_ part: String, _ reason: String?, from start: NIODeadline = .distantPast) {
    reasons.withLock { reasons in
      reasons.removeAll { $0.part == part }
      if let reason { reasons.append(Reason(part: part, text: reason, start: start)) }
    }
  }

  /// Whether no part has a reason now.
  package var isReady: Bool { notReadyReasons.isEmpty }

  /// ``notReadyReasons(at:)`` now.
  package var notReadyReasons: [String] { notReadyReasons(at: .now()) }

  /// As in `store: no connection`; empty when ready.
  package func notReadyReasons(at now: NIODeadline) -> [String] {
    reasons.withLock { reasons in reasons.filter { $0.start <= now }.map { "\($0.part): \($0.text)" } }
  }
}
