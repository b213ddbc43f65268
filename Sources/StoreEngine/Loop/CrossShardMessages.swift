package import ReceiptModel

/// Messages to other shards, which leave at the end of the turn.
final class CrossShardMessages: LoopPart {
  private var deliveries: [MembershipDelivery] = []
  private var confirmations: [MembershipConfirmation] = []

  func deliver(_ delivery: MembershipDelivery) { deliveries.append(delivery) }

  func confirm(_ confirmation: MembershipConfirmation) { confirmations.append(confirmation) }

  /// Send the messages of this turn, with one call for all shards.
  func post() {
    guard !loop.isHalted else { return }
    if !deliveries.isEmpty {
      let leaving = deliveries
      deliveries = []
      loop.driver.deliver(leaving)
    }
    if !confirmations.isEmpty {
      let leaving = confirmations
      confirmations = []
      loop.driver.confirm(leaving)
    }
  }

  override func stop() {
    deliveries = []
    confirmations = []
  }
}

/// Membership changes in transit from a channel's shard to their users' home shard.
package struct MembershipDelivery: Hashable, Sendable {
  package var from: ShardID
  package var to: ShardID
  /// Number of the preceding change for this shard; 0 if there was none.
  package var after: UInt64
  /// In rising order; durable in the sending shard.
  package var changes: [Outbox.QueuedChange]

  package init(from: ShardID, to: ShardID, after: UInt64, changes: [Outbox.QueuedChange]) {
    self.from = from
    self.to = to
    self.after = after
    self.changes = changes
  }
}

/// Confirmation that changes are durable in the index.
package struct MembershipConfirmation: Hashable, Sendable {
  /// The shard that sent the changes.
  package var to: ShardID
  /// The shard that applied the changes.
  package var from: ShardID
  /// Number of the last confirmed change.
  package var through: UInt64

  package init(to: ShardID, from: ShardID, through: UInt64) {
    self.to = to
    self.from = from
    self.through = through
  }
}
