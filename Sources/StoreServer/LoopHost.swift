internal import ErasureLedger
internal import NIOCore
internal import NIOPosix
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine

/// Driver of one event loop's shards: the clock, the commit thread and the read threads.
///
/// `@unchecked Sendable`: everything but the immutable properties is used on `eventLoop` only.
final class LoopHost: StoreLoopDriver, @unchecked Sendable {
  let eventLoop: any EventLoop
  let storage: any StorageEngine
  /// One thread, so that commits of a loop run in order, one at a time.
  let committer: NIOThreadPool
  let readers: NIOThreadPool
  private var backgroundReads = BackgroundReads()
  let events: HostEvents
  private let erasures: ErasureLedger?
  private let clock: StoreClock
  private let directory: DataDirectoryMonitor
  /// Number of shards of this host.
  let ownShardCount: Int
  private var pace = CommitPace()
  private(set) var loop: StoreLoop!
  /// Of a node in a cluster: what makes the loop follow a group's shared log, or own it.
  private(set) var replica: GroupReplica?
  let link: SharedLogLink?
  let nodes: NodeLinks?
  /// Calls ``GroupReplica/timerFired()`` at the replica's deadline.
  var replicaTimer: Scheduled<Void>?
  var replicaTimerDeadline = BootTime.never
  var wasOwner = false
  /// In a cluster: the group's shards.
  let shards: Range<UInt16>
  /// Where snapshots come from; nil except in a cluster of several nodes.
  let snapshots: SnapshotSources?
  /// Receives a snapshot of the group.
  var snapshotFetch: Task<Void, Never>?
  /// The last record of the snapshot that is received.
  var joiningAt: RecordPosition?
  /// Whether what local storage has of the group is of another history.
  var hasDiverged = false
  private var pollNotifier: PollNotifier?
  /// Ticks, syncs and compactions, until the host stops.
  private var timers: [RepeatedTask] = []
  private var isSyncing = false
  /// Commits that the committer's thread has.
  private var threadWrites = 0
  /// Commits and reads that were submitted to threads and have not finished.
  private var inFlight = 0
  private(set) var stopped: EventLoopPromise<Void>?
  /// All hosts of the same generation, and the host of each shard. Nothing is sent to hosts of an older generation.
  private var peers: [LoopHost] = []
  private(set) var hostOfShard: [UInt8] = []

  /// Callbacks of a host to its runtime, on the host's event loop.
  struct HostEvents: Sendable {
    var halted: @Sendable (StorageError) -> Void
    var reported: @Sendable (StorageError) -> Void
    /// In a cluster: this node owns the host's group now.
    var promoted: @Sendable (LoopHost, OwnerEpoch) -> Void = { _, _ in }
    /// In a cluster: this node no longer owns the host's group. The loop is stopped.
    var deposed: @Sendable (LoopHost) -> Void = { _ in }
    /// In a cluster: the shared log does not fit the loop, which is stopped.
    var failed: @Sendable (LoopHost, FollowError) -> Void = { _, _ in }
    /// In a cluster: the group needs a snapshot of another node, for this reason.
    var joining: @Sendable (String) -> Void = { _ in }
    /// In a cluster: an attempt to receive a snapshot has failed, for this reason. Another one follows.
    var joinFailed: @Sendable (String) -> Void = { _ in }
    /// In a cluster: the installation of a snapshot has ended or failed. The loop is stopped.
    var installEnded: @Sendable (LoopHost) -> Void = { _ in }
    /// In a cluster: a snapshot is installed. It ends with this record, and has so many bytes.
    var joined: @Sendable (GroupID, RecordPosition, UInt64) -> Void = { _, _, _ in }
  }

  /// Create a host; call on `eventLoop`.
  init(
    eventLoop: any EventLoop,
    storage: any StorageEngine,
    committer: NIOThreadPool,
    readers: NIOThreadPool,
    configuration: StoreLoopConfiguration,
    totalShardCount: Int,
    stored: [(shard: ShardID, state: StoredShard)],
    group: GroupMembership? = nil,
    erasures: ErasureLedger?,
    clock: StoreClock,
    directory: DataDirectoryMonitor,
    events: HostEvents
  ) throws(StorageError) {
    eventLoop.preconditionInEventLoop()
    self.eventLoop = eventLoop
    self.storage = storage
    self.committer = committer
    self.readers = readers
    self.erasures = erasures
    self.clock = clock
    self.directory = directory
    self.events = events
    ownShardCount = stored.count
    link = group?.link
    nodes = group?.nodes
    snapshots = group?.snapshots
    let first = stored.first?.shard.rawValue ?? 0
    shards = first..<(first + UInt16(stored.count))
    self.loop = try StoreLoop(
      configuration: configuration,
      shardCount: totalShardCount,
      stored: stored,
      follows: group != nil,
      driver: self
    )
    if let group {
      replica = GroupReplica(
        group: group.id,
        node: group.node,
        members: group.members,
        limits: group.limits,
        loop: loop,
        stored: group.stored,
        driver: self
      )
    }
    pollNotifier = PollNotifier(eventLoop: eventLoop) { [weak self] in
      guard let self else { return }
      self.readClock()
      self.loop.slice()
    }
  }

  /// Set the loop's time for this turn; call before any other use of the loop. The shards keep it from falling (R20).
  @inline(__always)
  func readClock() { setClock(clock.now()) }

  private func setClock(_ time: Timestamp) {
    loop.clock = time
    loop.commandRefusal = directory.isLost ? .dataDirectoryLost : clock.isHeld ? .clockJump : nil
    replica?.updateLease()
  }

  /// Set the hosts of the same generation; call on the loop, before any other use and when one was replaced.
  func connect(_ peers: [LoopHost], hostOfShard: [UInt8]) {
    guard stopped == nil else { return }
    self.peers = peers
    self.hostOfShard = hostOfShard
  }

  /// Start ticks, which write and read; call on the loop.
  func start() {
    guard stopped == nil else { return }
    readClock()
    pollNotifier?.open()
    every(.milliseconds(100)) { host in
      host.setClock(host.clock.observe())
      host.loop.tick()
    }
    replica?.timerFired()
  }

  /// Start periodic syncs of the storage, for all hosts; call on the loop. A failed sync halts this host like a failed
  /// commit.
  func startSync(everyMilliseconds interval: Int) {
    guard stopped == nil else { return }
    every(.milliseconds(Int64(interval))) { $0.sync() }
  }

  /// Start periodic compaction of old data, for all hosts; call on the loop.
  func startCompactingOld() {
    guard stopped == nil else { return }
    every(.hours(1)) { $0.compactOld() }
  }

  private func every(_ interval: TimeAmount, _ work: @escaping @Sendable (LoopHost) -> Void) {
    timers.append(
      eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { [weak self] _ in
        if let self { work(self) }
      }
    )
  }

  private func compactOld() {
    offload(to: readers) { [storage] in
      storage.compactOld()
    } then: { _, _ in
    }
  }

  private func sync() {
    guard !isSyncing, !loop.isHalted else { return }
    isSyncing = true
    let stored = replica?.storedCursor
    offload(to: committer) { [storage] in
      Result { () throws(StorageError) in try storage.sync() }
    } then: { host, result in
      host.isSyncing = false
      switch result {
      case .failure(let error): host.loop.fail(error)
      case .success: if let stored { host.reportSynced(stored) }
      }
    }
  }

  /// Run `work` on a thread, then `complete` on the loop. The storage stays open until then.
  func offload<Value: Sendable>(
    to pool: NIOThreadPool,
    _ work: @escaping @Sendable () -> Value,
    then complete: @escaping @Sendable (LoopHost, Value) -> Void
  ) {
    inFlight += 1
    pool.submit { [self] _ in
      let value = work()
      eventLoop.execute {
        self.readClock()
        complete(self, value)
        self.finished()
      }
    }
  }

  /// Stop all use of the storage; call on the loop. When the future completes, nothing is in flight and the storage
  /// may be closed.
  func stop() -> EventLoopFuture<Void> {
    for timer in timers { timer.cancel() }
    timers = []
    pollNotifier?.close()
    replicaTimer?.cancel()
    snapshotFetch?.cancel()
    if let replica { link?.drop(replica) }
    replica = nil
    peers = []
    loop.stop()
    if let stopped { return stopped.futureResult }
    let promise = eventLoop.makePromise(of: Void.self)
    stopped = promise
    if inFlight == 0 { promise.succeed() }
    return promise.futureResult
  }

  /// Submit a read to the threads; it ends with ``finishedRead(isBackground:)``.
  private func submitRead(isBackground: Bool, _ body: @escaping @Sendable () -> Void) {
    inFlight += 1
    if !isBackground || backgroundReads.startOrQueue(body) { readers.submit { _ in body() } }
  }

  private func finishedRead(isBackground: Bool) {
    if isBackground, let next = backgroundReads.finishedOne() { readers.submit { _ in next() } }
    finished()
  }

  private func finished() {
    inFlight -= 1
    if inFlight == 0 { stopped?.succeed() }
  }

  // MARK: Requests of connections on other loops

  /// Receive complete frames of one connection, for shards of this host.
  func receive(_ frames: ByteBuffer, lane: ReplyLane) {
    readClock()
    let decoder = FrameDecoder(lengthLimit: .max)
    let bytes = frames.readableBytesSpan
    var offset = 0
    do {
      while case .frame(let header, let payloadCount) = try decoder.next(bytes, at: offset) {
        let start = offset + FrameHeader.byteCount
        offset = start + payloadCount
        try loop.receive(header, bytes.extracting(start..<offset), lane: lane)
      }
    } catch {
      lane.fail(error)
    }
    loop.endTurn()
  }

  // MARK: StoreLoopDriver

  /// Commit on this loop if commits are quick and the group is small, else on a thread. On the loop a commit costs no
  /// wake-up, and requests that arrive meanwhile wait in their sockets and are then read together. A large group means
  /// that more is waiting already, and a slow disk would delay work that needs no commit: both use the thread, and the
  /// loop continues.
  func commit(_ group: CommitGroup) {
    if let replica { replica.commit(group) } else { write(group) }
  }

  /// Write a group to local storage.
  func write(_ group: CommitGroup) {
    inFlight += 1
    // Groups are written in their order: none on the loop while the thread has an earlier one.
    if threadWrites == 0, pace.isQuick, group.logBytes < CommitPace.smallBytes {
      let (result, duration) = Self.perform(group, storage)
      // Complete asynchronously, so that the loop's turn ends first.
      eventLoop.execute { self.committed(result, duration) }
    } else {
      threadWrites += 1
      committer.submit { [self] _ in
        let (result, duration) = Self.perform(group, storage)
        eventLoop.execute {
          self.threadWrites -= 1
          self.committed(result, duration)
        }
      }
    }
  }

  private func committed(_ result: Result<Void, StorageError>, _ duration: TimeAmount) {
    pace.record(duration)
    readClock()
    if let replica { replica.stored(result) } else { loop.committed(result) }
    finished()
  }

  private static func perform(
    _ group: CommitGroup,
    _ storage: any StorageEngine
  ) -> (Result<Void, StorageError>, TimeAmount) {
    let start = NIODeadline.now()
    let result = Result { () throws(StorageError) in try storage.commit(group) }
    return (result, NIODeadline.now() - start)
  }

  func load(_ request: LoadRequest, as reference: ChannelReference) {
    submitRead(isBackground: request.isBackground) { [self] in
      let result = Result { () throws(StorageError) in try storage.read(request.shard, request.channel) }
      eventLoop.execute {
        self.readClock()
        self.loop.loaded(request, as: reference, result)
        self.finishedRead(isBackground: request.isBackground)
      }
    }
  }

  func readSteps(_ request: StepRequest) {
    offload(to: readers) { [storage] in
      Result { () throws(StorageError) -> [StoredSegment] in
        var segments: [StoredSegment] = []
        for range in request.ranges {
          segments += try storage.readSteps(
            request.shard,
            request.channel,
            rowPage: range.rowPage,
            segments: range.segments
          )
        }
        return segments
      }
    } then: { host, result in
      host.loop.stepsRead(request, result)
    }
  }

  func purge() {
    guard replica == nil else { return refusePurge() }
    offload(to: readers) { [storage] in
      Result { () throws(StorageError) in try storage.purge() }
    } then: { host, result in
      host.loop.purged(result)
    }
  }

  var keepsErasureLedger: Bool { erasures != nil }

  func recordErasure(_ request: ErasureRequest) {
    offload(to: readers) { [erasures, clock, events] () -> String? in
      do {
        try erasures?.record(request.user, at: clock.now().milliseconds)
        return nil
      } catch {
        events.reported(.failed("the erasure ledger: \(error)"))
        return "\(error)"
      }
    } then: { host, fault in
      host.loop.erasureRecorded(request, fault: fault)
    }
  }

  func peek(_ request: StorageReadRequest) {
    submitRead(isBackground: true) { [self] in
      let results = request.perform(on: storage)
      eventLoop.execute {
        self.readClock()
        self.loop.peeked(request, results)
        self.finishedRead(isBackground: true)
      }
    }
  }

  func deliver(_ deliveries: [MembershipDelivery]) { post(deliveries.map { .delivery($0) }) }

  func confirm(_ confirmations: [MembershipConfirmation]) { post(confirmations.map { .confirmation($0) }) }

  /// Send each loop the messages for its shards in one hop; this loop too, after its current turn. A stopped host
  /// ignores them.
  private func post(_ messages: [MessageBetweenShards]) {
    guard !peers.isEmpty else { return }
    var parts = [[MessageBetweenShards]](repeating: [], count: peers.count)
    for message in messages { parts[Int(hostOfShard[Int(message.to.rawValue)])].append(message) }
    for (host, part) in zip(peers, parts) where !part.isEmpty {
      host.eventLoop.execute { if host.servesRequests { host.receive(part) } else { host.forward(part) } }
    }
  }

  /// Pass messages to the loop; call on the loop.
  func receive(_ messages: [MessageBetweenShards]) {
    readClock()
    var deliveries: [MembershipDelivery] = []
    var confirmations: [MembershipConfirmation] = []
    for message in messages {
      switch message {
      case .delivery(let delivery): deliveries.append(delivery)
      case .confirmation(let confirmation): confirmations.append(confirmation)
      }
    }
    if !deliveries.isEmpty { loop.receive(deliveries) }
    if !confirmations.isEmpty { loop.confirmed(confirmations) }
  }

  func sliceLater() { pollNotifier?.notify() }

  func report(_ error: StorageError) { events.reported(error) }

  func loopHalted(_ error: StorageError) { events.halted(error) }
}
