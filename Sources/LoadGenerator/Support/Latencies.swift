internal import Histogram

/// Latency recorder: counts by duration with three significant digits, up to two minutes. Durations are recorded in
/// nanoseconds and read in microseconds.
package struct Latencies: Sendable, Encodable {
  private var histogram = Histogram<UInt32>(
    highestTrackableValue: 120_000_000_000,
    numberOfSignificantValueDigits: .three
  )

  @inline(__always)
  mutating func record(nanoseconds: UInt64) { histogram.record(nanoseconds) }

  /// Record the time since a reading of ``MonotonicClock``.
  mutating func record(since start: UInt64) { record(nanoseconds: MonotonicClock.now - start) }

  mutating func add(_ other: Latencies) { histogram.add(other.histogram) }

  package var count: Int { Int(histogram.totalCount) }
  /// Percentiles and maximum in microseconds; 0 while nothing is recorded.
  package var p50: Double { percentile(50) }
  package var p90: Double { percentile(90) }
  package var p99: Double { percentile(99) }
  package var p999: Double { percentile(99.9) }
  package var max: Double { histogram.totalCount == 0 ? 0 : Double(histogram.maxRecorded) / 1_000 }

  private func percentile(_ percentile: Double) -> Double {
    histogram.totalCount == 0 ? 0 : Double(histogram.valueAtPercentile(percentile)) / 1_000
  }

  package func encode(to encoder: any Encoder) throws {
    try ["p50": p50, "p90": p90, "p99": p99, "p999": p999, "max": max].encode(to: encoder)
  }
}
