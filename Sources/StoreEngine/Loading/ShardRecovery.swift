package import ReceiptModel
package import ReceiptWire

/// A driver that starts shards from storage as a store does, and discards them.
package final class ShardRecovery: StoreLoopDriver {
  /// Throw if a store could not start with these shards.
  ///
  /// - Parameter follows: whether they are shards of a cluster's member.
  package static func check(
    _ stored: [(shard: ShardID, state: StoredShard)],
    shardCount: Int,
    follows: Bool = false
  ) throws(StorageError) {
    let driver = ShardRecovery()
    // The loop refers to its driver without owning it.
    _ = try withExtendedLifetime(driver) { () throws(StorageError) in
      try StoreLoop(
        configuration: StoreLoopConfiguration(),
        shardCount: shardCount,
        stored: stored,
        follows: follows,
        driver: driver
      )
    }
  }

  private init() {}

  // A loop without requests and turns calls none of these.
  package func commit(_ group: CommitGroup) {}
  package func load(_ request: LoadRequest, as reference: ChannelReference) {}
  package func readSteps(_ request: StepRequest) {}
  package func purge() {}
  package func deliver(_ deliveries: [MembershipDelivery]) {}
  package func confirm(_ confirmations: [MembershipConfirmation]) {}
  package func peek(_ request: StorageReadRequest) {}
  package func sliceLater() {}
  package func report(_ error: StorageError) {}
  package func loopHalted(_ error: StorageError) {}
}
