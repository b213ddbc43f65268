internal import LinkSecurity
package import Logging
internal import NIOConcurrencyHelpers
package import NIOCore
internal import NIOPosix
package import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient
package import StoreEngine

/// tidemark-store's server: listens, opens connections, and runs the loops' shards on their storage.
package final class StoreServer: Sendable {
  private let configuration: StoreServerConfiguration
  private let source: any ReopenableStorage
  private let logger: Logger
  private let group: MultiThreadedEventLoopGroup
  private let committers: [NIOThreadPool]
  private let readers: NIOThreadPool
  /// Opens, recovers and closes storage; one thread, so that these never overlap.
  private let supervisor: NIOThreadPool
  private let serving = ServingState()
  private let registry = ConnectionRegistry()
  package let gate: ConnectionGate
  private let counters = ConnectionCounters()
  private let backups: BackupServer
  private let shared: Shared
  package let clock: StoreClock
  package let directory: DataDirectoryMonitor
  private let secrets: NIOLockedValueBox<[[UInt8]]>

  /// Mutable state of the server, under a lock.
  private final class Shared: Sendable {
    struct State {
      var storage: (any StorageEngine)?
      /// The loops' hosts, whether they serve or not, and the shards of each.
      var loops: ServingState.Serving?
      /// In a cluster: each event loop's link to the shared log, and its links to the other nodes.
      var links: [SharedLogLink] = []
      var nodes: [NodeLinks] = []
      var listener: (any Channel)?
      var lifecycle = StoreLifecycle()
      var failedCommits: UInt64 = 0
      var reload: Task<Void, Never>?
    }
    let state = NIOLockedValueBox(State())
  }

  package init(
    configuration: StoreServerConfiguration,
    storage source: any ReopenableStorage,
    logger: Logger
  ) {
    self.configuration = configuration
    self.source = source
    self.logger = logger
    group = MultiThreadedEventLoopGroup(numberOfThreads: configuration.loops)
    committers = (0..<configuration.loops).map { _ in NIOThreadPool(numberOfThreads: 1) }
    readers = NIOThreadPool(numberOfThreads: 1 + BackgroundReads.runningMax * configuration.loops)
    supervisor = NIOThreadPool(numberOfThreads: 1)
    clock = StoreClock(limits: configuration.clock, logger: logger)
    directory = DataDirectoryMonitor(source: source, logger: logger)
    backups = BackupServer(store: source.store, clock: clock, logger: logger)
    shared = Shared()
    secrets = NIOLockedValueBox(configuration.secrets)
    gate = ConnectionGate(limits: configuration.connections, logger: logger)
    for pool in committers + [readers, supervisor] { pool.start() }
  }

  /// Replace the secrets for future handshakes: the current one, then the previous one. Open connections stay.
  package func replaceSecrets(_ secrets: [[UInt8]]) {
    self.secrets.withLockedValue { $0 = secrets }
    for nodes in shared.state.withLockedValue(\.nodes) { nodes.eventLoop.execute { nodes.replaceSecrets(secrets) } }
  }

  // MARK: Lifecycle

  /// Open and recover the storage, then listen. Returns the listening address.
  package func start() async throws -> SocketAddress {
    let storage = try await supervisor.runIfActive { [source] in try source.open() }
    if !(try await startLoops(on: storage)) { await reload() }
    let terms = ServerHandshake.Terms(
      secrets: configuration.secrets,
      window: configuration.window,
      frameLengthMax: FrameHeader.lengthLimitDefault,
      shardCount: source.shardCount,
      isNode: configuration.cluster != nil,
      store: source.store,
      sessionLifetimeMilliseconds: configuration.engine.sessionLifetimeMilliseconds
    )
    let listener = try await ServerBootstrap(group: group)
      .serverChannelOption(.backlog, value: 1024)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .serverChannelInitializer { [gate] channel in
        channel.eventLoop.makeCompletedFuture { try ConnectionGateHandler.prepare(channel, gate) }
      }
      .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
      // The kernel detects a gateway whose machine is gone.
      .childChannelOption(.socketOption(.so_keepalive), value: 1)
      // At most some 400 marks in one turn, so that replies leave and the next marks arrive while these are processed.
      .childChannelOption(
        .recvAllocator,
        value: AdaptiveRecvByteBufferAllocator(minimum: 4096, initial: 32_768, maximum: 32_768)
      )
      .childChannelOption(.writeBufferWaterMark, value: .init(low: 2 << 20, high: 8 << 20))
      .childChannelInitializer {
        [serving, registry, gate, counters, backups, logger, configuration, secrets] channel in
        channel.eventLoop.makeCompletedFuture {
          var terms = terms
          terms.secrets = secrets.withLockedValue { $0 }
          var logger = logger
          logger[metadataKey: "peer"] = "\(channel.remoteAddress.map(String.init(describing:)) ?? "unknown")"
          if let tls = configuration.tls {
            let handler = try tls.serverHandler(plaintextRefusal: FrameServerHandler.plaintextRefusal)
            try channel.pipeline.syncOperations.addHandler(handler)
          }
          try channel.pipeline.syncOperations.addHandler(
            FrameServerHandler(
              servingState: serving,
              terms: terms,
              registry: registry,
              gate: gate,
              counters: counters,
              backups: backups,
              tlsFailures: configuration.tls?.failures,
              logger: logger
            )
          )
        }
      }
      .bind(host: configuration.host, port: configuration.port).get()
    shared.state.withLockedValue { $0.listener = listener }
    return listener.localAddress!
  }

  /// How often, and how many times at most, a stop checks whether work is still in progress: 1 s in total.
  private static let drainPollInterval = Duration.milliseconds(20)
  private static let drainPollsMax = 50

  /// Drain gateways, wait for work in progress, and close the storage.
  package func stop() async {
    let (listener, reload) = shared.state.withLockedValue { state in
      state.lifecycle.stop()
      return (state.listener, state.reload)
    }
    try? await listener?.close()
    // Wait for a reload: it must not lose its storage while it runs.
    await reload?.value
    for channel in registry.channels {
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(.drain)) { _ in }
      channel.writeAndFlush(buffer, promise: nil)
    }
    // Commit and answer what was received; gateways send nothing new.
    for _ in 0..<Self.drainPollsMax where !registry.channels.isEmpty {
      try? await Task.sleep(for: Self.drainPollInterval)
      let isBusy = await anyLoopIsBusy()
      if !isBusy { break }
    }
    await stopLoops()
    for nodes in shared.state.withLockedValue(\.nodes) {
      try? await nodes.eventLoop.flatSubmit { nodes.close() }.get()
    }
    await backups.stop()
    try? await group.shutdownGracefully()
    for pool in committers + [readers, supervisor] { try? await pool.shutdownGracefully() }
  }

  private func anyLoopIsBusy() async -> Bool {
    for host in serving.current()?.hosts ?? [] {
      let isBusy = try? await host.eventLoop.submit { host.loop.isBusy }.get()
      if isBusy == true { return true }
    }
    return false
  }

  // MARK: Opening and closing storage

  /// - Returns: whether the loops serve; false if one of their commits has failed already.
  private func startLoops(on storage: any StorageEngine) async throws -> Bool {
    let generation = shared.state.withLockedValue { state in
      state.storage = storage
      return state.lifecycle.begin()
    }
    let shardCount = source.shardCount
    let loops = Array(group.makeIterator())
    var hostOfShard = [UInt8](repeating: 0, count: shardCount)
    var hosts: [LoopHost] = []
    var recovered = 0
    for (position, eventLoop) in loops.enumerated() where position < shardCount {
      let owned = shards(ofHost: position, of: min(loops.count, shardCount))
      for shard in owned { hostOfShard[shard] = UInt8(position) }
      let stored = try await supervisor.runIfActive {
        try owned.map { shard in
          let id = ShardID(UInt16(shard))
          return (shard: id, state: try storage.recover(id))
        }
      }
      recovered += stored.reduce(0) { $0 + $1.state.log.count }
      let events = LoopHost.HostEvents(
        halted: { [weak self] error in self?.halted(error, generation: generation) },
        reported: { [logger] error in
          logger.error("Stored data cannot be used", metadata: ["error": "\(error)"])
        },
        promoted: { [weak self] host, epoch in self?.promoted(host, epoch) },
        deposed: { [weak self] in self?.deposed(generation: generation) }
      )
      let group = try await membership(ofGroup: position, on: eventLoop, storage)
      let committer = committers[position]
      hosts.append(
        try await eventLoop.submit { [readers, configuration, clock, directory] in
          try LoopHost(
            eventLoop: eventLoop,
            storage: storage,
            committer: committer,
            readers: readers,
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
      )
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
    let all = ServingState.Serving(
      hosts: hosts,
      hostOfShard: hostOfShard,
      epochs: configuration.cluster.map { _ in hosts.map { _ in nil } }
    )
    shared.state.withLockedValue { $0.loops = all }
    serving.replace(all)
    // Ticks commit, so none may begin while other hosts are still being made.
    for host in hosts { host.eventLoop.execute { host.start() } }
    if let interval = source.syncIntervalMilliseconds {
      // One host syncs for all. In a cluster each reports how far its own group is synced.
      for host in hosts.prefix(configuration.cluster == nil ? 1 : hosts.count) {
        host.eventLoop.execute { host.startSync(everyMilliseconds: interval) }
      }
    }
    if let host = hosts.first { host.eventLoop.execute { host.startCompactingOld() } }
    for (link, host) in zip(shared.state.withLockedValue(\.links), hosts) {
      host.eventLoop.execute { link.probe(for: [host.replica].compactMap { $0 }) }
    }
    let isServing = shared.state.withLockedValue { $0.lifecycle.started() }
    if isServing {
      backups.attach(storage)
      let text = configuration.cluster == nil ? "Shards are serving" : "Shards follow the shared log"
      logger.info("\(text)", metadata: ["shards": "\(shardCount)", "log_batches": "\(recovered)"])
    }
    return isServing
  }

  /// Return the shards of a host. The groups of a cluster are ranges.
  private func shards(ofHost position: Int, of count: Int) -> [Int] {
    let all = 0..<source.shardCount
    if configuration.cluster == nil { return all.filter { $0 % count == position } }
    return all.filter { $0 * count / source.shardCount == position }
  }

  /// Stop the loops, close the connections that have routes into them, wait for their threads, and close the
  /// storage.
  private func stopLoops() async {
    serving.replace(nil)
    let (hosts, links) = shared.state.withLockedValue { state in
      defer { state.loops = nil }
      return (state.loops?.hosts ?? [], state.links)
    }
    for link in links { link.eventLoop.execute { link.stop() } }
    let channels = registry.channels
    await withTaskGroup(of: Void.self) { tasks in
      for channel in channels { tasks.addTask { try? await channel.close() } }
    }
    for host in hosts { try? await host.eventLoop.flatSubmit { host.stop() }.get() }
    await backups.detach()
    let storage = shared.state.withLockedValue { state in
      defer { state.storage = nil }
      return state.storage
    }
    if let storage { try? await supervisor.runIfActive { [source] in source.close(storage) } }
  }

  /// Handle a failed commit of one loop. The memory of all loops may be ahead of storage, so everything is reloaded.
  private func halted(_ error: StorageError, generation: UInt64) {
    shared.state.withLockedValue { $0.failedCommits += 1 }
    guard recordHalt(generation: generation) else { return }
    logger.error(
      "A commit failed; reloading all shards from storage",
      metadata: ["error": "\(error)"]
    )
  }

  /// Record that a loop of this generation has halted, and reload everything if it served.
  ///
  /// - Returns: whether it is the first of its generation, which is to be logged.
  private func recordHalt(generation: UInt64) -> Bool {
    shared.state.withLockedValue { state in
      switch state.lifecycle.halted(generation: generation) {
      case .ignore: return false
      case .report: return true
      case .reportAndReload:
        state.reload = Task { await self.reload() }
        return true
      }
    }
  }

  // MARK: Cluster

  private func membership(
    ofGroup position: Int,
    on eventLoop: any EventLoop,
    _ storage: any StorageEngine
  ) async throws -> GroupMembership? {
    guard let cluster = configuration.cluster else { return nil }
    let id = GroupID(UInt8(position))
    let stored = try await supervisor.runIfActive { try storage.position(of: id) }
    if position == shared.state.withLockedValue(\.links.count) {
      let link = try await eventLoop.submit {
        SharedLogLink(eventLoop: eventLoop, log: cluster.makeLog(eventLoop), limits: cluster.limits)
      }.get()
      shared.state.withLockedValue { $0.links.append(link) }
      if !cluster.peers.isEmpty {
        let clients = nodeConfiguration(cluster)
        let nodes = try await eventLoop.submit { NodeLinks(eventLoop: eventLoop, configuration: clients) }.get()
        shared.state.withLockedValue { $0.nodes.append(nodes) }
      }
    }
    return shared.state.withLockedValue { state in
      GroupMembership(
        id: id,
        node: cluster.node,
        members: cluster.members(of: id),
        limits: cluster.limits,
        stored: stored,
        link: state.links[position],
        nodes: state.nodes.isEmpty ? nil : state.nodes[position]
      )
    }
  }

  private func nodeConfiguration(_ cluster: ClusterSettings) -> StoreClientConfiguration {
    var clients = StoreClientConfiguration(
      addresses: cluster.peers,
      secrets: secrets.withLockedValue { $0 },
      name: "tidemark-store node \(cluster.node.rawValue)",
      logger: logger
    )
    clients.transport = configuration.tls.map { .tls($0) }
    return clients
  }

  /// This node owns the group of a host now, and answers for its shards.
  private func promoted(_ host: LoopHost, _ epoch: OwnerEpoch) {
    guard let owned = serving.promote(host, epoch) else { return }
    for channel in registry.channels { channel.pipeline.fireUserInboundEventTriggered(ServingChanged()) }
    logger.info(
      "This node owns a group and serves its shards",
      metadata: ["epoch": "\(epoch.rawValue)", "owned_groups": "\(owned)"]
    )
  }

  /// Another node owns a group that this node has owned: start again as its follower.
  private func deposed(generation: UInt64) {
    if recordHalt(generation: generation) { logger.notice("Another node owns the shards now; following it") }
  }

  /// Pauses between two attempts to reload: 100 ms at first, doubled with each attempt up to 2 s.
  private static let reloadPause = Duration.milliseconds(50)
  private static let reloadPausesMin = 2
  private static let reloadPausesMax = 40

  /// Reload everything from storage, and retry until that succeeds.
  private func reload() async {
    let isStopping = { [shared] in shared.state.withLockedValue { $0.lifecycle.isStopping } }
    var pauses = Self.reloadPausesMin
    while true {
      await stopLoops()
      guard !isStopping() else { return }
      do {
        let storage = try await supervisor.runIfActive { [source] in try source.open() }
        if try await startLoops(on: storage) { return }
      } catch {
        logger.error("Storage cannot be opened yet; trying again", metadata: ["error": "\(error)"])
      }
      // Several short pauses rather than one that is cancelled: a cancellation could lose a storage that was just
      // opened.
      for _ in 0..<pauses where !isStopping() { try? await Task.sleep(for: Self.reloadPause) }
      pauses = min(pauses * 2, Self.reloadPausesMax)
    }
  }

  // MARK: For operators

  /// Why the store cannot serve now; nil if it can.
  package var notReadyReason: String? {
    if serving.current() != nil { return nil }
    return "the shards are starting, or reloading after a failed commit"
  }

  /// Values for `/metrics`.
  package struct Statistics: Sendable {
    package var loops = StoreLoop.Counters()
    package var now = StoreLoop.Gauges()
    package var connections = 0
    package var connectionsOpened: UInt64 = 0
    package var failedCommits: UInt64 = 0
    /// Nil except in a cluster.
    package var ownedGroups: Int?

    package init() {}
  }

  package func statistics() async -> Statistics {
    var sum = Statistics()
    for host in shared.state.withLockedValue(\.loops)?.hosts ?? [] {
      let next = try? await host.eventLoop.submit { [sum] in
        var next = sum
        next.loops += host.loop.counters
        host.loop.addGauges(to: &next.now)
        return next
      }.get()
      if let next { sum = next }
    }
    sum.connections = counters.current.now
    sum.connectionsOpened = counters.current.opened
    if configuration.cluster != nil {
      sum.ownedGroups = serving.current()?.epochs?.count { $0 != nil } ?? 0
    }
    sum.failedCommits = shared.state.withLockedValue { $0.failedCommits }
    return sum
  }
}
