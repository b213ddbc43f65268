internal import Foundation

/// Numbers as people read them.
package enum Figures {
  /// 1234567 as "1,234,567".
  package static func count(_ value: Int) -> String {
    let digits = Array(String(abs(value)))
    var text = value < 0 ? "-" : ""
    for (index, digit) in digits.enumerated() {
      if index > 0 && (digits.count - index) % 3 == 0 { text += "," }
      text.append(digit)
    }
    return text
  }

  /// Microseconds as "850 µs", "4.21 ms" or "1.30 s".
  package static func time(microseconds: Double) -> String {
    switch microseconds {
    case ..<1000: String(format: "%.0f µs", microseconds)
    case ..<1_000_000: String(format: "%.2f ms", microseconds / 1000)
    default: String(format: "%.2f s", microseconds / 1_000_000)
    }
  }

  /// With that many digits behind the point.
  package static func decimal(_ value: Double, digits: Int) -> String {
    String(format: "%.\(digits)f", value)
  }
}

/// A run as JSON.
package struct ReportDocument: Encodable {
  package var what: String
  package var connections: Int
  package var streams: Int
  package var requests: Int
  package var seconds: Double
  package var requestsPerSecond: Double
  package var latencyMicroseconds: LoadReport.Latencies
  package var cpuMicrosecondsPerRequest: [String: Double]
  /// By status.
  package var answers: [String: Int]
  /// Empty for a good run.
  package var problems: [String]

  package init(what: String, report: LoadReport, problems: [String]) {
    self.what = what
    connections = report.connections
    streams = report.streams
    requests = report.answers
    seconds = report.seconds
    requestsPerSecond = report.rate
    latencyMicroseconds = report.latencies
    cpuMicrosecondsPerRequest = Dictionary(report.cpu.map { ($0.process, $0.perRequest) }) { first, _ in first
    }
    answers = Dictionary(uniqueKeysWithValues: report.statuses.map { ("\($0)", $1) })
    self.problems = problems
  }

  /// One document, keys in order.
  package func json() throws -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    return String(decoding: try encoder.encode(self), as: UTF8.self)
  }
}

extension LoadReport {
  /// A table of a few lines.
  package func text(what: String) -> String {
    let statusText = statuses.sorted { $0.key < $1.key }
      .map { "\(Figures.count($0.value)) × \($0.key)" }.joined(separator: ", ")
    let latencyText = [
      ("p50", latencies.p50), ("p90", latencies.p90), ("p99", latencies.p99), ("p99.9", latencies.p999),
      ("max", latencies.max),
    ].map { "\($0) \(Figures.time(microseconds: $1))" }.joined(separator: "   ")
    let cpuText = cpu.map { "\($0.process) \(Figures.decimal($0.perRequest, digits: 2)) µs" }
      .joined(separator: "   ")
    return """
      \(what)
        load         \(connections) connections × \(streams) streams
        rate         \(Figures.count(Int(rate))) requests/s  \
      (\(Figures.count(answers)) in \(Figures.decimal(seconds, digits: 2)) s)
        latency      \(latencyText)
        CPU/request  \(cpuText)
        answers      \(statusText.isEmpty ? "none" : statusText) (with the warm-up's)
      """
  }
}
