import NIOCore
import ReceiptModel
import ReceiptWire

/// The rounds in which a shard forgets what it has logged (R16; Proto/frames.md, 0x2B): one at a time, numbered from 1
/// since the start. Any number of askers wait for the same round; a pure state machine.
struct Purges: Equatable {
  enum Stage: Equatable {
    case none
    /// Changes of memberships up to this one are on their way: they name users, and go first. Becomes `cutting`.
    case sending(through: UInt64)
    /// Pages are written and the log is cut up to this batch. Becomes `storing`.
    case cutting(through: LogIndex)
    /// The log is cut, and the storage purges itself. Becomes `none`.
    case storing
  }

  private(set) var stage = Stage.none
  /// Rounds that have ended well. One that fails has not begun.
  private(set) var ended: UInt64 = 0
  /// Somebody waits for the round that comes next.
  private var isWanted = false

  var isUnderWay: Bool { stage != .none }

  /// Whether a round has to begin.
  var isDue: Bool { stage == .none && isWanted }

  /// Whether a page that is dirty since then has to be written for the round under way.
  func isPageDue(_ since: LogIndex) -> Bool {
    if case .cutting(let through) = stage { return since <= through }
    return false
  }

  /// Whether the log is cut as far as the round under way needs it.
  func isCut(through cut: LogIndex) -> Bool {
    switch stage {
    case .cutting(let through): cut >= through
    case .storing: true
    case .none, .sending: false
    }
  }

  /// What an asker has to wait for: the first round that begins after it asked first, whatever is under way.
  ///
  /// A number of before the last start is taken for one of now where that can be. It says less than the asker knows:
  /// everything that was durable at the start is covered by every round since. One that is too high would be waited for
  /// too long.
  ///
  /// - Parameter round: what the asker was told before; 0: nothing, it asks first.
  /// - Returns: 0: that round has ended.
  mutating func asked(_ round: UInt64) -> UInt64 {
    if round > 0, round <= ended { return 0 }
    let next = ended + (isUnderWay ? 2 : 1)
    let awaited = round == 0 ? next : min(round, next)
    if awaited == next { isWanted = true }
    return awaited
  }

  /// - Parameter last: the last change of a membership that is on its way.
  mutating func begin(through last: UInt64) {
    assert(isDue)
    isWanted = false
    stage = .sending(through: last)
  }

  mutating func sent(through index: LogIndex) {
    if case .sending = stage { stage = .cutting(through: index) }
  }

  mutating func stores() {
    if case .cutting = stage { stage = .storing }
  }

  /// - Parameter isDone: false: the storage could not. Whoever waits asks again, and has the round begun anew.
  mutating func stored(isDone: Bool) {
    guard case .storing = stage else { return }
    stage = .none
    if isDone { ended += 1 }
  }
}

extension ShardEngine {
  /// Tells the asker which round it has to wait for, or that it has ended.
  func performPurge(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    var reader = FieldReader(payload)
    let round = try reader.varint()
    try reader.end()
    let awaited = purges.asked(round)
    beginPurge()
    goOnWithPurge()
    reply(header, .now, lane) { $0.writeVarint(awaited) }
  }

  /// Another round begins where somebody waits for it.
  private func beginPurge() {
    guard purges.isDue else { return }
    purges.begin(through: state.outbox.last)
  }

  /// Begins to write pages and cut the log, once no change is kept that was on its way when the round began.
  func goOnWithPurge() {
    guard case .sending(let through) = purges.stage, areTaken(through: through) else { return }
    logSent()
    guard !state.outbox.keepsChanges(through: through) else { return }
    purges.sent(through: isGathering ? gatheringIndex : closed)
    loop.purges(self)
  }

  /// Whether the storage is to purge itself for this shard; no commit is under way.
  var isCutForPurge: Bool { purges.isCut(through: cut) }

  /// The storage purges itself for this shard from here on.
  func purgeIsStoring() { purges.stores() }

  /// The storage has purged itself, or could not.
  func purgeEnded(isDone: Bool) {
    purges.stored(isDone: isDone)
    beginPurge()
    goOnWithPurge()
  }
}
