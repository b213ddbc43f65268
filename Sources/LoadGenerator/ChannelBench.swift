internal import Histogram
package import LocalStack
internal import Operations

/// One channel of very many members: positions are moved a million times, then counts, lists and read states are asked
/// for, timed, and compared with what the moves come to.
package struct ChannelBench: Sendable {
  package var members = 100_000
  /// How many positions are moved, about.
  package var moves = 1_000_000
  /// How often each question is asked.
  package var questions = 500

  /// One kind of question, asked one after the other on one connection.
  package struct Measurement: Sendable, Codable {
    package var question: String
    package var count: Int
    package var p50Microseconds: Int
    package var p99Microseconds: Int
    package var maxMicroseconds: Int
  }

  /// What a run came to.
  package struct Report: Sendable, Codable {
    package var members: Int
    package var moves: Int
    package var movesPerSecond: Double
    /// Answers that were compared with what the moves come to; all agreed, or the run has failed.
    package var compared: Int
    /// What the channel occupied in the store's memory.
    package var residentBytes: Int
    package var measurements: [Measurement]
  }

  package init() {}

  /// Runs it all, with the data in a new directory that is removed at the end.
  ///
  /// - Parameter note: told how far it is.
  package func run(
    executables: Executables,
    directory: String,
    note: @escaping @Sendable (String) -> Void
  ) async throws -> Report {
    try await BenchStack.run(executables: executables, directory: directory) { stack, files in
      let mint = try await TokenMint(secretFile: files.jwtSecret)
      let world = LargeChannel(
        caller: try await HTTP2Caller.connect(to: stack.plan.gateways[0].listen),
        token: try await mint.server(lifetime: .seconds(12 * 3600)),
        plan: MovePlan(members: members, moves: moves)
      )
      try await world.create(note)
      let began = MonotonicClock.now
      try await world.move(note)
      let seconds = Double(MonotonicClock.now - began) / 1e9
      let compared = try await world.compare(note)
      let resident = Int(await BenchStack.storeMetric("tidemark_store_resident_bytes", stack) ?? 0)
      var measurements: [Measurement] = []
      for question in LargeChannel.Question.allCases {
        note("timing: \(question.rawValue)")
        measurements.append(try await measure(question, world))
      }
      measurements.append(try await measureNeighbour(world, note))
      measurements.append(
        try Self.measureShard("one count, in the shard alone", world.plan, questions, hiding: 0)
      )
      measurements.append(
        try Self.measureShard("the same, where a hundred members hide", world.plan, questions, hiding: 100)
      )
      await world.caller.close()
      return Report(
        members: members,
        moves: world.plan.moveCount,
        movesPerSecond: Double(world.plan.moveCount) / seconds,
        compared: compared,
        residentBytes: resident,
        measurements: measurements
      )
    }
  }

  // MARK: Timing

  private func measure(_ question: LargeChannel.Question, _ world: LargeChannel) async throws -> Measurement {
    var latencies = Latencies()
    for number in 0..<questions {
      let call = world.call(question, number)
      let began = MonotonicClock.now
      try await world.expect([200], call.method, call.path, call.body)
      latencies.record(since: began)
    }
    return latencies.measurement(question.rawValue)
  }

  /// Marks in a small channel while others ask for the large one's statuses and lists without a break.
  private func measureNeighbour(
    _ world: LargeChannel,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> Measurement {
    note("timing: marks in a small channel beside it")
    try await world.createNeighbour(messages: questions)
    return try await withThrowingTaskGroup(of: Void.self) { tasks in
      for asker in 0..<4 {
        tasks.addTask {
          var number = asker
          while !Task.isCancelled {
            let call = world.call(asker % 2 == 0 ? .statuses : .firstUnread, number)
            try await world.expect([200, 503], call.method, call.path, call.body)
            number += 4
          }
        }
      }
      var latencies = Latencies()
      for number in 0..<questions {
        let began = MonotonicClock.now
        try await world.markNeighbour(number)
        latencies.record(since: began)
      }
      tasks.cancelAll()
      while (try? await tasks.next()) != nil {}
      return latencies.measurement("a mark in a small channel, while four ask for statuses and lists")
    }
  }

  private static func measureShard(
    _ question: String,
    _ plan: MovePlan,
    _ questions: Int,
    hiding: Int
  ) throws -> Measurement {
    let nanoseconds = try ShardCounting(plan, hiding: hiding).measure(questions)
    func microseconds(_ share: Double) -> Int {
      Int(nanoseconds[min(nanoseconds.count - 1, Int(share * Double(nanoseconds.count)))] / 1_000)
    }
    return Measurement(
      question: question,
      count: nanoseconds.count,
      p50Microseconds: microseconds(0.5),
      p99Microseconds: microseconds(0.99),
      maxMicroseconds: microseconds(1)
    )
  }

  private struct Latencies {
    private var histogram = Histogram<UInt32>(
      highestTrackableValue: 120_000_000,
      numberOfSignificantValueDigits: .three
    )

    mutating func record(since began: UInt64) { histogram.record((MonotonicClock.now - began) / 1_000) }

    func measurement(_ question: String) -> Measurement {
      Measurement(
        question: question,
        count: Int(histogram.totalCount),
        p50Microseconds: Int(histogram.valueAtPercentile(50)),
        p99Microseconds: Int(histogram.valueAtPercentile(99)),
        maxMicroseconds: Int(histogram.max)
      )
    }
  }
}
