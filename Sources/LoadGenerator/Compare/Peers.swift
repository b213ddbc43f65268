internal import Foundation
internal import GatewayClient
internal import Glibc
internal import HTTP2Session
internal import LocalStack
internal import NIOCore
internal import NIOPosix
internal import Operations

/// Foreign servers of a bench, from Debian's packages, on free loopback ports. Owns their processes until ``stop()``.
actor Peers {
  /// Endpoint of a row, and the processes that answer.
  struct Service: Sendable {
    var endpoint: Endpoint
    var processes: [(name: String, processID: Int32)]
  }

  /// File that nghttpd and nginx serve.
  static let path = "/12.txt"
  private static let content = "hello world\n"

  private let directory: String
  private var children: [ChildProcess] = []
  private var redis: (endpoint: Endpoint, process: ChildProcess)?

  /// - Parameter directory: existing directory for configuration, data and logs.
  init(directory: String) { self.directory = directory }

  /// Start the servers of a row; nil for a row of our own.
  func start(_ row: BenchRow) async throws -> Service? {
    switch row {
    case .nghttpd: try await startNghttpd()
    case .nginx: try await startNginx()
    case .webdis: try await startWebdis()
    case .redis: try await startRedis()
    case .readQuery, .readBody, .register, .readState16, .readState100, .status, .storeFrames: nil
    }
  }

  /// Stop all servers, front to back.
  func stop() async {
    for child in children.reversed() { await child.stop() }
    children = []
    redis = nil
  }

  // MARK: Services

  private func startNghttpd() async throws -> Service {
    let endpoint = try LoopbackPorts.free(1)[0]
    let child = try start(.nghttpd, ["--no-tls", "-d", try makeDocuments(), "-a", endpoint.host, "\(endpoint.port)"])
    try await waitForFile(endpoint, child)
    return Service(endpoint: endpoint, processes: [("nghttpd", child.processID)])
  }

  private func startNginx() async throws -> Service {
    let ports = try LoopbackPorts.free(2)
    let configuration = try write(
      "nginx.conf",
      PeerConfiguration.nginx(
        listen: ports[0],
        documents: try makeDocuments(),
        directory: directory,
        isRoot: geteuid() == 0
      )
    )
    // -e, because it cannot write the package's log.
    let nginx = try start(.nginx, ["-c", configuration, "-e", directory + "/nginx.log"])
    try await waitUntilListening(ports[0], nginx)
    let proxy = try await startProxy(listen: ports[1], backend: ports[0])
    try await waitForFile(ports[1], proxy)
    return Service(endpoint: ports[1], processes: [("nghttpx", proxy.processID), ("nginx", nginx.processID)])
  }

  private func startWebdis() async throws -> Service {
    let redis = try await redisServer()
    let ports = try LoopbackPorts.free(2)
    let configuration = try write(
      "webdis.json",
      PeerConfiguration.webdis(listen: ports[0], redis: redis.endpoint, directory: directory)
    )
    let webdis = try start(.webdis, [configuration])
    try await waitUntilListening(ports[0], webdis)
    let proxy = try await startProxy(listen: ports[1], backend: ports[0])
    try await waitFor(ports[1], proxy, path: "/PING") { $0.text == #"{"PING":[true,"PONG"]}"# }
    return Service(
      endpoint: ports[1],
      processes: [
        ("nghttpx", proxy.processID), ("webdis", webdis.processID), ("redis", redis.process.processID),
      ]
    )
  }

  private func startRedis() async throws -> Service {
    let redis = try await redisServer()
    return Service(endpoint: redis.endpoint, processes: [("redis", redis.process.processID)])
  }

  /// Return Redis, which all rows share.
  private func redisServer() async throws -> (endpoint: Endpoint, process: ChildProcess) {
    if let redis { return redis }
    let endpoint = try LoopbackPorts.free(1)[0]
    let data = directory + "/redis"
    try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
    let configuration = try write("redis.conf", PeerConfiguration.redis(listen: endpoint, directory: data))
    let child = try start(.redisServer, [configuration])
    try await waitUntilListening(endpoint, child)
    redis = (endpoint, child)
    return (endpoint, child)
  }

  private func startProxy(listen: Endpoint, backend: Endpoint) async throws -> ChildProcess {
    let configuration = try write(
      "nghttpx-\(listen.port).conf",
      PeerConfiguration.nghttpx(listen: listen, backend: backend)
    )
    let proxy = try start(.nghttpx, ["--conf=\(configuration)"])
    try await waitUntilListening(listen, proxy)
    return proxy
  }

  // MARK: Redis

  /// Check that Redis syncs each change and has had no error with its log.
  func checkRedis() async throws {
    let response =
      try await runRedisCommand(["CONFIG", "GET", "appendfsync"]) + runRedisCommand(["INFO", "persistence"])
    for expected in ["always", "aof_enabled:1", "aof_last_write_status:ok"] where !response.contains(expected) {
      throw LoadError("redis-server does not report \(expected): \(response.joined(separator: ", "))")
    }
  }

  /// Run a command in redis-cli; return the lines of its response.
  func runRedisCommand(_ command: [String]) async throws -> [String] {
    guard let redis else { throw LoadError("redis-server was not started") }
    let address = ["-h", redis.endpoint.host, "-p", "\(redis.endpoint.port)"]
    return try await PeerProgram.redisCLI.output(address + command, in: directory)
      .split(whereSeparator: \.isNewline).map(String.init)
  }

  // MARK: Processes

  private func start(_ program: PeerProgram, _ arguments: [String]) throws -> ChildProcess {
    let child = try ChildProcess(
      name: program.rawValue,
      executable: try program.path(),
      arguments: arguments,
      logFile: log(of: program.rawValue)
    )
    children.append(child)
    return child
  }

  private func log(of name: String) -> String { "\(directory)/\(name).out" }

  private func write(_ name: String, _ text: String) throws -> String {
    let path = directory + "/" + name
    try Data(text.utf8).write(to: URL(fileURLWithPath: path))
    return path
  }

  private func makeDocuments() throws -> String {
    let documents = directory + "/www"
    try FileManager.default.createDirectory(atPath: documents, withIntermediateDirectories: true)
    try Data(Self.content.utf8).write(to: URL(fileURLWithPath: documents + Self.path))
    return documents
  }

  private func waitForFile(_ endpoint: Endpoint, _ child: ChildProcess) async throws {
    try await waitFor(endpoint, child, path: Self.path) { $0.text == Self.content }
  }

  /// Repeat a request until its response is right.
  private func waitFor(
    _ endpoint: Endpoint,
    _ child: ChildProcess,
    path: String,
    _ isRight: (HTTPCallResponse) -> Bool
  ) async throws {
    var last = "it does not answer"
    try await wait(for: child) {
      guard let caller = try? await AsyncHTTP2Client.connect(to: endpoint) else { return last }
      let response = try? await caller.call(.get, path)
      await caller.close()
      guard let response else { return last }
      if response.status == 200 && isRight(response) { return nil }
      last = "it answered \(path) with \(response.status): \(response.text.prefix(200))"
      return last
    }
  }

  private func waitUntilListening(_ endpoint: Endpoint, _ child: ChildProcess) async throws {
    try await wait(for: child) {
      let bootstrap = ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      guard let channel = try? await bootstrap.connect(host: endpoint.host, port: endpoint.port).get() else {
        return "no listener on \(endpoint)"
      }
      try? await channel.close().get()
      return nil
    }
  }

  /// Repeat an attempt for ten seconds until it returns no problem.
  private func wait(for child: ChildProcess, _ attempt: () async -> String?) async throws {
    var problem = "it ended"
    for _ in 0..<500 where child.isRunning {
      guard let found = await attempt() else { return }
      problem = found
      try await Task.sleep(for: .milliseconds(20))
    }
    throw LoadError("\(child.name) did not start: \(problem)\(tail(of: child))")
  }

  private func tail(of child: ChildProcess) -> String {
    let data = FileManager.default.contents(atPath: log(of: child.name)) ?? Data()
    let lines = String(decoding: data.suffix(2048), as: UTF8.self).split(separator: "\n").suffix(5)
    return lines.isEmpty ? "" : ":\n" + lines.map { "  \($0)" }.joined(separator: "\n")
  }
}
