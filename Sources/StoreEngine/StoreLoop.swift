import DequeModule
package import ReceiptModel
package import ReceiptWire

/// The sizes and times that a loop's shards work with.
package struct StoreLoopConfiguration: Sendable {
  /// A page is written this long after its first effect, at the latest a commit later.
  package var checkpointAgeMilliseconds: Int64 = 5_000
  /// Or when a shard has logged this much since.
  package var checkpointLogBytes: UInt64 = 16 << 20
  /// Pages written with one commit, in bytes: the slice that a checkpoint may take of a turn.
  package var checkpointSliceBytes = 256 << 10
  /// Between ticks a shard's log is cut only when this many batches can go: a cut leaves a mark behind on storage.
  package var cutBatchesMin: UInt64 = 4_096
  /// Sessions are forgotten this long after they were last heard of.
  package var sessionLifetimeMilliseconds: Int64 = 600_000
  /// Channels that may be loading at once, per shard.
  package var loadsMax = 1_024
  /// Requests that may wait for one channel.
  package var waitingPerLoadMax = 1_024
  /// Channels of the log's tail that are loaded at once, per shard, to get the log cut.
  package var tailLoadsMax = 8
  /// Bytes that the channels of this loop, and users' settings, may occupy in memory. A channel that is larger is in memory all the same while it is the one that its shard uses.
  package var residentBytesMax = Int.max
  /// Channels that are looked at in one turn to find some that can leave memory.
  package var evictionLooksMax = 256
  /// Rows that long queries look at in one turn, all of them together: some 200 µs. One that needs no more than `shortRows` has them in any case.
  package var sliceRows = 65_536
  package var shortRows = 8_192
  /// Queries that may go on in slices, per shard; one more is `busy`.
  package var slicedQueriesMax = 64
  /// Reads of steps that may be under way, per shard: for one query each.
  package var stepReadsMax = 256
  /// Steps that the queries of a shard may hold together while they wait for more, 24 bytes each; one more is `busy`.
  package var heldStepsMax = 4 * ReadSegments.stepsMax
  /// Row pages whose steps are read at once, per shard, to be written as fewer segments.
  package var stepTrimsMax = 2
  /// Requests for unread counts that may wait for channels on storage, per shard; one more is `busy`.
  package var unreadRequestsMax = 64
  /// Channels that one of them has loaded at once, where it cannot be peeked at.
  package var unreadLoadsMax = 8
  /// A channel of the log's tail that could not be read is tried again this long after.
  package var tailRetryMilliseconds: Int64 = 10_000
  /// Changes of memberships that one shard may have under way to another one.
  package var changesUnderWayMax = 4_096
  /// Users' indexes that are read at once, per shard, for the changes that come next.
  package var indexLoadsMax = 64
  /// Changes that are taken into indexes in one turn, and queued or looked at by a rebuild: some 500 µs.
  package var changesPerTurn = 1_024
  /// Changes that are not acknowledged this long after they were sent are sent again; an index that could not be read is read again.
  package var changesRetryMilliseconds: Int64 = 1_000
  /// How often it is logged what was acknowledged, at most.
  package var changesLoggedMilliseconds: Int64 = 1_000
  /// A reply waits at most so long for its changes of memberships to be in the index; 0: it does not wait.
  package var heldMilliseconds: Int64 = 1_000
  /// A reply that may not leave before them is `busy` after so long.
  package var heldStrictlyMilliseconds: Int64 = 4_000
  /// Replies that may wait so, per shard; one more does not.
  package var heldMax = 4_096

  package init() {}
}

/// What a loop needs done. Each is asked for on the loop and answered there later.
package protocol StoreLoopDriver: AnyObject {
  /// Make this durable, then call ``StoreLoop/committed(_:)``.
  func commit(_ group: CommitGroup)
  /// Read this channel, then call ``StoreLoop/loaded(_:as:_:)``.
  func load(_ request: LoadRequest, as reference: ChannelReference)
  /// Read these steps, then call ``StoreLoop/stepsRead(_:_:)``.
  func readSteps(_ request: StepRequest)
  /// Have the storage purge itself (``StorageEngine/purge()``), then call ``StoreLoop/purged(_:)``.
  func purge()
  /// Hand these to ``StoreLoop/take(_:)`` of the loops that own the shards they are for, each shard's in this order. They may be lost.
  func deliver(_ deliveries: [MembershipDelivery])
  /// Hand these to ``StoreLoop/acknowledged(_:)`` of the loops that own the shards they are for. They may be lost.
  func acknowledge(_ acknowledgements: [MembershipAcknowledgement])
  /// Perform this on a thread that may block, then call ``StoreLoop/peeked(_:_:)``.
  func peek(_ request: PeekRequest)
  /// Call ``StoreLoop/slice()`` soon, but only after what has come in meanwhile was handed in: a long query goes on.
  func sliceLater()
  /// Something on storage cannot be read; the rest goes on.
  func reports(_ error: StorageError)
  /// A commit failed: the loop has dropped everything and takes no more requests. Connections have to be closed, and a new loop be made from storage.
  func halted(_ error: StorageError)
}

/// All shards of one event loop, and their group commit: one append in flight, the next one gathering behind it. Not thread-safe: everything
/// is called on the loop.
package final class StoreLoop {
  /// Wall-clock time of this turn, set by the driver before it hands requests in; it never falls here.
  package var clock = Timestamp.none {
    didSet {
      // A step of more than a minute is a clock that was set, not time that has passed: ticks come every second.
      elapsedMilliseconds += min(max(0, clock.milliseconds - clockReading), 60_000)
      clockReading = clock.milliseconds
      if clock < oldValue { clock = oldValue }
    }
  }
  private var clockReading: Int64 = 0
  /// Time since the loop was made as far as the clock shows it, whether the clock was put forward or back. Ages are counted in it.
  private(set) var elapsedMilliseconds: Int64 = 0
  /// Set when a commit has failed.
  package private(set) var isHalted = false
  private unowned let driver: any StoreLoopDriver
  private let configuration: StoreLoopConfiguration
  private(set) var shards: [ShardEngine] = []
  /// From a shard's id to its place in `shards`; −1: another loop's.
  private var positions: [Int16]
  /// Those with queries that go on, the one whose turn is next first.
  private var slicingShards: Deque<ShardEngine> = []
  private var isSliceAsked = false
  /// Those with more to do for users' indexes than one turn has room for.
  private var workingShards: Deque<ShardEngine> = []
  /// Changes that may still be taken into indexes in this turn.
  var changesLeft: Int
  /// What leaves when the turn ends.
  private var deliveries: [MembershipDelivery] = []
  private var acknowledgements: [MembershipAcknowledgement] = []
  /// Rows that long queries may still look at in this turn.
  var rowsLeft: Int
  private var gatheringShards: [ShardEngine] = []
  private var inFlightShards: [ShardEngine] = []
  /// Those with segments of steps in the commit that is under way, and those with some to be deleted.
  private var segmentShards: [ShardEngine] = []
  private var trimmingShards: [ShardEngine] = []
  /// Those with deleted channels whose pages are to be dropped, or are being dropped.
  private var droppingShards: [ShardEngine] = []
  /// Those whose log has to be cut for a purge, those that wait for the storage to purge itself, and those for which it does.
  private var purgingShards: [ShardEngine] = []
  private var purgeableShards: [ShardEngine] = []
  private var purgedShards: [ShardEngine] = []
  private(set) var isCommitting = false
  /// The connections that are open for requests.
  private var lanes: [SessionID: ReplyLane] = [:]
  private var nowLanes: [ReplyLane] = []
  private var inFlightLanes: [ReplyLane] = []
  private var gatheringLanes: [ReplyLane] = []
  /// Those whose replies are being handed over.
  private var deliveringLanes: [ReplyLane] = []
  private var isDelivering = false
  private var endsTurnAgain = false

  /// Counts since start, for metrics.
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

    package init() {}
  }
  package internal(set) var counters = Counters()
  private(set) var memory: MemoryPressure
  /// The shard that is asked first to let channels go.
  private var evictionPosition = 0
  /// The shard whose due pages come first.
  private var pagePosition = 0
  /// Channels that are being read from storage.
  private var loadsUnderWay = 0
  /// Channels that are asked for and have no room yet.
  private var delayedLoads: Deque<(request: LoadRequest, reference: ChannelReference)> = []

  /// - Parameters:
  ///   - shardCount: of the whole store, which the hash is taken modulo.
  ///   - stored: what each shard of this loop starts from.
  package init(
    configuration: StoreLoopConfiguration,
    shardCount: Int,
    stored: [(shard: ShardID, state: StoredShard)],
    driver: any StoreLoopDriver
  ) throws(StorageError) {
    self.configuration = configuration
    self.driver = driver
    self.rowsLeft = configuration.sliceRows
    self.changesLeft = configuration.changesPerTurn
    self.memory = MemoryPressure(budget: configuration.residentBytesMax)
    self.positions = Array(repeating: -1, count: shardCount)
    for (shard, state) in stored {
      positions[Int(shard.rawValue)] = Int16(shards.count)
      shards.append(
        try ShardEngine(
          id: shard,
          shardCount: shardCount,
          position: shards.count,
          configuration: configuration,
          loop: self,
          stored: state
        )
      )
    }
  }

  /// Shards of this loop.
  package var shardCount: Int { shards.count }

  /// What there is now, for metrics.
  package struct Gauges: Sendable {
    /// Channels in memory, and the bytes that they occupy.
    package var loadedChannels = 0
    package var residentBytes = 0
    /// What users' settings occupy.
    package var settingsBytes = 0
    package var dirtyPages = 0
    /// Channels of the log's tail that are not in memory yet.
    package var tailChannels = 0
    /// Changes of memberships that are not known to be in the index.
    package var changesPending = 0

    package init() {}
  }

  package var gauges: Gauges {
    shards.reduce(into: Gauges()) { sum, shard in
      sum.loadedChannels += shard.state.loadedCount
      sum.residentBytes += shard.state.residentBytes
      sum.settingsBytes += shard.state.settings.byteCount
      sum.dirtyPages += shard.dirty.count
      sum.tailChannels += shard.tail.count
      sum.changesPending += shard.state.outbox.count
    }
  }

  /// Whether a commit is under way or something waits for one.
  package var isBusy: Bool {
    isCommitting || !gatheringShards.isEmpty || !slicingShards.isEmpty || shards.contains(where: \.hasWaiting)
  }

  // MARK: Connections

  /// A connection is open for requests; call before its first one. An older connection of its session ends here and now: a frame of it that comes in
  /// later may not be applied after its resend was refused.
  package func open(_ lane: ReplyLane) {
    guard !isHalted else { return }
    if let other = lanes[lane.session], other !== lane {
      guard other.serial <= lane.serial else {
        lane.isClosed = true
        return
      }
      other.isClosed = true
    }
    lanes[lane.session] = lane
  }

  /// The connection is gone.
  package func close(_ lane: ReplyLane) {
    lane.isClosed = true
    if lanes[lane.session] === lane { lanes[lane.session] = nil }
  }

  // MARK: Requests

  /// Takes a request. Its reply goes to `lane`, now or when what it tells of is durable. Throws where the payload does not parse: the
  /// connection has to end with an error frame.
  package func receive(_ header: FrameHeader, _ payload: RawSpan, lane: ReplyLane) throws(WireError) {
    guard !isHalted, !lane.isClosed else { return }
    counters.requests += 1
    let position = Int(header.shard.rawValue) < positions.count ? positions[Int(header.shard.rawValue)] : -1
    guard position >= 0 else {
      let isFirst = lane.add(.now) { buffer in
        buffer.writeError(
          .wrongShard,
          shard: header.shard,
          correlation: header.correlation,
          detail: "this store has no such shard"
        )
      }
      if isFirst { note(lane, .now) }
      return
    }
    try shards[Int(position)].receive(header, payload, lane)
  }

  /// The requests that came in together have been handed in: what may leave leaves, and what gathers is committed unless a commit is under way.
  ///
  /// May be called while replies are handed over: a write that fails ends its connection, whose last bytes are read, and that turn ends, before the write has
  /// returned. Then this one is made up for afterwards.
  package func endTurn() {
    guard !isHalted else { return }
    rowsLeft = configuration.sliceRows
    changesLeft = configuration.changesPerTurn
    guard !isDelivering else {
      endsTurnAgain = true
      return
    }
    keepToBudget()
    if !gatheringShards.isEmpty || memory.isPressed || !purgingShards.isEmpty { startCommit() }
    startPurge()
    post()
    swap(&nowLanes, &deliveringLanes)
    deliver { $0.deliverNow() }
  }

  private func deliver(_ hand: (ReplyLane) -> Void) {
    isDelivering = true
    for lane in deliveringLanes { hand(lane) }
    deliveringLanes.removeAll(keepingCapacity: true)
    isDelivering = false
    if endsTurnAgain {
      endsTurnAgain = false
      endTurn()
    }
  }

  /// Call at least every second: pages that are due, cuts, and the log's tail go on without requests too.
  package func tick() {
    guard !isHalted else { return }
    for shard in shards { shard.drainTail(inFlightMax: memory.isPressed ? 1 : configuration.tailLoadsMax) }
    keepToBudget()
    for shard in shards { shard.clock.tick() }
    changesLeft = configuration.changesPerTurn
    for shard in shards { shard.tickIndexes() }
    startCommit(isTick: true)
    post()
    swap(&nowLanes, &deliveringLanes)
    deliver { $0.deliverNow() }
  }

  // MARK: The index of users' channels

  /// Takes changes of memberships for shards of this loop.
  package func take(_ deliveries: [MembershipDelivery]) {
    guard !isHalted else { return }
    for delivery in deliveries { shard(delivery.to)?.take(delivery) }
    endTurn()
  }

  /// Changes of shards of this loop are in the index.
  package func acknowledged(_ acknowledgements: [MembershipAcknowledgement]) {
    guard !isHalted else { return }
    for acknowledgement in acknowledgements { shard(acknowledgement.to)?.acknowledged(acknowledgement) }
    endTurn()
  }

  private func shard(_ id: ShardID) -> ShardEngine? {
    let position = Int(id.rawValue) < positions.count ? Int(positions[Int(id.rawValue)]) : -1
    return position < 0 ? nil : shards[position]
  }

  func deliver(_ delivery: MembershipDelivery) { deliveries.append(delivery) }

  func acknowledge(_ acknowledgement: MembershipAcknowledgement) { acknowledgements.append(acknowledgement) }

  /// Hands over what gathered in this turn: one call for all shards.
  private func post() {
    guard !isHalted else { return }
    if !deliveries.isEmpty {
      let leaving = deliveries
      deliveries = []
      driver.deliver(leaving)
    }
    if !acknowledgements.isEmpty {
      let leaving = acknowledgements
      acknowledgements = []
      driver.acknowledge(leaving)
    }
  }

  /// A shard has more to do for indexes, in a later turn.
  func works(_ shard: ShardEngine) {
    guard !shard.isWorking else { return }
    shard.isWorking = true
    workingShards.append(shard)
    askForSlice()
  }

  // MARK: Group commit

  private func startCommit(isTick: Bool = false) {
    guard !isCommitting else { return }
    var group = CommitGroup()
    // Cuts first: pages that leave with this group are not on storage yet.
    for shard in shards {
      if let cut = shard.takeCut(batchesMin: isTick ? 1 : configuration.cutBatchesMin) {
        group.cuts.append(cut)
      }
    }
    for shard in droppingShards { shard.takeDrops(into: &group) }
    for shard in trimmingShards { shard.takeTrims(into: &group) }
    trimmingShards.removeAll { !$0.hasTrims }
    for shard in gatheringShards { group.batches.append(shard.closeBatch()) }
    var budget = configuration.checkpointSliceBytes
    // Each time another shard's pages come first.
    pagePosition = (pagePosition + 1) % max(1, shards.count)
    for offset in shards.indices where budget > 0 {
      budget -= shards[(pagePosition + offset) % shards.count].addDuePages(to: &group, budget: budget)
    }
    guard !group.isEmpty else { return }
    swap(&gatheringShards, &inFlightShards)
    swap(&gatheringLanes, &inFlightLanes)
    for lane in inFlightLanes { lane.gatheringLeaves() }
    isCommitting = true
    counters.commits += 1
    counters.batches += UInt64(group.batches.count)
    counters.pagesWritten += UInt64(group.pages.count)
    driver.commit(group)
  }

  /// The commit that was asked for is durable, or has failed.
  package func committed(_ result: Result<Void, StorageError>) {
    guard !isHalted else { return }
    precondition(isCommitting, "no commit was asked for")
    isCommitting = false
    if case .failure(let error) = result {
      halt(error)
      return
    }
    for shard in inFlightShards { shard.committed() }
    for shard in segmentShards { shard.segmentsWritten() }
    segmentShards.removeAll(keepingCapacity: true)
    inFlightShards.removeAll(keepingCapacity: true)
    for shard in droppingShards { shard.dropsCommitted() }
    droppingShards.removeAll { $0.deletions.isEmpty }
    advancePurges()
    swap(&inFlightLanes, &deliveringLanes)
    deliver { $0.deliverInFlight() }
    guard !isHalted else { return }
    keepToBudget()
    // Without requests too: while pages are due, one slice of them follows the other.
    startCommit()
    startPurge()
    post()
  }

  /// What waits is dropped, never answered: whether the append is on storage is not known (DESIGN.md section 3).
  private func halt(_ error: StorageError) {
    stop()
    driver.halted(error)
  }

  /// Storage has failed outside a commit: what was acknowledged may not be durable, and what is in memory may be ahead of it.
  package func fail(_ error: StorageError) {
    guard !isHalted else { return }
    halt(error)
  }

  /// Takes and answers nothing from here on, and asks nothing of the driver; what waits is dropped. For a storage that is to be closed.
  package func stop() {
    isHalted = true
    for lane in nowLanes + inFlightLanes + gatheringLanes + Array(lanes.values) { lane.isClosed = true }
    lanes = [:]
    delayedLoads = []
    nowLanes = []
    inFlightLanes = []
    gatheringLanes = []
    gatheringShards = []
    inFlightShards = []
    segmentShards = []
    trimmingShards = []
    droppingShards = []
    purgingShards = []
    purgeableShards = []
    purgedShards = []
    for shard in slicingShards { shard.slicedQueries = [] }
    slicingShards = []
    workingShards = []
    deliveries = []
    acknowledgements = []
    for shard in shards { shard.outgoing.held = [] }
  }

  // MARK: Memory

  /// Lets channels go while they occupy more than the budget, a bounded slice of them at a time. Not while a commit is under way: the pages in it are not on
  /// storage yet, and their channels could be read back without them.
  private func keepToBudget() {
    guard memory.budget < .max else { return }
    var resident = 0
    var channels = 0
    memory.reserve(shards.reduce(0) { $0 + $1.state.settings.byteCount })
    for shard in shards {
      resident += shard.state.residentBytes
      channels += shard.state.loadedCount
    }
    if resident > memory.budget, !isCommitting {
      var looks = configuration.evictionLooksMax
      for _ in shards.indices where looks > 0 && resident > memory.target {
        evictionPosition = (evictionPosition + 1) % shards.count
        let shard = shards[evictionPosition]
        let evicted = shard.evictedCount
        // Each in turn gets its part, so that no shard's channels go first.
        var share = max(looks / shards.count, 16)
        looks -= share
        resident -= shard.evict(bytes: resident - memory.target, looks: &share)
        looks += share
        counters.channelsEvicted += shard.evictedCount - evicted
        channels -= Int(shard.evictedCount - evicted)
      }
    }
    memory.note(resident: resident, channels: channels)
    startDelayedLoads()
  }

  // MARK: Channels on storage

  /// A channel was read, or could not be. What waited for it is carried out in this turn.
  package func loaded(
    _ request: LoadRequest,
    as reference: ChannelReference,
    _ result: Result<StoredChannel?, StorageError>
  ) {
    guard !isHalted else { return }
    counters.channelsLoaded += 1
    loadsUnderWay -= 1
    let position = Int(positions[Int(request.shard.rawValue)])
    shards[position].loaded(request, as: reference, result)
    // Where memory is short the tail goes on with the next tick: each of its channels leaves again when its pages are written.
    if case .number = reference, !memory.isPressed {
      shards[position].drainTail(inFlightMax: configuration.tailLoadsMax)
    }
    endTurn()
  }

  /// Steps were read, or could not be. The request that waited for them is carried out in this turn.
  package func stepsRead(_ request: StepRequest, _ result: Result<[StoredSegment], StorageError>) {
    guard !isHalted else { return }
    shards[Int(positions[Int(request.shard.rawValue)])].stepsRead(request, result)
    endTurn()
  }

  /// Channels were peeked at. What waited for nothing else is answered in this turn.
  package func peeked(_ request: PeekRequest, _ results: [Peeked]) {
    guard !isHalted else { return }
    shards[Int(positions[Int(request.shard.rawValue)])].peeked(request, results)
    endTurn()
  }

  /// Goes on with a long query, one slice of it, in a turn of its own: what came in meanwhile has had its turn, and what comes in now is next.
  package func slice() {
    guard !isHalted else { return }
    isSliceAsked = false
    if let shard = slicingShards.popFirst() {
      shard.goOn()
      if !shard.slicedQueries.isEmpty { slicingShards.append(shard) }
    }
    if let shard = workingShards.popFirst() {
      shard.isWorking = false
      shard.goOnWithIndexes()
    }
    askForSlice()
    endTurn()
  }

  private func askForSlice() {
    guard !slicingShards.isEmpty || !workingShards.isEmpty, !isSliceAsked else { return }
    isSliceAsked = true
    driver.sliceLater()
  }

  // MARK: For the shards

  /// The first query of a shard has come that goes on in slices.
  func slices(_ shard: ShardEngine) {
    slicingShards.append(shard)
    askForSlice()
  }

  func readSteps(_ request: StepRequest) { driver.readSteps(request) }

  func peek(_ request: PeekRequest) { driver.peek(request) }

  func writesSegments(_ shard: ShardEngine) { segmentShards.append(shard) }

  func trims(_ shard: ShardEngine) { trimmingShards.append(shard) }

  func drops(_ shard: ShardEngine) { droppingShards.append(shard) }

  func gathers(_ shard: ShardEngine) { gatheringShards.append(shard) }

  // MARK: Purge

  /// A shard's log has to be cut, and the storage to purge itself.
  func purges(_ shard: ShardEngine) {
    purgingShards.append(shard)
    advancePurges()
  }

  /// Those whose log is cut far enough wait for the storage. Only while no commit is under way: the cuts in it are not made yet.
  private func advancePurges() {
    guard !isCommitting, !purgingShards.isEmpty else { return }
    for shard in purgingShards where shard.isCutForPurge {
      shard.purgeIsStoring()
      purgeableShards.append(shard)
    }
    purgingShards.removeAll { $0.isCutForPurge }
  }

  /// One purge of the storage is for all shards that wait for it.
  private func startPurge() {
    guard !purgeableShards.isEmpty, purgedShards.isEmpty else { return }
    swap(&purgeableShards, &purgedShards)
    driver.purge()
  }

  /// The storage has purged itself, or could not: then whoever asks again has it begun anew.
  package func purged(_ result: Result<Void, StorageError>) {
    guard !isHalted else { return }
    var isDone = true
    if case .failure(let error) = result {
      isDone = false
      driver.reports(error)
    }
    for shard in purgedShards { shard.purgeEnded(isDone: isDone) }
    purgedShards.removeAll(keepingCapacity: true)
    endTurn()
  }

  func note(_ lane: ReplyLane, _ departure: ReplyLane.Departure) {
    switch departure {
    case .now: nowLanes.append(lane)
    case .withInFlight: inFlightLanes.append(lane)
    case .withGathering: gatheringLanes.append(lane)
    }
  }

  /// Has a channel read: now, or when there is room for it. Channels of the log's tail do not wait: they are few at a time, and what they are made of is in
  /// memory already.
  func load(_ request: LoadRequest, as reference: ChannelReference) {
    if case .cid = reference, !delayedLoads.isEmpty || !memory.admits(loading: loadsUnderWay) {
      counters.loadsDelayed += 1
      delayedLoads.append((request, reference))
      return
    }
    loadsUnderWay += 1
    driver.load(request, as: reference)
  }

  /// Goes on with loads that waited for room. One always may be under way, so none waits forever.
  private func startDelayedLoads() {
    while memory.admits(loading: loadsUnderWay), let (request, reference) = delayedLoads.popFirst() {
      // The channel may have come into memory another way.
      guard shards[Int(positions[Int(request.shard.rawValue)])].awaits(request, as: reference) else {
        continue
      }
      loadsUnderWay += 1
      driver.load(request, as: reference)
    }
  }

  /// Whether a channel is in memory now.
  package func isLoaded(_ shard: ShardID, cid: RawSpan) -> Bool {
    let position = Int(positions[Int(shard.rawValue)])
    return position >= 0 && shards[position].state.slot(of: cid) != nil
  }

  func reports(_ error: StorageError) { driver.reports(error) }
}
