/// What a bench measures: one row of its table.
package enum BenchRow: String, Sendable, Hashable, CaseIterable, Codable {
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

  /// Through which door a row's requests come; only rows of one kind are compared.
  package enum Transport: Sendable, Hashable, CaseIterable {
    /// HTTP/2, by ``LoadGenerator``.
    case http
    /// Commands pipelined to the store itself, or to Redis.
    case pipeline
  }

  /// For people.
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

  /// The foreign row that does the most similar work: durable writes beside durable writes, reads through two services
  /// beside reads through two services. Nil for a peer.
  package var peer: BenchRow? {
    switch self {
    case .readQuery, .readBody, .register: .webdis
    case .readState16, .readState100, .status: .nginx
    case .storeFrames: .redis
    case .nghttpd, .nginx, .webdis, .redis: nil
    }
  }

  /// Whether it is answered by this project's programs.
  package var isOwn: Bool { peer != nil }

  /// What a gateway's, the store's or webdis' requests are; nil for a row whose requests are all the same, and for one
  /// that brings its own generator.
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

  /// The programs of others that a row runs.
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
