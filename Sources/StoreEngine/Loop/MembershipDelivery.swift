package import ReceiptModel

/// Membership changes in transit from a channel's shard to their users' home shard.
package struct MembershipDelivery: Hashable, Sendable {
  package var from: ShardID
  package var to: ShardID
  /// Number of the preceding change for this shard; 0 if there was none.
  package var after: UInt64
  /// In rising order; durable in the sending shard.
  package var changes: [Outbox.QueuedChange]
}

/// Confirmation that changes are durable in the index.
package struct MembershipConfirmation: Hashable, Sendable {
  /// The shard that sent the changes.
  package var to: ShardID
  /// The shard that applied the changes.
  package var from: ShardID
  /// Number of the last confirmed change.
  package var through: UInt64
}
