internal import ArgumentParser
internal import GatewayClient
internal import LocalStack
internal import Operations

/// Row of a comparison's table.
enum BenchRow: String, Sendable, Hashable, CaseIterable, Codable, ExpressibleByArgument {
  case readQuery = "read-query"
  case readBody = "read-body"
  case register
  case readState16 = "read-state-16"
  case readState100 = "read-state-100"
  case status
  case nghttpd
  case nginx = "nghttpx-nginx"
  case webdis = "nghttpx-webdis"
  case storeFrames = "store-frames"
  case redis = "redis-benchmark"

  /// Transport of a row's requests; only rows with the same transport are compared.
  enum Transport: Sendable, Hashable, CaseIterable {
    /// HTTP/2, from ``LoadGenerator``.
    case http
    /// Commands pipelined to the store or to Redis.
    case pipeline
  }

  private struct Properties {
    var title: String
    var transport = Transport.http
    var peer: BenchRow?
    var form: RequestForm?
    var programs: [PeerProgram] = []
  }

  private var properties: Properties {
    switch self {
    case .readQuery: .init(title: "mark-read, query", peer: .webdis, form: .query)
    case .readBody: .init(title: "mark-read, JSON body", peer: .webdis, form: .body)
    case .register: .init(title: "registering a message", peer: .webdis, form: .register)
    case .readState16: .init(title: "read-state, 16 members", peer: .nginx, form: .readState(memberCount: 16))
    case .readState100: .init(title: "read-state, 100 members", peer: .nginx, form: .readState(memberCount: 100))
    case .status: .init(title: "status of a message", peer: .nginx, form: .status)
    case .nghttpd: .init(title: "nghttpd, static file", programs: [.nghttpd])
    case .nginx: .init(title: "nghttpx + nginx, static file", programs: [.nghttpx, .nginx])
    case .webdis:
      .init(
        title: "nghttpx + webdis + Redis, HSET",
        form: .hashSet,
        programs: [.nghttpx, .webdis, .redisServer, .redisCLI]
      )
    case .storeFrames: .init(title: "store alone, mark_read frames", transport: .pipeline, peer: .redis, form: .frame)
    case .redis:
      .init(title: "redis-benchmark, HSET", transport: .pipeline, programs: [.redisServer, .redisBenchmark, .redisCLI])
    }
  }

  /// Title in tables.
  var title: String { properties.title }

  var transport: Transport { properties.transport }

  /// Foreign row with the most similar work, such as durable writes or reads through two services; nil for a foreign
  /// row.
  var peer: BenchRow? { properties.peer }

  /// Whether this project's programs answer it.
  var isOwn: Bool { peer != nil }

  /// Form of the requests to a gateway, the store or webdis; nil for a row with constant requests or with its own
  /// generator.
  var form: RequestForm? { properties.form }

  /// Foreign programs of a row.
  var programs: [PeerProgram] { properties.programs }
}

/// Result of a run, whichever program made its requests.
struct RunFigures: Sendable, Hashable, Codable {
  var requests: Int
  /// Measured time.
  var seconds: Double
  /// Requests per second.
  var rate: Double
  /// Microseconds.
  var p50: Double
  var p99: Double
  /// Nil if the generator does not report it.
  var p999: Double?
  /// CPU times, that of the generator first.
  var cpu: [LoadReport.CPU] = []

  /// The names in JSON.
  private enum CodingKeys: String, CodingKey {
    case requests = "answers"
    case seconds, rate, p50, p99, p999, cpu
  }
}

extension RunFigures {
  /// Return a process's CPU time for a request in microseconds; nil if it was not measured.
  func cpu(of process: String) -> Double? { cpu.first { $0.process == process }?.perRequest }
}

extension LoadReport {
  var figures: RunFigures {
    RunFigures(
      requests: requests,
      seconds: seconds,
      rate: rate,
      p50: latencies.p50,
      p99: latencies.p99,
      p999: latencies.p999,
      cpu: cpu
    )
  }
}

extension LocalStack {
  /// The store that a row sends frames to, and the secrets that it shares with its gateways; nil: the row's requests go
  /// to the gateway. A node of a cluster tells the addresses of the others.
  nonisolated func store(for row: BenchRow) throws -> (endpoint: Endpoint, secrets: [[UInt8]])? {
    guard row == .storeFrames else { return nil }
    return (plan.store, [try SecretFile.load(files.frameSecret, key: "secret-file", warn: { _ in }).current])
  }

  /// Return the requests of one of our own rows to the first gateway, or to the store.
  ///
  /// - Parameter channels: minimum.
  nonisolated func bench(
    _ row: BenchRow,
    connections: Int,
    streams: Int,
    requests: Int,
    warmup: Int,
    channels: Int = 200
  ) async throws -> GatewayBench {
    guard let form = row.form else { preconditionFailure("\(row) has no requests") }
    return try GatewayBench(
      endpoint: plan.gateways[0].listen,
      store: try store(for: row),
      tokenIssuer: try await TokenIssuer(secretFile: files.jwtSecret),
      form: form,
      connections: connections,
      streams: streams,
      requests: requests,
      warmup: warmup,
      channels: channels
    )
  }
}
