/// What a run came to, whoever made its requests.
package struct RunFigures: Sendable, Hashable {
  package var answers: Int
  /// The measured time.
  package var seconds: Double
  /// Answers a second.
  package var rate: Double
  /// Microseconds.
  package var p50: Double
  package var p99: Double
  /// Nil where the generator does not tell.
  package var p999: Double?
  /// The generator first.
  package var cpu: [LoadReport.CPU] = []
}

extension LoadReport {
  package var figures: RunFigures {
    RunFigures(
      answers: answers,
      seconds: seconds,
      rate: rate,
      p50: latencies.p50,
      p99: latencies.p99,
      p999: latencies.p999,
      cpu: cpu
    )
  }
}
