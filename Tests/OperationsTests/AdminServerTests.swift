import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle
import TestSupport
import Testing

@testable import Operations

@Suite struct AdminServerTests {
  private func withServer(_ body: (AdminServer, Readiness, MultiThreadedEventLoopGroup) async throws -> Void)
    async throws
  {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let readiness = Readiness()
    let server = try await AdminServer.start(
      at: Endpoint(host: "127.0.0.1", port: 0),
      group: group,
      readiness: readiness,
      metrics: MetricsRegistry(),
      logger: Logger(label: "test")
    )
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      let services: [any Service] = [server]
      tasks.addTask { try await services[0].run() }
      try await body(server, readiness, group)
      tasks.cancelAll()
    }
    try await group.shutdownGracefully()
  }

  /// Send one request over a new connection, and return the whole response.
  private func exchange(_ request: String, with server: AdminServer, on group: MultiThreadedEventLoopGroup)
    async throws -> String
  {
    let channel = try await ClientBootstrap(group: group)
      .connect(host: "127.0.0.1", port: server.address.port) { channel in
        channel.eventLoop.makeCompletedFuture {
          try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
        }
      }
    return try await within("the whole response") {
      try await channel.executeThenClose { inbound, outbound in
        try await outbound.write(ByteBuffer(string: request))
        var response = ""
        for try await part in inbound { response += String(buffer: part) }
        return response
      }
    }
  }

  /// A reason may take effect at a later time, and is removed by its source.
  @Test func reasonsTakeEffectAtTheirStart() {
    let readiness = Readiness()
    readiness.set("process", nil)
    let start = NIODeadline.now() + .hours(1)
    readiness.set("store", "no connection", from: start)
    #expect(readiness.isReady)
    #expect(readiness.notReadyReasons(at: start - .nanoseconds(1)).isEmpty)
    #expect(readiness.notReadyReasons(at: start) == ["store: no connection"])
    readiness.set("store", nil)
    #expect(readiness.notReadyReasons(at: start).isEmpty)
  }

  @Test func serverAnswersThreeRoutes() async throws {
    try await withServer { server, readiness, group in
      func get(_ path: String, method: String = "GET") async throws -> String {
        try await exchange(
          "\(method) \(path) HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
          with: server,
          on: group
        )
      }
      #expect(try await get("/health").hasPrefix("HTTP/1.1 200 OK\r\n"))
      let notReady = try await get("/ready")
      #expect(notReady.hasPrefix("HTTP/1.1 503 Service Unavailable\r\n"))
      #expect(notReady.contains("process: starting"))
      readiness.set("process", nil)
      #expect(try await get("/ready?x=1").hasPrefix("HTTP/1.1 200 OK\r\n"))
      readiness.set("store", "no connection")
      #expect(try await get("/ready").contains("store: no connection"))
      let metrics = try await get("/metrics")
      #expect(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"))
      #expect(metrics.contains("process_start_time_seconds "))
      #expect(try await get("/other").hasPrefix("HTTP/1.1 404 Not Found\r\n"))
      let post = try await get("/health", method: "POST")
      #expect(post.hasPrefix("HTTP/1.1 405 Method Not Allowed\r\n") && post.contains("allow: GET, HEAD\r\n"))
      let head = try await get("/health", method: "HEAD")
      #expect(head.hasPrefix("HTTP/1.1 200 OK\r\n") && head.hasSuffix("\r\n\r\n"))
      #expect(try await exchange("garbage\r\n\r\n", with: server, on: group).hasPrefix("HTTP/1.1 400 Bad Request\r\n"))
      #expect(try await get("/health").hasPrefix("HTTP/1.1 200 OK\r\n"))
    }
  }

  @Test func healthCheckQueriesTheServer() async throws {
    try await withServer { server, readiness, _ in
      let base = "http://127.0.0.1:\(server.address.port)"
      #expect(await HealthCheck.run("\(base)/health").exitCode == 0)
      let notReady = await HealthCheck.run("\(base)/ready")
      #expect(notReady.exitCode == 1 && notReady.line == "\(base)/ready: 503")
      readiness.set("process", nil)
      #expect(await HealthCheck.run("\(base)/ready").exitCode == 0)
      let whole = await HealthCheck.get("\(base)/ready")
      #expect(whole?.status == 200 && whole?.body == "{\"status\":\"ready\"}\n")
    }
    #expect(await HealthCheck.run("http://127.0.0.1:1/ready").exitCode == 1)
    #expect(await HealthCheck.run("https://127.0.0.1:1/ready").exitCode == 1)
    #expect(await HealthCheck.run("nonsense").exitCode == 1)
    #expect(await HealthCheck.get("http://127.0.0.1:1/ready") == nil)
  }

  @Test(arguments: [
    ("http://a:1/b?c", "a", 1, "/b?c"), ("http://a", "a", 80, "/"), ("http://[::1]:7/", "::1", 7, "/"),
    ("HTTP://a:2#f", "a", 2, "/"), ("http://a:2?q", "a", 2, "/?q"),
  ]) func urlIsParsed(_ url: String, _ host: String, _ port: Int, _ path: String) throws {
    let target = try #require(HTTPURL(url))
    #expect(target.endpoint == Endpoint(host: host, port: port))
    #expect(target.path == path)
  }

  @Test func portInUseIsNamed() async throws {
    try await withServer { server, _, group in
      let error = await #expect(throws: SettingsError.self) {
        _ = try await AdminServer.start(
          at: server.address,
          group: group,
          readiness: Readiness(),
          metrics: MetricsRegistry(),
          logger: Logger(label: "test")
        )
      }
      #expect(error?.description.hasPrefix("--admin \(server.address): cannot listen there") == true)
    }
  }
}
