internal import HTTP2Session
internal import NIOCore
internal import Operations

/// The servers of one etcd cluster. Calls go to the current one: the leader, as soon as it is known
/// (``LeaderPreference``). A failed call turns to the next server; one that cannot be reached is left out for a while.
final class EtcdServers {
  private struct Server {
    let endpoint: Endpoint
    var connection: EtcdConnection?
    /// Connections that ended without an answered call, one after the other.
    var failures = 0
    var retryAt = NIODeadline.uptimeNanoseconds(0)
  }

  /// Largest exponent of a delay, so that it does not overflow.
  private static let doublingsMax = 10

  private let configuration: EtcdConfiguration
  private let eventLoop: any EventLoop
  private let resources: HTTP2ClientResources
  private let report: (EtcdFailure, Endpoint) -> Void
  private var servers: [Server]
  private var current = 0
  private var preference: LeaderPreference
  private var leaderCheck: Scheduled<Void>?
  /// Size of the database at the server that was asked last.
  private var databaseBytes: UInt64?
  var counters = EtcdCounters()
  private var isClosed = false

  init(configuration: EtcdConfiguration, eventLoop: any EventLoop, report: @escaping (EtcdFailure, Endpoint) -> Void) {
    self.configuration = configuration
    self.eventLoop = eventLoop
    self.report = report
    var limits = HTTP2ClientLimits()
    limits.bodyBytesMax = configuration.responseBytesMax
    limits.retainedBufferBytesMax = 256 << 10
    resources = HTTP2ClientResources(limits: limits)
    servers = configuration.endpoints.map { Server(endpoint: $0) }
    preference = LeaderPreference(servers: servers.count, moveInterval: configuration.leaderMoveInterval)
    scheduleLeaderCheck()
  }

  /// Make a unary call at the current server. A response that does not parse is a failure like others.
  func call<Value>(
    _ call: EtcdCall,
    _ body: ByteBuffer,
    parse: @escaping (ByteBuffer) throws(EtcdWireError) -> Value,
    done: @escaping (Result<Value, EtcdFailure>) -> Void
  ) {
    guard let (index, _) = connection() else {
      counters.failed(.noServer)
      eventLoop.assumeIsolated().execute { done(.failure(.noServer)) }
      return
    }
    self.call(call, body, at: index, parse: parse, done: done)
  }

  /// Make a unary call at a server. Requires that it has a connection, or may be tried now.
  private func call<Value>(
    _ call: EtcdCall,
    _ body: ByteBuffer,
    at index: Int,
    parse: @escaping (ByteBuffer) throws(EtcdWireError) -> Value,
    done: @escaping (Result<Value, EtcdFailure>) -> Void
  ) {
    let connection = connection(to: index)
    let start = NIODeadline.now()
    connection.call(call.method, body) { [self] result in
      let result = result.flatMap { Self.parse($0, parse) }
      switch result {
      case .success:
        servers[index].failures = 0
        counters.answered(call, seconds: Double((NIODeadline.now() - start).nanoseconds) / 1e9)
      case .failure(let failure): failed(failure, index, connection)
      }
      done(result)
    }
  }

  /// Open a stream at the current server. A message that does not parse ends it.
  ///
  /// - Returns: a function that cancels the stream; nil if no server can be tried now.
  func open<Message>(
    _ method: EtcdMethod,
    _ body: ByteBuffer,
    parse: @escaping (ByteBuffer) throws(EtcdWireError) -> Message,
    receive: @escaping (EtcdStreamEvent<Message>) -> Void
  ) -> (() -> Void)? {
    guard let (index, connection) = connection() else { return nil }
    var tag: UInt64 = 0
    func ended(_ failure: EtcdFailure) {
      failed(failure, index, connection)
      receive(.ended(failure))
    }
    tag = connection.open(method, body) { event in
      switch event {
      case .ended(let failure): ended(failure)
      case .message(let bytes):
        switch Self.parse(bytes, parse) {
        case .success(let message): receive(.message(message))
        case .failure(let failure):
          connection.cancel(tag)
          ended(failure)
        }
      }
    }
    return { connection.cancel(tag) }
  }

  private static func parse<Value>(
    _ bytes: ByteBuffer,
    _ parse: (ByteBuffer) throws(EtcdWireError) -> Value
  ) -> Result<Value, EtcdFailure> {
    do throws(EtcdWireError) {
      return .success(try parse(bytes))
    } catch {
      return .failure(.malformed(error))
    }
  }

  /// Close all connections. Open calls fail.
  func close() {
    isClosed = true
    leaderCheck?.cancel()
    for index in servers.indices { servers[index].connection?.close(.connectionLost) }
  }

  /// Return the current server's connection, or the next server's that may be tried now.
  private func connection() -> (Int, EtcdConnection)? {
    guard !isClosed else { return nil }
    let now = eventLoop.now
    for offset in servers.indices {
      let index = (current + offset) % servers.count
      guard mayCall(index, at: now) else { continue }
      current = index
      return (index, connection(to: index))
    }
    return nil
  }

  private func mayCall(_ index: Int, at now: NIODeadline) -> Bool {
    servers[index].connection != nil || servers[index].retryAt <= now
  }

  private func connection(to index: Int) -> EtcdConnection {
    if let connection = servers[index].connection { return connection }
    let connection = EtcdConnection(
      endpoint: servers[index].endpoint,
      configuration: configuration,
      resources: resources,
      eventLoop: eventLoop
    ) { [weak self] in self?.closed(index, $0, $1) }
    servers[index].connection = connection
    return connection
  }

  private func failed(_ failure: EtcdFailure, _ index: Int, _ connection: EtcdConnection) {
    guard !isClosed else { return }
    // The end of a connection counts and is reported once, not for each of its calls.
    if failure != .connectionLost { counters.failed(failure) }
    guard failure.isOfServer else { return }
    if failure != .connectionLost { report(failure, servers[index].endpoint) }
    // Several calls that fail together turn once.
    if index == current, servers[index].connection === connection { current = (current + 1) % servers.count }
  }

  private func closed(_ index: Int, _ connection: EtcdConnection, _ failure: EtcdFailure) {
    guard servers[index].connection === connection else { return }
    servers[index].connection = nil
    counters.bytesReceived += connection.byteCounts.received
    counters.bytesSent += connection.byteCounts.sent
    guard !isClosed else { return }
    let doublings = min(servers[index].failures, Self.doublingsMax)
    let longest = min(configuration.backoffMax.nanoseconds, configuration.backoffMin.nanoseconds << doublings)
    servers[index].retryAt = eventLoop.now + .nanoseconds(Int64.random(in: longest / 2...longest))
    servers[index].failures += 1
    if index == current { current = (current + 1) % servers.count }
    // The call that timed out has been reported.
    guard failure != .timedOut else { return }
    counters.failed(failure)
    report(failure, servers[index].endpoint)
  }

  // MARK: Leader

  private func scheduleLeaderCheck() {
    let interval = configuration.leaderCheckInterval.nanoseconds
    let delay = TimeAmount.nanoseconds(Int64.random(in: interval / 2...interval))
    leaderCheck = eventLoop.assumeIsolated().scheduleTask(in: delay) { [weak self] in
      guard let self, !isClosed else { return }
      decide(preference.check(current: current))
      scheduleLeaderCheck()
    }
  }

  private func decide(_ decision: LeaderPreference.Decision) {
    switch decision {
    case .wait: break
    case .ask(let index):
      guard mayCall(index, at: eventLoop.now) else { return }
      call(.status, GRPCMessage.framed { _ in }, at: index) { bytes throws(EtcdWireError) in
        try EtcdStatusResponse(bytes.readableBytesUInt8Span)
      } done: { [weak self] result in
        guard let self, !isClosed, case .success(let status) = result else { return }
        databaseBytes = status.databaseBytes
        let isReady = servers[index].connection?.isReady == true
        decide(preference.answered(index, status, current: current, isReady: isReady, at: eventLoop.now))
      }
    case .move(let index):
      current = index
      counters.leaderMoves += 1
    }
  }

  // MARK: Metrics

  func collect(into samples: inout MetricSamples) {
    var counters = counters
    for server in servers {
      guard let counts = server.connection?.byteCounts else { continue }
      counters.bytesReceived += counts.received
      counters.bytesSent += counts.sent
    }
    counters.collect(into: &samples)
    for (index, server) in servers.enumerated() {
      samples.gauge(
        "tidemark_store_log_server",
        help: "In a cluster: event loops that send their calls to this server of etcd.",
        labels: ["server": "\(server.endpoint)"],
        index == current ? 1 : 0
      )
    }
    if let databaseBytes {
      samples.highest(
        "tidemark_store_log_database_bytes",
        help: "In a cluster: size of etcd's database, at the server asked last.",
        Double(databaseBytes)
      )
    }
  }
}
