import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport

/// A store loop driven by hand: a test completes its commits and reads, and delivers its membership changes.
final class EngineHarness: StoreLoopDriver {
  let storage: MemoryStorage
  private(set) var loop: StoreLoop!
  /// The requested commits that are not answered.
  var commits: [LoopCommit] = []
  var loads: [(request: LoadRequest, reference: ChannelReference)] = []
  /// The requested reads of steps that are not answered.
  var stepReads: [StepRequest] = []
  /// The requested purges of the storage that are not performed.
  private(set) var purges = 0
  /// The requested reads and trims of the feed that are not answered.
  var feedReads: [FeedReadRequest] = []
  var feedTrims: [FeedTrimRequest] = []
  /// Membership changes and confirmations in flight.
  var deliveries: [MembershipDelivery] = []
  var confirmations: [MembershipConfirmation] = []
  /// The requested peeks that are not answered.
  var peeks: [StorageReadRequest] = []
  /// The requested records in the erasure ledger that are not answered; nil: there is no ledger.
  var erasures: [ErasureRequest]?
  /// The requested slices that are not performed.
  private(set) var slices = 0
  /// Requests that have waited for a slice.
  private(set) var postponed = 0
  private(set) var reports: [StorageError] = []
  private(set) var halts: [StorageError] = []
  /// A description of every requested commit.
  private(set) var commitDescriptions: [String] = []
  var clock: Int64 = 1_000

  init(
    _ storage: MemoryStorage = MemoryStorage(),
    shards: [UInt16] = [0],
    of shardCount: Int = 1,
    follows: Bool = false,
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws(StorageError) {
    self.storage = storage
    var configuration = StoreLoopConfiguration()
    // Replies wait for the index only in the tests of the index.
    configuration.indexWaitMilliseconds = 0
    configure(&configuration)
    var stored: [(shard: ShardID, state: StoredShard)] = []
    for shard in shards { stored.append((ShardID(shard), try storage.recover(ShardID(shard)))) }
    loop = try StoreLoop(
      configuration: configuration,
      shardCount: shardCount,
      stored: stored,
      follows: follows,
      driver: self
    )
    loop.clock = Timestamp(milliseconds: clock)
  }

  func commit(_ commit: LoopCommit) {
    commits.append(commit)
    let indices = commit.batches.map { "\($0.index.rawValue)" }.joined(separator: ",")
    let logTrims = commit.logTrims.map { " trim \($0.through.rawValue)" }.joined()
    let drops = commit.drops.map { " drop \($0.channel.rawValue)" }.joined()
    commitDescriptions.append("batches [\(indices)] pages \(commit.pages.count)\(logTrims)\(drops)")
  }

  func load(_ request: LoadRequest, as reference: ChannelReference) { loads.append((request, reference)) }
  func readSteps(_ request: StepRequest) { stepReads.append(request) }
  func readFeed(_ request: FeedReadRequest) { feedReads.append(request) }
  func trimFeed(_ request: FeedTrimRequest) { feedTrims.append(request) }
  func deliver(_ deliveries: [MembershipDelivery]) { self.deliveries += deliveries }
  func confirm(_ confirmations: [MembershipConfirmation]) {
    self.confirmations += confirmations
  }
  func peek(_ request: StorageReadRequest) { peeks.append(request) }
  func sliceLater() { slices += 1 }
  func noteDecision(_ decision: SchedulingDecision) {
    if case .postpone = decision { postponed += 1 }
  }
  var keepsErasureLedger: Bool { erasures != nil }
  func recordErasure(_ request: ErasureRequest) { erasures?.append(request) }
  func purge() { purges += 1 }
  func reportError(_ error: StorageError) { reports.append(error) }
  func loopHalted(_ error: StorageError) { halts.append(error) }

  // MARK: Steps of a test

  /// Complete the oldest commit.
  func persist() throws {
    let commit = commits.removeFirst()
    try storage.commit(commit)
    loop.committed(.success(()))
  }

  func persistAll() throws {
    try repeatStep("no commit is requested", while: { !commits.isEmpty }) { try persist() }
  }

  /// Repeat a step while it is needed. A loop that always has new work ends the test with what was awaited, instead of
  /// a run without end.
  private func repeatStep(_ awaited: String, while isNeeded: () -> Bool, _ step: () throws -> Void) rethrows {
    var turns = 0
    while isNeeded() {
      turns += 1
      precondition(turns <= 10_000, "waited in vain until \(awaited)")
      try step()
    }
  }

  func fail() {
    commits.removeFirst()
    loop.committed(.failure(.failed("no space")))
  }

  /// Answer the oldest read, or the one with this reference.
  func completeLoad(_ wanted: ChannelReference? = nil, failing: Bool = false) throws {
    let place = wanted.map { wanted in loads.firstIndex { $0.reference == wanted }! } ?? 0
    let (request, reference) = loads.remove(at: place)
    if failing {
      loop.loaded(request, as: reference, .failure(.failed("bad sector")))
    } else {
      loop.loaded(request, as: reference, .success(try storage.read(request.shard, request.channel)))
    }
  }

  func completeLoads() throws {
    try repeatStep("no read is requested", while: { !loads.isEmpty }) { try completeLoad() }
  }

  /// Complete all loads and slices. Commits and messages between shards stay in flight.
  func completeSlices() throws {
    try repeatStep("no read or slice is requested", while: { !loads.isEmpty || slices > 0 }) {
      try completeLoads()
      if slices > 0 { slice() }
    }
  }

  /// Answer the oldest read of steps.
  func completeSteps(failing: Bool = false) throws {
    let request = stepReads.removeFirst()
    var found: [StoredSegment] = []
    for range in request.ranges {
      found += try storage.readSteps(
        request.shard,
        request.channel,
        rowPage: range.rowPage,
        segments: range.segments
      )
    }
    loop.stepsRead(request, failing ? .failure(.failed("bad sector")) : .success(found))
  }

  /// Answer the oldest read of the feed.
  func completeFeedRead(failing: Bool = false) throws {
    let request = feedReads.removeFirst()
    loop.feedRead(request, failing ? .failure(.failed("bad sector")) : .success(try storage.readFeed(request)))
  }

  func completeFeedTrim() throws {
    let request = feedTrims.removeFirst()
    loop.feedTrimmed(request, .success(try storage.trimFeed(request)))
  }

  /// Answer the oldest record in the erasure ledger, successfully or with a fault.
  func completeErasure(fault: String? = nil) {
    guard let request = erasures?.first else { return }
    erasures?.removeFirst()
    loop.erasureRecorded(request, fault: fault)
  }

  /// Perform the requested purge of the storage.
  func purgeStorage(failing: Bool = false) throws {
    purges -= 1
    if !failing { try storage.purge() }
    loop.purged(failing ? .failure(.failed("bad sector")) : .success(()))
  }

  /// The places in storage that name a user: log batches and pages.
  func traces(_ user: String) throws -> [String] { try storage.data.traces(of: user) }

  /// Deliver the membership changes for shards of this loop, in order.
  func deliverChanges() {
    let (changes, taken) = (deliveries, confirmations)
    deliveries = []
    confirmations = []
    if !changes.isEmpty { loop.receive(changes) }
    if !taken.isEmpty { loop.confirmed(taken) }
  }

  /// Run until all changes are in storage and in the indexes, and no work is pending.
  func runUntilIdle() throws {
    func hasWork() -> Bool {
      !commits.isEmpty || !loads.isEmpty || !deliveries.isEmpty || !confirmations.isEmpty || slices > 0
    }
    try repeatStep("the loop is idle", while: hasWork) {
      try persistAll()
      try completeLoads()
      deliverChanges()
      if slices > 0 { slice() }
    }
  }

  /// Answer the oldest peek.
  func completePeek() {
    let request = peeks.removeFirst()
    loop.peeked(request, request.perform(on: storage))
  }

  /// Perform the requested slice.
  func slice() {
    slices -= 1
    loop.slice()
  }

  func advance(_ milliseconds: Int64) {
    clock += milliseconds
    loop.clock = Timestamp(milliseconds: clock)
  }

  /// Write pages until none is dirty and the log is trimmed.
  func writePages() throws {
    for _ in 0..<20 {
      advance(10_000)
      loop.tick()
      try completeLoads()
      try persistAll()
    }
  }

  func connect(session: UInt64 = 1, serial: UInt64 = 0) -> Gateway {
    Gateway(self, session: SessionID(high: 0, low: session), serial: serial)
  }
}

/// A harness with one channel `team:a` of alice and bob, all in storage, and the gateway that created it.
func harnessWithChannel(
  configure: (inout StoreLoopConfiguration) -> Void = { _ in }
) throws -> (harness: EngineHarness, gateway: Gateway) {
  let harness = try EngineHarness(configure: configure)
  let gateway = harness.connect()
  gateway.put("team:a", ["alice", "bob"])
  harness.loop.endTurn()
  try harness.completeLoads()
  try harness.persistAll()
  _ = gateway.take()
  return (harness, gateway)
}

/// Storage in memory that tests can damage.
///
/// `@unchecked Sendable`: a test uses one thread.
final class MemoryStorage: MemoryBackedStorage, @unchecked Sendable {
  var data = StoredData()
  /// Called before each single page is read, to change the storage in between.
  var beforePages: (PageSelection) -> Void = { _ in }
  /// The number of purges.
  private(set) var purges = 0

  var log: [ShardID: [UInt64: ByteBuffer]] {
    get { data.log }
    set { data.log = newValue }
  }

  var pages: [PageKey: ByteBuffer] {
    get { data.pages }
    set { data.pages = newValue }
  }

  /// The names of all shards, which differ.
  var directory: [[UInt8]: ChannelNumber] {
    data.directory.values.reduce(into: [:]) { all, names in
      all.merge(names) { _, _ in preconditionFailure("a name of two shards") }
    }
  }

  func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel? {
    beforePages(selection)
    return data.readPages(shard, channel, selection)
  }

  func purge() throws(StorageError) { purges += 1 }
}
