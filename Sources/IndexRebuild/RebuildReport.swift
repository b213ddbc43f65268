package import ReceiptModel
package import ReceiptWire

/// What a rebuild that went through came to.
package struct RebuildSummary: Hashable, Sendable {
  package var epoch: UInt64 = 0
  package var shards = 0
  /// Channels whose memberships were sent again.
  package var channels: UInt64 = 0
  /// Memberships sent again.
  package var changes: UInt64 = 0
  /// Entries of indexes looked at in the end.
  package var entries: UInt64 = 0

  package init() {}

  /// One line of JSON.
  package var document: String {
    "{\"epoch\":\(epoch),\"shards\":\(shards),\"channels\":\(channels),\"changes\":\(changes),\"entries\":\(entries)}"
  }
}

/// How far a rebuild is, as a line for the person at the terminal.
package struct RebuildProgress: Hashable, Sendable, CustomStringConvertible {
  package enum Step: Sendable {
    case connecting
    case asking
    case sendingAgain
    case sweeping
  }

  package var step: Step
  package var epoch: UInt64
  package var shardsDone: Int
  /// At another rebuild, or with too much to do: waited for.
  package var shardsBusy: Int
  package var shards: Int
  package var channelsDone: UInt64
  package var channels: UInt64
  /// Memberships sent again, or entries looked at.
  package var entries: UInt64

  package var description: String {
    let ofShards = "\(shardsDone) of \(shards) shards"
    let waiting =
      shardsBusy == 0 ? "" : "; waiting for \(shardsBusy) that are busy, perhaps with another rebuild"
    return switch step {
    case .connecting: "connecting to the store"
    case .asking: "asking for the epoch: \(ofShards)\(waiting)"
    case .sendingAgain:
      "phase 1 of 2, epoch \(epoch): memberships are sent again, \(ofShards) done, \(channelsDone) of \(channels) channels, \(entries) memberships\(waiting)"
    case .sweeping:
      "phase 2 of 2, epoch \(epoch): what was not sent is removed, \(ofShards) done, \(entries) entries\(waiting)"
    }
  }
}

/// Why a rebuild did not go through, and what to do. Whatever was done by then stays, and does no harm.
package enum RebuildFailure: Error, Hashable, Sendable, CustomStringConvertible {
  /// No store was reached in that time.
  case unreachable(Duration)
  /// The store has another secret than the one that was given, or one where none was given, or none.
  case wrongSecret
  /// A shard gave no answer for that time, or only this one.
  case silent(ShardID, ErrorCode?, Duration)
  case refused(ShardID, ErrorCode, detail: String)
  /// A shard is at another rebuild, of this epoch.
  case overtaken(ShardID, epoch: UInt64)
  /// A shard does not have the epoch that it was given.
  case notTaken(ShardID)
  /// The store does not know the request.
  case tooOld
  /// After a reconnect there was a store with another number of shards.
  case otherStore
  case epochsUsedUp

  package var description: String {
    switch self {
    case .unreachable(let time):
      "no store was reached in \(time): check --store, and whether the store is ready (its /ready)"
    case .wrongSecret:
      "the store does not have the same secret: --secret-file has to be the file that it was started with, or a copy"
    case .silent(let shard, nil, let time):
      "shard \(shard.rawValue): no answer in \(time): look at the store's log and load, then run this again"
    case .silent(let shard, let code?, let time):
      "shard \(shard.rawValue): nothing but \(code.name) in \(time): look at the store's log and load, then run this again"
    case .refused(let shard, let code, let detail):
      "shard \(shard.rawValue): \(code.name)\(detail.isEmpty ? "" : " (\(detail))"): the store does not take this rebuild; run this again, and if it stays so compare the versions of store and tidemark"
    case .overtaken(let shard, let epoch):
      "shard \(shard.rawValue): another rebuild, of epoch \(epoch), was begun since: let that one end, or run this again alone"
    case .notTaken(let shard):
      "shard \(shard.rawValue): it has not taken the epoch over: run this again, and if it stays so compare the versions of store and tidemark"
    case .tooOld: "the store does not know rebuild_index: it is of an older version, upgrade it first"
    case .otherStore:
      "another store answers at this address now, with another number of shards: check --store, then run this again"
    case .epochsUsedUp:
      "a shard has the highest epoch that there is: its state is damaged, restore it from a copy"
    }
  }
}
