package import ReceiptModel
package import ReceiptWire

/// A driver that starts shards from storage as a store does, and discards them.
package final class ShardRecovery: StoreLoopDriver {
  private var batches: [LoopCommit.Batch] = []

  private init() {}

  /// Throw if a store could not start with these shards.
  ///
  /// - Parameter follows: whether they are shards of a cluster's member.
  package static func check(
    _ stored: [(shard: ShardID, state: StoredShard)],
    shardCount: Int,
    follows: Bool = false
  ) throws(StorageError) {
    _ = try batches(of: stored, shardCount: shardCount, follows: follows) { _ in }
  }

  /// Start shards, and return the log batches of what `change` does to them in one turn.
  static func batches(
    of stored: [(shard: ShardID, state: StoredShard)],
    shardCount: Int,
    follows: Bool = false,
    _ change: (StoreLoop) -> Void
  ) throws(StorageError) -> [LoopCommit.Batch] {
    let driver = ShardRecovery()
    // The loop refers to its driver without owning it.
    return try withExtendedLifetime(driver) { () throws(StorageError) in
      let loop = try StoreLoop(
        configuration: StoreLoopConfiguration(),
        shardCount: shardCount,
        stored: stored,
        follows: follows,
        driver: driver
      )
      change(loop)
      return driver.batches
    }
  }

  /// Keep only the batches: the next start derives pages, drops and trims from them.
  package func commit(_ commit: LoopCommit) { batches += commit.batches }

  // A loop without requests calls none of these; messages may get lost.
  package func load(_ request: LoadRequest, as reference: ChannelReference) {}
  package func readSteps(_ request: StepRequest) {}
  package func purge() {}
  package func deliver(_ deliveries: [MembershipDelivery]) {}
  package func confirm(_ confirmations: [MembershipConfirmation]) {}
  package func peek(_ request: StorageReadRequest) {}
  package func sliceLater() {}
  package func reportError(_ error: StorageError) {}
  package func loopHalted(_ error: StorageError) {}
}
