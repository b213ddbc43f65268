internal import ReceiptModel

/// How far the events of each shard are complete. Their least time is the id of events
/// (docs/contribute/architecture.md, "Events").
struct EventProgress {
  private struct Shard {
    /// The time that the shard's events are complete through; nil: no subscription.
    var through: Timestamp?
    /// Live channels and users.
    var subscriptions = 0
    /// Resync frames in flight; until they are answered, events may be missing.
    var resyncs = 0
    /// The lowest time that those frames returned.
    var resynced: Timestamp?
  }

  private var shards: [Shard] = []
  /// The time that all shards with subscriptions are complete through; nil: there is no subscription.
  private(set) var time: Timestamp?

  /// 0: the store is not known yet.
  var shardCount: Int { shards.count }

  /// Return the time that one shard's events are complete through.
  func through(_ shard: Int) -> Timestamp? { shards[shard].through }

  /// Return the number of live channels and users of one shard.
  func subscriptions(_ shard: Int) -> Int { shards[shard].subscriptions }

  /// Set the number of shards, unless it is known.
  mutating func setShardCount(_ count: Int) {
    if shards.isEmpty { shards = Array(repeating: Shard(), count: count) }
  }

  /// Record that a shard's events are complete through this time.
  mutating func completed(_ shard: ShardID, through: Timestamp) {
    let shard = Int(shard.rawValue)
    guard shard < shards.count, let known = shards[shard].through, shards[shard].resyncs == 0, through > known
    else { return }
    shards[shard].through = through
    updateTime()
  }

  mutating func subscriptionAdded(_ shard: Int, through: Timestamp) {
    shards[shard].subscriptions += 1
    guard shards[shard].through == nil else { return }
    shards[shard].through = through
    updateTime()
  }

  mutating func subscriptionRemoved(_ shard: Int) {
    shards[shard].subscriptions -= 1
    guard shards[shard].subscriptions == 0, shards[shard].resyncs == 0 else { return }
    shards[shard].through = nil
    updateTime()
  }

  private mutating func updateTime() {
    time = shards.lazy.compactMap(\.through).min()
  }

  mutating func resyncBegan(_ shard: Int) { shards[shard].resyncs += 1 }

  mutating func resyncEnded(_ shard: Int, through: Timestamp?) {
    shards[shard].resyncs -= 1
    if let through { shards[shard].resynced = shards[shard].resynced.map { min($0, through) } ?? through }
    guard shards[shard].resyncs == 0 else { return }
    let resynced = shards[shard].resynced
    shards[shard].resynced = nil
    if shards[shard].subscriptions == 0 {
      shards[shard].through = nil
      updateTime()
    } else if let resynced {
      completed(ShardID(UInt16(shard)), through: resynced)
    }
  }
}
