internal import Histogram

/// What a run measured.
package struct LoadReport: Sendable {
  /// Times from a request's making to its answer, in microseconds.
  package struct Latencies: Sendable, Codable, Hashable {
    package var p50: Double
    package var p90: Double
    package var p99: Double
    package var p999: Double
    package var max: Double
  }

  /// CPU time of one process.
  package struct CPU: Sendable, Codable, Hashable {
    package var process: String
    /// Microseconds per measured answer.
    package var perRequest: Double
  }

  package let connections: Int
  package let streams: Int
  /// Answers in the measured time.
  package let answers: Int
  /// The measured time.
  package let seconds: Double
  /// Answers a second.
  package let rate: Double
  package let latencies: Latencies
  /// The generator first.
  package let cpu: [CPU]
  /// All answers by status, the warm-up's too.
  package let statuses: [Int: Int]
  /// Requests without an answer, by HTTP/2's error code or the store's.
  package let failures: [UInt32: Int]
  package let connectionsLost: Int
  /// Where each connection's walk ended, in the plan's order.
  package let walks: [RequestWalk?]
  /// Answers that each connection kept, in the plan's order.
  let samples: [[AnswerSample]]
  /// Answers that the plan asked for.
  package let planned: Int
  package let hadTimeLimit: Bool
  private let failureName: String

  init(plan: LoadPlan, loops: [LoopResult]) {
    connections = plan.connections.count
    streams = plan.streams
    planned = plan.requests
    hadTimeLimit = plan.duration != nil
    failureName =
      switch plan.language {
      case .http2: "HTTP/2 error"
      case .frames: "the store's error"
      }
    answers = loops.reduce(0) { $0 + $1.answers }
    seconds = loops.map(\.seconds).max() ?? 0
    rate = loops.reduce(0) { $0 + ($1.seconds > 0 ? Double($1.answers) / $1.seconds : 0) }

    var histogram = Histogram<UInt32>(
      highestTrackableValue: 60_000_000_000,
      numberOfSignificantValueDigits: .three
    )
    var statuses: [Int: Int] = [:]
    var failures: [UInt32: Int] = [:]
    var walks: [Int: RequestWalk] = [:]
    var samples: [Int: [AnswerSample]] = [:]
    for loop in loops {
      histogram.add(loop.latencies)
      statuses.merge(loop.statuses, uniquingKeysWith: +)
      failures.merge(loop.failures, uniquingKeysWith: +)
      walks.merge(loop.walks) { first, _ in first }
      samples.merge(loop.samples) { first, _ in first }
    }
    self.statuses = statuses
    self.failures = failures
    self.walks = plan.connections.indices.map { walks[$0] }
    self.samples = plan.connections.indices.map { samples[$0] ?? [] }
    connectionsLost = loops.reduce(0) { $0 + $1.connectionsLost }

    func microseconds(_ percentile: Double) -> Double {
      histogram.totalCount == 0 ? 0 : Double(histogram.valueAtPercentile(percentile)) / 1000
    }
    latencies = Latencies(
      p50: microseconds(50),
      p90: microseconds(90),
      p99: microseconds(99),
      p999: microseconds(99.9),
      max: histogram.totalCount == 0 ? 0 : Double(histogram.maxRecorded) / 1000
    )

    // The first loop's times over all loops' answers in them.
    let answersMeasured = Double(answers)
    cpu = zip(["generator"] + plan.processes.map(\.name), loops.first?.cpuSeconds ?? []).compactMap {
      name,
      seconds in
      guard let seconds, answersMeasured > 0 else { return nil }
      return CPU(process: name, perRequest: seconds * 1e6 / answersMeasured)
    }
  }

  /// What was not as it should be; empty for a good run.
  package var problems: [String] {
    var problems: [String] = []
    for (status, count) in statuses.sorted(by: { $0.key < $1.key }) where !(200..<300).contains(status) {
      problems.append("\(count) answers with status \(status)")
    }
    for (code, count) in failures.sorted(by: { $0.key < $1.key }) {
      problems.append("\(count) requests ended by \(failureName) \(code)")
    }
    if connectionsLost > 0 { problems.append("\(connectionsLost) connections lost") }
    if answers == 0 {
      problems.append("no answer was measured")
    } else if answers < planned && !hadTimeLimit {
      problems.append("\(answers) of \(planned) requests were made and answered")
    }
    return problems
  }
}
