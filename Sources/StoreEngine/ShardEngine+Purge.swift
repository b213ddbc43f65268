import NIOCore
import ReceiptModel
import ReceiptWire

/// How far a shard has got with forgetting what it has logged (R16; Proto/frames.md, 0x2B).
enum Purge: Equatable {
  case none
  /// Changes of memberships up to this one are on their way: they name users, and go first.
  case sending(through: UInt64)
  /// Pages are written and the log is cut up to this batch.
  case cutting(through: LogIndex)
  /// The log is cut up to there, and the storage purges itself.
  case storing(through: LogIndex)
  /// All is done up to there, and nobody was told yet.
  case done(through: LogIndex)

  var isUnderWay: Bool {
    switch self {
    case .none, .done: false
    case .sending, .cutting, .storing: true
    }
  }

  /// Whether a page that is dirty since then has to be written for it.
  func isDue(_ since: LogIndex) -> Bool {
    if case .cutting(let through) = self { return since <= through }
    return false
  }
}

extension ShardEngine {
  /// Answers 1 where everything that was logged before this was asked first is in pages, and nowhere else; 0 while that is being brought about, which whoever asks
  /// first begins. Who asks is not known: where something was removed since the purge began that is done now, another is begun, and it may be another's.
  func performPurge(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    let reader = FieldReader(payload)
    try reader.end()
    var isDone = false
    switch purge {
    case .cutting, .storing: break
    case .done(let through) where lastRemoval <= through:
      purge = .none
      isDone = true
    case .none, .done:
      purge = .sending(through: state.outbox.last)
      sendForPurge()
    case .sending: sendForPurge()
    }
    reply(header, .now, lane) { $0.writeInteger(UInt8(isDone ? 1 : 0)) }
  }

  /// Begins to write pages and cut the log, once no change is kept that was on its way when the purge was first asked for. Whoever asks for it asks again until it is done.
  private func sendForPurge() {
    guard case .sending(let through) = purge else { return }
    logSent()
    guard !state.outbox.keepsChanges(through: through) else { return }
    purge = .cutting(through: isGathering ? gatheringIndex : closed)
    loop.purges(self)
  }

  /// Whether the log is cut as far as the purge needs it; no commit is under way. Then the storage is to purge itself.
  var isCutForPurge: Bool {
    switch purge {
    case .cutting(let through): cut >= through
    case .storing: true
    case .none, .sending, .done: false
    }
  }

  /// The storage purges itself for this shard from here on.
  func purgeIsStoring() {
    if case .cutting(let through) = purge { purge = .storing(through: through) }
  }

  /// The storage has purged itself, or could not: then the next who asks begins anew.
  func purgeEnded(isDone: Bool) {
    guard case .storing(let through) = purge else { return }
    purge = isDone ? .done(through: through) : .none
  }
}
