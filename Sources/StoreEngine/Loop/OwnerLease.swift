/// Whether an owner may answer what waits for no commit (docs/cluster.md, C4). A reply that waits for a commit needs no
/// lease: the commit is the proof.
package enum OwnerLease: Sendable {
  /// Replies leave.
  case valid
  /// Replies wait: the next commit may extend the lease.
  case expired
  /// Queries are refused as `unavailable`.
  case lost
}
