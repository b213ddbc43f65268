package import ReceiptModel
package import ReceiptWire

/// Result of a successful rebuild.
package struct RebuildSummary: Hashable, Sendable {
  package var epoch: UInt64 = 0
  package var shards = 0
  /// Number of channels whose memberships were sent again.
  package var channels: UInt64 = 0
  /// Number of memberships sent again.
  package var changes: UInt64 = 0
  /// Number of index entries checked in the final sweep.
  package var entries: UInt64 = 0

  package init() {}

  /// The summary as one line of JSON.
  package var document: String {
    "{\"epoch\":\(epoch),\"shards\":\(shards),\"channels\":\(channels),\"changes\":\(changes),\"entries\":\(entries)}"
  }
}

/// Progress of a rebuild, as a line for the person at the terminal.
package struct RebuildProgress: Hashable, Sendable, CustomStringConvertible {
  package enum Stage: Sendable {
    case connecting
    case asking
    case resending
    case sweeping
  }

  package var stage: Stage
  package var epoch: UInt64
  package var shardsDone: Int
  /// Shards that are busy with another rebuild, or overloaded; the rebuild waits for them.
  package var shardsBusy: Int
  package var shards: Int
  package var channelsDone: UInt64
  package var channels: UInt64
  /// Memberships sent again, or entries checked.
  package var entries: UInt64

  package var description: String {
    let ofShards = "\(shardsDone) of \(shards) shards"
    let waiting = shardsBusy == 0 ? "" : "; waiting for \(shardsBusy) that are busy, perhaps with another rebuild"
    return switch stage {
    case .connecting: "connecting to the store"
    case .asking: "asking for the epoch: \(ofShards)\(waiting)"
    case .resending:
      """
      phase 1 of 2, epoch \(epoch): resending memberships, \(ofShards) done, \(channelsDone) of \(channels) \
      channels, \(entries) memberships\(waiting)
      """
    case .sweeping:
      "phase 2 of 2, epoch \(epoch): removing stale entries, \(ofShards) done, \(entries) entries\(waiting)"
    }
  }
}

/// Reason why a rebuild failed, and a remedy. The work done so far stays, and does no harm.
package enum RebuildFailure: Error, Hashable, Sendable, CustomStringConvertible {
  /// No store was reached within that time.
  case unreachable(Duration)
  /// The secrets of the store and the command differ, or only one of the two has a secret.
  case wrongSecret
  /// A shard did not answer within that time, or only with this error.
  case silent(ShardID, ErrorCode?, Duration)
  case refused(ShardID, ErrorCode, detail: String)
  /// A shard is busy with another rebuild, of this epoch.
  case superseded(ShardID, epoch: UInt64)
  /// A shard did not adopt the requested epoch.
  case epochNotAdopted(ShardID)
  /// The store does not support the request.
  case unsupportedByStore
  /// After a reconnect the store has a different number of shards.
  case otherStore
  case epochsExhausted

  package var description: String {
    switch self {
    case .unreachable(let time):
      "no store was reached in \(time): check --store, and whether the store is ready (its /ready)"
    case .wrongSecret:
      "the store does not have the same secret: --secret-file has to be the file that it was started with, or a copy"
    case .silent(let shard, nil, let time):
      "shard \(shard.rawValue): no answer in \(time): look at the store's log and load, then run this again"
    case .silent(let shard, let code?, let time):
      """
      shard \(shard.rawValue): nothing but \(code.name) in \(time): look at the store's log and load, then \
      run this again
      """
    case .refused(let shard, let code, let detail):
      """
      shard \(shard.rawValue): \(code.name)\(detail.isEmpty ? "" : " (\(detail))"): the store does not take \
      this rebuild; run this again, and if it stays so compare the versions of store and tidemark
      """
    case .superseded(let shard, let epoch):
      """
      shard \(shard.rawValue): another rebuild, of epoch \(epoch), has superseded this one: wait for it, or \
      run this again
      """
    case .epochNotAdopted(let shard):
      """
      shard \(shard.rawValue): it did not adopt the epoch: run this again, and if it stays so compare the \
      versions of store and tidemark
      """
    case .unsupportedByStore: "the store does not support rebuild_index: upgrade it first"
    case .otherStore:
      "another store answers at this address now, with another number of shards: check --store, then run this again"
    case .epochsExhausted: "a shard has the highest epoch that there is: its state is damaged, restore it from a copy"
    }
  }
}
