import ReceiptModel
import StoreEngine

/// Whose backup it is: at most one at a time, bounded in life. A pure state machine.
///
/// idle → making → open → idle; a connection that is lost while the checkpoint is made leaves `abandoned`, until it is
/// made and removed.
struct BackupTurn {
  /// A connection.
  typealias Owner = UInt64

  private enum State {
    case idle
    case making(Owner)
    /// Its connection was lost meanwhile.
    case abandoned
    case open(Owner, any StorageCheckpoint)
  }

  private var state = State.idle

  var isIdle: Bool {
    if case .idle = state { true } else { false }
  }

  /// - Returns: false: another backup is under way.
  mutating func begin(_ owner: Owner) -> Bool {
    guard case .idle = state else { return false }
    state = .making(owner)
    return true
  }

  /// The checkpoint is made, or could not be.
  ///
  /// - Returns: whether its owner waits for it; if not, it has to be removed, and then ``removed()`` be called.
  mutating func made(_ checkpoint: (any StorageCheckpoint)?) -> Bool {
    switch state {
    case .making(let owner):
      state = checkpoint.map { .open(owner, $0) } ?? .idle
      return true
    case .abandoned:
      if checkpoint == nil { state = .idle }
      return false
    case .idle, .open: preconditionFailure("no checkpoint was asked for")
    }
  }

  /// The checkpoint of this owner; nil: it has none.
  func checkpoint(of owner: Owner) -> (any StorageCheckpoint)? {
    guard case .open(owner, let checkpoint) = state else { return nil }
    return checkpoint
  }

  /// The owner has ended its backup, was silent for too long, or is gone.
  ///
  /// - Returns: a checkpoint that has to be removed; then ``removed()`` has to be called.
  mutating func end(_ owner: Owner) -> (any StorageCheckpoint)? {
    switch state {
    case .making(owner):
      state = .abandoned
      return nil
    case .open(owner, let checkpoint):
      state = .abandoned
      return checkpoint
    case .idle, .making, .abandoned, .open: return nil
    }
  }

  /// The next backup may begin.
  mutating func removed() { state = .idle }
}
