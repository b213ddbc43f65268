package import ReceiptModel
package import ReceiptWire

/// All shards of one event loop, and their group commit: one append in flight, the next one open. Not thread-safe:
/// call everything on the loop.
package final class StoreLoop {
  private var time = LoopClock()
  /// Error code that refuses every incoming command unapplied; nil accepts commands. Work in progress continues.
  package var commandRefusal: ErrorCode?
  /// The time of the newest batch that was followed.
  package internal(set) var followedTime = Timestamp.none
  /// Whether the loop may answer queries as the owner of its shards. Always valid without a cluster. The driver sets it
  /// before it passes requests in.
  package var lease = OwnerLease.valid
  /// Set once a commit has failed.
  package private(set) var isHalted = false
  /// Whether the loop follows another one's log and serves nothing (`StoreLoop+Following.swift`).
  package internal(set) var isFollowing: Bool
  unowned let driver: any StoreLoopDriver
  let configuration: StoreLoopConfiguration
  private(set) var shards: [ShardEngine] = []
  /// Index in `shards` by shard id; −1 for another loop's shard.
  let shardIndexes: [Int16]
  /// The same for requests. It is empty while the loop follows, so that an owner checks no request for it.
  var requestShardIndexes: [Int16]
  /// Work that the shards may still do.
  var budget: TurnBudget

  // Parts
  let replies = ReplyDelivery()
  let commits = LoopCommits()
  let purges = StoragePurgeQueue()
  let memory: ChannelMemory
  let slices = SliceScheduler()
  let crossShard = CrossShardMessages()

  private var parts: [LoopPart] { [replies, commits, purges, memory, slices, crossShard] }

  package internal(set) var counters = Counters()

  /// - Parameters:
  ///   - shardCount: number of shards in the whole store, the modulus of the hash.
  ///   - stored: stored state that each shard of this loop starts from.
  ///   - follows: make a follower of another loop's log; ``promote()`` makes it the owner.
  package init(
    configuration: StoreLoopConfiguration,
    shardCount: Int,
    stored: [(shard: ShardID, state: StoredShard)],
    follows: Bool = false,
    driver: any StoreLoopDriver
  ) throws(StorageError) {
    self.configuration = configuration
    self.driver = driver
    isFollowing = follows
    budget = TurnBudget(configuration)
    memory = ChannelMemory(budget: configuration.residentBytesMax)
    var shardIndexes: [Int16] = Array(repeating: -1, count: shardCount)
    for (index, entry) in stored.enumerated() { shardIndexes[Int(entry.shard.rawValue)] = Int16(index) }
    self.shardIndexes = shardIndexes
    requestShardIndexes = follows ? [] : shardIndexes
    for part in parts { part.attach(to: self) }
    requirePartsAttached(of: self)
    for (shard, state) in stored {
      shards.append(
        try ShardEngine(
          id: shard,
          shardCount: shardCount,
          indexInLoop: shards.count,
          configuration: configuration,
          loop: self,
          stored: state
        )
      )
    }
  }

  /// Wall-clock time of this turn. The driver sets it before it passes requests in; it never falls here.
  package var clock: Timestamp {
    get { time.now }
    set { time.set(newValue) }
  }

  /// Time since the loop was made, as far as the clock shows it, robust against clock changes. Ages are measured in it.
  var elapsedMilliseconds: Int64 { time.elapsedMilliseconds }

  /// Number of shards of this loop.
  package var shardCount: Int { shards.count }

  /// Whether a commit is in flight or anything is pending.
  package var isBusy: Bool {
    commits.isUnderWay || commits.hasNextCommit || slices.hasQueries || shards.contains { !$0.waiting.isEmpty }
  }

  // MARK: Connections

  /// Open a connection for requests; call before its first request. An older connection of the same session closes at
  /// once: none of its later frames may be applied after their resend was refused.
  package func open(_ lane: ReplyLane) {
    guard !isHalted else { return }
    replies.open(lane)
  }

  /// Close a connection that is gone.
  package func close(_ lane: ReplyLane) {
    replies.close(lane)
    for shard in shards {
      for part in shard.parts { part.close(lane) }
    }
  }

  // MARK: Requests

  /// Receive a request. The reply goes to `lane`, now or when everything that it reveals is durable. Throws where the
  /// payload does not parse: the connection must then end with an error frame.
  package func receive(_ header: FrameHeader, _ payload: RawSpan, lane: ReplyLane) throws(WireError) {
    guard !isHalted, !lane.isClosed else { return }
    counters.requests += 1
    let number = Int(header.shard.rawValue)
    let index = number < requestShardIndexes.count ? requestShardIndexes[number] : -1
    guard index >= 0 else { return refuseUnserved(header, lane) }
    try shards[Int(index)].receive(header, payload, lane)
  }

  /// Refuse a request for a shard that this loop does not have, or only follows. The request counts nowhere.
  private func refuseUnserved(_ header: FrameHeader, _ lane: ReplyLane) {
    let isFollowed = shard(header.shard) != nil
    let isFirst = lane.add(.now, refusable: header) { buffer in
      buffer.writeError(
        isFollowed ? .unavailable : .wrongShard,
        shard: header.shard,
        correlation: header.correlation,
        retryAfterMilliseconds: isFollowed ? Self.followingRetryMilliseconds : 0,
        detail: isFollowed ? "this node is not the owner of the shard" : "this store has no such shard"
      )
    }
    if isFirst { replies.record(lane, .now) }
  }

  /// End a turn after the requests that came in together were passed in: send the replies that may leave and start a
  /// commit unless one is in flight.
  ///
  /// May be called while replies are being delivered: a failed write closes its connection, whose last bytes are read
  /// and whose turn ends before the write returns. This turn then ends again afterwards.
  package func endTurn() {
    guard !isHalted else { return }
    budget.beginTurn()
    guard !replies.postponesTurnEnd() else { return }
    memory.evictOverBudget()
    if commits.hasNextCommit || memory.isUnderPressure || purges.needsLogTrim { commits.start() }
    purges.start()
    slices.requestSlice()
    crossShard.post()
    replies.deliverNow()
  }

  /// Run timed work; call at least every second. Due pages, log trims and the log's tail progress without requests too.
  package func tick() {
    guard !isHalted else { return }
    guard !isFollowing else { return tickFollower() }
    // Timed work of the shards happens at this time, whether it is watched or not.
    for shard in shards { shard.advanceTime() }
    memory.drainTails()
    memory.evictOverBudget()
    for shard in shards {
      shard.tickEviction()
      shard.sessions.tick()
    }
    budget.beginSlice()
    for shard in shards { shard.tickIndexes() }
    for shard in shards {
      shard.events.reportExpiries()
      shard.events.logTime()
    }
    for shard in shards { shard.events.sendUnbatchedEvents() }
    for shard in shards {
      shard.timers.resume()
      shard.pushJobs.tick()
      shard.feed.tick()
      shard.deletions.tick()
    }
    commits.start(isTick: true)
    crossShard.post()
    replies.deliverNow()
  }

  /// Run one slice of pending work in a turn of its own. Requests that came in meanwhile had their turn first, and
  /// those that come in now have the next.
  package func slice() {
    guard !isHalted else { return }
    slices.run()
    endTurn()
  }

  // MARK: Results of the driver

  /// Handle the result of the commit in flight.
  package func committed(_ result: Result<Void, StorageError>) {
    guard !isHalted else { return }
    commits.ended()
    if case .failure(let error) = result {
      halt(error)
      return
    }
    commits.committed()
    if isFollowing { memory.drainTails() }
    purges.advance()
    replies.deliverInFlight()
    guard !isHalted else { return }
    memory.evictOverBudget()
    // Commits due pages without requests too, one slice after the other.
    commits.start()
    purges.start()
    slices.requestSlice()
    crossShard.post()
    answerFeedReaders()
  }

  /// Answer the readers of the feed that waited for the commit that has ended.
  private func answerFeedReaders() {
    guard configuration.feedRetention != nil else { return }
    for shard in shards { shard.feed.answerReadersOfCommit() }
    guard !isHalted else { return }
    replies.deliverNow()
  }

  /// Handle the result of a read of the feed.
  package func feedRead(_ request: FeedReadRequest, _ result: Result<[StoredFeedBlock], StorageError>) {
    guard !isHalted else { return }
    ownShard(request.shard).feed.blocksRead(request, result)
    endTurn()
  }

  /// Handle the result of a trim of the feed.
  package func feedTrimmed(_ request: FeedTrimRequest, _ result: Result<FeedExtent, StorageError>) {
    guard !isHalted else { return }
    ownShard(request.shard).feed.trimmed(result)
  }

  /// Handle the result of the storage's purge. Shards with a pending round begin it.
  package func purged(_ result: Result<Void, StorageError>) {
    guard !isHalted else { return }
    purges.ended(result)
    endTurn()
  }

  /// Handle the result of a channel load. Requests that waited for it run in this turn, or in a later one if the
  /// turn's budget is used up.
  package func loaded(
    _ request: LoadRequest,
    as reference: ChannelReference,
    _ result: Result<StoredChannel?, StorageError>
  ) {
    guard !isHalted else { return }
    memory.loaded(LoadQueue.LoadedChannel(request: request, reference: reference, result: result))
    slices.requestSlice()
    endTurn()
  }

  /// Handle the result of a read of steps. The query that waited for it runs in this turn.
  package func stepsRead(_ request: StepRequest, _ result: Result<[StoredSegment], StorageError>) {
    guard !isHalted else { return }
    ownShard(request.shard).steps.stepsRead(request, result)
    endTurn()
  }

  /// Handle the results of a peek. Requests that waited for nothing else are answered in this turn.
  package func peeked(_ request: StorageReadRequest, _ results: [StorageUnreadCounts]) {
    guard !isHalted else { return }
    ownShard(request.shard).unreadQueries.peeked(request, results)
    endTurn()
  }

  /// Handle the ledger's result: the user was recorded, or `fault` says why not.
  package func erasureRecorded(_ request: ErasureRequest, fault: String?) {
    guard !isHalted else { return }
    shard(request.shard)?.settings.erasureRecorded(request, fault: fault)
    endTurn()
  }

  // MARK: Halting

  /// Halt the loop. Pending replies are dropped unanswered: the outcome of the append is unknown
  /// (docs/contribute/architecture.md, "Log, pages and recovery").
  private func halt(_ error: StorageError) {
    stop()
    driver.loopHalted(error)
  }

  /// Halt the loop because storage failed outside a commit: acknowledged commands may not be durable, and memory may
  /// be ahead of storage.
  package func fail(_ error: StorageError) {
    guard !isHalted else { return }
    halt(error)
  }

  /// Stop all requests, answers and driver calls, and drop pending work. For a storage that is about to be closed.
  package func stop() {
    isHalted = true
    for part in parts { part.stop() }
    for shard in shards {
      for part in shard.parts { part.stop() }
    }
  }

  // MARK: The index of users' channels

  /// Receive membership changes for shards of this loop.
  package func receive(_ deliveries: [MembershipDelivery]) {
    guard !isHalted, !isFollowing else { return }
    for delivery in deliveries { shard(delivery.to)?.indexes.receive(delivery) }
    endTurn()
  }

  /// Receive confirmations: changes that shards of this loop sent are in the index.
  package func confirmed(_ confirmations: [MembershipConfirmation]) {
    guard !isHalted, !isFollowing else { return }
    // Each shard checks its deferred replies once, after all its confirmations.
    var affected: [ShardEngine] = []
    for confirmation in confirmations {
      guard let shard = shard(confirmation.to), shard.outgoing.confirmed(confirmation) else {
        continue
      }
      if affected.last !== shard { affected.append(shard) }
    }
    for shard in affected { shard.outgoing.confirmationsReceived() }
    endTurn()
  }

  func shard(_ id: ShardID) -> ShardEngine? {
    let index = Int(id.rawValue) < shardIndexes.count ? Int(shardIndexes[Int(id.rawValue)]) : -1
    return index < 0 ? nil : shards[index]
  }

  /// Return the shard with this id, which is one of the loop's.
  func ownShard(_ id: ShardID) -> ShardEngine { shards[Int(shardIndexes[Int(id.rawValue)])] }

  /// Newest time that any shard of this loop had logged when the loop was made; none if nothing was logged.
  package var loggedTime: Timestamp { shards.map { $0.log.startTime }.max() ?? .none }

  /// Per shard of this loop, the log index up to which everything is durable.
  package var durableIndexes: [(shard: ShardID, index: LogIndex)] {
    shards.map { ($0.state.id, $0.log.durable) }
  }

  /// Return whether a channel is in memory.
  package func isLoaded(_ shard: ShardID, cid: RawSpan) -> Bool {
    self.shard(shard)?.state.slot(of: cid) != nil
  }

  /// Return whether a channel in memory is being deleted: requests do not find it, and its name is not free yet.
  package func isBeingDeleted(_ shard: ShardID, cid: RawSpan) -> Bool {
    guard let shard = self.shard(shard), let slot = shard.state.slot(of: cid) else { return false }
    return shard.state[slot].isBeingDeleted
  }

  /// Return whether a channel was deleted whose pages storage may still have, so that it must not be looked up there.
  package func isDeleted(_ shard: ShardID, cid: RawSpan) -> Bool {
    guard let shard = self.shard(shard), shard.state.slot(of: cid) == nil else { return false }
    return shard.deletions.isDeleted(cid)
  }
}

/// Whether replies may leave an owner (docs/contribute/cluster-design.md, C4).
package enum OwnerLease: Sendable {
  /// Replies leave.
  case valid
  /// Replies wait: the next commit may extend the lease.
  case expired
  /// Queries are refused as `unavailable`.
  case lost
}

/// Time of a loop: a wall clock that never falls, and the time that has passed.
private struct LoopClock {
  /// Wall-clock time of this turn.
  private(set) var now = Timestamp.none
  private var reading: Int64 = 0
  /// Time since the loop was made, as far as the readings show it, robust against clock changes.
  private(set) var elapsedMilliseconds: Int64 = 0

  /// Take a reading of the wall clock.
  mutating func set(_ time: Timestamp) {
    // Ticks come every 100 ms (`LoopHost`); at least one a second has to come. So a step of more than a minute is a
    // clock that was set, not time that has passed.
    elapsedMilliseconds += min(max(0, time.milliseconds - reading), 60_000)
    reading = time.milliseconds
    if time > now { now = time }
  }
}

extension StoreLoop {
  /// Counters since start, for metrics.
  package struct Counters: Sendable {
    package var requests: UInt64 = 0
    package var commits: UInt64 = 0
    package var batches: UInt64 = 0
    package var pagesWritten: UInt64 = 0
    package var channelsLoaded: UInt64 = 0
    package var channelsEvicted: UInt64 = 0
    package var loadsDelayed: UInt64 = 0
    /// Entries of users' indexes that were assigned or removed.
    package var indexEntries: UInt64 = 0
    /// Events sent and dropped, counted once per watching connection; and the bytes of their frames.
    package var eventsSent: UInt64 = 0
    package var eventsDropped: UInt64 = 0
    package var eventBytes: UInt64 = 0

    package init() {}

    package static func += (sum: inout Counters, other: Counters) {
      sum.requests += other.requests
      sum.commits += other.commits
      sum.batches += other.batches
      sum.pagesWritten += other.pagesWritten
      sum.channelsLoaded += other.channelsLoaded
      sum.channelsEvicted += other.channelsEvicted
      sum.loadsDelayed += other.loadsDelayed
      sum.indexEntries += other.indexEntries
      sum.eventsSent += other.eventsSent
      sum.eventsDropped += other.eventsDropped
      sum.eventBytes += other.eventBytes
    }
  }

  /// Current values, for metrics.
  package struct Gauges: Sendable {
    /// Channels in memory, and the bytes that they occupy.
    package var loadedChannels = 0
    package var residentBytes = 0
    /// Bytes of users' settings.
    package var settingsBytes = 0
    package var dirtyPages = 0
    /// Channels of the log's tail that are not loaded yet.
    package var tailChannels = 0
    /// Membership changes that the index has not confirmed.
    package var changesPending = 0
    /// Pending reminders and expiries of messages.
    package var timers = 0
    /// Push jobs that no worker has finished.
    package var pushJobs = 0
    /// Watched channels and users, counted once per connection.
    package var subscriptions = 0
    /// Records of the feed since it was turned on first, those that are no longer kept included.
    package var feedRecords: UInt64 = 0
    /// Consumers of the feed, by name.
    package var consumers: [String: ConsumerProgress] = [:]

    package init() {}
  }

  /// How far a consumer of the feed has come.
  package struct ConsumerProgress: Sendable {
    /// Records that are committed, and those that are not.
    package var committed: UInt64 = 0
    package var lag: UInt64 = 0
    /// Milliseconds since the last committed record of the shard that lags most; 0 without lag.
    package var lagMilliseconds: Int64 = 0
  }

  /// Current values of this loop alone.
  package var gauges: Gauges {
    var sum = Gauges()
    addGauges(to: &sum)
    return sum
  }

  /// Add the current values of this loop's shards.
  package func addGauges(to sum: inout Gauges) {
    for shard in shards {
      sum.loadedChannels += shard.state.loadedCount
      sum.residentBytes += shard.state.residentBytes
      sum.settingsBytes += shard.state.settings.byteCount
      sum.dirtyPages += shard.dirty.count
      sum.tailChannels += shard.tail.count
      sum.changesPending += shard.state.outbox.count
      sum.timers += shard.state.timers.count
      sum.pushJobs += shard.state.pushJobs.count
      sum.subscriptions += shard.events.subscriptionCount
      if shard.feed.isOn { shard.feed.addProgress(to: &sum) }
    }
  }
}

/// A part of a loop: one subject with its state, which no other part uses. It reaches the rest through ``loop``.
class LoopPart: OwnedPart {
  /// Unchecked for speed: the loop owns its parts and outlives them. Set once, when the loop has its stored properties.
  unowned(unsafe) private(set) final var loop: StoreLoop!

  final func attach(to loop: StoreLoop) { self.loop = loop }

  final var isAttached: Bool { loop != nil }

  /// Drop all work: the loop has halted and calls its driver no more.
  func stop() {}
}

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
