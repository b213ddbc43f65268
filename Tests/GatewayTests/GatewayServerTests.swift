import Foundation
import HTTP2Session
import Logging
import NIOCore
import NIOPosix
import Operations
import ServiceLifecycle
import TLSSession
import TestSupport
import Testing

@testable import Gateway

/// The whole gateway, from its configuration to its end.
@Suite struct GatewayServerTests {
  private let silent = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }

  /// Connections to a port of this machine that have a keepalive timer running at the server's end (proc(5),
  /// `/proc/net/tcp`: 02 in the column of timers).
  private static func keptAlive(port: Int) throws -> Int {
    // Read to its end: Foundation takes a file whose size is said to be 0, as here, for read after a first piece of 4
    // KiB, which is full of other connections' ends.
    let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: "/proc/net/tcp"))
    let table = String(decoding: try file.readToEnd() ?? Data(), as: UTF8.self)
    let local = "0100007F:" + String(format: "%04X", port)
    return table.split(separator: "\n").count { line in
      let columns = line.split(separator: " ")
      return columns.count > 5 && columns[1] == local && columns[3] == "01" && columns[5].hasPrefix("02:")
    }
  }

  @Test func servesOnEveryLoopAndDrains() async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 3)
    let loops = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let store = try await FakeStore.start(on: group.next())
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
    try await eventually { readiness.isReady }

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
    // Once what they were sent is acknowledged.
    try await eventually { try Self.keptAlive(port: server.address.port) >= 4 }
    let samples = try await metrics.collect(on: group.next()).get()
    var text = ByteBuffer()
    samples.write(into: &text)
    let exposition = String(buffer: text)
    #expect(exposition.contains("tidemark_gateway_requests_total{route=\"mark_read\",status=\"2xx\"} 4\n"))
    #expect(exposition.contains("tidemark_gateway_connections 4\n"))
    #expect(exposition.contains("tidemark_gateway_store_connections_ready 2\n"))

    await services.triggerGracefulShutdown()
    for client in clients { try await client.isClosed.value("the end of the connection") }
    try await running.value
    #expect(!readiness.isReady)
    await #expect(throws: (any Error).self) {
      _ = try await TestClient.connect(port: server.address.port, on: group.next())
    }
    try? await store.close()
    try await loops.shutdownGracefully()
    try await group.shutdownGracefully()
  }

  /// A stream that keeps one loop from its end does not keep the other loop's connections open.
  @Test func allLoopsDrainAtOnce() async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let loops = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let store = try await FakeStore.start(on: group.next())
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
    try await eventually { readiness.isReady }
    // Connections go to the loops in turn: each has one that waits for the store and one that is idle.
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
    try await eventually {
      arrived += try await store.takeLog().count
      return arrived >= 2
    }
    await services.triggerGracefulShutdown()
    for client in clients.suffix(2) { try await client.isClosed.value("the end of the connection") }
    #expect(clients[0].isOpen && clients[1].isOpen)
    for client in clients { try await client.close() }
    try await running.value
    try? await store.close()
    try await loops.shutdownGracefully()
    try await group.shutdownGracefully()
  }

  @Test func isNotReadyWithoutItsStore() async throws {
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
    // What needs the number of shards is refused at once.
    let types = try await client.get("/v1/channel-types")
    #expect(types.verdict == "503 store_unavailable" && types.headers["retry-after"] == "1")
    await services.triggerGracefulShutdown()
    try await running.value
    try await client.close()
    try await loops.shutdownGracefully()
    try await group.shutdownGracefully()
  }

  @Test func namesWhatItCannotStartWith() async throws {
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
