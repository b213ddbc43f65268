import DequeModule
package import ReceiptModel
package import ReceiptWire

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
  /// Whether users are noted in a ledger before they are erased.
  var keepsErasureLedger: Bool { get }
  /// Have the ledger note this user, durably, then call ``StoreLoop/erasureRecorded(_:fault:)``.
  func recordErasure(_ request: ErasureRequest)
  /// Hand these to ``StoreLoop/take(_:)`` of the loops that own the shards they are for, each shard's in this order.
  /// They may be lost.
  func deliver(_ deliveries: [MembershipDelivery])
  /// Hand these to ``StoreLoop/acknowledged(_:)`` of the loops that own the shards they are for. They may be lost.
  func acknowledge(_ acknowledgements: [MembershipAcknowledgement])
  /// Perform this on a thread that may block, then call ``StoreLoop/peeked(_:_:)``.
  func peek(_ request: PeekRequest)
  /// Call ``StoreLoop/slice()`` soon, but only after what has come in meanwhile was handed in: what is too much for one
  /// turn goes on.
  func sliceLater()
  /// Something on storage cannot be read; the rest goes on.
  func reports(_ error: StorageError)
  /// A commit failed: the loop has dropped everything and takes no more requests. Connections have to be closed, and a
  /// new loop be made from storage.
  func halted(_ error: StorageError)
}

extension StoreLoopDriver {
  package var keepsErasureLedger: Bool { false }
  package func recordErasure(_ request: ErasureRequest) {}
}

/// All shards of one event loop, and their group commit: one append in flight, the next one gathering behind it. Not
/// thread-safe: everything is called on the loop.
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
  /// Why every command that comes in is refused, with nothing of it applied; nil: they are taken. What is under way
  /// goes on.
  package var commandRefusal: ErrorCode?
  /// Time since the loop was made as far as the clock shows it, whether the clock was put forward or back. Ages are
  /// counted in it.
  private(set) var elapsedMilliseconds: Int64 = 0
  /// Set when a commit has failed.
  package internal(set) var isHalted = false
  unowned let driver: any StoreLoopDriver
  let configuration: StoreLoopConfiguration
  private(set) var shards: [ShardEngine] = []
  /// From a shard's id to its place in `shards`; −1: another loop's.
  private(set) var positions: [Int16]
  var commits = CommitTurns()
  var loads = LoadQueue()
  var turns = SliceTurns()
  var memory: MemoryPressure
  /// The shard that is asked first to let channels go.
  var evictionPosition = 0
  /// Bytes of effects that gather for the next commit.
  var gatheredBytes = 0
  /// Changes that may still be taken into indexes, and ``StoreLoopConfiguration/entriesPerTurn`` that are left, until
  /// the next slice. Not until the turn ends: many turns may follow each other before anything is read from a socket
  /// again.
  var changesLeft: Int
  var entriesLeft: Int
  /// What leaves when the turn ends.
  var deliveries: [MembershipDelivery] = []
  var acknowledgements: [MembershipAcknowledgement] = []
  /// Rows that long queries may still look at in this turn.
  var rowsLeft: Int
  /// Effects by which users may still be erased in this turn.
  var effectsLeft: Int
  /// The connections that are open for requests.
  var lanes: [SessionID: ReplyLane] = [:]
  var nowLanes: [ReplyLane] = []
  var inFlightLanes: [ReplyLane] = []
  var gatheringLanes: [ReplyLane] = []
  /// Those whose replies are being handed over.
  var deliveringLanes: [ReplyLane] = []
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
    /// Events that left, or were dropped, each as often as there are connections that watch; and the bytes of their
    /// frames.
    package var eventsSent: UInt64 = 0
    package var eventsDropped: UInt64 = 0
    package var eventBytes: UInt64 = 0

    package init() {}
  }
  package internal(set) var counters = Counters()

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
    self.effectsLeft = configuration.sliceEffects
    self.changesLeft = configuration.changesPerTurn
    self.entriesLeft = configuration.entriesPerTurn
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
    /// Channels and users that connections watch, each as often as it is watched.
    package var subscriptions = 0

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
      sum.subscriptions += shard.subscriptions.count
    }
  }

  /// Whether a commit is under way or something waits for one.
  package var isBusy: Bool {
    commits.isUnderWay || !commits.gathering.isEmpty || !turns.slicing.isEmpty
      || shards.contains(where: \.hasWaiting)
  }

  // MARK: Connections

  /// A connection is open for requests; call before its first one. An older connection of its session ends here and
  /// now: a frame of it that comes in later may not be applied after its resend was refused.
  package func open(_ lane: ReplyLane) {
    guard !isHalted else { return }
    if let other = lanes[lane.session], other !== lane {
      guard other.serial <= lane.serial else {
        lane.isClosed = true
        return
      }
      close(other)
    }
    lanes[lane.session] = lane
  }

  /// The connection is gone.
  package func close(_ lane: ReplyLane) {
    lane.isClosed = true
    if lanes[lane.session] === lane { lanes[lane.session] = nil }
    for shard in shards { shard.ended(lane) }
  }

  // MARK: Requests

  /// Takes a request. Its reply goes to `lane`, now or when what it tells of is durable. Throws where the payload does
  /// not parse: the connection has to end with an error frame.
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

  /// The requests that came in together have been handed in: what may leave leaves, and what gathers is committed
  /// unless a commit is under way.
  ///
  /// May be called while replies are handed over: a write that fails ends its connection, whose last bytes are read,
  /// and that turn ends, before the write has returned. Then this one is made up for afterwards.
  package func endTurn() {
    guard !isHalted else { return }
    rowsLeft = configuration.sliceRows
    effectsLeft = configuration.sliceEffects
    guard !isDelivering else {
      endsTurnAgain = true
      return
    }
    keepToBudget()
    if !commits.gathering.isEmpty || memory.isPressed || !commits.purging.isEmpty { startCommit() }
    startPurge()
    askForSlice()
    post()
    swap(&nowLanes, &deliveringLanes)
    deliver { $0.deliverNow() }
  }

  func deliver(_ hand: (ReplyLane) -> Void) {
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
    // What shards do by themselves, watched or not, happens now.
    for shard in shards { shard.passTime() }
    for shard in shards { shard.drainTail(inFlightMax: memory.isPressed ? 1 : configuration.tailLoadsMax) }
    keepToBudget()
    for shard in shards { shard.clock.tick() }
    refill()
    for shard in shards { shard.tickIndexes() }
    for shard in shards {
      shard.tellExpired()
      shard.logTime()
    }
    for shard in shards { shard.tellWithoutBatch() }
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
    // A shard that others have taken something from looks at its held replies once.
    var taken: [ShardEngine] = []
    for acknowledgement in acknowledgements {
      guard let shard = shard(acknowledgement.to), shard.acknowledged(acknowledgement) else { continue }
      if taken.last !== shard { taken.append(shard) }
    }
    for shard in taken { shard.wereAcknowledged() }
    endTurn()
  }

  private func shard(_ id: ShardID) -> ShardEngine? {
    let position = Int(id.rawValue) < positions.count ? Int(positions[Int(id.rawValue)]) : -1
    return position < 0 ? nil : shards[position]
  }

  func deliver(_ delivery: MembershipDelivery) { deliveries.append(delivery) }

  func acknowledge(_ acknowledgement: MembershipAcknowledgement) { acknowledgements.append(acknowledgement) }

  /// Hands over what gathered in this turn: one call for all shards.
  func post() {
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

  /// The last time that a shard of this loop had logged when it was made; none: nothing was logged.
  package var loggedTime: Timestamp { shards.map(\.startTime).max() ?? .none }

  /// Per shard of this loop, the log index up to which everything is durable.
  package var durableIndexes: [(shard: ShardID, index: LogIndex)] {
    shards.map { ($0.state.id, $0.durable) }
  }

  /// The ledger has noted the user, or says why it could not.
  package func erasureRecorded(_ request: ErasureRequest, fault: String?) {
    guard !isHalted else { return }
    shard(request.shard)?.erasureRecorded(request.ticket, fault: fault)
    endTurn()
  }

  // MARK: For the shards

  func readSteps(_ request: StepRequest) { driver.readSteps(request) }

  func peek(_ request: PeekRequest) { driver.peek(request) }

  func note(_ lane: ReplyLane, _ departure: ReplyLane.Departure) {
    switch departure {
    case .now: nowLanes.append(lane)
    case .withInFlight: inFlightLanes.append(lane)
    case .withGathering: gatheringLanes.append(lane)
    }
  }

  /// Whether a channel is in memory now.
  package func isLoaded(_ shard: ShardID, cid: RawSpan) -> Bool {
    let position = Int(positions[Int(shard.rawValue)])
    return position >= 0 && shards[position].state.slot(of: cid) != nil
  }

  /// Whether a channel in memory is being deleted: nobody finds it, and its name is not free yet.
  package func isEnding(_ shard: ShardID, cid: RawSpan) -> Bool {
    guard let shard = self.shard(shard), let slot = shard.state.slot(of: cid) else { return false }
    return shard.state[slot].isEnding
  }

  /// Whether a channel was deleted that storage may still have: it is not looked for there.
  package func isDeleted(_ shard: ShardID, cid: RawSpan) -> Bool {
    guard let shard = self.shard(shard), shard.state.slot(of: cid) == nil else { return false }
    return shard.isDeleted(cid)
  }

  func reports(_ error: StorageError) { driver.reports(error) }
}
