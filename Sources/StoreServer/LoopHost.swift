import DequeModule
import ErasureLedger
import NIOCore
import NIOPosix
import ReceiptModel
import ReceiptWire
import StoreEngine

/// One event loop's shards and what drives them: the clock, the thread that commits, the threads that read.
///
/// `@unchecked Sendable`: everything but the immutable properties is touched on `eventLoop` only.
final class LoopHost: StoreLoopDriver, @unchecked Sendable {
  let eventLoop: any EventLoop
  private let storage: any StorageEngine
  /// One thread: commits of a loop are in order, one at a time.
  private let committer: NIOThreadPool
  private let readers: NIOThreadPool
  /// Reads that no request waits for, and peeks at a thousand channels: of those so many are with the threads at once,
  /// and there is one thread more, so that the others go past them.
  static let readsBehindMax = 2
  private var readsBehind: Deque<@Sendable () -> Void> = []
  private var readsBehindUnderWay = 0
  private let events: HostEvents
  private let erasures: ErasureLedger?
  private let clock: StoreClock
  private let directory: DirectoryWatch
  /// Shards of this host.
  let shardCount: Int
  private var pace = CommitPace()
  private(set) var loop: StoreLoop!
  private var bell: SliceBell?
  private var ticker: RepeatedTask?
  private var syncer: RepeatedTask?
  private var merger: RepeatedTask?
  private var isSyncing = false
  /// Commits and reads that the threads have been given and not answered.
  private var underWay = 0
  private var stopped: EventLoopPromise<Void>?
  /// All hosts of this one's generation, and which of them owns a shard: nothing leads to an older one's.
  private var peers: [LoopHost] = []
  private var hostOfShard: [UInt8] = []

  /// What a host tells its runtime, from its event loop.
  struct HostEvents: Sendable {
    var halted: @Sendable (StorageError) -> Void
    var reported: @Sendable (StorageError) -> Void
  }

  /// Call on `eventLoop`.
  init(
    eventLoop: any EventLoop,
    storage: any StorageEngine,
    committer: NIOThreadPool,
    readers: NIOThreadPool,
    configuration: StoreLoopConfiguration,
    shardCount: Int,
    stored: [(shard: ShardID, state: StoredShard)],
    erasures: ErasureLedger?,
    clock: StoreClock,
    directory: DirectoryWatch,
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
    self.shardCount = stored.count
    self.loop = try StoreLoop(
      configuration: configuration,
      shardCount: shardCount,
      stored: stored,
      driver: self
    )
    bell = SliceBell(eventLoop: eventLoop) { [weak self] in
      guard let self else { return }
      self.readClock()
      self.loop.slice()
    }
  }

  /// Gives the loop the time of this turn; call before anything is asked of it. The shards make the time rise (R20).
  @inline(__always)
  func readClock() { take(clock.now()) }

  private func take(_ time: Timestamp) {
    loop.clock = time
    loop.commandRefusal = directory.isLost ? .dataDirectoryLost : clock.isHeld ? .clockJump : nil
  }

  /// The hosts that were made from storage with this one; call on the loop, before anything is asked of it.
  func connect(_ peers: [LoopHost], hostOfShard: [UInt8]) {
    guard stopped == nil else { return }
    self.peers = peers
    self.hostOfShard = hostOfShard
  }

  /// From here on there are ticks, which write and read; call on the loop.
  func start() {
    guard stopped == nil else { return }
    readClock()
    bell?.open()
    ticker = eventLoop.scheduleRepeatedTask(initialDelay: .milliseconds(100), delay: .milliseconds(100)) {
      [weak self] _ in
      guard let self else { return }
      self.take(self.clock.observe())
      self.loop.tick()
    }
  }

  /// Has the storage synced again and again, for all hosts; call on the loop. A sync that fails halts this host as a
  /// failed commit does.
  func startSync(everyMilliseconds interval: Int) {
    guard stopped == nil else { return }
    let time = TimeAmount.milliseconds(Int64(interval))
    syncer = eventLoop.scheduleRepeatedTask(initialDelay: time, delay: time) { [weak self] _ in self?.sync() }
  }

  /// Has the storage merge what is old again and again, for all hosts; call on the loop.
  func startMergingOld() {
    guard stopped == nil else { return }
    merger = eventLoop.scheduleRepeatedTask(initialDelay: .hours(1), delay: .hours(1)) { [weak self] _ in
      guard let self else { return }
      self.underWay += 1
      self.readers.submit { [self] _ in
        storage.mergeOld()
        eventLoop.execute { self.finished() }
      }
    }
  }

  private func sync() {
    guard !isSyncing, !loop.isHalted else { return }
    isSyncing = true
    underWay += 1
    committer.submit { [self] _ in
      var failure: StorageError?
      do throws(StorageError) { try storage.sync() } catch { failure = error }
      eventLoop.execute { [failure] in
        self.isSyncing = false
        if let failure { self.loop.fail(failure) }
        self.finished()
      }
    }
  }

  /// Nothing more is asked of the storage; call on the loop. When the future is done nothing is under way, and the
  /// storage may be closed.
  func stop() -> EventLoopFuture<Void> {
    ticker?.cancel()
    ticker = nil
    bell?.close()
    syncer?.cancel()
    syncer = nil
    merger?.cancel()
    merger = nil
    peers = []
    loop.stop()
    if let stopped { return stopped.futureResult }
    let promise = eventLoop.makePromise(of: Void.self)
    stopped = promise
    if underWay == 0 { promise.succeed() }
    return promise.futureResult
  }

  /// Gives a read to the threads; it ends with ``finishedRead(isBehind:)``.
  private func submitRead(isBehind: Bool, _ body: @escaping @Sendable () -> Void) {
    underWay += 1
    if isBehind {
      guard readsBehindUnderWay < Self.readsBehindMax else { return readsBehind.append(body) }
      readsBehindUnderWay += 1
    }
    readers.submit { _ in body() }
  }

  private func finishedRead(isBehind: Bool) {
    if isBehind {
      if let next = readsBehind.popFirst() {
        readers.submit { _ in next() }
      } else {
        readsBehindUnderWay -= 1
      }
    }
    finished()
  }

  private func finished() {
    underWay -= 1
    if underWay == 0 { stopped?.succeed() }
  }

  // MARK: Requests of connections on other loops

  /// Whole frames of one connection, for shards of this host.
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

  /// Commits on this loop where that is quick and the group small, else on a thread. On the loop it costs no wake-up,
  /// and what comes in meanwhile waits in its socket, to be taken up all at once. A large group means that more is
  /// waiting already, and a slow disk would hold up what needs no commit: both get the thread, and the loop goes on.
  func commit(_ group: CommitGroup) {
    underWay += 1
    if pace.isQuick, group.logBytes < CommitPace.smallBytes {
      let (result, duration) = Self.perform(group, storage)
      // Not within the call that asked for it: the loop's turn ends first.
      eventLoop.execute { self.committed(result, duration) }
    } else {
      committer.submit { [self] _ in
        let (result, duration) = Self.perform(group, storage)
        eventLoop.execute { self.committed(result, duration) }
      }
    }
  }

  private func committed(_ result: Result<Void, StorageError>, _ duration: TimeAmount) {
    pace.took(duration)
    readClock()
    loop.committed(result)
    finished()
  }

  private static func perform(
    _ group: CommitGroup,
    _ storage: any StorageEngine
  ) -> (Result<Void, StorageError>, TimeAmount) {
    let start = NIODeadline.now()
    let result: Result<Void, StorageError>
    do throws(StorageError) {
      try storage.commit(group)
      result = .success(())
    } catch {
      result = .failure(error)
    }
    return (result, NIODeadline.now() - start)
  }

  func load(_ request: LoadRequest, as reference: ChannelReference) {
    submitRead(isBehind: request.isBehind) { [self] in
      let result: Result<StoredChannel?, StorageError>
      do throws(StorageError) {
        result = .success(try storage.read(request.shard, request.channel))
      } catch {
        result = .failure(error)
      }
      eventLoop.execute {
        self.readClock()
        self.loop.loaded(request, as: reference, result)
        self.finishedRead(isBehind: request.isBehind)
      }
    }
  }

  func readSteps(_ request: StepRequest) {
    underWay += 1
    readers.submit { [self] _ in
      let result: Result<[StoredSegment], StorageError>
      do throws(StorageError) {
        var segments: [StoredSegment] = []
        for range in request.ranges {
          segments += try storage.readSteps(
            request.shard,
            request.channel,
            rowPage: range.rowPage,
            segments: range.segments
          )
        }
        result = .success(segments)
      } catch {
        result = .failure(error)
      }
      eventLoop.execute {
        self.readClock()
        self.loop.stepsRead(request, result)
        self.finished()
      }
    }
  }

  func purge() {
    underWay += 1
    readers.submit { [self] _ in
      let result: Result<Void, StorageError>
      do throws(StorageError) {
        try storage.purge()
        result = .success(())
      } catch {
        result = .failure(error)
      }
      eventLoop.execute {
        self.readClock()
        self.loop.purged(result)
        self.finished()
      }
    }
  }

  var keepsErasureLedger: Bool { erasures != nil }

  func recordErasure(_ request: ErasureRequest) {
    underWay += 1
    readers.submit { [self] _ in
      var fault: String?
      do {
        try erasures?.record(request.user, at: clock.now().milliseconds)
      } catch {
        fault = "\(error)"
        events.reported(.failed("the erasure ledger: \(error)"))
      }
      eventLoop.execute { [fault] in
        self.readClock()
        self.loop.erasureRecorded(request, fault: fault)
        self.finished()
      }
    }
  }

  func peek(_ request: PeekRequest) {
    submitRead(isBehind: true) { [self] in
      let results = request.perform(on: storage)
      eventLoop.execute {
        self.readClock()
        self.loop.peeked(request, results)
        self.finishedRead(isBehind: true)
      }
    }
  }

  /// Each loop gets what is for its shards in one hop; this one too, behind the turn that it is in. A host that is
  /// stopped takes nothing.
  func deliver(_ deliveries: [MembershipDelivery]) {
    post(deliveries, to: \.to) { host, deliveries in host.loop.take(deliveries) }
  }

  func acknowledge(_ acknowledgements: [MembershipAcknowledgement]) {
    post(acknowledgements, to: \.to) { host, acknowledgements in host.loop.acknowledged(acknowledgements) }
  }

  private func post<Item: Sendable>(
    _ items: [Item],
    to shard: (Item) -> ShardID,
    _ hand: @escaping @Sendable (LoopHost, [Item]) -> Void
  ) {
    guard !peers.isEmpty else { return }
    var parts = [[Item]](repeating: [], count: peers.count)
    for item in items { parts[Int(hostOfShard[Int(shard(item).rawValue)])].append(item) }
    for (host, part) in zip(peers, parts) where !part.isEmpty {
      host.eventLoop.execute {
        host.readClock()
        hand(host, part)
      }
    }
  }

  func sliceLater() { bell?.ring() }

  func reports(_ error: StorageError) { events.reported(error) }

  func halted(_ error: StorageError) { events.halted(error) }
}

/// Whether commits are quick enough for an event loop, by a running mean of how long they take.
struct CommitPace {
  /// A commit on a disk with a fast sync takes a tenth to a quarter of this.
  static let quickMicroseconds: Double = 1_000
  /// Some 150 marks: fewer leave a loop that has nothing else to do.
  static let smallBytes = 4_096
  private var meanMicroseconds: Double = 0

  var isQuick: Bool { meanMicroseconds < Self.quickMicroseconds }

  mutating func took(_ duration: TimeAmount) {
    let microseconds = Double(duration.nanoseconds) / 1_000
    // One stall of 20 ms is enough to leave the loop; some thirty quick commits lead back to it.
    meanMicroseconds += (microseconds - meanMicroseconds) / 10
  }
}
