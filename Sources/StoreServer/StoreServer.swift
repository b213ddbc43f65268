internal import LinkSecurity
package import Logging
internal import NIOConcurrencyHelpers
package import NIOCore
internal import NIOPosix
package import Operations
internal import ReceiptModel
internal import ReceiptWire
package import StoreEngine

/// tidemark-store's server: listens, opens connections, and runs the loops' shards on their storage.
package final class StoreServer: Sendable {
  private let configuration: StoreServerConfiguration
  private let source: any ReopenableStorage
  private let logger: Logger
  private let group: MultiThreadedEventLoopGroup
  let supervisor: HostSupervisor
  private let clusterLinks: ClusterLinks?
  private let registry = ConnectionRegistry()
  package let gate: ConnectionGate
  private let counters = ConnectionCounters()
  private let backups: BackupServer
  private let snapshots: SnapshotServer
  package let clock: StoreClock
  package let directory: DataDirectoryMonitor
  private let secrets: NIOLockedValueBox<[[UInt8]]>
  private let listener = NIOLockedValueBox<(any Channel)?>(nil)

  package init(configuration: StoreServerConfiguration, storage source: any ReopenableStorage, logger: Logger) {
    self.configuration = configuration
    self.source = source
    self.logger = logger
    group = MultiThreadedEventLoopGroup(numberOfThreads: configuration.loops)
    clock = StoreClock(limits: configuration.clock, logger: logger)
    directory = DataDirectoryMonitor(source: source, logger: logger)
    backups = BackupServer(store: source.store, clock: clock, logger: logger)
    snapshots = SnapshotServer(logger: logger)
    clusterLinks = configuration.cluster.map {
      ClusterLinks($0, configuration, store: Self.handshakeID(configuration, source), logger: logger)
    }
    secrets = NIOLockedValueBox(configuration.secrets)
    gate = ConnectionGate(limits: configuration.connections, logger: logger)
    supervisor = HostSupervisor(
      configuration: configuration,
      storage: source,
      eventLoops: Array(group.makeIterator()),
      registry: registry,
      backups: backups,
      clock: clock,
      directory: directory,
      clusterLinks: clusterLinks,
      logger: logger
    )
  }

  /// Replace the secrets for future handshakes: the current one, then the previous one. Open connections stay.
  package func replaceSecrets(_ secrets: [[UInt8]]) {
    self.secrets.withLockedValue { $0 = secrets }
    clusterLinks?.replaceSecrets(secrets)
  }

  // MARK: Lifecycle

  /// Open and recover the storage, then listen. Returns the listening address.
  package func start() async throws -> SocketAddress {
    try await supervisor.start()
    let listener = try await listen()
    self.listener.withLockedValue { $0 = listener }
    let address = listener.localAddress!
    clusterLinks?.announce(port: address.port ?? configuration.port, on: group.next()) { [supervisor] others in
      supervisor.peersChanged(others.map(\.peer))
    }
    return address
  }

  private static func handshakeID(
    _ configuration: StoreServerConfiguration,
    _ source: any ReopenableStorage
  ) -> SessionID {
    configuration.cluster?.configuration.handshakeID ?? source.store
  }

  private func listen() async throws -> any Channel {
    let terms = ServerHandshake.Terms(
      secrets: configuration.secrets,
      window: configuration.window,
      frameLengthMax: FrameHeader.lengthLimitDefault,
      shardCount: source.shardCount,
      isNode: configuration.cluster != nil,
      store: Self.handshakeID(configuration, source),
      sessionLifetimeMilliseconds: configuration.engine.sessionLifetimeMilliseconds
    )
    return try await ServerBootstrap(group: group)
      .serverChannelOption(.backlog, value: 1024)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .serverChannelInitializer { [gate] channel in
        channel.eventLoop.makeCompletedFuture { try ConnectionGateHandler.prepare(channel, gate) }
      }
      .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
      .childKeepAlive()
      // At most some 400 marks in one turn, so that replies leave and the next marks arrive while these are processed.
      .childChannelOption(
        .recvAllocator,
        value: AdaptiveRecvByteBufferAllocator(minimum: 4096, initial: 32_768, maximum: 32_768)
      )
      .childChannelOption(.writeBufferWaterMark, value: .init(low: 2 << 20, high: 8 << 20))
      .childChannelInitializer {
        [serving = supervisor.serving, registry, gate, counters, backups, snapshots, logger, configuration, secrets]
        channel in
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
              snapshots: snapshots,
              isTLS: configuration.tls != nil,
              tlsFailures: configuration.tls?.failures,
              logger: logger
            )
          )
        }
      }
      .bind(host: configuration.host, port: configuration.port).get()
  }

  /// How often, and how many times at most, a stop checks whether work is still in progress: 1 s in total.
  private static let drainPollInterval = Duration.milliseconds(20)
  private static let drainPollsMax = 50

  /// Hand groups over, drain gateways, wait for work in progress, and close the storage.
  package func stop() async {
    await supervisor.handOverGroups()
    try? await listener.withLockedValue { $0 }?.close()
    await supervisor.stopReloads()
    for channel in registry.channels {
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(.drain)) { _ in }
      channel.writeAndFlush(buffer, promise: nil)
    }
    // Commit and answer what was received; gateways send nothing new.
    for _ in 0..<Self.drainPollsMax where !registry.channels.isEmpty {
      try? await Task.sleep(for: Self.drainPollInterval)
      let isBusy = await supervisor.anyLoopIsBusy()
      if !isBusy { break }
    }
    await supervisor.stopLoops()
    await clusterLinks?.close()
    await backups.stop()
    await snapshots.stop()
    try? await group.shutdownGracefully()
    await supervisor.stopThreads()
  }

  // MARK: For operators

  /// Why the store cannot serve now; nil if it can.
  package var notReadyReason: String? {
    guard supervisor.serving.current() != nil else {
      return "the shards are starting, or reloading after a failed commit"
    }
    if let level = supervisor.unsupportedLevel {
      return "the cluster has level \(level.rawValue), which this tidemark-store does not support: install a newer one"
    }
    guard let silence = clusterLinks?.logSilence, silence >= Self.logSilenceMax else { return nil }
    return "the shared log in etcd has not answered for \(silence.components.seconds) s"
  }

  /// Longer than an election of etcd's leader.
  private static let logSilenceMax = Duration.seconds(5)

  /// Values for `/metrics`.
  package struct Statistics: Sendable {
    package var loops = StoreLoop.Counters()
    package var now = StoreLoop.Gauges()
    package var connections = 0
    package var connectionsOpened: UInt64 = 0
    package var failedCommits: UInt64 = 0
    /// Nil except in a cluster.
    package var cluster: ClusterStatistics?

    package init() {}
  }

  package func statistics() async -> Statistics {
    var sum = Statistics()
    if configuration.cluster != nil { sum.cluster = ClusterStatistics() }
    for host in supervisor.hosts {
      let next = try? await host.eventLoop.submit { [sum] in
        var next = sum
        next.loops += host.loop.counters
        host.loop.addGauges(to: &next.now)
        if next.cluster != nil { host.groupHost?.add(to: &next.cluster!) }
        return next
      }.get()
      if let next { sum = next }
    }
    sum.connections = counters.current.now
    sum.connectionsOpened = counters.current.opened
    if sum.cluster != nil {
      if let ages = await clusterLinks?.followAges() { sum.cluster!.followAges = ages }
      sum.cluster!.ownedGroups = supervisor.serving.current()?.epochs?.count { $0 != nil } ?? 0
      let counts = supervisor.groupCounts
      sum.cluster!.groupsGained = counts.gained
      sum.cluster!.groupsLost = counts.lost
      sum.cluster!.snapshotsInstalled = counts.snapshotsInstalled
    }
    sum.failedCommits = supervisor.failedCommits
    return sum
  }
}
