import NIOCore
import StoreEngine
import Testing

@testable import StoreServer

/// At most one connection makes a backup at a time.
@Suite struct CurrentBackupTests {
  private struct Checkpoint: StorageCheckpoint {
    var files: [CheckpointFile] { [] }
    func read(_ file: Int, at offset: UInt64, count: Int) throws(StorageError) -> ByteBuffer { ByteBuffer() }
    func remove() {}
  }

  /// Wraps the state machine, so that assertions may call its mutating methods.
  private final class MutableBackup {
    private var current = CurrentBackup()
    var isIdle: Bool { current.isIdle }
    func begin(_ connection: UInt64) -> Bool { current.begin(connection) }
    func made(_ checkpoint: Checkpoint?) -> Bool { current.made(checkpoint) }
    func has(_ connection: UInt64) -> Bool { current.checkpoint(of: connection) != nil }
    func end(_ connection: UInt64) -> Bool { current.end(connection) != nil }
    func removed() { current.removed() }
  }

  private let current = MutableBackup()

  @Test func secondBackupIsRefusedUntilFirstIsRemoved() {
    #expect(current.begin(1))
    #expect(!current.begin(2) && !current.begin(1))
    #expect(!current.has(1))
    #expect(current.made(Checkpoint()))
    #expect(current.has(1) && !current.has(2))
    #expect(!current.begin(2))
    // Only the connection that has begun a backup ends it.
    #expect(!current.end(2) && current.has(1))
    #expect(current.end(1) && !current.has(1))
    // Its checkpoint is still being removed.
    #expect(!current.begin(2))
    current.removed()
    #expect(current.isIdle && current.begin(2))
  }

  @Test func disconnectBeforeCheckpointRemovesIt() {
    #expect(current.begin(1))
    #expect(!current.end(1) && !current.begin(2))
    #expect(!current.made(Checkpoint()), "it has to be removed")
    #expect(!current.begin(2))
    current.removed()
    #expect(current.begin(2))
  }

  @Test func failedCheckpointLetsNextBackupBegin() {
    #expect(current.begin(1))
    #expect(current.made(nil) && current.isIdle)
    #expect(current.begin(1) && !current.end(1))
    #expect(!current.made(nil) && current.isIdle)
  }
}
