/// Whether replies may leave an owner (docs/cluster.md, C4).
package enum OwnerLease: Sendable {
  /// Replies leave.
  case valid
  /// Replies wait: the next commit may extend the lease.
  case expired
  /// Queries are refused as `unavailable`.
  case lost
}
