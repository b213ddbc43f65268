internal import Synchronization

/// Why a process cannot serve right now, from the parts of it that know. Ready is when none has a reason.
package final class Readiness: Sendable {
  private let reasons: Mutex<[(part: String, reason: String)]>

  /// Not ready until `set("process", nil)`.
  package init() {
    reasons = Mutex([(part: "process", reason: "starting")])
  }

  /// Sets or, with nil, takes back the reason of one part, as in `set("store", "no connection")`.
  package func set(_ part: String, _ reason: String?) {
    reasons.withLock { reasons in
      reasons.removeAll { $0.part == part }
      if let reason { reasons.append((part: part, reason: reason)) }
    }
  }

  /// Whether no part has a reason.
  package var isReady: Bool { reasons.withLock { $0.isEmpty } }

  /// As in `store: no connection`; empty when ready.
  package var notReadyReasons: [String] {
    reasons.withLock { reasons in reasons.map { "\($0.part): \($0.reason)" } }
  }
}
