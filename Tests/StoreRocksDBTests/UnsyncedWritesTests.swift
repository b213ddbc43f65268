import Testing

@testable import StoreRocksDB

extension UnsyncedWrites {
  /// Call `takeDue` outside of a macro.
  fileprivate static func takeDue(_ writes: inout UnsyncedWrites) -> Bool { writes.takeDue() }
}

/// When the storage has to be synced, in `interval` mode.
@Suite struct UnsyncedWritesTests {
  @Test("a new directory is synced once, then only after writes")
  func syncsAfterWrites() {
    var writes = UnsyncedWrites()
    #expect(UnsyncedWrites.takeDue(&writes))
    #expect(!UnsyncedWrites.takeDue(&writes))
    writes.writeBegan()
    writes.writeEnded()
    #expect(UnsyncedWrites.takeDue(&writes))
    #expect(!UnsyncedWrites.takeDue(&writes))
  }

  @Test("a write that ends after a sync began is due again")
  func syncsAgainAfterOverlappingWrite() {
    var writes = UnsyncedWrites()
    _ = writes.takeDue()
    writes.writeBegan()
    #expect(UnsyncedWrites.takeDue(&writes), "it may have been written already")
    writes.writeEnded()
    #expect(UnsyncedWrites.takeDue(&writes), "it may have been written after the sync")
    #expect(!UnsyncedWrites.takeDue(&writes))
  }

  @Test("a sync during a long write does not forget the writes that ended")
  func overlappingWritesAreCounted() {
    var writes = UnsyncedWrites()
    _ = writes.takeDue()
    writes.writeBegan()
    writes.writeBegan()
    writes.writeEnded()
    #expect(UnsyncedWrites.takeDue(&writes))
    #expect(UnsyncedWrites.takeDue(&writes), "one write is still under way")
    writes.writeEnded()
    #expect(UnsyncedWrites.takeDue(&writes))
    #expect(!UnsyncedWrites.takeDue(&writes))
  }
}
