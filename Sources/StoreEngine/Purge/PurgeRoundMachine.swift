internal import ReceiptModel

/// Purge rounds, in which a shard removes what it has logged (R16; Proto/frames.md, 0x2B). Rounds run one at a time and
/// are numbered from 1 since the start. Any number of requests may wait for the same round. A pure state machine.
struct PurgeRoundMachine: Equatable {
  enum Stage: Equatable {
    case none
    /// Waits until changes up to this one are delivered, because they name users. Becomes `trimming`.
    case sending(through: UInt64)
    /// Waits until pages are written and the log is trimmed up to this batch. Becomes `storing`.
    case trimming(through: LogIndex)
    /// The log is trimmed, and the storage is purging. Becomes `none`.
    case storing
  }

  private(set) var stage = Stage.none
  /// Completed rounds. A failed round does not count.
  private(set) var ended: UInt64 = 0
  /// A request waits for the next round.
  private var isRequested = false

  var isUnderWay: Bool { stage != .none }

  /// Whether a round must begin.
  var isDue: Bool { stage == .none && isRequested }

  /// Return whether a page that has been dirty since `since` must be written for the current round.
  func isPageDue(_ since: LogIndex) -> Bool {
    if case .trimming(let through) = stage { return since <= through }
    return false
  }

  /// Return whether a log that is trimmed through `trimmed` is trimmed as far as the current round needs.
  func isLogTrimmed(_ trimmed: LogIndex) -> Bool {
    switch stage {
    case .trimming(let through): trimmed >= through
    case .storing: true
    case .none, .sending: false
    }
  }

  /// Return the round to wait for: the first round that begins after the initial request, whatever is in progress.
  ///
  /// A round number from before the last restart is treated as a current one where possible. That errs on the safe
  /// side: every round since the start covers everything that was durable at the start. A number that is too high is
  /// lowered, because the wait would be too long.
  ///
  /// - Parameter round: the round that an earlier answer named; 0 in the initial request.
  /// - Returns: 0 if that round has ended.
  mutating func awaitedRound(after round: UInt64) -> UInt64 {
    if round > 0, round <= ended { return 0 }
    let next = ended + (isUnderWay ? 2 : 1)
    let awaited = round == 0 ? next : min(round, next)
    if awaited == next { isRequested = true }
    return awaited
  }

  /// - Parameter last: number of the last membership change in the outbox.
  mutating func begin(through last: UInt64) {
    assert(isDue)
    isRequested = false
    stage = .sending(through: last)
  }

  mutating func beginTrimming(through index: LogIndex) {
    if case .sending = stage { stage = .trimming(through: index) }
  }

  mutating func beginStoring() {
    if case .trimming = stage { stage = .storing }
  }

  /// - Parameter isDone: false if the storage failed. Waiting clients ask again, which begins the round again.
  mutating func stored(isDone: Bool) {
    guard case .storing = stage else { return }
    stage = .none
    if isDone { ended += 1 }
  }
}
