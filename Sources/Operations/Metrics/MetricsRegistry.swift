package import CoreMetrics
package import NIOCore
internal import Synchronization

/// Metrics of a process: a backend for swift-metrics, and the collectors of event loops that count for themselves.
///
/// An atomic operation per request is too expensive on a hot path. A loop therefore keeps plain integers and registers
/// a collector, which runs on that loop when scraped.
package final class MetricsRegistry: MetricsFactory, Sendable {
  private struct State {
    var counters: [Series: CounterCell] = [:]
    var gauges: [Series: GaugeCell] = [:]
    var histograms: [Series: HistogramCell] = [:]
    var collectors: [Collector] = []
  }

  private struct Series: Hashable {
    var name: String
    var labels: [[String]]

    init(_ name: String, _ dimensions: [(String, String)]) {
      self.name = name
      self.labels = dimensions.map { [$0.0, $0.1] }
    }

    var pairs: [(String, String)] { labels.map { ($0[0], $0[1]) } }
  }

  private struct Collector: Sendable {
    var eventLoop: any EventLoop
    var collect: @Sendable (inout MetricSamples) -> Void
  }

  private let state = Mutex(State())
  private let help: [String: String]

  /// Create a registry. `help` has the HELP lines, by name, for metrics created through swift-metrics.
  package init(help: [String: String] = [:]) {
    self.help = help
  }

  /// Call `collect` on `eventLoop` at each scrape, as long as the loop runs.
  package func register(
    on eventLoop: any EventLoop,
    _ collect: @escaping @Sendable (inout MetricSamples) -> Void
  ) {
    state.withLock { $0.collectors.append(Collector(eventLoop: eventLoop, collect: collect)) }
  }

  /// Collect all samples. Loops that are shut down are skipped.
  package func collect(on eventLoop: any EventLoop) -> EventLoopFuture<MetricSamples> {
    let collectors = state.withLock { $0.collectors }
    let parts = collectors.map { collector in
      collector.eventLoop.submit {
        var samples = MetricSamples()
        collector.collect(&samples)
        return samples
      }.recover { _ in MetricSamples() }
    }
    return EventLoopFuture.whenAllSucceed(parts, on: eventLoop).map { parts in
      var samples = self.ownSamples()
      for part in parts { samples.merge(part) }
      ProcessMetrics.add(to: &samples)
      return samples
    }
  }

  private func ownSamples() -> MetricSamples {
    var samples = MetricSamples()
    func add(_ series: Series, _ type: MetricSamples.Kind, _ value: MetricSamples.Value) {
      samples.add(series.name, type, help: help[series.name] ?? "", labels: series.pairs, value)
    }
    state.withLock { state in
      for (series, cell) in state.counters { add(series, .counter, .integer(cell.value)) }
      for (series, cell) in state.gauges { add(series, .gauge, .number(cell.value)) }
      for (series, cell) in state.histograms { add(series, .histogram, .histogram(cell.value)) }
    }
    return samples
  }

  /// Create a counter; its name ends in `_total`.
  package func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
    cell(Series(label.withSuffix("_total"), dimensions), in: \.counters) { CounterCell() }
  }

  package func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
    gauge(label, dimensions)
  }

  /// Create a histogram of sizes, or a gauge if it is not aggregated.
  package func makeRecorder(
    label: String,
    dimensions: [(String, String)],
    aggregate: Bool
  ) -> any RecorderHandler {
    aggregate ? histogram(Series(label, dimensions), .sizes) : gauge(label, dimensions)
  }

  /// Create a histogram of seconds; its name ends in `_seconds`.
  package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
    histogram(Series(label.withSuffix("_seconds"), dimensions), .durations)
  }

  package func destroyCounter(_ handler: any CounterHandler) {
    state.withLock { state in state.counters = state.counters.filter { $0.value !== handler } }
  }

  package func destroyMeter(_ handler: any MeterHandler) {
    state.withLock { state in state.gauges = state.gauges.filter { $0.value !== handler } }
  }

  package func destroyRecorder(_ handler: any RecorderHandler) {
    state.withLock { state in
      state.gauges = state.gauges.filter { $0.value !== handler }
      state.histograms = state.histograms.filter { $0.value !== handler }
    }
  }

  package func destroyTimer(_ handler: any TimerHandler) {
    state.withLock { state in state.histograms = state.histograms.filter { $0.value !== handler } }
  }

  private func gauge(_ label: String, _ dimensions: [(String, String)]) -> GaugeCell {
    cell(Series(label, dimensions), in: \.gauges) { GaugeCell() }
  }

  private func histogram(_ series: Series, _ buckets: Histogram) -> HistogramCell {
    cell(series, in: \.histograms) { HistogramCell(buckets) }
  }

  /// Return the cell of a series, which is made if there is none.
  private func cell<Cell: Sendable>(
    _ series: Series,
    in cells: WritableKeyPath<State, [Series: Cell]>,
    _ make: () -> Cell
  ) -> Cell {
    state.withLock { state in
      if let cell = state[keyPath: cells][series] { return cell }
      let cell = make()
      state[keyPath: cells][series] = cell
      return cell
    }
  }
}

private final class CounterCell: CounterHandler, Sendable {
  private let count = Atomic<Int64>(0)

  var value: Int64 { count.load(ordering: .relaxed) }
  func increment(by amount: Int64) { count.wrappingAdd(amount, ordering: .relaxed) }
  func reset() { count.store(0, ordering: .relaxed) }
}

private final class GaugeCell: MeterHandler, RecorderHandler, Sendable {
  private let number = Mutex(0.0)

  var value: Double { number.withLock { $0 } }
  func set(_ value: Int64) { set(Double(value)) }
  func set(_ value: Double) { number.withLock { $0 = value } }
  func increment(by amount: Double) { number.withLock { $0 += amount } }
  func decrement(by amount: Double) { number.withLock { $0 -= amount } }
  func record(_ value: Int64) { set(value) }
  func record(_ value: Double) { set(value) }
}

private final class HistogramCell: RecorderHandler, TimerHandler, Sendable {
  private let histogram: Mutex<Histogram>

  init(_ buckets: Histogram) { histogram = Mutex(buckets) }

  var value: Histogram { histogram.withLock { $0 } }
  func record(_ value: Int64) { record(Double(value)) }
  func record(_ value: Double) { histogram.withLock { $0.record(value) } }
  func recordNanoseconds(_ duration: Int64) { record(Double(duration) / 1_000_000_000) }
}

extension String {
  fileprivate func withSuffix(_ suffix: String) -> String { hasSuffix(suffix) ? self : self + suffix }
}
