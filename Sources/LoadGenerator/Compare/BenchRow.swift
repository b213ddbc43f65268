internal import ArgumentParser

/// Row of a comparison's table.
package enum BenchRow: String, Sendable, Hashable, CaseIterable, Codable, ExpressibleByArgument {
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
  package enum Transport: Sendable, Hashable, CaseIterable {
    /// HTTP/2, from ``LoadGenerator``.
    case http
    /// Commands pipelined to the store or to Redis.
    case pipeline
  }

  /// Title in tables.
  package var title: String {
    switch self {
    case .readQuery: "mark-read, query"
    case .readBody: "mark-read, JSON body"
    case .register: "registering a message"
    case .readState16: "read-state, 16 members"
    case .readState100: "read-state, 100 members"
    case .status: "status of a message"
    case .nghttpd: "nghttpd, static file"
    case .nginx: "nghttpx + nginx, static file"
    case .webdis: "nghttpx + webdis + Redis, HSET"
    case .storeFrames: "store alone, mark_read frames"
    case .redis: "redis-benchmark, HSET"
    }
  }

  package var transport: Transport {
    switch self {
    case .storeFrames, .redis: .pipeline
    case .readQuery, .readBody, .register, .readState16, .readState100, .status, .nghttpd, .nginx, .webdis:
      .http
    }
  }

  /// Foreign row with the most similar work, such as durable writes or reads through two services; nil for a foreign
  /// row.
  package var peer: BenchRow? {
    switch self {
    case .readQuery, .readBody, .register: .webdis
    case .readState16, .readState100, .status: .nginx
    case .storeFrames: .redis
    case .nghttpd, .nginx, .webdis, .redis: nil
    }
  }

  /// Whether this project's programs answer it.
  package var isOwn: Bool { peer != nil }

  /// Form of the requests to a gateway, the store or webdis; nil for a row with constant requests or with its own
  /// generator.
  package var form: RequestForm? {
    switch self {
    case .readQuery: .query
    case .readBody: .body
    case .register: .register
    case .readState16: .readState(memberCount: 16)
    case .readState100: .readState(memberCount: 100)
    case .status: .status
    case .webdis: .hashSet
    case .storeFrames: .frame
    case .nghttpd, .nginx, .redis: nil
    }
  }

  /// Foreign programs of a row.
  var programs: [PeerProgram] {
    switch self {
    case .readQuery, .readBody, .register, .readState16, .readState100, .status, .storeFrames: []
    case .nghttpd: [.nghttpd]
    case .nginx: [.nghttpx, .nginx]
    case .webdis: [.nghttpx, .webdis, .redisServer, .redisCLI]
    case .redis: [.redisServer, .redisBenchmark, .redisCLI]
    }
  }
}

/// Result of a run, whichever program made its requests.
package struct RunFigures: Sendable, Hashable, Codable {
  package var responses: Int
  /// Measured time.
  package var seconds: Double
  /// Responses a second.
  package var rate: Double
  /// Microseconds.
  package var p50: Double
  package var p99: Double
  /// Nil if the generator does not report it.
  package var p999: Double?
  /// CPU times, that of the generator first.
  package var cpu: [LoadReport.CPU] = []

  /// The names in JSON.
  private enum CodingKeys: String, CodingKey {
    case responses = "answers"
    case seconds, rate, p50, p99, p999, cpu
  }
}

extension LoadReport {
  package var figures: RunFigures {
    RunFigures(
      responses: responses,
      seconds: seconds,
      rate: rate,
      p50: latencies.p50,
      p99: latencies.p99,
      p999: latencies.p999,
      cpu: cpu
    )
  }
}
