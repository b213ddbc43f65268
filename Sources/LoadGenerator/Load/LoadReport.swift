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
