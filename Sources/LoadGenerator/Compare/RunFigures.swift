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
