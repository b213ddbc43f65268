internal import LinkSecurity
package import Logging
internal import NIOCore
package import NIOPosix
package import Operations
internal import ServiceLifecycle
internal import StoreClient
internal import Synchronization
internal import TLSSession

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// A running gateway: a listener, and a ``GatewayLoop`` on each event loop.
package final class GatewayServer: Service {
  private let listener: any Channel
  let loops: [NIOLoopBound<GatewayLoop>]
  let eventLoops: [any EventLoop]
  private let refusals: (log: RefusalLog, ticker: RepeatedTask)
  private let readiness: Readiness
  let logger: Logger
  let gate: ConnectionGate
  let rates: RateLimiter
  /// TLS of the listener; nil: h2c.
  let tls: TLSContext?
  /// TLS of the connections to the store; nil: plaintext.
  let storeTLS: LinkTLS?
  private let currentTokenKeys: Mutex<TokenKeys>

  /// The keys in use.
  var tokenKeys: TokenKeys {
    get { currentTokenKeys.withLock { $0 } }
    set { currentTokenKeys.withLock { $0 = newValue } }
  }

  /// The address it listens at; port 0 is replaced by the port that the system chose.
  package let address: Endpoint

  private init(
    listener: any Channel,
    address: Endpoint,
    loops: [NIOLoopBound<GatewayLoop>],
    eventLoops: [any EventLoop],
    refusals: (log: RefusalLog, ticker: RepeatedTask),
    gate: ConnectionGate,
    rates: RateLimiter,
    tls: TLSContext?,
    storeTLS: LinkTLS?,
    tokenKeys: TokenKeys,
    readiness: Readiness,
    logger: Logger
  ) {
    self.refusals = refusals
    self.listener = listener
    self.address = address
    self.loops = loops
    self.eventLoops = eventLoops
    self.gate = gate
    self.rates = rates
    self.tls = tls
    self.storeTLS = storeTLS
    currentTokenKeys = Mutex(tokenKeys)
    self.readiness = readiness
    self.logger = logger
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
    let tls = try configuration.tls.map { tls throws(SettingsError) in try context(tls) }
    let storeTLS = try configuration.storeTLS.map { files throws(SettingsError) in
      try LinkTLS(files, end: .gateway, logger: logger)
    }
    if storeTLS == nil {
      logger.log(
        level: configuration.stores.allSatisfy(\.isLoopback) ? .notice : .warning,
        """
        no --tls-ca: traffic to the store is not encrypted; \
        anyone on the network path can read and change it
        """,
        metadata: ["store": "\(configuration.stores.map(\.description).joined(separator: ", "))"]
      )
    }
    let verifier = try await verifier(configuration.tokenKeys, logger)
    let eventLoops = group.makeIterator().map { $0 as any EventLoop }
    let refusals = RefusalLog(logger: logger)
    let gate = ConnectionGate(limits: configuration.connections, logger: logger, refusals: refusals)
    let rates = RateLimiter(configuration.rates)
    let refusalTicker = eventLoops[0].scheduleRepeatedTask(
      initialDelay: RefusalLog.interval,
      delay: RefusalLog.interval
    ) { _ in refusals.write() }
    let storeReadiness = StoreReadinessReporter(loopCount: eventLoops.count, readiness)
    let revokedTokens = RevokedTokens()
    let unlisted = "the list of revoked tokens is not loaded yet"
    readiness.set("tokens", unlisted)
    revokedTokens.observeAvailability { readiness.set("tokens", $0 ? nil : unlisted) }
    var loops: [NIOLoopBound<GatewayLoop>] = []
    for (index, eventLoop) in eventLoops.enumerated() {
      var configuration = configuration
      // One loop is enough to finish incomplete replications and to read the list of revoked tokens.
      if !loops.isEmpty {
        configuration.limits.replicationInterval = nil
        configuration.limits.tokenListInterval = nil
      }
      loops.append(
        await makeLoop(
          on: eventLoop,
          configuration,
          verifier: verifier,
          revokedTokens: revokedTokens,
          storeTLS: storeTLS,
          storeConnectivityChanged: { storeReadiness.changed(index, $0) },
          gate: gate,
          rates: rates,
          refusals: refusals,
          metrics: metrics,
          logger: logger
        )
      )
    }
    metrics.register(on: eventLoops[0]) { samples in
      gate.collect(into: &samples, prefix: "tidemark_gateway")
      storeTLS?.collect(into: &samples, prefix: "tidemark_gateway_store_tls")
      if let end = tls?.certificateEnd {
        samples.gauge(
          "tidemark_gateway_tls_certificate_expires_timestamp_seconds",
          help: "Expiry of the server certificate, in seconds since 1970.",
          Double(end)
        )
      }
    }
    let listener = try await listen(
      configuration,
      group: group,
      eventLoops: eventLoops,
      loops: loops,
      tls: tls,
      gate: gate
    )
    readiness.set("process", nil)
    let address = Endpoint(
      host: configuration.listen.host,
      port: listener.localAddress?.port ?? configuration.listen.port
    )
    return GatewayServer(
      listener: listener,
      address: address,
      loops: loops,
      eventLoops: eventLoops,
      refusals: (refusals, refusalTicker),
      gate: gate,
      rates: rates,
      tls: tls,
      storeTLS: storeTLS,
      tokenKeys: configuration.tokenKeys,
      readiness: readiness,
      logger: logger
    )
  }

  private static func context(_ configuration: TLSServerConfiguration) throws(SettingsError) -> TLSContext {
    do {
      return try TLSContext(server: configuration)
    } catch {
      throw listenerError(error)
    }
  }

  static func listenerError(_ error: TLSError) -> SettingsError {
    SettingsError("tls-cert", "and --tls-key cannot be used: \(error)")
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
          "kid": "\(key.kid ?? "")", "kty": "\(key.kty ?? "")", "alg": "\(key.alg ?? "")",
          "use": "\(key.use ?? "")",
          "reason": "\(key.reason)",
        ]
      )
    }
    return verifier
  }

  private static func makeLoop(
    on eventLoop: any EventLoop,
    _ configuration: GatewayConfiguration,
    verifier: TokenVerifier,
    revokedTokens: RevokedTokens,
    storeTLS: LinkTLS?,
    storeConnectivityChanged: @escaping @Sendable (StoreConnectivity) -> Void,
    gate: ConnectionGate,
    rates: RateLimiter,
    refusals: RefusalLog,
    metrics: MetricsRegistry,
    logger: Logger
  ) async -> NIOLoopBound<GatewayLoop> {
    var store = StoreClientConfiguration(
      addresses: configuration.stores.map { StoreClientConfiguration.Address(host: $0.host, port: $0.port) },
      secrets: configuration.storeSecrets,
      logger: logger
    )
    store.transport = storeTLS.map { .tls($0) }
    // In a cluster, requests wait until the gateway has found the new owner.
    if configuration.stores.count > 1 { store.backoffMax = .milliseconds(150) }
    let made = eventLoop.submit { [store] in
      let loop = GatewayLoop(
        eventLoop: eventLoop,
        store: store,
        verifier: verifier,
        revokedTokens: revokedTokens,
        limits: configuration.limits,
        http2: configuration.http2,
        origins: configuration.origins,
        tickets: configuration.ticketKeys,
        hooks: configuration.hooks,
        gate: gate,
        rates: rates,
        refusals: refusals,
        logger: logger,
        storeConnectivityChanged: storeConnectivityChanged
      )
      loop.start()
      return NIOLoopBound(loop, eventLoop: eventLoop)
    }
    guard let loop = try? await made.get() else {
      preconditionFailure("an event loop has shut down before its gateway loop started")
    }
    metrics.register(on: eventLoop) { loop.value.collect(into: &$0) }
    return loop
  }

  private static func listen(
    _ configuration: GatewayConfiguration,
    group: MultiThreadedEventLoopGroup,
    eventLoops: [any EventLoop],
    loops: [NIOLoopBound<GatewayLoop>],
    tls: TLSContext?,
    gate: ConnectionGate
  ) async throws(SettingsError) -> any Channel {
    let byEventLoop = Dictionary(
      uniqueKeysWithValues: zip(eventLoops, loops).map { (ObjectIdentifier($0), $1) }
    )
    do {
      return try await ServerBootstrap(group: group)
        .serverChannelOption(.backlog, value: 1_024)
        .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
        .serverChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture { try ConnectionGateHandler.prepare(channel, gate) }
        }
        .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
        // Detects a dead peer within two minutes, also where its streams are idle.
        .childChannelOption(.socketOption(.so_keepalive), value: 1)
        .childChannelOption(.tcpOption(.init(rawValue: TCP_KEEPIDLE)), value: 60)
        .childChannelOption(.tcpOption(.init(rawValue: TCP_KEEPINTVL)), value: 15)
        .childChannelOption(.tcpOption(.init(rawValue: TCP_KEEPCNT)), value: 4)
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
    logger.info("Draining")
    // All loops at once, so that slow streams of one loop do not delay another's GOAWAY.
    let drains = zip(loops, eventLoops).map { loop, eventLoop in
      eventLoop.flatSubmit { loop.value.drain() }
    }
    for drained in drains { try? await drained.get() }
    let closings = zip(loops, eventLoops).map { loop, eventLoop in
      eventLoop.flatSubmit { loop.value.close() }
    }
    for closed in closings { try? await closed.get() }
    refusals.ticker.cancel()
    refusals.log.write()
  }
}

/// Reporter of the process's readiness, as ``StoreReachability`` concludes it.
private final class StoreReadinessReporter: Sendable {
  private let reachability: Mutex<StoreReachability>
  private let readiness: Readiness

  init(loopCount: Int, _ readiness: Readiness) {
    self.reachability = Mutex(StoreReachability(loopCount: loopCount))
    self.readiness = readiness
    readiness.set("store", "no connection")
  }

  func changed(_ loop: Int, _ reach: StoreConnectivity) {
    reachability.withLock { reachability in
      reachability.changed(loop, reach)
      if let start = reachability.unreadyAt {
        readiness.set("store", "no connection", from: start)
      } else {
        readiness.set("store", nil)
      }
    }
  }
}
