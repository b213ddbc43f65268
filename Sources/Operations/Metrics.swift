package import NIOCore
internal import Synchronization

/// Metrics of a process, collected from its event loops.
///
/// An atomic operation per request is too expensive on a hot path. A loop therefore keeps plain integers and registers
/// a collector, which runs on that loop when scraped.
package final class MetricsRegistry: Sendable {
  private struct Collector: Sendable {
    var eventLoop: any EventLoop
    var collect: @Sendable (inout MetricSamples) -> Void
  }

  private let collectors = Mutex<[Collector]>([])

  package init() {}

  /// Call `collect` on `eventLoop` at each scrape, as long as the loop runs.
  package func register(on eventLoop: any EventLoop, _ collect: @escaping @Sendable (inout MetricSamples) -> Void) {
    collectors.withLock { $0.append(Collector(eventLoop: eventLoop, collect: collect)) }
  }

  /// Collect all samples. Loops that are shut down are skipped.
  package func collect(on eventLoop: any EventLoop) -> EventLoopFuture<MetricSamples> {
    let parts = collectors.withLock { $0 }.map { collector in
      collector.eventLoop.submit {
        var samples = MetricSamples()
        collector.collect(&samples)
        return samples
      }.recover { _ in MetricSamples() }
    }
    return EventLoopFuture.whenAllSucceed(parts, on: eventLoop).map { parts in
      var samples = MetricSamples()
      for part in parts { samples.merge(part) }
      ProcessMetrics.add(to: &samples)
      return samples
    }
  }
}

/// Samples of one scrape, and their text form (Prometheus text exposition format 0.0.4).
///
/// Values with the same name and labels are summed, so every event loop adds its own plain counters. For
/// ``highest(_:help:_:)`` the maximum is used.
package struct MetricSamples: Sendable {
  enum Kind: String, Sendable {
    case counter, gauge, histogram
  }

  enum Value: Sendable, Equatable {
    case number(Double)
    case integer(Int64)
    case highest(Double)
    case histogram(Histogram)
  }

  struct Family: Sendable {
    var kind: Kind
    var help: String
    /// Values by label text, such as `{route="read",status="2xx"}`; empty without labels.
    var series: [String: Value] = [:]
  }

  private var families: [String: Family] = [:]

  package init() {}

  /// Add to a counter; its name should end in `_total`.
  package mutating func counter(
    _ name: String,
    help: String,
    labels: KeyValuePairs<String, String> = [:],
    _ value: Int64
  ) {
    add(name, .counter, help: help, labels: labels, .integer(value))
  }

  /// Add to a gauge.
  package mutating func gauge(
    _ name: String,
    help: String,
    labels: KeyValuePairs<String, String> = [:],
    _ value: Double
  ) {
    add(name, .gauge, help: help, labels: labels, .number(value))
  }

  /// Add to a gauge that reports the maximum of all added values.
  package mutating func highest(_ name: String, help: String, _ value: Double) {
    add(name, .gauge, help: help, labels: [:], .highest(value))
  }

  /// Add to a histogram; a name for durations should end in `_seconds`.
  package mutating func histogram(
    _ name: String,
    help: String,
    labels: KeyValuePairs<String, String> = [:],
    _ value: Histogram
  ) {
    add(name, .histogram, help: help, labels: labels, .histogram(value))
  }

  /// Add the samples of another scrape.
  package mutating func merge(_ other: MetricSamples) {
    for (name, family) in other.families {
      for (labels, value) in family.series {
        add(name, family.kind, help: family.help, labelText: labels, value)
      }
    }
  }

  mutating func add(_ name: String, _ kind: Kind, help: String, labels: KeyValuePairs<String, String>, _ value: Value) {
    add(name, kind, help: help, labelText: Self.text(labels), value)
  }

  private mutating func add(_ name: String, _ kind: Kind, help: String, labelText: String, _ value: Value) {
    var family = families[name] ?? Family(kind: kind, help: help)
    // Two places that use a name for different kinds are a bug of ours, which must not spoil the whole scrape.
    guard family.kind == kind else { return }
    if family.help.isEmpty { family.help = help }
    family.series[labelText] = family.series[labelText].map { Self.sum($0, value) } ?? value
    families[name] = family
  }

  private static func sum(_ a: Value, _ b: Value) -> Value {
    switch (a, b) {
    case (.integer(let a), .integer(let b)): return .integer(a &+ b)
    case (.integer(let a), .number(let b)), (.number(let b), .integer(let a)): return .number(Double(a) + b)
    case (.number(let a), .number(let b)): return .number(a + b)
    case (.histogram(var a), .histogram(let b)):
      if a.bounds == b.bounds { a.add(b) }
      return .histogram(a)
    case (.highest(let a), .highest(let b)): return .highest(max(a, b))
    // A name has one kind of value.
    case (.histogram, _), (_, .histogram), (.highest, _), (_, .highest): return a
    }
  }

  /// Write all families, sorted by name, each with its HELP and TYPE lines.
  package func write(into buffer: inout ByteBuffer) {
    for (name, family) in families.sorted(by: { $0.key < $1.key }) {
      if !family.help.isEmpty { buffer.writeString("# HELP \(name) \(Self.escapedHelp(family.help))\n") }
      buffer.writeString("# TYPE \(name) \(family.kind.rawValue)\n")
      for (labels, value) in family.series.sorted(by: { $0.key < $1.key }) {
        switch value {
        case .integer(let integer): buffer.writeString("\(name)\(labels) \(integer)\n")
        case .number(let number), .highest(let number): buffer.writeString("\(name)\(labels) \(Self.text(number))\n")
        case .histogram(let histogram): Self.write(histogram, name, labels, into: &buffer)
        }
      }
    }
  }

  private static func write(_ histogram: Histogram, _ name: String, _ labels: String, into buffer: inout ByteBuffer) {
    var cumulated: UInt64 = 0
    for (bucket, count) in histogram.counts.enumerated() {
      cumulated += count
      let bound = bucket < histogram.bounds.count ? text(histogram.bounds[bucket]) : "+Inf"
      let inner = labels.isEmpty ? "" : labels.dropFirst().dropLast() + ","
      buffer.writeString("\(name)_bucket{\(inner)le=\"\(bound)\"} \(cumulated)\n")
    }
    buffer.writeString("\(name)_sum\(labels) \(text(histogram.sum))\n")
    buffer.writeString("\(name)_count\(labels) \(cumulated)\n")
  }

  static func text(_ number: Double) -> String {
    if number.isNaN { return "NaN" }
    if number.isInfinite { return number < 0 ? "-Inf" : "+Inf" }
    if number == number.rounded(), abs(number) < 1e15 { return "\(Int64(number))" }
    return "\(number)"
  }

  private static func text(_ labels: KeyValuePairs<String, String>) -> String {
    let pairs = labels.map { "\($0.key)=\"\(escapedLabel($0.value))\"" }
    return pairs.isEmpty ? "" : "{\(pairs.joined(separator: ","))}"
  }

  private static func escapedLabel(_ text: String) -> String {
    escapedHelp(text).replacing("\"", with: "\\\"")
  }

  private static func escapedHelp(_ text: String) -> String {
    text.replacing("\\", with: "\\\\").replacing("\n", with: "\\n")
  }
}

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

/// Values in Prometheus text.
package enum MetricText {
  /// Return the value of the sample with this name, labels included; nil if it is missing.
  package static func value(_ name: String, in text: String) -> Double? {
    for line in text.split(separator: "\n") where line.hasPrefix(name + " ") {
      return Double(line.dropFirst(name.utf8.count + 1))
    }
    return nil
  }

  /// Return the buckets of a histogram without other labels: how many values were at most so large, by the bound.
  package static func buckets(_ name: String, in text: String) -> [Double: Double] {
    let prefix = name + "_bucket{le=\""
    var buckets: [Double: Double] = [:]
    for line in text.split(separator: "\n") where line.hasPrefix(prefix) {
      let words = line.dropFirst(prefix.count).split(separator: "\"} ")
      guard words.count == 2, let count = Double(words[1]) else { continue }
      buckets[words[0] == "+Inf" ? .infinity : Double(words[0]) ?? .nan] = count
    }
    return buckets
  }

  /// Return the sum of a metric over its labels.
  package static func sum(_ name: String, in text: String) -> Double {
    text.split(separator: "\n").filter { $0.hasPrefix(name + " ") || $0.hasPrefix(name + "{") }
      .compactMap { $0.split(separator: " ").last.flatMap { Double($0) } }.reduce(0, +)
  }
}
