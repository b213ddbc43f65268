internal import ReceiptModel
internal import StoreEngine

/// The one backup that may run at a time. A pure state machine.
///
/// idle → making → open → ending → idle. If the connection is lost while the checkpoint is made, the state is
/// `ending` until the checkpoint is made and removed. A checkpoint that fails makes the state idle.
struct CurrentBackup {
  /// The number of a connection that asks.
  typealias ConnectionID = UInt64

  private enum State {
    case idle
    case making(ConnectionID)
    case open(ConnectionID, any StorageCheckpoint)
    /// The connection has ended the backup, or is lost. The checkpoint is made or removed.
    case ending
  }

  private var state = State.idle

  var isIdle: Bool {
    if case .idle = state { true } else { false }
  }

  /// - Returns: false if another backup is in progress.
  mutating func begin(_ connection: ConnectionID) -> Bool {
    guard case .idle = state else { return false }
    state = .making(connection)
    return true
  }

  /// Record that the checkpoint was made, or failed.
  ///
  /// - Returns: whether the connection still waits; if not, remove the checkpoint and then call ``removed()``.
  mutating func made(_ checkpoint: (any StorageCheckpoint)?) -> Bool {
    switch state {
    case .making(let connection):
      state = checkpoint.map { .open(connection, $0) } ?? .idle
      return true
    case .ending:
      if checkpoint == nil { state = .idle }
      return false
    case .idle, .open: preconditionFailure("no checkpoint is being made")
    }
  }

  /// Return the checkpoint of this connection; nil if it has none.
  func checkpoint(of connection: ConnectionID) -> (any StorageCheckpoint)? {
    guard case .open(connection, let checkpoint) = state else { return nil }
    return checkpoint
  }

  /// End a connection's backup: finished, silent for too long, or disconnected.
  ///
  /// - Returns: a checkpoint to remove, after which ``removed()`` must be called.
  mutating func end(_ connection: ConnectionID) -> (any StorageCheckpoint)? {
    switch state {
    case .making(connection):
      state = .ending
      return nil
    case .open(connection, let checkpoint):
      state = .ending
      return checkpoint
    case .idle, .making, .open, .ending: return nil
    }
  }

  /// Let the next backup begin.
  mutating func removed() { state = .idle }
}
