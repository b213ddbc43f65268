internal import CommandOutput
internal import Foundation
internal import GatewayClient
internal import HTTP2Session
internal import Operations

/// Runs of redis-benchmark, the load generator of Redis: HSET of a channel's hash, a user's field and a new number, as
/// a self-made receipt service would store a mark.
struct RedisBenchmark: Sendable {
  /// Row of its CSV output.
  struct Result: Sendable, Hashable {
    /// Commands a second.
    var rate: Double
    /// Microseconds.
    var p50: Double
    var p99: Double
    var max: Double
  }

  /// Number of channels and of users, like the channels of our own rows.
  static let keyCount = 200

  let endpoint: Endpoint
  let connections: Int
  /// Commands of a batch; the next batch is sent after all replies.
  let pipeline: Int

  /// Return the arguments of the program.
  func arguments(requests: Int) -> [String] {
    [
      "-h", endpoint.host, "-p", "\(endpoint.port)", "-c", "\(connections)", "-P", "\(pipeline)",
      "-n", "\(requests)", "-r", "\(Self.keyCount)", "--precision", "3", "--csv",
      "HSET", "channel:__rand_int__", "user:__rand_int__", "__rand_int__",
    ]
  }

  /// Return the number of commands for a duration, because the program has no time limit.
  func requests(rate: Double, seconds: Double) -> Int {
    let batch = connections * pipeline
    return max(1, Int(rate * seconds) / batch) * batch
  }

  /// Parse the output: a line of quoted names, then one of values. Times are milliseconds.
  static func parse(_ text: String) throws(LoadError) -> Result {
    let lines = text.split(whereSeparator: \.isNewline).map { fields(String($0)) }
    guard let head = lines.firstIndex(where: { $0.first == "test" }), head + 1 < lines.count,
      lines[head].count == lines[head + 1].count
    else { throw LoadError("redis-benchmark printed no table: \(text.prefix(300))") }
    func value(_ name: String) throws(LoadError) -> Double {
      guard let index = lines[head].firstIndex(of: name), let value = Double(lines[head + 1][index]) else {
        throw LoadError("redis-benchmark's table has no \(name): \(text.prefix(300))")
      }
      return value
    }
    return Result(
      rate: try value("rps"),
      p50: try value("p50_latency_ms") * 1000,
      p99: try value("p99_latency_ms") * 1000,
      max: try value("max_latency_ms") * 1000
    )
  }

  /// Return the fields of a line of CSV; quoted fields may contain commas.
  static func fields(_ line: String) -> [String] {
    var fields = [""]
    var isQuoted = false
    for character in line {
      switch character {
      case "\"": isQuoted.toggle()
      case "," where !isQuoted: fields.append("")
      default: fields[fields.count - 1].append(character)
      }
    }
    return fields
  }

  /// Run the program, which counts as the generator.
  ///
  /// - Parameters:
  ///   - server: processes whose CPU time is measured.
  ///   - directory: directory of the output.
  func run(requests: Int, server: [(name: String, processID: Int32)], directory: String) async throws -> RunFigures {
    let meter = ProcessCPUMeter(processIDs: server.map(\.processID))
    let before = meter.sample()
    let ownBefore = ProcessCPUMeter.endedChildren
    let text = try await PeerProgram.redisBenchmark.output(arguments(requests: requests), in: directory)
    let cpuSeconds = meter.seconds(since: before)
    let own = ProcessCPUMeter.endedChildren - ownBefore
    let result = try Self.parse(text)
    var figures = RunFigures(
      requests: requests,
      seconds: result.rate > 0 ? Double(requests) / result.rate : 0,
      rate: result.rate,
      p50: result.p50,
      p99: result.p99,
      p999: nil
    )
    figures.cpu = [.init(process: "generator", perRequest: own * 1e6 / Double(requests))]
    // The first sample is of this process, which only waits.
    for (process, seconds) in zip(server, cpuSeconds.dropFirst()) {
      guard let seconds else { continue }
      figures.cpu.append(.init(process: process.name, perRequest: seconds * 1e6 / Double(requests)))
    }
    return figures
  }
}

/// Marks in Redis over webdis, as a self-made service would keep them: a hash for each channel, a field for each user,
/// set to the number of the read message. All values are checked after the run.
struct WebdisBench: Sendable {
  let service: Peers.Service
  let connections: Int
  let streams: Int
  let channelCount: Int
  private let names = BenchNames.random()

  init(service: Peers.Service, connections: Int, streams: Int, channels: Int) {
    self.service = service
    self.connections = connections
    self.streams = streams
    channelCount = RequestWalk.channelCount(atLeast: channels, streams: streams)
  }

  /// Return the plan of a run, without set-up, because Redis creates a hash with the first write.
  func plan(requests: Int, warmup: Int) -> LoadPlan {
    let plans = (0..<connections).map { connection in
      let walk = RequestWalk(
        names: names,
        form: .hashSet,
        connection: connection,
        channelCount: channelCount,
        messageCount: BenchNames.messagesMax,
        streams: streams
      )
      return LoadPlan.Connection(work: .walk(walk))
    }
    var plan = LoadPlan(
      endpoint: service.endpoint,
      connections: plans,
      streams: streams,
      requests: requests,
      warmup: warmup
    )
    plan.processes = service.processes
    return plan
  }

  /// Check that every response was 200 and every field has the last value.
  ///
  /// - Returns: the problems.
  func verify(_ report: LoadReport) async throws -> [String] {
    let check = ResponseCheck(names: names, form: .hashSet, positions: nil)
    var problems = report.problems + check.problems(report)
    let caller = try await AsyncHTTP2Client.connect(to: service.endpoint)
    try await withCleanup {
      for channel in 0..<channelCount where problems.count <= 20 {
        let key = names.redisKey(channel)
        let response = try await caller.call(.get, "/HGETALL/\(key)")
        let hash = try? JSONDecoder().decode([String: [String: String]].self, from: Data(response.body))
        for (connection, walk) in report.walks.enumerated() {
          let acknowledged = Int(walk?.acknowledged[channel] ?? 0)
          let expected = acknowledged > 0 ? BenchNames.digits(acknowledged - 1, width: DigitTemplate.messageWidth) : nil
          let actual = hash?["HGETALL"]?[names.user(connection)]
          if actual != expected {
            problems.append(
              "\(key): \(names.user(connection)) is \(actual ?? "missing"), expected \(expected ?? "none")"
            )
          }
        }
      }
    } cleanUp: {
      await caller.close()
    }
    return problems
  }
}
