import NIOCore
import StoreEngine
import Testing

@testable import StoreServer

/// At most one connection makes a backup at a time.
@Suite struct BackupOwnershipTests {
  private struct Checkpoint: StorageCheckpoint {
    var files: [CheckpointFile] { [] }
    func read(_ file: Int, at offset: UInt64, count: Int) throws(StorageError) -> ByteBuffer { ByteBuffer() }
    func remove() {}
  }

  /// Wraps the state machine, so that assertions may call its mutating methods.
  private final class MutableOwnership {
    private var turn = BackupOwnership()
    var isIdle: Bool { turn.isIdle }
    func begin(_ owner: UInt64) -> Bool { turn.begin(owner) }
    func made(_ checkpoint: Checkpoint?) -> Bool { turn.made(checkpoint) }
    func has(_ owner: UInt64) -> Bool { turn.checkpoint(of: owner) != nil }
    func end(_ owner: UInt64) -> Bool { turn.end(owner) != nil }
    func removed() { turn.removed() }
  }

  private let turn = MutableOwnership()

  @Test func secondBackupIsRefusedUntilFirstIsRemoved() {
    #expect(turn.begin(1))
    #expect(!turn.begin(2) && !turn.begin(1))
    #expect(!turn.has(1))
    #expect(turn.made(Checkpoint()))
    #expect(turn.has(1) && !turn.has(2))
    #expect(!turn.begin(2))
    // Only the owner of a backup ends it.
    #expect(!turn.end(2) && turn.has(1))
    #expect(turn.end(1) && !turn.has(1))
    // Its checkpoint is still being removed.
    #expect(!turn.begin(2))
    turn.removed()
    #expect(turn.isIdle && turn.begin(2))
  }

  @Test func disconnectBeforeCheckpointRemovesIt() {
    #expect(turn.begin(1))
    #expect(!turn.end(1) && !turn.begin(2))
    #expect(!turn.made(Checkpoint()), "it has to be removed")
    #expect(!turn.begin(2))
    turn.removed()
    #expect(turn.begin(2))
  }

  @Test func failedCheckpointFreesOwnership() {
    #expect(turn.begin(1))
    #expect(turn.made(nil) && turn.isIdle)
    #expect(turn.begin(1) && !turn.end(1))
    #expect(!turn.made(nil) && turn.isIdle)
  }
}
