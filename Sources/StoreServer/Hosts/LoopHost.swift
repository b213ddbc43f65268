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
  /// The thread that writes the erasure ledger: on a slow disk it must not hold up reads.
  private let ledgerWriter: NIOThreadPool
  private var backgroundReads = BackgroundReads()
  let events: HostEvents
  private let erasures: ErasureLedger?
  private let clock: StoreClock
  private let directory: DataDirectoryMonitor
  /// Number of shards of this host.
  let ownShardCount: Int
  private var pace = CommitPace()
  private(set) var loop: StoreLoop!
  /// In a cluster: the host of the group whose shards the loop has.
  private(set) var groupHost: GroupHost?
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
    var errorReported: @Sendable (StorageError) -> Void
  }

  /// Create a host; call on `eventLoop`.
  init(
    eventLoop: any EventLoop,
    storage: any StorageEngine,
    committer: NIOThreadPool,
    readers: NIOThreadPool,
    ledgerWriter: NIOThreadPool,
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
    self.ledgerWriter = ledgerWriter
    self.erasures = erasures
    self.clock = clock
    self.directory = directory
    self.events = events
    ownShardCount = stored.count
    self.loop = try StoreLoop(
      configuration: configuration,
      shardCount: totalShardCount,
      stored: stored,
      follows: group != nil,
      driver: self
    )
    if let group {
      let first = stored.first?.shard.rawValue ?? 0
      groupHost = GroupHost(group, shards: first..<(first + UInt16(stored.count)), host: self)
    }
    pollNotifier = PollNotifier(eventLoop: eventLoop) { [weak self] in
      guard let self else { return }
      self.readClock()
      self.loop.slice()
    }
  }

  /// Begin a turn of the loop now; call before any other use of the loop. The shards keep time from falling (R20).
  @inline(__always)
  func readClock() { beginTurn(at: clock.now()) }

  /// The clock of now. ``readClock()`` sets the loop's.
  var timeNow: Timestamp { clock.now() }

  /// Set what holds for this turn: the time, why the loop takes no commands, and whether it may answer.
  private func beginTurn(at time: Timestamp) {
    loop.clock = time
    let refusal: ErrorCode? = directory.isLost ? .dataDirectoryLost : clock.isHeld ? .clockJump : nil
    loop.commandRefusal = if let groupHost { groupHost.updateRefusal(refusal) } else { refusal }
    groupHost?.replica?.updateLease()
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
      host.beginTurn(at: host.clock.observe())
      host.loop.tick()
    }
    groupHost?.replica?.timerFired()
  }

  /// Start periodic syncs of the storage, for all hosts; call on the loop. A failed sync halts this host like a failed
  /// commit.
  func startSync(everyMilliseconds interval: Int) {
    guard stopped == nil else { return }
    // A node's first report tells the others where it stands.
    if groupHost != nil { sync() }
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
    let stored = groupHost?.replica?.storedCursor
    offload(to: committer) { [storage] in
      Result { () throws(StorageError) in try storage.sync() }
    } then: { host, result in
      host.isSyncing = false
      switch result {
      case .failure(let error): host.loop.fail(error)
      case .success: if let stored { host.groupHost?.reportSynced(stored) }
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
    groupHost?.stop()
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

  /// Commit on this loop if commits are quick and this one is small, else on a thread. On the loop a commit costs no
  /// wake-up, and requests that arrive meanwhile wait in their sockets and are then read together. A large commit means
  /// that more is waiting already, and a slow disk would delay work that needs no commit: both use the thread, and the
  /// loop continues.
  func commit(_ commit: LoopCommit) {
    if let replica = groupHost?.replica { replica.commit(commit) } else { write(commit) }
  }

  /// Write a commit to local storage.
  func write(_ commit: LoopCommit) {
    inFlight += 1
    // Commits are written in their order: none on the loop while the thread has an earlier one.
    if threadWrites == 0, pace.isQuick, commit.logBytes < CommitPace.smallBytes {
      let (result, duration) = Self.perform(commit, storage)
      // Complete asynchronously, so that the loop's turn ends first.
      eventLoop.execute { self.committed(result, duration) }
    } else {
      threadWrites += 1
      committer.submit { [self] _ in
        let (result, duration) = Self.perform(commit, storage)
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
    if let replica = groupHost?.replica { replica.stored(result) } else { loop.committed(result) }
    finished()
  }

  private static func perform(
    _ commit: LoopCommit,
    _ storage: any StorageEngine
  ) -> (Result<Void, StorageError>, TimeAmount) {
    let start = NIODeadline.now()
    let result = Result { () throws(StorageError) in try storage.commit(commit) }
    return (result, NIODeadline.now() - start)
  }

  func load(_ request: LoadRequest, as reference: ChannelReference) {
    submitRead(isBackground: request.isBackground) { [self] in
      let result = Result { () throws(StorageError) in try storage.read(request.shard, request.channel) }
      eventLoop.execute {
        self.readClock()
        self.loop.loaded(request, as: reference, result)
        self.groupHost?.replica?.readIfPostponed()
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

  func readFeed(_ request: FeedReadRequest) {
    offload(to: readers) { [storage] in
      Result { () throws(StorageError) in try storage.readFeed(request) }
    } then: { host, result in
      host.loop.feedRead(request, result)
    }
  }

  func trimFeed(_ request: FeedTrimRequest) {
    offload(to: readers) { [storage] in
      Result { () throws(StorageError) in try storage.trimFeed(request) }
    } then: { host, result in
      host.loop.feedTrimmed(request, result)
    }
  }

  func purge() {
    guard groupHost?.replica != nil else { return purgeStorage { host, result in host.loop.purged(result) } }
    // Not within the loop's turn: its call is answered like others.
    eventLoop.execute { [self] in
      readClock()
      groupHost?.replica?.purge()
    }
  }

  func purgeStorage(then complete: @escaping @Sendable (LoopHost, Result<Void, StorageError>) -> Void) {
    offload(to: readers) { [storage] in
      Result { () throws(StorageError) in try storage.purge() }
    } then: { host, result in
      complete(host, result)
    }
  }

  var keepsErasureLedger: Bool { erasures != nil }

  func recordErasure(_ request: ErasureRequest) {
    offload(to: ledgerWriter) { [erasures, clock, events] () -> String? in
      do {
        try erasures?.record(request.user, at: clock.now().milliseconds)
        return nil
      } catch {
        events.errorReported(.failed("the erasure ledger: \(error)"))
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
      host.eventLoop.execute {
        if let groupHost = host.groupHost, !groupHost.servesRequests {
          groupHost.forward(part)
        } else {
          host.receive(part)
        }
      }
    }
  }

  /// Whether this host answers requests; call on the loop.
  var servesRequests: Bool { !loop.isHalted && (groupHost?.servesRequests ?? true) }

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

  func reportError(_ error: StorageError) { events.errorReported(error) }

  func loopHalted(_ error: StorageError) { events.halted(error) }
}
