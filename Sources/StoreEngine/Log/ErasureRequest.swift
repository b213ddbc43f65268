package import ReceiptModel

/// A request to record a user in the erasure ledger before the user is erased (R16).
package struct ErasureRequest: Hashable, Sendable {
  package var shard: ShardID
  package var requestID: UInt32
  package var user: [UInt8]
}
