import Foundation
import HTTP2Session
import Logging
import NIOCore
import ReceiptModel
import NIOPosix
import Operations
import ServiceLifecycle
import StoreTestSupport
import TLSSession
import TestSupport
import Testing

@testable import Gateway

/// The whole gateway, from its configuration to its shutdown.
@Suite struct GatewayServerTests {
  private let silent = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }

  /// The number of connections to a local port whose server side has a keepalive timer (proc(5), `/proc/net/tcp`: 02 in
  /// the timer column).
  private static func keptAlive(port: Int) throws -> Int {
    // `readToEnd`, because the file's size is reported as 0: Foundation's other functions stop after the first 4 KiB.
    let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: "/proc/net/tcp"))
    let table = String(decoding: try file.readToEnd() ?? Data(), as: UTF8.self)
    let local = "0100007F:" + String(format: "%04X", port)
    return table.split(separator: "\n").count { line in
      let columns = line.split(separator: " ")
      return columns.count > 5 && columns[1] == local && columns[3] == "01" && columns[5].hasPrefix("02:")
    }
  }

  @Test func serverUsesEveryLoopAndDrains() async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 3)
    let loops = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let store = try await StoreInMemory.start(on: group.next())
    let readiness = Readiness()
    let metrics = MetricsRegistry()
    var configuration = GatewayConfiguration(
      listen: Endpoint(host: "127.0.0.1", port: 0),
      stores: [Endpoint(host: "127.0.0.1", port: store.port)],
      tokenKeys: TokenKeys(secrets: [Array(TestTokens.secret.utf8)])
    )
    configuration.limits.shutdownGrace = .milliseconds(50)
    let server = try await GatewayServer.start(
      configuration,
      group: loops,
      readiness: readiness,
      metrics: metrics,
      logger: silent
    )
    let services = ServiceGroup(services: [server], logger: silent)
    let running = Task { try await services.run() }
    try await eventually("the server is ready") { readiness.isReady }

    var clients: [TestClient] = []
    for _ in 0..<4 {
      clients.append(try await TestClient.connect(port: server.address.port, on: group.next()))
    }
    for client in clients {
      #expect(try await client.put("/v1/channels/a:b", #"{"members":["alice"]}"#).status < 300)
      #expect(
        try await client.post("/v1/channels/a:b/read", nil, token: TestTokens.user("alice")).status == 200
      )
    }
    // The timers run once all sent data is acknowledged.
    try await eventually("the kernel has keep-alive timers for four connections") {
      try Self.keptAlive(port: server.address.port) >= 4
    }
    let samples = try await metrics.collect(on: group.next()).get()
    var text = ByteBuffer()
    samples.write(into: &text)
    let exposition = String(buffer: text)
    #expect(exposition.contains("tidemark_gateway_requests_total{route=\"mark_read\",status=\"2xx\"} 4\n"))
    #expect(exposition.contains("tidemark_gateway_connections 4\n"))
    #expect(exposition.contains("tidemark_gateway_store_connections_ready 2\n"))

    await services.triggerGracefulShutdown()
    for client in clients { try await client.isClosed.value("the end of the connection") }
    try await within("the server's end") { try await running.value }
    #expect(!readiness.isReady)
    await #expect(throws: (any Error).self) {
      _ = try await TestClient.connect(port: server.address.port, on: group.next())
    }
    try? await store.close()
    try await loops.shutdownGracefully()
    try await group.shutdownGracefully()
  }

  /// A stream that delays the shutdown of one loop does not keep connections of other loops open.
  @Test func loopsDrainConcurrently() async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let loops = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let store = try await StoreInMemory.start(on: group.next())
    let readiness = Readiness()
    var configuration = GatewayConfiguration(
      listen: Endpoint(host: "127.0.0.1", port: 0),
      stores: [Endpoint(host: "127.0.0.1", port: store.port)],
      tokenKeys: TokenKeys(secrets: [Array(TestTokens.secret.utf8)])
    )
    configuration.limits.shutdownGrace = .milliseconds(50)
    let server = try await GatewayServer.start(
      configuration,
      group: loops,
      readiness: readiness,
      metrics: MetricsRegistry(),
      logger: silent
    )
    let services = ServiceGroup(services: [server], logger: silent)
    let running = Task { try await services.run() }
    try await eventually("the server is ready") { readiness.isReady }
    // Connections are assigned to loops in turn. Each loop gets one that waits for the store and an idle one.
    var clients: [TestClient] = []
    for _ in 0..<4 {
      let client = try await TestClient.connect(port: server.address.port, on: group.next())
      #expect(try await client.get("/v1/channels/a:b").status == 404)
      clients.append(client)
    }
    _ = try await store.takeLog()
    try await store.set(.silent)
    for client in clients.prefix(2) {
      _ = try await client.submit(.get, "/v1/channels/a:b", nil, token: TestTokens.server)
    }
    var arrived = 0
    try await eventually("the store has two queries") {
      arrived += try await store.takeLog().count
      return arrived >= 2
    }
    await services.triggerGracefulShutdown()
    for client in clients.suffix(2) { try await client.isClosed.value("the end of the connection") }
    #expect(clients[0].isOpen && clients[1].isOpen)
    for client in clients { try await client.close() }
    try await within("the server's end") { try await running.value }
    try? await store.close()
    try await loops.shutdownGracefully()
    try await group.shutdownGracefully()
  }

  @Test func gatewayWithoutStoreIsNotReady() async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let loops = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let readiness = Readiness()
    let configuration = GatewayConfiguration(
      listen: Endpoint(host: "127.0.0.1", port: 0),
      stores: [Endpoint(host: "127.0.0.1", port: 1)],
      tokenKeys: TokenKeys(secrets: [Array(TestTokens.secret.utf8)])
    )
    let server = try await GatewayServer.start(
      configuration,
      group: loops,
      readiness: readiness,
      metrics: MetricsRegistry(),
      logger: silent
    )
    let reasons = ["store: no connection", "tokens: the list of revoked tokens is not loaded yet"]
    #expect(readiness.notReadyReasons == reasons)
    let services = ServiceGroup(services: [server], logger: silent)
    let running = Task { try await services.run() }
    let client = try await TestClient.connect(port: server.address.port, on: group.next())
    // Requests that need the number of shards are refused immediately.
    let types = try await client.get("/v1/channel-types")
    #expect(types.verdict == "503 store_unavailable" && types.headers["retry-after"] == "1")
    await services.triggerGracefulShutdown()
    try await within("the server's end") { try await running.value }
    try await client.close()
    try await loops.shutdownGracefully()
    try await group.shutdownGracefully()
  }

  @Test func startFailureNamesItsSetting() async throws {
    let loops = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let endpoint = Endpoint(host: "127.0.0.1", port: 0)
    let keys = TokenKeys(secrets: [Array(TestTokens.secret.utf8)])
    var badKeys = GatewayConfiguration(listen: endpoint, stores: [endpoint], tokenKeys: keys)
    badKeys.tokenKeys.keySet = "{}"
    var badTLS = GatewayConfiguration(listen: endpoint, stores: [endpoint], tokenKeys: keys)
    badTLS.tls = .init(certificateChainFile: "/none/cert.pem", privateKeyFile: "/none/key.pem")
    let badAddress = GatewayConfiguration(
      listen: Endpoint(host: "203.0.113.1", port: 1),
      stores: [endpoint],
      tokenKeys: keys
    )
    for (configuration, key) in [
      (badKeys, "--jwks-file"), (badTLS, "--tls-cert"), (badAddress, "--listen 203.0.113.1:1"),
    ] {
      let error = await #expect(throws: SettingsError.self) {
        _ = try await GatewayServer.start(
          configuration,
          group: loops,
          readiness: Readiness(),
          metrics: MetricsRegistry(),
          logger: silent
        )
      }
      #expect(error?.description.hasPrefix(key) == true, "\(error?.description ?? "")")
    }
    try await loops.shutdownGracefully()
  }
}

struct GatewayReadinessTests {
  private func time(_ seconds: Int64) -> NIODeadline {
    .uptimeNanoseconds(100_000_000_000) + .seconds(seconds)
  }

  /// Each row says whether the store is ready for a loop, and the time from which the gateway is not ready; nil: it
  /// stays ready.
  @Test func gatewayStaysReadyForFiveSecondsAfterStoreLoss() {
    var readiness = GatewayReadiness(loopCount: 2)
    #expect(readiness.unreadyAt == .distantPast)
    let rows: [(loop: Int, store: StoreReadiness, unreadyAt: NIODeadline?)] = [
      // The gateway is not ready before every loop has connected once.
      (0, .connected, .distantPast),
      (1, .connected, nil),
      // The loop that has been cut off for longest determines the time.
      (1, .cutOff(since: time(1)), time(6)),
      (0, .cutOff(since: time(2)), time(6)),
      (1, .connected, time(7)),
      (1, .cutOff(since: time(3)), time(7)),
      (0, .connected, time(8)),
      (1, .connected, nil),
      // A silent store counts as lost since its last message, which may be five seconds ago already.
      (0, .cutOff(since: time(4)), time(9)),
      (0, .connected, nil),
    ]
    for row in rows {
      readiness.changed(row.loop, row.store)
      #expect(readiness.unreadyAt == row.unreadyAt, "\(row)")
    }
  }

  /// Each row says whether the store is ready for two loops, and what `/ready` says.
  @Test func reasonNamesTheShardsWithoutOwner() {
    func shards(_ numbers: UInt16...) -> [ShardID] { numbers.map { ShardID($0) } }
    let rows: [([StoreReadiness], String)] = [
      ([.starting(), .starting()], "no connection"),
      ([.starting(lacking: shards(3)), .connected], "no connection to an owner of shard 3"),
      ([.cutOff(since: time(1)), .connected], "no connection"),
      (
        [.cutOff(since: time(1), lacking: shards(7, 2, 3)), .cutOff(since: time(2), lacking: shards(3, 4, 9))],
        "no connection to an owner of shards 2-4, 7, 9"
      ),
    ]
    for (loops, reason) in rows {
      var readiness = GatewayReadiness(loopCount: 2)
      for (loop, store) in loops.enumerated() { readiness.changed(loop, store) }
      #expect(readiness.reason == reason)
    }
  }
}
