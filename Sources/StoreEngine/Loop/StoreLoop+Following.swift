internal import NIOCore
package import ReceiptModel
internal import ReceiptWire

/// Error of ``StoreLoop/follow(_:)``.
package enum FollowError: Error, Hashable, Sendable, CustomStringConvertible {
  /// Batches of a shard are missing before this one. Nothing was applied: read them from the shared log first.
  case gap(shard: ShardID, last: LogIndex, found: LogIndex)
  /// A batch is of a shard that this loop does not have. Nothing was applied.
  case foreignShard(ShardID)
  /// A batch does not parse, and nothing was applied; or it does not fit the state, and the loop has stopped.
  case damaged(StorageError)

  package var description: String {
    switch self {
    case .gap(let shard, let last, let found):
      "shard \(shard.rawValue), log index \(found.rawValue): follows \(last.rawValue), batches in between are missing"
    case .foreignShard(let shard): "shard \(shard.rawValue) is not followed here"
    case .damaged(let error): "\(error)"
    }
  }
}

/// A loop that follows another one's log: it keeps the same state, pages and log, and serves nothing until it is
/// promoted. Its commits, trims, drops, loads and evictions run the code of an owner.
///
/// States: following → owner (``promote()``), both → halted.
extension StoreLoop {
  /// Delay after which a request that came before the promotion may be sent again.
  static let followingRetryMilliseconds: UInt32 = 1_000
  /// Assumed size of an effect that waits in the log's tail, for ``hasRoomToFollow``.
  private static let tailEffectBytes = 128

  /// Whether the loop asks for more batches. If not, ask again after the next commit or load. ``follow(_:)`` applies a
  /// batch in either case.
  package var hasRoomToFollow: Bool {
    let inTails = shards.reduce(0) { $0 + $1.tail.readableEffectCount } * Self.tailEffectBytes
    return commits.waitingBytes + inTails < configuration.followWaitingBytesMax
  }

  /// Per shard of this loop, the last batch that is applied here. It may not be on local storage yet.
  package var followedIndexes: [(shard: ShardID, index: LogIndex)] {
    shards.map { ($0.state.id, max($0.log.followed, $0.log.closed)) }
  }

  /// Apply the batches of one commit that the shared log has. The next local commit holds all batches that
  /// were followed before ``StoreLoopDriver/commit(_:)`` is called.
  ///
  /// Batches that are applied here already are skipped: after a crash, local storage may have some of a commit.
  package func follow(_ batches: [LoopCommit.Batch]) throws(FollowError) {
    precondition(isFollowing, "an owner follows no log")
    guard !isHalted else { return }
    let next = try decode(batches)
    do throws(StorageError) {
      for (shard, batch, source) in next {
        try shard.follow(batch, over: nil)
        followedTime = max(followedTime, batch.time)
        shard.recordFollowed(batch.index, byteCount: source.bytes.readableBytes)
        // The head page keeps the sessions and the last index, as in an owner.
        shard.touchShardPage(.shardHead, batch.index)
        commits.follow(source)
      }
    } catch {
      // Some of the batches may be applied.
      stop()
      throw .damaged(error)
    }
    memory.drainTails()
    endTurn()
  }

  /// Decode the batches that are not applied yet, and check that each follows the one before it.
  private func decode(
    _ batches: [LoopCommit.Batch]
  ) throws(FollowError) -> [(shard: ShardEngine, batch: LogBatch, source: LoopCommit.Batch)] {
    var next: [(shard: ShardEngine, batch: LogBatch, source: LoopCommit.Batch)] = []
    var lasts: [LogIndex] = []
    for source in batches {
      guard let shard = shard(source.shard) else { throw .foreignShard(source.shard) }
      if lasts.isEmpty { lasts = shards.map { $0.log.followed } }
      let last = lasts[shard.indexInLoop]
      guard source.index > last else { continue }
      guard source.index == last.next else {
        throw .gap(shard: source.shard, last: last, found: source.index)
      }
      let location = "shard \(source.shard.rawValue), log index \(source.index.rawValue)"
      do throws(StorageError) {
        let batch = try ShardEngine.batch(source.bytes, location)
        guard batch.index == source.index else {
          throw .corrupt("\(location): holds batch \(batch.index.rawValue)")
        }
        next.append((shard, batch, source))
      } catch {
        throw .damaged(error)
      }
      lasts[shard.indexInLoop] = source.index
    }
    return next
  }

  /// Run a follower's timed work: due pages, log trims and the log's tail. Its shards' time is the log's, not the
  /// clock's.
  func tickFollower() {
    memory.drainTails()
    memory.evictOverBudget()
    for shard in shards {
      shard.tickEviction()
      shard.sessions.tick()
    }
    budget.beginSlice()
    commits.start(isTick: true)
    slices.requestSlice()
    replies.deliverNow()
  }

  /// Remove what is followed so far from local storage (R16): write its pages, trim its log, then call
  /// ``StoreLoopDriver/purge()``.
  package func purgeFollowed() {
    precondition(isFollowing, "an owner's shards begin purges")
    guard !isHalted else { return }
    for shard in shards { shard.purges.beginFollowed() }
    endTurn()
  }

  /// Become the owner, from everything that was followed. Nothing is read and nothing is lost: followed batches that
  /// local storage does not have yet go into the next commit, before the loop's own (``LoopCommit/followedCount``).
  package func promote() {
    precondition(isFollowing, "the loop is the owner already")
    guard !isHalted else { return }
    isFollowing = false
    requestShardIndexes = shardIndexes
    for shard in shards { shard.promote() }
    endTurn()
  }
}
