/// Decides when a node probes the shared log, and when a silence of owners is the log's own.
///
/// While the log elects a leader, no owner can append: its silence says nothing about the owner. So each node reads the
/// owners of all groups at an interval. A probe that fails or is slow restarts the silence of every group
/// (``Ownership/Event/logUnresponsive``).
///
/// An event and the node's time go in, actions come out. Transitions: idle → waiting,
/// waiting → idle or late, late → waiting.
package struct LogProbe: Sendable {
  /// What the node does.
  package enum Action: Hashable, Sendable {
    /// Read the ends of all groups (``GroupLog/ends(of:done:)``), then report ``LogProbe/answered(_:at:)`` or
    /// ``LogProbe/failed(_:at:)`` with this number.
    case probe(UInt64)
    /// Report ``Ownership/Event/logUnresponsive`` to every group.
    case restartSilence
  }

  private enum State {
    /// Becomes waiting at this time.
    case idle(until: BootTime)
    /// A probe is unanswered. Becomes idle by its answer, and late without one.
    case waiting(sentAt: BootTime)
    /// A probe is overdue, and that was reported. Becomes waiting with the next probe.
    case late(until: BootTime)
  }

  private let limits: ClusterLimits
  private var state: State
  private var number: UInt64 = 0

  package init(limits: ClusterLimits, now: BootTime) {
    self.limits = limits
    state = .idle(until: now)
  }

  /// When ``timerFired(at:)`` has to be called.
  package var deadline: BootTime {
    switch state {
    case .idle(let until), .late(let until): until
    case .waiting(let sentAt): sentAt.adding(milliseconds: limits.probeAnswerMilliseconds)
    }
  }

  package mutating func timerFired(at now: BootTime) -> [Action] {
    guard now >= deadline else { return [] }
    switch state {
    case .idle, .late:
      return [probe(at: now)]
    case .waiting(let sentAt):
      return [.restartSilence] + nextProbe(after: sentAt, at: now)
    }
  }

  /// Handle the answer of a probe.
  package mutating func answered(_ number: UInt64, at now: BootTime) -> [Action] {
    guard number == self.number, case .waiting(let sentAt) = state else { return [] }
    let next = sentAt.adding(milliseconds: limits.probeMilliseconds)
    state = .idle(until: next)
    // A node that was stopped may see the answer before its timer.
    return now > sentAt.adding(milliseconds: limits.probeAnswerMilliseconds) ? [.restartSilence] : []
  }

  /// Handle a failed probe.
  package mutating func failed(_ number: UInt64, at now: BootTime) -> [Action] {
    guard number == self.number, case .waiting(let sentAt) = state else { return [] }
    return [.restartSilence] + nextProbe(after: sentAt, at: now)
  }

  private mutating func nextProbe(after sentAt: BootTime, at now: BootTime) -> [Action] {
    let next = sentAt.adding(milliseconds: limits.probeMilliseconds)
    guard now >= next else {
      state = .late(until: next)
      return []
    }
    return [probe(at: now)]
  }

  private mutating func probe(at now: BootTime) -> Action {
    number += 1
    state = .waiting(sentAt: now)
    return .probe(number)
  }
}
