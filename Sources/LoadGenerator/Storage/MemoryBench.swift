internal import ArgumentParser
internal import CommandOutput
internal import CommandSupport
internal import Foundation
internal import LocalStack
internal import Synchronization

/// Command `tidemark bench memory`: a store whose memory budget is much smaller than its data.
struct MemoryBench: Benchmark {
  static let name = "memory"
  static let abstract = "Load-tests a store with more channels than fit in memory, with Zipf-distributed access."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, with data in a \
    new directory under ./.tidemark. 70 % of the requests read a read state, 15 % mark a message read, and 15 % \
    register a message. The channels follow a Zipf distribution. Afterwards it reads acknowledged marks back, and \
    exits with 1 if one is missing.
    """

  @Option(help: "Channels.")
  var channels = 100_000
  @Option(help: "Members of each channel.")
  var members = 10
  @Option(help: ArgumentHelp("The store's --memory, in MiB.", valueName: "MiB"))
  var memory = 32
  @Option(help: ArgumentHelp("Duration of the load.", valueName: "time"))
  var seconds = TimeSpanArgument(seconds: 20)
  @Option(help: "Requests in flight.")
  var concurrency = 64
  @Option(help: "Exponent of the Zipf distribution.")
  var exponent = 0.99
  @OptionGroup var options: BenchOptions

  struct Load: Sendable, Encodable {
    var memoryBytes: Int
    /// Bytes of all channels in memory before the budget was set.
    var dataSetBytes: Int
    var channels: Int
    var requests: Int
    /// Answers with status 503.
    var refused: Int
    var requestsPerSecond: Double
    /// Channels that were read from storage.
    var loads: Int
    var evicted: Int
    /// Maximum bytes of the channels in memory, sampled ten times a second.
    var residentBytesMax: Int
    /// Maximum resident memory of the process, sampled too.
    var processBytesMax: Int
    /// Channels that were read back and compared with the acknowledged marks.
    var checked: Int
  }

  func validate() throws {
    try validateRanges([
      ("channels", channels, 1_000...10_000_000), ("members", members, 1...100),
      ("memory", memory, 1...1 << 20), ("concurrency", concurrency, 1...4096),
    ])
    try seconds.validate("--seconds", in: 0.001...3600)
    guard exponent > 0, exponent < 1 else { throw ValidationError("--exponent: give more than 0 and less than 1") }
  }

  func text(_ report: Timed<Load>) -> String {
    let table = ReportTable<Timed<Load>>(
      columns: [
        .mebibytes("--memory", \.memoryBytes), .mebibytes("data set", \.dataSetBytes),
        .count("channels", \.channels), .count("requests/s") { Int($0.requestsPerSecond) },
      ] + Timed.columns(digits: 2) + [
        .number("read from storage") { "\($0.requests == 0 ? 0 : 100 * $0.loads / $0.requests) %" },
        .count("refused", \.refused), .mebibytes("channels at most", \.residentBytesMax),
        .mebibytes("process at most", \.processBytesMax),
      ]
    )
    return table.markdown([report]) ?? ""
  }

  func measure(_ run: BenchRun) async throws -> Timed<Load> {
    try await run.withServices { services in
      let stack = services.stack
      let dataset = RecoveryDataset(services, channels: channels, members: members)
      try await dataset.create()
      let dataSet = await stack.storeResidentBytes
      let memoryBytes = memory << 20
      try await stack.restartStore(memoryBytes: memoryBytes)

      let before = await counters(stack)
      let watch = MemoryWatch(stack: stack)
      let watching = Task { await watch.run() }
      let start = MonotonicClock.now
      let results = try await use(dataset, until: start + UInt64(seconds.seconds * 1e9), note: run.note)
      let elapsed = MonotonicClock.seconds(since: start)
      watching.cancel()
      await watching.value
      let after = await counters(stack)
      run.note("reading back")
      let checked = try await dataset.check(2_000)
      let load = Load(
        memoryBytes: memoryBytes,
        dataSetBytes: dataSet,
        channels: channels,
        requests: results.answered,
        refused: results.refused,
        requestsPerSecond: Double(results.answered) / elapsed,
        loads: after.loads - before.loads,
        evicted: after.evicted - before.evicted,
        residentBytesMax: await watch.residentBytesMax,
        processBytesMax: await watch.processBytesMax,
        checked: checked
      )
      return Timed(load, results.latencies)
    }
  }

  private struct Results: Sendable {
    var latencies = Latencies()
    var answered = 0
    var refused = 0
  }

  private func use(
    _ dataset: RecoveryDataset,
    until end: UInt64,
    note: @escaping ProgressHandler
  ) async throws -> Results {
    let zipf = Zipf(count: channels, exponent: exponent)
    let total = RequestCount()
    return try await withThrowingTaskGroup(of: Results.self) { tasks in
      for _ in 0..<concurrency {
        tasks.addTask {
          var random = SystemRandomNumberGenerator()
          var results = Results()
          while MonotonicClock.now < end {
            try Task.checkCancellation()
            let channel = zipf.next(&random)
            let start = MonotonicClock.now
            let isAnswered = try await dataset.use(channel, &random)
            results.latencies.record(since: start)
            if isAnswered { results.answered += 1 } else { results.refused += 1 }
            let sum = total.add()
            if sum % 1_000 == 0 { note("\(Figures.count(sum)) requests answered") }
          }
          return results
        }
      }
      var sum = Results()
      for try await part in tasks {
        sum.latencies.add(part.latencies)
        sum.answered += part.answered
        sum.refused += part.refused
      }
      return sum
    }
  }

  private func counters(_ stack: LocalStack) async -> (loads: Int, evicted: Int) {
    (
      Int(await stack.storeMetric("tidemark_store_channels_loaded_total") ?? 0),
      Int(await stack.storeMetric("tidemark_store_channels_evicted_total") ?? 0)
    )
  }
}

/// Sampler of the store's memory, ten times a second.
private actor MemoryWatch {
  private let stack: LocalStack
  private(set) var residentBytesMax = 0
  private(set) var processBytesMax = 0

  init(stack: LocalStack) { self.stack = stack }

  func run() async {
    while !Task.isCancelled {
      residentBytesMax = max(residentBytesMax, await stack.storeResidentBytes)
      if let store = await stack.storeProcess {
        processBytesMax = max(processBytesMax, ProcessFigures.residentBytes(of: store.processID) ?? 0)
      }
      try? await Task.sleep(for: .milliseconds(100))
    }
  }
}

/// Counter that several tasks share.
private final class RequestCount: Sendable {
  private let value = Atomic<Int>(0)
  func add() -> Int { value.add(1, ordering: .relaxed).newValue }
}

/// Zipf-distributed numbers 0 to `count`−1: the frequency of rank r is proportional to 1/r^`exponent`, and ranks are
/// scattered over the numbers. Method: Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD
/// 1994), which benchmarks of key-value stores use.
struct Zipf: Sendable {
  private let count: Int
  private let exponent: Double
  private let zeta: Double
  private let alpha: Double
  private let eta: Double

  /// - Parameters:
  ///   - count: at least 2.
  ///   - exponent: above 0 and below 1.
  init(count: Int, exponent: Double) {
    precondition(count >= 2 && exponent > 0 && exponent < 1)
    self.count = count
    self.exponent = exponent
    var sum = 0.0
    for rank in 1...count { sum += 1 / pow(Double(rank), exponent) }
    zeta = sum
    alpha = 1 / (1 - exponent)
    let two = 1 + pow(0.5, exponent)
    eta = (1 - pow(2 / Double(count), 1 - exponent)) / (1 - two / sum)
  }

  /// Return the rank of a uniform random number in 0..<1; rank 0 is the most frequent.
  func rank(_ uniform: Double) -> Int {
    let scaled = uniform * zeta
    if scaled < 1 { return 0 }
    if scaled < 1 + pow(0.5, exponent) { return 1 }
    return min(count - 1, Int(Double(count) * pow(eta * uniform - eta + 1, alpha)))
  }

  func next(_ random: inout some RandomNumberGenerator) -> Int {
    let rank = rank(Double.random(in: 0..<1, using: &random))
    // Scatters neighbouring ranks; any odd factor without a common divisor with the count would do.
    return Int((UInt64(rank) &* 0x9E37_79B9_7F4A_7C15 >> 16) % UInt64(count))
  }
}
