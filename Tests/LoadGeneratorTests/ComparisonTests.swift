import Foundation
import LocalStack
import Operations
import Testing

@testable import LoadGenerator

@Suite struct ComparisonTests {
  private func measurement(
    _ row: BenchRow,
    _ round: Int,
    rate: Double,
    p999: Double? = 3,
    cpu: [(String, Double)] = [("generator", 2)]
  ) -> Comparison.Measurement {
    let cpu = cpu.map { LoadReport.CPU(process: $0, perRequest: $1) }
    let figures = RunFigures(requests: 1, seconds: 1, rate: rate, p50: 1, p99: 2, p999: p999, cpu: cpu)
    return .init(row: row, streams: 10, round: round, figures: figures)
  }

  @Test func ratiosCompareWithinRounds() throws {
    // The machine is twice as fast in the second round.
    let table = ComparisonTable([
      measurement(.readQuery, 1, rate: 50), measurement(.nghttpd, 1, rate: 100),
      measurement(.webdis, 1, rate: 10),
      measurement(.readQuery, 2, rate: 120), measurement(.nghttpd, 2, rate: 200),
      measurement(.webdis, 2, rate: 20),
    ])
    #expect(table.rounds == 2)
    #expect(table.lines.map(\.row) == [.readQuery, .nghttpd, .webdis])
    let line = table.lines[0]
    #expect(line.rate == 85)
    #expect(line.ofNghttpd == 0.55)
    #expect(line.peer == .webdis)
    #expect(line.ofPeer == 5.5)
    #expect(table.lines[1].ofNghttpd == nil)
    #expect(table.lines[2].ofNghttpd == 0.1)
    #expect(table.markdown.contains("|       0.55 |        5.50 |"))
  }

  @Test func missingPeerLeavesCellsEmpty() {
    let table = ComparisonTable([
      measurement(.readQuery, 1, rate: 50), measurement(.status, 1, rate: 60), measurement(.storeFrames, 1, rate: 70),
    ])
    for line in table.lines {
      #expect(line.ofNghttpd == nil && line.peer == nil && line.ofPeer == nil)
    }
    #expect(
      table.markdown.split(separator: "\n").contains {
        $0.hasPrefix("|      10 | mark-read, query    |         50 |            |             |")
      }
    )
    #expect(!table.legend.contains("of nghttpd") && !table.legend.contains("of its peer"))
  }

  @Test func processesAreSummedAndNamedInOrder() throws {
    let table = ComparisonTable([
      measurement(.webdis, 1, rate: 50, cpu: [("generator", 1), ("nghttpx", 20), ("webdis", 30), ("redis", 4)]),
      measurement(.redis, 1, rate: 90, p999: nil, cpu: [("generator", 0.5), ("redis", 2)]),
    ])
    let webdis = try #require(table.lines.first)
    #expect(webdis.generatorCPU == 1 && webdis.serverCPU == 54)
    #expect(table.markdown.contains("nghttpx 20.00, webdis 30.00, redis 4.00 |"))
    // One table for HTTP/2 rows, one for pipelined rows.
    #expect(table.markdown.split(separator: "\n\n").count == 2)
    let redis = try #require(table.lines.last)
    #expect(redis.p999 == nil)
    #expect(table.markdown.contains("| 2 µs |       |   0.50 µs | 2.00 µs | redis   |"))
  }

  @Test func peersAreOfTheSameKind() {
    for row in BenchRow.allCases {
      #expect(row.isOwn == row.programs.isEmpty)
      if let peer = row.peer {
        #expect(!peer.isOwn && peer.transport == row.transport)
      }
    }
  }

  @Test func jsonHasEveryRowByName() throws {
    let lines = ComparisonTable([measurement(.redis, 1, rate: 90), measurement(.storeFrames, 1, rate: 45)])
      .lines
    let data = try JSONEncoder().encode(lines)
    let read = try #require(try JSONSerialization.jsonObject(with: data) as? [[String: Any]])
    #expect(read.map { $0["row"] as? String } == ["store-frames", "redis-benchmark"])
    #expect(read[0]["ofPeer"] as? Double == 0.5)
    #expect(read[0]["peer"] as? String == "redis-benchmark")
    #expect(try JSONDecoder().decode([ComparisonTable.Line].self, from: data) == lines)
  }

  @Test func missingProgramsAreNamedWithTheirPackages() {
    let none: (String) -> String? = { _ in nil }
    #expect(throws: Never.self) { try PeerProgram.check([.readQuery, .storeFrames], find: none) }
    #expect(
      throws: LoadError(
        "not installed: nghttpd, nghttpx, redis-server, redis-cli, webdis: "
          + "apt-get install nghttp2-server nghttp2-proxy redis-server redis-tools webdis"
      )
    ) { try PeerProgram.check([.nghttpd, .webdis], find: none) }
    #expect(throws: LoadError("nginx is not installed: apt-get install nginx")) {
      _ = try PeerProgram.nginx.path(find: none)
    }
    #expect(throws: Never.self) {
      try PeerProgram.check(BenchRow.allCases) { "/usr/bin/\($0)" }
    }
  }
}

@Suite struct PeerConfigurationTests {
  private let listen = Endpoint(host: "127.0.0.1", port: 1001)
  private let backend = Endpoint(host: "127.0.0.1", port: 1002)

  private func lines(_ text: String) -> [String] {
    text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
  }

  @Test func redisSyncsBeforeAnswering() {
    let redis = lines(PeerConfiguration.redis(listen: listen, directory: "/a b"))
    for line in ["port 1001", "bind 127.0.0.1", "appendonly yes", "appendfsync always", #"dir "/a b""#] {
      #expect(redis.contains(line))
    }
    // No other file is written.
    #expect(redis.contains(#"save """#))
  }

  @Test func webdisIsConfiguredForItsRedis() throws {
    let text = PeerConfiguration.webdis(listen: listen, redis: backend, directory: "/d")
    let object = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
    #expect(object["http_port"] as? Int == 1001 && object["redis_port"] as? Int == 1002)
    #expect(object["daemonize"] as? Bool == false)
    #expect(object["logfile"] as? String == "/d/webdis.log")
  }

  @Test func nginxKeepsConnectionsAndWritesOnlyToItsDirectory() {
    let nginx = lines(PeerConfiguration.nginx(listen: listen, documents: "/d/www", directory: "/d", isRoot: false))
    #expect(nginx.contains("listen 127.0.0.1:1001;") && nginx.contains(#"root "/d/www";"#))
    #expect(nginx.contains("daemon off;") && nginx.contains("access_log off;"))
    #expect(nginx.filter { $0.contains("_temp_path") }.allSatisfy { $0.contains("\"/d/") })
    #expect(!nginx.contains("user root;"))
    #expect(
      lines(PeerConfiguration.nginx(listen: listen, documents: "", directory: "", isRoot: true)).contains("user root;")
    )
  }

  @Test func nghttpxUsesHTTP2OnlyAtItsFrontend() {
    let nghttpx = lines(PeerConfiguration.nghttpx(listen: listen, backend: backend))
    #expect(nghttpx.contains("frontend=127.0.0.1,1001;no-tls"))
    // Without ";proto=h2" nghttpx speaks HTTP/1.1.
    #expect(nghttpx.contains("backend=127.0.0.1,1002"))
  }
}

@Suite struct RedisBenchmarkTests {
  private let benchmark = RedisBenchmark(endpoint: Endpoint(host: "127.0.0.1", port: 9), connections: 16, pipeline: 10)

  @Test func csvTableIsParsed() throws {
    let result = try RedisBenchmark.parse(
      """
      "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
      "HSET a,b __rand_int__","461893.78","3.344","0.544","3.271","3.887","5.015","8.479"

      """
    )
    #expect(result == .init(rate: 461893.78, p50: 3271, p99: 5015, max: 8479))
  }

  /// `/` stands for a newline.
  @Test(arguments: [
    "", "Could not connect to Redis at 127.0.0.1:9: Connection refused", #""test","rps""#,
    #""test","rps","p50_latency_ms","p99_latency_ms","max_latency_ms"/"HSET","x","1","1","1""#,
    #""test","rps","p50_latency_ms"/"HSET","1""#, #""test","rps"/"HSET","1""#,
  ]) func invalidTableIsRefused(text: String) {
    #expect(throws: LoadError.self) { try RedisBenchmark.parse(text.replacing("/", with: "\n")) }
  }

  @Test func quotedCommasAreKept() { #expect(RedisBenchmark.fields(#""a,b","","c""#) == ["a,b", "", "c"]) }

  @Test func requestCountIsMultipleOfPipeline() {
    #expect(benchmark.requests(rate: 1000, seconds: 1) == 960)
    #expect(benchmark.requests(rate: 0, seconds: 1) == 160)
  }

  @Test func benchmarkArgumentsMatchOtherRow() {
    let arguments = benchmark.arguments(requests: 320)
    for (flag, value) in [("-c", "16"), ("-P", "10"), ("-n", "320"), ("-r", "200"), ("-p", "9")] {
      #expect(arguments.firstIndex(of: flag).map { arguments[$0 + 1] } == value)
    }
    #expect(arguments.contains("--csv"))
    #expect(arguments.suffix(4).first == "HSET")
  }
}
