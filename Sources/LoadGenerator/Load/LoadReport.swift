internal import Glibc
internal import Histogram

/// Measurements of a run.
struct LoadReport: Sendable {
  /// CPU time of a process.
  struct CPU: Sendable, Codable, Hashable {
    var process: String
    /// Microseconds per measured request.
    var perRequest: Double
  }

  let connections: Int
  let streams: Int
  /// Measured requests, which count once they are answered.
  let requests: Int
  /// Measured time.
  let seconds: Double
  /// Requests per second.
  let rate: Double
  /// Time from making a request to its response.
  let latencies: Latencies
  /// CPU times, that of the generator first.
  let cpu: [CPU]
  /// Number of requests by the status of their response, those of the warm-up included.
  let statuses: [Int: Int]
  /// Number of failed requests by error code of HTTP/2 or of the store.
  let failures: [UInt32: Int]
  let connectionsLost: Int
  /// Final walk of each connection, in the plan's order.
  let walks: [RequestWalk?]
  /// Kept responses of each connection, in the plan's order.
  let samples: [[ResponseSample]]
  /// Measured requests that the plan asks for.
  let planned: Int
  let hadTimeLimit: Bool
  private let failureName: String

  init(plan: LoadPlan, loops: [LoopResult]) {
    connections = plan.connections.count
    streams = plan.streams
    planned = plan.requests
    hadTimeLimit = plan.duration != nil
    failureName =
      switch plan.wireProtocol {
      case .http2: "HTTP/2 error"
      case .frames: "store error"
      }
    requests = loops.reduce(0) { $0 + $1.requests }
    seconds = loops.map(\.seconds).max() ?? 0
    rate = loops.reduce(0) { $0 + ($1.seconds > 0 ? Double($1.requests) / $1.seconds : 0) }

    var latencies = Latencies()
    var statuses: [Int: Int] = [:]
    var failures: [UInt32: Int] = [:]
    var walks: [Int: RequestWalk] = [:]
    var samples: [Int: [ResponseSample]] = [:]
    for loop in loops {
      latencies.add(loop.latencies)
      statuses.merge(loop.statuses, uniquingKeysWith: +)
      failures.merge(loop.failures, uniquingKeysWith: +)
      walks.merge(loop.walks) { first, _ in first }
      samples.merge(loop.samples) { first, _ in first }
    }
    self.latencies = latencies
    self.statuses = statuses
    self.failures = failures
    self.walks = plan.connections.indices.map { walks[$0] }
    self.samples = plan.connections.indices.map { samples[$0] ?? [] }
    connectionsLost = loops.reduce(0) { $0 + $1.connectionsLost }

    // The first loop measures the CPU time of all loops.
    let measured = Double(requests)
    cpu = zip(["generator"] + plan.processes.map(\.name), loops.first?.cpuSeconds ?? []).compactMap {
      name,
      seconds in
      guard let seconds, measured > 0 else { return nil }
      return CPU(process: name, perRequest: seconds * 1e6 / measured)
    }
  }

  /// Problems of the run.
  var problems: [String] {
    var problems: [String] = []
    for (status, count) in statuses.sorted(by: { $0.key < $1.key }) where !(200..<300).contains(status) {
      problems.append("\(count) answers with status \(status)")
    }
    for (code, count) in failures.sorted(by: { $0.key < $1.key }) {
      problems.append("\(count) requests failed with \(failureName) \(code)")
    }
    if connectionsLost > 0 { problems.append("\(connectionsLost) connections lost") }
    if requests == 0 {
      problems.append("no answer was measured")
    } else if requests < planned && !hadTimeLimit {
      problems.append("\(requests) of \(planned) requests were answered")
    }
    return problems
  }
}

extension LoadReport {
  /// Return a few lines for people.
  func text(title: String) -> String {
    let statusText = statuses.sorted { $0.key < $1.key }
      .map { "\(Figures.count($0.value)) × \($0.key)" }.joined(separator: ", ")
    let latencyText = [
      ("p50", latencies.p50), ("p90", latencies.p90), ("p99", latencies.p99), ("p99.9", latencies.p999),
      ("max", latencies.max),
    ].map { "\($0) \(Figures.time(microseconds: $1))" }.joined(separator: "   ")
    let cpuText = cpu.map { "\($0.process) \(Figures.decimal($0.perRequest, digits: 2)) µs" }
      .joined(separator: "   ")
    return """
      \(title)
        load         \(connections) connections × \(streams) streams
        rate         \(Figures.count(Int(rate))) requests/s  \
      (\(Figures.count(requests)) in \(Figures.decimal(seconds, digits: 2)) s)
        latency      \(latencyText)
        CPU/request  \(cpuText)
        answers      \(statusText.isEmpty ? "none" : statusText) (with the warm-up's)
      """
  }

  /// Return one JSON document.
  func json(title: String, problems: [String]) throws -> String {
    struct Document: Encodable {
      var what: String
      var connections: Int
      var streams: Int
      var requests: Int
      var seconds: Double
      var requestsPerSecond: Double
      var latencyMicroseconds: Latencies
      var cpuMicrosecondsPerRequest: [String: Double]
      var answers: [String: Int]
      var problems: [String]
    }
    return try ReportDocument.pretty(
      Document(
        what: title,
        connections: connections,
        streams: streams,
        requests: requests,
        seconds: seconds,
        requestsPerSecond: rate,
        latencyMicroseconds: latencies,
        cpuMicrosecondsPerRequest: Dictionary(cpu.map { ($0.process, $0.perRequest) }) { first, _ in first },
        answers: Dictionary(uniqueKeysWithValues: statuses.map { ("\($0)", $1) }),
        problems: problems
      )
    )
  }
}

/// Latency recorder: counts by duration with three significant digits, up to two minutes. Durations are recorded in
/// nanoseconds and read in microseconds.
struct Latencies: Sendable, Encodable {
  private var histogram = Histogram<UInt32>(
    highestTrackableValue: 120_000_000_000,
    numberOfSignificantValueDigits: .three
  )

  @inline(__always)
  mutating func record(nanoseconds: UInt64) { histogram.record(nanoseconds) }

  /// Record the time since a reading of ``MonotonicClock``.
  mutating func record(since start: UInt64) { record(nanoseconds: MonotonicClock.now - start) }

  mutating func add(_ other: Latencies) { histogram.add(other.histogram) }

  /// Time requests that are made one after the other.
  ///
  /// - Parameters:
  ///   - before: called before each request, untimed.
  ///   - request: receives the request's number, from 0.
  static func timing(
    _ count: Int,
    before: (Int) async throws -> Void = { _ in },
    _ request: (Int) async throws -> Void
  ) async throws -> Latencies {
    var latencies = Latencies()
    for number in 0..<count {
      try await before(number)
      let start = MonotonicClock.now
      try await request(number)
      latencies.record(since: start)
    }
    return latencies
  }

  var count: Int { Int(histogram.totalCount) }
  /// Percentiles and maximum in microseconds; 0 while nothing is recorded.
  var p50: Double { percentile(50) }
  var p90: Double { percentile(90) }
  var p99: Double { percentile(99) }
  var p999: Double { percentile(99.9) }
  var max: Double { histogram.totalCount == 0 ? 0 : Double(histogram.maxRecorded) / 1_000 }

  private func percentile(_ percentile: Double) -> Double {
    histogram.totalCount == 0 ? 0 : Double(histogram.valueAtPercentile(percentile)) / 1_000
  }

  func encode(to encoder: any Encoder) throws {
    try ["p50": p50, "p90": p90, "p99": p99, "p999": p999, "max": max].encode(to: encoder)
  }
}

/// Entry of a report with the latencies of its requests. Both are members of one JSON object.
@dynamicMemberLookup
struct Timed<Entry: Encodable & Sendable>: Encodable, Sendable {
  private struct Microseconds: Encodable {
    var p50Microseconds: Int
    var p99Microseconds: Int
    var maxMicroseconds: Int
  }

  private let entry: Entry
  private let microseconds: Microseconds

  init(_ entry: Entry, _ latencies: Latencies) {
    self.entry = entry
    microseconds = Microseconds(
      p50Microseconds: Int(latencies.p50),
      p99Microseconds: Int(latencies.p99),
      maxMicroseconds: Int(latencies.max)
    )
  }

  subscript<Value>(dynamicMember member: KeyPath<Entry, Value>) -> Value { entry[keyPath: member] }

  func encode(to encoder: any Encoder) throws {
    try entry.encode(to: encoder)
    try microseconds.encode(to: encoder)
  }

  /// Columns of p50, p99 and maximum.
  static func columns(digits: Int = 3) -> [ReportTable<Timed>.Column] {
    [
      .milliseconds("p50", digits: digits, \.microseconds.p50Microseconds),
      .milliseconds("p99", digits: digits, \.microseconds.p99Microseconds),
      .milliseconds("longest", digits: digits, \.microseconds.maxMicroseconds),
    ]
  }
}

/// Monotonic clock in nanoseconds.
enum MonotonicClock {
  @inline(__always)
  static var now: UInt64 {
    var time = timespec()
    // Never fails for this clock.
    clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(bitPattern: Int64(time.tv_sec)) &* 1_000_000_000 &+ UInt64(bitPattern: Int64(time.tv_nsec))
  }

  static func seconds(since start: UInt64) -> Double { Double(now - start) / 1e9 }
}
