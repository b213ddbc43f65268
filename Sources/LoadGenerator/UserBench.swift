internal import Histogram
package import LocalStack

/// What users ask about all of their channels together: totals of what is unread, badge counts of many users, and
/// marking everything read. One user each is in so many channels; what is unread is known, and every answer is compared
/// with it.
package struct UserBench: Sendable {
  /// In how many channels the users are.
  package var sizes = [10, 1_000, 10_000]
  /// How often each question is asked; where what is asked for marks, `marks` times.
  package var questions = 100
  package var marks = 5
  /// The store's `--memory` where channels are to be on storage.
  package var memoryBytes = 1 << 20

  /// One kind of question, asked one after the other on one connection.
  package struct Measurement: Sendable, Codable {
    package var question: String
    /// Whether its channels were in memory.
    package var isCold: Bool
    /// Channels that one question is about.
    package var channels: Int
    package var count: Int
    package var p50Microseconds: Int
    package var p99Microseconds: Int
    package var maxMicroseconds: Int
    /// Channels, indexes of users among them, that came into memory meanwhile.
    package var loads: Int
  }

  /// Marks in small channels, one after the other, while something wide was under way.
  package struct Beside: Sendable, Codable {
    package var work: String
    /// Whether the channels were on storage, those that are marked in too.
    package var isCold: Bool
    /// How long the work took.
    package var workMicroseconds: Int
    /// Marks.
    package var count: Int
    package var p50Microseconds: Int
    package var p99Microseconds: Int
    package var maxMicroseconds: Int
  }

  /// What a run came to.
  package struct Report: Sendable, Codable {
    package var channels: Int
    package var memoryBytes: Int
    /// What all channels occupied in memory, and how much of them did where they were on storage, after it was asked.
    package var residentBytes: Int
    package var coldResidentBytes: Int
    package var measurements: [Measurement]
    package var besides: [Beside]
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
      let world = try await UserWorld(stack: stack, secretFile: files.jwtSecret, sizes: sizes)
      try await world.create(note)
      let resident = Int(await BenchStack.storeMetric("tidemark_store_resident_bytes", stack) ?? 0)
      var measurements = try await totals(world, isCold: false, note)
      measurements += try await markAll(world, isCold: false, note)
      try await world.postEverywhere(note)
      let work = try await WideWork(stack: stack, files: files, world: world)
      let coldKinds = WideWork.Kind.allCases.filter { $0 != .making }
      note("making the channels to mark in beside wide work")
      for kind in WideWork.Kind.allCases { try await work.prepare(kind, isCold: false) }
      for kind in coldKinds { try await work.prepare(kind, isCold: true) }
      var besides = try await beside(WideWork.Kind.allCases, work, isCold: false, note)
      try await restart(stack, note)
      measurements += try await totals(world, isCold: true, note)
      let coldResident = Int(await BenchStack.storeMetric("tidemark_store_resident_bytes", stack) ?? 0)
      measurements += try await markAll(world, isCold: true, note)
      besides += try await beside(coldKinds, work, isCold: true, note)
      await work.close()
      await world.close()
      return Report(
        channels: world.channels,
        memoryBytes: memoryBytes,
        residentBytes: resident,
        coldResidentBytes: coldResident,
        measurements: measurements,
        besides: besides
      )
    }
  }

  /// Starts the store again with little memory, and waits until everything is in pages: what the log alone has would
  /// have to be loaded.
  private func restart(_ stack: LocalStack, _ note: @Sendable (String) -> Void) async throws {
    note("starting the store again with little memory")
    await stack.stopStore()
    await stack.setStoreFlags(["--memory", String(memoryBytes)])
    try await stack.startStore(within: .seconds(120))
    try await stack.waitUntilGatewaysAreReady()
    for _ in 0..<1_200 {
      let tail = await BenchStack.storeMetric("tidemark_store_tail_channels", stack) ?? 0
      let dirty = await BenchStack.storeMetric("tidemark_store_dirty_pages", stack) ?? 0
      if tail == 0, dirty == 0 { return }
      note(
        "\(Figures.count(Int(tail))) channels are in the log only, \(Figures.count(Int(dirty))) pages not written"
      )
      try await Task.sleep(for: .milliseconds(100))
    }
    throw LoadError("after two minutes the log's tail is not in pages")
  }

  // MARK: Timing

  private func beside(
    _ kinds: [WideWork.Kind],
    _ work: WideWork,
    isCold: Bool,
    _ note: @Sendable (String) -> Void
  ) async throws -> [Beside] {
    var besides: [Beside] = []
    for kind in kinds {
      note("timing: marks beside \(kind.rawValue)")
      besides.append(try await work.measure(kind, isCold: isCold))
    }
    return besides
  }

  private func totals(
    _ world: UserWorld,
    isCold: Bool,
    _ note: @Sendable (String) -> Void
  ) async throws -> [Measurement] {
    var measurements: [Measurement] = []
    for size in sizes {
      note("timing: totals of a user in \(Figures.count(size)) channels")
      measurements.append(
        try await measure("totals of one user", world, isCold: isCold, channels: size, questions) {
          try await world.checkTotals(size)
        }
      )
    }
    note("timing: badge counts of \(UserWorld.badgeUsers) users")
    measurements.append(
      try await measure(
        "badge counts of \(UserWorld.badgeUsers) users",
        world,
        isCold: isCold,
        channels: world.channels,
        questions
      ) { try await world.checkBadges() }
    )
    return measurements
  }

  private func markAll(
    _ world: UserWorld,
    isCold: Bool,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> [Measurement] {
    var measurements: [Measurement] = []
    for size in sizes {
      note("timing: everything read by a user in \(Figures.count(size)) channels")
      measurements.append(
        try await measure(
          "everything marked read, all of it new",
          world,
          isCold: isCold,
          channels: size,
          marks,
          before: { if $0 > 0 { try await world.post(toFirst: size) } }
        ) { try await world.markAll(size) }
      )
      measurements.append(
        try await measure("the same again, none of it new", world, isCold: isCold, channels: size, marks) {
          try await world.markAll(size)
        }
      )
      try await world.checkTotals(size)
    }
    return measurements
  }

  private func measure(
    _ question: String,
    _ world: UserWorld,
    isCold: Bool,
    channels: Int,
    _ count: Int,
    before: (Int) async throws -> Void = { _ in },
    _ ask: () async throws -> Void
  ) async throws -> Measurement {
    var histogram = Histogram<UInt32>(
      highestTrackableValue: 120_000_000,
      numberOfSignificantValueDigits: .three
    )
    let loads = await world.loads
    for number in 0..<count {
      try await before(number)
      let began = MonotonicClock.now
      try await ask()
      histogram.record((MonotonicClock.now - began) / 1_000)
    }
    return Measurement(
      question: question,
      isCold: isCold,
      channels: channels,
      count: Int(histogram.totalCount),
      p50Microseconds: Int(histogram.valueAtPercentile(50)),
      p99Microseconds: Int(histogram.valueAtPercentile(99)),
      maxMicroseconds: Int(histogram.max),
      loads: await world.loads - loads
    )
  }
}
