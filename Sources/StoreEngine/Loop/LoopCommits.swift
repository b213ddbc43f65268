internal import NIOCore
internal import ReceiptModel

/// Group commit: one append in flight, the next one open. It owns the lists of the shards that take part.
final class LoopCommits: LoopPart {
  private(set) var isUnderWay = false
  private var shardsInNextCommit: [ShardEngine] = []
  private var shardsInFlight: [ShardEngine] = []
  /// Shards with step segments in the commit in flight, and shards with segments to delete.
  private var shardsWritingSegments: [ShardEngine] = []
  private var shardsTrimmingSteps: [ShardEngine] = []
  /// Shards with deleted channels whose pages are to be dropped, or are being dropped.
  private var shardsDroppingPages: [ShardEngine] = []
  /// The shard whose due pages come first.
  private var pagePosition = 0
  /// Batches of the followed log that local storage does not have yet.
  private var followed: [LoopCommit.Batch] = []
  /// Bytes of these batches, and of those in the commit in flight.
  private var followedBytes = 0
  private var followedBytesInFlight = 0
  /// Shards with followed batches in the commit in flight.
  private var followersInFlight: [ShardEngine] = []

  /// Whether a batch waits for the next commit.
  var hasNextCommit: Bool { !shardsInNextCommit.isEmpty || !followed.isEmpty }

  /// Whether the next commit has followed batches.
  var hasFollowed: Bool { !followed.isEmpty }

  /// Bytes of followed batches that local storage does not have yet.
  var waitingBytes: Int { followedBytes + followedBytesInFlight }

  /// Bytes of effects that wait for the next commit.
  var nextCommitBytes: Int { shardsInNextCommit.reduce(0) { $0 + $1.log.openBatchBytes + $1.feed.openBlockBytes } }

  // MARK: For the shards

  /// Register a shard whose batch has got its first effect.
  func joinNextCommit(_ shard: ShardEngine) { shardsInNextCommit.append(shard) }

  /// Register a shard that writes step segments in this commit.
  func registerSegmentWrites(of shard: ShardEngine) { shardsWritingSegments.append(shard) }

  /// Register a shard that has step segments to delete.
  func registerTrims(of shard: ShardEngine) { shardsTrimmingSteps.append(shard) }

  /// Register a shard that has pages of deleted channels to drop.
  func registerDrops(of shard: ShardEngine) { shardsDroppingPages.append(shard) }

  /// Add a followed batch to the next commit.
  func follow(_ batch: LoopCommit.Batch) {
    followed.append(batch)
    followedBytes += batch.bytes.readableBytes
  }

  // MARK: Commit

  /// Commit open batches, due pages and due trims, unless a commit is in flight.
  func start(isTick: Bool = false) {
    guard !isUnderWay else { return }
    let shards = loop.shards
    var commit = LoopCommit()
    // Log trims first: pages of this commit are not on storage yet.
    for shard in shards {
      if let trim = shard.takeLogTrim(batchesMin: isTick ? 1 : loop.configuration.trimBatchesMin) {
        commit.logTrims.append(trim)
      }
    }
    for shard in shardsDroppingPages { shard.deletions.takeDrops(into: &commit) }
    for shard in shardsTrimmingSteps { shard.steps.takeTrims(into: &commit) }
    shardsTrimmingSteps.removeAll { !$0.steps.hasTrims }
    if !followed.isEmpty { takeFollowed(into: &commit) }
    for shard in shardsInNextCommit {
      if let block = shard.feed.closeBatch() { commit.feedBlocks.append(block) }
      commit.batches.append(shard.closeBatch())
    }
    var budget = loop.configuration.pageWriteSliceBytes
    // Another shard's pages come first in each commit.
    pagePosition = (pagePosition + 1) % max(1, shards.count)
    for offset in shards.indices where budget > 0 {
      budget -= shards[(pagePosition + offset) % shards.count].addDuePages(to: &commit, budget: budget)
    }
    guard !commit.isEmpty else { return }
    swap(&shardsInNextCommit, &shardsInFlight)
    isUnderWay = true
    loop.replies.commitBegan()
    loop.counters.commits += 1
    loop.counters.batches += UInt64(commit.batches.count)
    loop.counters.pagesWritten += UInt64(commit.pages.count)
    loop.driver.commit(commit)
  }

  /// Add all followed batches that wait, so that pages of this commit are not ahead of the local log. A promoted loop
  /// may still have some; they go before its own.
  private func takeFollowed(into commit: inout LoopCommit) {
    commit.batches = followed
    commit.followedCount = followed.count
    followed.removeAll(keepingCapacity: true)
    followedBytesInFlight = followedBytes
    followedBytes = 0
    for shard in loop.shards where shard.closeFollowed() { followersInFlight.append(shard) }
  }

  /// Record that the commit in flight has ended, with or without success.
  func ended() {
    precondition(isUnderWay, "no commit is in flight")
    isUnderWay = false
  }

  /// Tell the shards that the commit that has ended is durable.
  func committed() {
    if !followersInFlight.isEmpty {
      for shard in followersInFlight { shard.followedCommitted() }
      followersInFlight.removeAll(keepingCapacity: true)
    }
    followedBytesInFlight = 0
    for shard in shardsInFlight { shard.committed() }
    for shard in shardsWritingSegments { shard.steps.segmentsWritten() }
    shardsWritingSegments.removeAll(keepingCapacity: true)
    shardsInFlight.removeAll(keepingCapacity: true)
    for shard in shardsDroppingPages { shard.deletions.dropsCommitted() }
    shardsDroppingPages.removeAll { !$0.deletions.hasDrops }
  }

  override func stop() {
    isUnderWay = false
    shardsInNextCommit = []
    shardsInFlight = []
    shardsWritingSegments = []
    shardsTrimmingSteps = []
    shardsDroppingPages = []
    followed = []
    followedBytes = 0
    followedBytesInFlight = 0
    followersInFlight = []
  }
}
