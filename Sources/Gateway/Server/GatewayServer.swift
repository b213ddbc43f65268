internal import LinkSecurity
package import Logging
internal import NIOCore
package import NIOPosix
package import Operations
internal import ServiceLifecycle
internal import StoreClient
internal import Synchronization
internal import TLSSession

/// A running gateway: a listener, and a ``GatewayLoop`` on each event loop.
package final class GatewayServer: Service {
  private let listener: any Channel
  /// On each event loop, one.
  let loops: [NIOLoopBound<GatewayLoop>]
  let shared: SharedServices
  let tls: GatewayTLS
  private let refusalTicker: RepeatedTask
  private let readiness: Readiness
  private let currentTokenKeys: Mutex<TokenKeys>

  /// The keys in use.
  var tokenKeys: TokenKeys {
    get { currentTokenKeys.withLock { $0 } }
    set { currentTokenKeys.withLock { $0 = newValue } }
  }

  /// The address it listens at; port 0 is replaced by the port that the system chose.
  package let address: Endpoint

  private init(
    _ configuration: GatewayConfiguration,
    listener: any Channel,
    loops: [NIOLoopBound<GatewayLoop>],
    shared: SharedServices,
    tls: GatewayTLS,
    refusalTicker: RepeatedTask,
    readiness: Readiness
  ) {
    self.listener = listener
    self.loops = loops
    self.shared = shared
    self.tls = tls
    self.refusalTicker = refusalTicker
    self.readiness = readiness
    currentTokenKeys = Mutex(configuration.tokenKeys)
    address = Endpoint(host: configuration.listen.host, port: listener.localAddress?.port ?? configuration.listen.port)
  }

  /// Connect to the store and start to listen.
  ///
  /// - Parameter group: all of its loops are used; connections are spread over them in turn.
  /// - Throws: where a certificate, a key set or the listen address cannot be used.
  package static func start(
    _ configuration: GatewayConfiguration,
    group: MultiThreadedEventLoopGroup,
    readiness: Readiness,
    metrics: MetricsRegistry,
    logger: Logger
  ) async throws(SettingsError) -> GatewayServer {
    let tls = try GatewayTLS(configuration, logger: logger)
    let verifier = try await verifier(configuration.tokenKeys, logger)
    let eventLoops = group.makeIterator().map { $0 as any EventLoop }
    let refusals = RefusalLog(logger: logger)
    let gate = ConnectionGate(limits: configuration.connections, logger: logger, refusals: refusals)
    let shared = SharedServices(
      logger: logger,
      rates: RateLimiter(configuration.rates),
      gate: gate,
      refusals: refusals,
      console: configuration.console.map { ConsoleSessions($0, metrics: metrics) }
    )
    let refusalTicker = eventLoops[0].scheduleRepeatedTask(
      initialDelay: RefusalLog.interval,
      delay: RefusalLog.interval
    ) { _ in refusals.write() }
    let storeReadiness = StoreReadinessReporter(loopCount: eventLoops.count, readiness)
    let unlisted = "the list of revoked tokens is not loaded yet"
    readiness.set("tokens", unlisted)
    shared.revokedTokens.observeAvailability { readiness.set("tokens", $0 ? nil : unlisted) }
    var loops: [NIOLoopBound<GatewayLoop>] = []
    for (index, eventLoop) in eventLoops.enumerated() {
      var configuration = configuration
      // One loop is enough to finish incomplete settlements and to read the list of revoked tokens.
      if !loops.isEmpty {
        configuration.limits.settlementInterval = nil
        configuration.limits.tokenListInterval = nil
      }
      let loop = await startLoop(
        on: eventLoop,
        configuration,
        verifier: verifier,
        shared: shared,
        storeTLS: tls.store,
        reportStoreReadiness: { storeReadiness.changed(index, $0) }
      )
      metrics.register(on: eventLoop) { loop.value.collect(into: &$0) }
      loops.append(loop)
    }
    metrics.register(on: eventLoops[0]) { samples in
      gate.collect(into: &samples, prefix: "tidemark_gateway")
      tls.collect(into: &samples)
    }
    let listener = try await listen(configuration, group: group, loops: loops, tls: tls.listener, gate: gate)
    readiness.set("process", nil)
    return GatewayServer(
      configuration,
      listener: listener,
      loops: loops,
      shared: shared,
      tls: tls,
      refusalTicker: refusalTicker,
      readiness: readiness
    )
  }

  static func verifier(_ keys: TokenKeys, _ logger: Logger) async throws(SettingsError) -> TokenVerifier {
    let verifier: TokenVerifier
    do {
      verifier = try await TokenVerifier(keys)
    } catch {
      throw SettingsError("jwks-file", "is not a usable JSON Web Key Set (\(error))")
    }
    for key in verifier.skippedKeys {
      logger.notice(
        "Skipping a key of the key set",
        metadata: [
          "kid": "\(key.kid ?? "")", "kty": "\(key.kty ?? "")", "alg": "\(key.alg ?? "")", "use": "\(key.use ?? "")",
          "reason": "\(key.reason)",
        ]
      )
    }
    return verifier
  }

  private static func startLoop(
    on eventLoop: any EventLoop,
    _ configuration: GatewayConfiguration,
    verifier: TokenVerifier,
    shared: SharedServices,
    storeTLS: LinkTLS?,
    reportStoreReadiness: @escaping @Sendable (StoreReadiness) -> Void
  ) async -> NIOLoopBound<GatewayLoop> {
    var store = StoreClientConfiguration(
      addresses: configuration.stores.map { StoreClientConfiguration.Address(host: $0.host, port: $0.port) },
      secrets: configuration.storeSecrets,
      logger: shared.logger
    )
    store.transport = storeTLS.map { .tls($0) }
    if configuration.stores.count > 1 { store.backoffMax = StoreClientLimits.clusterBackoffMax }
    let started = eventLoop.submit { [store] in
      let loop = GatewayLoop(
        eventLoop: eventLoop,
        configuration: configuration,
        store: store,
        verifier: verifier,
        shared: shared,
        reportStoreReadiness: reportStoreReadiness
      )
      loop.start()
      return NIOLoopBound(loop, eventLoop: eventLoop)
    }
    guard let loop = try? await started.get() else {
      preconditionFailure("an event loop has shut down before its gateway loop started")
    }
    return loop
  }

  private static func listen(
    _ configuration: GatewayConfiguration,
    group: MultiThreadedEventLoopGroup,
    loops: [NIOLoopBound<GatewayLoop>],
    tls: TLSContext?,
    gate: ConnectionGate
  ) async throws(SettingsError) -> any Channel {
    let byEventLoop = Dictionary(uniqueKeysWithValues: loops.map { (ObjectIdentifier($0.eventLoop), $0) })
    do {
      return try await ServerBootstrap(group: group)
        .serverChannelOption(.backlog, value: 1_024)
        .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
        .serverChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture { try ConnectionGateHandler.prepare(channel, gate) }
        }
        .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
        .childKeepAlive()
        // Kept by each connection: a busy one grows within a few reads, an idle one takes 2 KiB.
        .childChannelOption(
          .recvAllocator,
          value: AdaptiveRecvByteBufferAllocator(minimum: 2_048, initial: 2_048, maximum: 65_536)
        )
        .childChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            // Every loop of the group has a `GatewayLoop`.
            try GatewayPipeline.assemble(
              channel,
              byEventLoop[ObjectIdentifier(channel.eventLoop)]!.value,
              tls: tls,
              takesProxyHeaders: configuration.takesProxyHeaders
            )
          }
        }
        .bind(host: configuration.listen.host, port: configuration.listen.port).get()
    } catch {
      throw SettingsError(
        "listen",
        "\(configuration.listen): cannot listen there (\(ErrorText.of(error))); is another process using it?"
      )
    }
  }

  /// Serve until graceful shutdown, then shut down in order: not ready, listener closed, GOAWAY, streams drained,
  /// store connections closed.
  package func run() async throws {
    await withTaskCancellationOrGracefulShutdownHandler {
      try? await listener.closeFuture.get()
    } onCancelOrGracefulShutdown: {
      self.readiness.set("process", "draining")
      self.listener.close(promise: nil)
    }
    shared.logger.info("Draining")
    // All loops at once, so that slow streams of one loop do not delay another's GOAWAY.
    let drains = loops.map { loop in loop.eventLoop.flatSubmit { loop.value.drain() } }
    for drained in drains { try? await drained.get() }
    let closings = loops.map { loop in loop.eventLoop.flatSubmit { loop.value.close() } }
    for closed in closings { try? await closed.get() }
    refusalTicker.cancel()
    shared.refusals?.write()
  }
}

/// Reporter of the process's readiness, as ``GatewayReadiness`` concludes it.
private final class StoreReadinessReporter: Sendable {
  private let gateway: Mutex<GatewayReadiness>
  private let readiness: Readiness

  init(loopCount: Int, _ readiness: Readiness) {
    self.gateway = Mutex(GatewayReadiness(loopCount: loopCount))
    self.readiness = readiness
    readiness.set("store", "no connection")
  }

  func changed(_ loop: Int, _ store: StoreReadiness) {
    gateway.withLock { gateway in
      gateway.changed(loop, store)
      if let start = gateway.unreadyAt {
        readiness.set("store", gateway.reason, from: start)
      } else {
        readiness.set("store", nil)
      }
    }
  }
}

extension NIOLoopBound<GatewayLoop> {
  /// Call the gateway loop on its event loop.
  func submit<Result: Sendable>(_ body: @escaping @Sendable (GatewayLoop) throws -> Result) -> EventLoopFuture<Result> {
    eventLoop.submit { try body(value) }
  }
}

/// A reloaded configuration for every event loop, fully validated beforehand.
struct GatewayUpdate: Sendable {
  /// Changed token keys or policy.
  struct Tokens: Sendable {
    var verifier: TokenVerifier
    /// Recently used tokens with their callers, verified with the new keys.
    var verified: [(token: [UInt8], caller: Caller)]
  }

  var configuration: GatewayConfiguration
  /// Nil: keys and policy have not changed.
  var tokens: Tokens?
}

extension GatewayServer {
  /// Time limit for verifying cached tokens with the new keys before the switch; the others are verified on next use.
  private static let verificationMax = Duration.seconds(2)

  /// Apply a reloaded configuration to new connections and requests. No connection is closed.
  ///
  /// Only the settings in ``GatewayConfiguration/reloadedKeys`` are applied.
  ///
  /// - Throws: the setting that cannot be used; then nothing is applied.
  package func reload(_ configuration: GatewayConfiguration) async throws(SettingsError) {
    let certificates = try tls.load(configuration)
    var update = GatewayUpdate(configuration: configuration)
    // The running number of loops, whatever the new settings say.
    update.configuration.divideMemory(among: loops.count)
    let keys = configuration.tokenKeys
    if keys != tokenKeys {
      let verifier = try await Self.verifier(keys, shared.logger)
      update.tokens = GatewayUpdate.Tokens(verifier: verifier, verified: await verified(by: verifier))
    }
    // Nothing below can fail.
    tls.apply(certificates)
    shared.gate?.limits = configuration.connections
    shared.rates.update(configuration.rates)
    for loop in loops { try? await loop.submit { [update] in $0.apply(update) }.get() }
    tokenKeys = keys
  }

  /// Return the settings that have changed in a way that needs a restart.
  package func settingsNeedingRestart(_ configuration: GatewayConfiguration) -> [String] {
    (tls.store == nil) == (configuration.storeTLS == nil) ? [] : ["tls-ca"]
  }

  /// Verify the loops' cached tokens, as far as time allows, so that not all callers wait for verification at once.
  private func verified(by verifier: TokenVerifier) async -> [(token: [UInt8], caller: Caller)] {
    var tokens: Set<[UInt8]> = []
    for loop in loops { tokens.formUnion((try? await loop.submit { $0.authentication.cachedTokens }.get()) ?? []) }
    let deadline = ContinuousClock.now + Self.verificationMax
    var verified: [(token: [UInt8], caller: Caller)] = []
    for token in tokens {
      guard ContinuousClock.now < deadline else { break }
      if case .success(let caller) = await verifier.verify(token) { verified.append((token, caller)) }
    }
    return verified
  }
}
