internal import Histogram
internal import NIOCore

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
    NIODeadline.now().uptimeNanoseconds
  }

  static func seconds(since start: UInt64) -> Double { Double(now - start) / 1e9 }
}
