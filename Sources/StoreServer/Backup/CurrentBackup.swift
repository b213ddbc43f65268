internal import ReceiptModel
internal import StoreEngine

/// The one backup that may run at a time. A pure state machine.
///
/// idle → making → open → ending → idle. If the connection is lost while the checkpoint is made, the state is `ending`
/// until the checkpoint is made and removed. A checkpoint that fails makes the state idle.
struct CurrentBackup {
  /// Id of a connection.
  typealias Owner = UInt64

  private enum State {
    case idle
    case making(Owner)
    case open(Owner, any StorageCheckpoint)
    /// The backup has no owner any more. Its checkpoint is made or removed.
    case ending
  }

  private var state = State.idle

  var isIdle: Bool {
    if case .idle = state { true } else { false }
  }

  /// - Returns: false if another backup is in progress.
  mutating func begin(_ owner: Owner) -> Bool {
    guard case .idle = state else { return false }
    state = .making(owner)
    return true
  }

  /// Record that the checkpoint was made, or failed.
  ///
  /// - Returns: whether its owner still waits; if not, remove the checkpoint and then call ``removed()``.
  mutating func made(_ checkpoint: (any StorageCheckpoint)?) -> Bool {
    switch state {
    case .making(let owner):
      state = checkpoint.map { .open(owner, $0) } ?? .idle
      return true
    case .ending:
      if checkpoint == nil { state = .idle }
      return false
    case .idle, .open: preconditionFailure("no checkpoint is being made")
    }
  }

  /// Return the checkpoint of this owner; nil if it has none.
  func checkpoint(of owner: Owner) -> (any StorageCheckpoint)? {
    guard case .open(owner, let checkpoint) = state else { return nil }
    return checkpoint
  }

  /// End an owner's backup: finished, silent for too long, or disconnected.
  ///
  /// - Returns: a checkpoint to remove, after which ``removed()`` must be called.
  mutating func end(_ owner: Owner) -> (any StorageCheckpoint)? {
    switch state {
    case .making(owner):
      state = .ending
      return nil
    case .open(owner, let checkpoint):
      state = .ending
      return checkpoint
    case .idle, .making, .open, .ending: return nil
    }
  }

  /// Let the next backup begin.
  mutating func removed() { state = .idle }
}
