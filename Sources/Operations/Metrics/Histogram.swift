/// Histogram with fixed buckets: plain integers for use within one event loop, summed over the loops when scraped.
package struct Histogram: Sendable, Equatable {
  /// Upper bounds, inclusive and rising; values above the last count in `+Inf` only.
  package let bounds: [Double]
  /// Counts by bucket, not cumulative; one more than `bounds`.
  package private(set) var counts: [UInt64]
  package private(set) var sum: Double

  package init(bounds: [Double]) {
    self.bounds = bounds
    self.counts = Array(repeating: 0, count: bounds.count + 1)
    self.sum = 0
  }

  /// Buckets for durations in seconds, from 100 µs to 10 s.
  package static let durations = Histogram(bounds: [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
  ])
  /// Buckets for counts and sizes, from 1 to 2^24 in powers of four.
  package static let sizes = Histogram(bounds: (0...12).map { Double(1 << (2 * $0)) })

  /// Count a value.
  package mutating func record(_ value: Double) {
    var bucket = 0
    while bucket < bounds.count && value > bounds[bucket] { bucket += 1 }
    counts[bucket] += 1
    sum += value
  }

  /// Number of values counted.
  package var count: UInt64 { counts.reduce(0, +) }

  /// Add another histogram with the same buckets.
  package mutating func add(_ other: Histogram) {
    precondition(bounds == other.bounds, "histograms of one name have one set of buckets")
    for bucket in counts.indices { counts[bucket] += other.counts[bucket] }
    sum += other.sum
  }
}
