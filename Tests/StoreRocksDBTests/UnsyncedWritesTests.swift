import Testing

@testable import StoreRocksDB

/// When the storage has to be synced, in `interval` mode.
@Suite struct UnsyncedWritesTests {
  @Test("a new directory is synced once, then only after writes")
  func syncsAfterWrites() {
    var writes = UnsyncedWrites()
    #expect(writes.takeDue())
    #expect(!writes.takeDue())
    writes.writeBegan()
    writes.writeEnded()
    #expect(writes.takeDue())
    #expect(!writes.takeDue())
  }

  @Test("a write that ends after a sync began is due again")
  func syncsAgainAfterOverlappingWrite() {
    var writes = UnsyncedWrites()
    _ = writes.takeDue()
    writes.writeBegan()
    #expect(writes.takeDue(), "it may have been written already")
    writes.writeEnded()
    #expect(writes.takeDue(), "it may have been written after the sync")
    #expect(!writes.takeDue())
  }

  @Test("a sync during a long write does not forget the writes that ended")
  func overlappingWritesAreCounted() {
    var writes = UnsyncedWrites()
    _ = writes.takeDue()
    writes.writeBegan()
    writes.writeBegan()
    writes.writeEnded()
    #expect(writes.takeDue())
    #expect(writes.takeDue(), "one write is still under way")
    writes.writeEnded()
    #expect(writes.takeDue())
    #expect(!writes.takeDue())
  }
}
