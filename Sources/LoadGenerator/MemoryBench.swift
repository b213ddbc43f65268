internal import Histogram
package import LocalStack
internal import Operations
internal import Synchronization

/// A store with a budget for memory under a data set that is many times larger: channels are used as people use them, a
/// few of them much and most of them seldom, and what is asked for has to be read back into memory again and again.
package struct MemoryBench: Sendable {
  package var channels = 100_000
  package var members = 10
  /// The store's `--memory`.
  package var memoryBytes = 32 << 20
  package var seconds = 20.0
  /// Requests under way at once.
  package var concurrency = 64
  package var exponent = 0.99

  package struct Measurement: Sendable, Codable {
    package var memoryBytes: Int
    /// What all channels occupied before the budget was set; the data set.
    package var dataSetBytes: Int
    package var channels: Int
    package var requests: Int
    /// Answered 503; callers come again.
    package var refused: Int
    package var requestsPerSecond: Double
    package var p50Microseconds: Int
    package var p99Microseconds: Int
    /// The longest that anyone waited.
    package var maxMicroseconds: Int
    /// Of the requests, those whose channel had to be read from storage.
    package var loads: Int
    package var evicted: Int
    /// The most that channels occupied, seen ten times a second.
    package var residentBytesMax: Int
    /// The most that the process occupied.
    package var processBytesMax: Int
    /// Channels that were read back afterwards; every one had what was acknowledged.
    package var checked: Int
  }

  package init() {}

  /// Makes the channels without a budget, starts the store again with one, and uses them.
  ///
  /// - Parameter note: told how far it is.
  package func run(
    executables: Executables,
    directory: String,
    note: @escaping @Sendable (String) -> Void
  ) async throws -> Measurement {
    try await BenchStack.run(executables: executables, directory: directory) { stack, files in
      try await measure(stack, files, note)
    }
  }

  private func measure(
    _ stack: LocalStack,
    _ files: StackFiles,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> Measurement {
    let world = try await RecoveryWorld(
      endpoint: stack.plan.gateways[0].listen,
      secretFile: files.jwtSecret,
      channels: channels,
      members: members
    )
    try await world.create(note)
    let dataSet = Int(await BenchStack.storeMetric("tidemark_store_resident_bytes", stack) ?? 0)
    await stack.stopStore()
    await stack.setStoreFlags(["--memory", String(memoryBytes)])
    try await stack.startStore(within: .seconds(120))
    try await stack.waitUntilGatewaysAreReady()

    let before = await counters(stack)
    let watch = Watch(stack: stack)
    let watching = Task { await watch.run() }
    let began = MonotonicClock.now
    let end = began + UInt64(seconds * 1e9)
    let results = try await use(world, until: end, note)
    let elapsed = Double(MonotonicClock.now - began) / 1e9
    watching.cancel()
    await watching.value
    let after = await counters(stack)
    note("reading back")
    let checked = try await world.check(2_000)
    await world.close()
    let latencies = results.latencies
    return Measurement(
      memoryBytes: memoryBytes,
      dataSetBytes: dataSet,
      channels: channels,
      requests: results.answered,
      refused: results.refused,
      requestsPerSecond: Double(results.answered) / elapsed,
      p50Microseconds: Int(latencies.valueAtPercentile(50)),
      p99Microseconds: Int(latencies.valueAtPercentile(99)),
      maxMicroseconds: Int(latencies.max),
      loads: after.loads - before.loads,
      evicted: after.evicted - before.evicted,
      residentBytesMax: await watch.residentBytesMax,
      processBytesMax: await watch.processBytesMax,
      checked: checked
    )
  }

  // MARK: Use

  private final class RequestCount: Sendable {
    private let value = Atomic<Int>(0)
    func add() -> Int { value.add(1, ordering: .relaxed).newValue }
  }

  private struct Results: Sendable {
    var latencies = Histogram<UInt32>(
      highestTrackableValue: 120_000_000,
      numberOfSignificantValueDigits: .three
    )
    var answered = 0
    var refused = 0
  }

  private func use(
    _ world: RecoveryWorld,
    until end: UInt64,
    _ note: @escaping @Sendable (String) -> Void
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
            let began = MonotonicClock.now
            let isAnswered = try await world.use(channel, RecoveryWorld.Use.random(&random))
            results.latencies.record(UInt64(MonotonicClock.now - began) / 1_000)
            if isAnswered { results.answered += 1 } else { results.refused += 1 }
            let sum = total.add()
            if sum % 1_000 == 0 { note("\(Figures.count(sum)) requests answered") }
          }
          return results
        }
      }
      var sum = Results()
      for try await part in tasks {
        part.latencies.recordedValues().forEach { sum.latencies.record($0.value, count: $0.count) }
        sum.answered += part.answered
        sum.refused += part.refused
      }
      return sum
    }
  }

  // MARK: Figures

  private func counters(_ stack: LocalStack) async -> (loads: Int, evicted: Int) {
    (
      Int(await BenchStack.storeMetric("tidemark_store_channels_loaded_total", stack) ?? 0),
      Int(await BenchStack.storeMetric("tidemark_store_channels_evicted_total", stack) ?? 0)
    )
  }

  /// Looks at the store ten times a second.
  private actor Watch {
    private let stack: LocalStack
    private(set) var residentBytesMax = 0
    private(set) var processBytesMax = 0

    init(stack: LocalStack) { self.stack = stack }

    func run() async {
      while !Task.isCancelled {
        if let answer = await HealthCheck.get("http://\(stack.plan.storeAdmin)/metrics"),
          let bytes = ProcessFigures.metric("tidemark_store_resident_bytes", in: answer.body)
        {
          residentBytesMax = max(residentBytesMax, Int(bytes))
        }
        if let store = await stack.storeProcess, let bytes = ProcessFigures.residentBytes(of: store.processID)
        {
          processBytesMax = max(processBytesMax, bytes)
        }
        try? await Task.sleep(for: .milliseconds(100))
      }
    }
  }
}
