internal import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import NIOPosix
internal import ReceiptModel
internal import StoreEngine

/// The loops' hosts: makes them from storage, stops them, and makes them again after a failed commit.
final class HostSupervisor: Sendable {
  /// In a cluster: groups that this node has become the owner of, those that it has lost, and snapshots that it has
  /// installed, since the start.
  struct GroupCounts {
    var gained = 0
    var lost = 0
    var snapshotsInstalled = 0
  }

  /// Only the supervisor's own files use it: others ask the supervisor.
  struct State {
    var storage: (any StorageEngine)?
    var lifecycle = StoreLifecycle()
    var failedCommits: UInt64 = 0
    var reload: Task<Void, Never>?
    /// Pause before the next reload; zero except in a cluster.
    var reloadPause = Duration.zero
    var reloads = RestartBackoff()
    /// In a cluster: hosts that are being replaced, and their groups' failures, by the loop's number.
    var replacements: [Int: Task<Void, Never>] = [:]
    var groupRestarts: [Int: RestartBackoff] = [:]
    /// In a cluster: whether the node hands its groups over, since its process stops.
    var stopsSoon = false
    var groupCounts = GroupCounts()
    /// In a cluster: its level, if this node does not support it.
    var unsupportedLevel: ClusterLevel?
  }

  private let configuration: StoreServerConfiguration
  let source: any ReopenableStorage
  let logger: Logger
  private let eventLoops: [any EventLoop]
  private let committers: [NIOThreadPool]
  private let readers: NIOThreadPool
  private let ledgerWriter: NIOThreadPool
  /// Opens, recovers and closes storage; one thread, so that these never overlap.
  private let opener: NIOThreadPool
  let registry: ConnectionRegistry
  private let backups: BackupServer
  private let clock: StoreClock
  let directory: DataDirectoryMonitor
  /// Nil except in a cluster.
  let clusterLinks: ClusterLinks?
  let state = NIOLockedValueBox(State())
  let serving = ServingState()

  init(
    configuration: StoreServerConfiguration,
    storage source: any ReopenableStorage,
    eventLoops: [any EventLoop],
    registry: ConnectionRegistry,
    backups: BackupServer,
    clock: StoreClock,
    directory: DataDirectoryMonitor,
    clusterLinks: ClusterLinks?,
    logger: Logger
  ) {
    self.configuration = configuration
    self.source = source
    self.eventLoops = eventLoops
    self.registry = registry
    self.backups = backups
    self.clock = clock
    self.directory = directory
    self.clusterLinks = clusterLinks
    self.logger = logger
    committers = eventLoops.map { _ in NIOThreadPool(numberOfThreads: 1) }
    readers = NIOThreadPool(numberOfThreads: 1 + BackgroundReads.runningMax * eventLoops.count)
    ledgerWriter = NIOThreadPool(numberOfThreads: 1)
    opener = NIOThreadPool(numberOfThreads: 1)
    for pool in committers + [readers, ledgerWriter, opener] { pool.start() }
  }

  /// All hosts of now, whether they own their shards or follow.
  var hosts: [LoopHost] { serving.current()?.hosts ?? [] }

  var failedCommits: UInt64 { state.withLockedValue(\.failedCommits) }

  var groupCounts: GroupCounts { state.withLockedValue(\.groupCounts) }

  /// In a cluster: its level, if this node does not support it.
  var unsupportedLevel: ClusterLevel? { state.withLockedValue(\.unsupportedLevel) }

  // MARK: Lifecycle

  /// Open and recover the storage, and start the hosts.
  func start() async throws {
    let storage = try await opener.runIfActive { [source] in try source.open() }
    if !(try await startLoops(on: storage)) { await reload() }
  }

  /// Begin a stop: no reload starts any more. Returns when none runs.
  func stopReloads() async {
    let reload = state.withLockedValue { state in
      state.lifecycle.stop()
      return state.reload
    }
    // It must not lose its storage while it runs.
    await reload?.value
  }

  /// Return whether work for requests is in progress.
  func anyLoopIsBusy() async -> Bool {
    for host in hosts {
      let isBusy = try? await host.eventLoop.submit { host.servesRequests && host.loop.isBusy }.get()
      if isBusy == true { return true }
    }
    return false
  }

  /// End the threads, after ``stopLoops()`` and when no event loop runs.
  func stopThreads() async {
    for pool in committers + [readers, ledgerWriter, opener] { try? await pool.shutdownGracefully() }
  }

  // MARK: Opening and closing storage

  /// - Returns: whether the loops serve; false if one of their commits has failed already.
  private func startLoops(on storage: any StorageEngine) async throws -> Bool {
    let generation = state.withLockedValue { state in
      state.storage = storage
      return state.lifecycle.begin()
    }
    let shardCount = source.shardCount
    var hostOfShard = [UInt8](repeating: 0, count: shardCount)
    var hosts: [LoopHost] = []
    var recovered = 0
    for index in 0..<min(eventLoops.count, shardCount) {
      for shard in shards(ofHost: index) { hostOfShard[shard] = UInt8(index) }
      let (host, batchCount) = try await makeHost(at: index, on: storage, generation: generation)
      hosts.append(host)
      recovered += batchCount
    }
    var logged = Timestamp.none
    for host in hosts {
      logged = max(logged, try await host.eventLoop.submit { host.loop.loggedTime }.get())
    }
    clock.start(logged: logged)
    for host in hosts {
      try await host.eventLoop.submit { [hosts, hostOfShard] in
        host.connect(hosts, hostOfShard: hostOfShard)
      }.get()
    }
    serving.replace(
      ServingState.Serving(
        hosts: hosts,
        hostOfShard: hostOfShard,
        epochs: configuration.cluster.map { _ in hosts.map { _ in nil } },
        node: configuration.cluster?.node
      )
    )
    // Ticks commit, so none may begin while other hosts are still being made.
    for (index, host) in hosts.enumerated() { start(host, at: index) }
    let isServing = state.withLockedValue { state in
      state.reloads.started(at: .now)
      return state.lifecycle.started()
    }
    if isServing {
      backups.attach(storage)
      let text = configuration.cluster == nil ? "Shards are serving" : "Shards follow the shared log"
      logger.info("\(text)", metadata: ["shards": "\(shardCount)", "log_batches": "\(recovered)"])
    }
    return isServing
  }

  /// Make a host and its loop from storage.
  ///
  /// - Returns: the host, and the number of log batches that were read.
  func makeHost(
    at index: Int,
    on storage: any StorageEngine,
    generation: UInt64
  ) async throws -> (host: LoopHost, batchCount: Int) {
    let eventLoop = eventLoops[index]
    let owned = shards(ofHost: index)
    let stored = try await opener.runIfActive {
      try owned.map { shard in
        let id = ShardID(UInt16(shard))
        return (shard: id, state: try storage.recover(id))
      }
    }
    let events = LoopHost.HostEvents(
      halted: { [weak self] error in self?.halted(error, generation: generation) },
      errorReported: { [logger] error in
        logger.error("Stored data cannot be used", metadata: ["error": "\(error)"])
      }
    )
    let group = try await membership(ofLoop: index, eventLoop, storage, generation: generation)
    let committer = committers[index]
    let host = try await eventLoop.submit {
      [readers, ledgerWriter, configuration, clock, directory, shardCount = source.shardCount] in
      try LoopHost(
        eventLoop: eventLoop,
        storage: storage,
        committer: committer,
        readers: readers,
        ledgerWriter: ledgerWriter,
        configuration: configuration.engine,
        totalShardCount: shardCount,
        stored: stored,
        group: group,
        erasures: configuration.erasures,
        clock: clock,
        directory: directory,
        events: events
      )
    }.get()
    return (host, stored.reduce(0) { $0 + $1.state.log.count })
  }

  func prepareRecovery(of storage: any StorageEngine) async throws {
    try await opener.runIfActive { try storage.prepareRecovery() }
  }

  private func membership(
    ofLoop index: Int,
    _ eventLoop: any EventLoop,
    _ storage: any StorageEngine,
    generation: UInt64
  ) async throws -> GroupMembership? {
    guard let clusterLinks else { return nil }
    let group = GroupID(UInt8(index))
    let (stored, keys) = try await opener.runIfActive {
      (try storage.position(of: group), try storage.recordKeys(of: group))
    }
    let events = groupEvents(ofHost: index, generation: generation)
    return try await clusterLinks.membership(ofLoop: index, eventLoop, stored: stored, keys: keys, events: events)
  }

  /// Start a connected host.
  func start(_ host: LoopHost, at index: Int) {
    host.eventLoop.execute { host.start() }
    // One host syncs for all. In a cluster each reports how far its own group is synced, also if each commit is.
    let interval = syncMilliseconds
    if let interval, index == 0 || clusterLinks != nil {
      host.eventLoop.execute { host.startSync(everyMilliseconds: interval) }
    }
    if index == 0 { host.eventLoop.execute { host.startCompactingOld() } }
    clusterLinks?.startProbes(ofLoop: index, for: host)
  }

  /// Interval of syncs; nil: each commit is synced. A node reports its synced positions at least every second.
  private var syncMilliseconds: Int? {
    guard clusterLinks != nil else { return source.syncIntervalMilliseconds }
    return min(source.syncIntervalMilliseconds ?? Self.reportMilliseconds, Self.reportMilliseconds)
  }

  private static let reportMilliseconds = 1_000

  /// Return the shards of a host. The groups of a cluster are ranges.
  private func shards(ofHost index: Int) -> [Int] {
    let all = 0..<source.shardCount
    let count = min(eventLoops.count, source.shardCount)
    if configuration.cluster == nil { return all.filter { $0 % count == index } }
    return all.filter { $0 * count / source.shardCount == index }
  }

  /// Stop the loops, close the connections that have routes into them, wait for their threads, and close the
  /// storage.
  func stopLoops() async {
    let served = serving.replace(nil)
    let hosts = served?.hosts ?? []
    state.withLockedValue { $0.groupCounts.lost += served?.epochs?.count { $0 != nil } ?? 0 }
    // None begins any more. One that runs ends early, and leaves nothing behind.
    for replacement in state.withLockedValue({ Array($0.replacements.values) }) { await replacement.value }
    clusterLinks?.stopProbes()
    let channels = registry.channels
    await withTaskGroup(of: Void.self) { tasks in
      for channel in channels { tasks.addTask { try? await channel.close() } }
    }
    for host in hosts { try? await host.eventLoop.flatSubmit { host.stop() }.get() }
    await backups.detach()
    let storage = state.withLockedValue { state in
      defer { state.storage = nil }
      return state.storage
    }
    if let storage { try? await opener.runIfActive { [source] in source.close(storage) } }
  }

  // MARK: Halts

  /// Handle a failed commit of one loop. The memory of all loops may be ahead of storage, so everything is reloaded.
  func halted(_ error: StorageError, generation: UInt64) {
    let restart: RestartBackoff.Restart? = state.withLockedValue { state in
      state.failedCommits += 1
      let onHalt = state.lifecycle.halted(generation: generation)
      guard onHalt != .ignore else { return nil }
      var restart = RestartBackoff.Restart(pause: .zero, isNew: true)
      if clusterLinks != nil { restart = state.reloads.failed("\(error)", at: .now) }
      state.reloadPause = restart.pause
      if onHalt == .reportAndReload { state.reload = Task { await self.reload() } }
      return restart
    }
    guard let restart else { return }
    guard clusterLinks != nil else {
      return logger.error("A commit failed; reloading all shards from storage", metadata: ["error": "\(error)"])
    }
    logger.log(
      level: restart.isNew ? .error : .debug,
      """
      A commit failed: this node reads all its shards again, with pauses of up to \(RestartBackoff.pauseMax); if that \
      does not help, see to its disk
      """,
      metadata: ["error": "\(error)", "pause": "\(restart.pause)"]
    )
  }

  /// A host has failed. If the loops of its generation do not serve yet, make all of them again.
  func reloadIfStarting(generation: UInt64) {
    state.withLockedValue { state in
      // The start in progress notices it.
      if state.lifecycle.isStarting(generation) { _ = state.lifecycle.halted(generation: generation) }
    }
  }

  /// Pauses between two attempts of a reload, doubled with each attempt.
  private static let attemptPauseMin = Duration.milliseconds(100)
  private static let attemptPauseMax = Duration.seconds(2)
  /// One of the short pauses that a sleep consists of.
  private static let sleepStep = Duration.milliseconds(50)

  /// Reload everything from storage, and retry until that succeeds.
  private func reload() async {
    let isStopping = { [state] in state.withLockedValue { $0.lifecycle.isStopping } }
    var pause = Self.attemptPauseMin
    while true {
      await stopLoops()
      await sleep(state.withLockedValue(\.reloadPause)) { !$0.lifecycle.isStopping }
      guard !isStopping() else { return }
      do {
        let storage = try await opener.runIfActive { [source] in try source.open() }
        if try await startLoops(on: storage) { return }
      } catch {
        logger.error("Storage cannot be opened yet; trying again", metadata: ["error": "\(error)"])
      }
      await sleep(pause) { !$0.lifecycle.isStopping }
      pause = min(pause * 2, Self.attemptPauseMax)
    }
  }

  /// Sleep while a condition holds. Several short pauses rather than one that is cancelled: a cancellation could lose a
  /// storage that was just opened.
  func sleep(_ duration: Duration, while holds: (State) -> Bool) async {
    for _ in 0..<Int(duration / Self.sleepStep) where state.withLockedValue({ holds($0) }) {
      try? await Task.sleep(for: Self.sleepStep)
    }
  }
}
