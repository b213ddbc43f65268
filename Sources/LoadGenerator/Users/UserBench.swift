internal import ArgumentParser
internal import CommandSupport

/// Command `tidemark bench users`: requests about all channels of a user. All responses are compared with the known
/// unread counts.
struct UserBench: Benchmark {
  static let name = "users"
  static let abstract = "Times unread totals, badge counts and marking everything read, for users in many channels."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, with data in a \
    new directory under ./.tidemark. Sends queries first with all channels in memory, then after a restart with \
    little memory and all channels on storage. It sends one query after the other on one connection, compares every \
    answer with the known unread counts, and exits with 1 if one differs. Then it times marks in small channels \
    during badge-count queries, the creation of large channels, and an index rebuild.
    """

  @Option(parsing: .upToNextOption, help: ArgumentHelp("Channel counts, one user each.", valueName: "channels"))
  var sizes = [CommaList([10, 1000, 10000])]
  @Option(help: "Times that each query is sent.")
  var questions = 100
  @Option(help: "Times that everything is marked read.")
  var marks = 5
  @Option(help: ArgumentHelp("The store's --memory where channels are on storage, in MiB.", valueName: "MiB"))
  var memory = 1
  @OptionGroup var options: BenchOptions

  /// One kind of question.
  struct Question: Sendable, Encodable {
    var question: String
    /// Whether its channels were on storage.
    var isCold: Bool
    /// Channels of one question.
    var channels: Int
    var count: Int
    /// Channels and user indexes that were loaded meanwhile.
    var loads: Int
  }

  /// Work during which marks in small channels are timed.
  struct Beside: Sendable, Encodable {
    var work: String
    /// Whether all channels were on storage, the marked ones included.
    var isCold: Bool
    /// Duration of the work.
    var workMicroseconds: Int
    /// Number of marks.
    var count: Int
  }

  struct Report: Sendable, Encodable {
    var channels: Int
    var memoryBytes: Int
    /// Bytes of all channels in memory, and after the totals with channels on storage.
    var residentBytes: Int
    var coldResidentBytes: Int
    var measurements: [Timed<Question>]
    var besides: [Timed<Beside>]
  }

  func validate() throws {
    let sizes: [Int] = sizes.joined()
    guard !sizes.isEmpty, sizes.allSatisfy((1...100_000).contains), Set(sizes).count == sizes.count, sizes.count <= 10
    else { throw ValidationError("--sizes: give up to 10 different numbers from 1 to 100000") }
    try validateRanges([
      ("questions", questions, 1...100_000), ("marks", marks, 1...1_000), ("memory", memory, 1...1 << 20),
    ])
  }

  func text(_ report: Report) -> String {
    func mebibytes(_ bytes: Int) -> String { "\(Figures.decimal(Double(bytes) / 1_048_576, digits: 1)) MiB" }
    let questions = ReportTable<Timed<Question>>(
      columns: [
        .text("question", \.question), .count("channels", \.channels),
        .text("they were") { $0.isCold ? "on storage" : "in memory" }, .count("asked", \.count),
      ] + Timed.columns() + [.count("loads", \.loads)]
    )
    let besides = ReportTable<Timed<Beside>>(
      columns: [
        .text("marks beside", \.work), .text("its channels were") { $0.isCold ? "on storage" : "in memory" },
        .milliseconds("it took", \.workMicroseconds), .count("marks", \.count),
      ] + Timed.columns()
    )
    return """
      \(Figures.count(report.channels)) channels, \(mebibytes(report.residentBytes)) in memory; with --memory \
      \(mebibytes(report.memoryBytes)) there were \(mebibytes(report.coldResidentBytes)) after totals were asked for.

      \(questions.markdown(report.measurements) ?? "")

      \(besides.markdown(report.besides) ?? "")
      """
  }

  func measure(_ run: BenchRun) async throws -> Report {
    try await run.withServices { services in
      let stack = services.stack
      let dataset = try await UserDataset(services, sizes: sizes.joined())
      try await dataset.create()
      let resident = await stack.storeResidentBytes
      let warm = UserQuestions(bench: self, dataset: dataset, isCold: false)
      var measurements = try await warm.totals() + warm.markAll()
      try await dataset.postEverywhere()
      let work = WideWork(services: services, dataset: dataset)
      run.note("making the channels to mark in beside wide work")
      for isCold in [false, true] {
        for kind in WideWork.Kind.measured(isCold: isCold) { try await work.prepare(kind, isCold: isCold) }
      }
      var besides = try await work.measure(isCold: false)
      run.note("restarting the store with little memory")
      try await stack.restartStore(memoryBytes: memory << 20)
      // Channels that only the log has would be loaded first.
      try await stack.waitUntilIdle(within: 120, run.note)
      let cold = UserQuestions(bench: self, dataset: dataset, isCold: true)
      measurements += try await cold.totals()
      let coldResident = await stack.storeResidentBytes
      measurements += try await cold.markAll()
      besides += try await work.measure(isCold: true)
      return Report(
        channels: dataset.channels,
        memoryBytes: memory << 20,
        residentBytes: resident,
        coldResidentBytes: coldResident,
        measurements: measurements,
        besides: besides
      )
    }
  }
}

/// Questions of a ``UserBench`` with all channels in memory, or on storage.
private struct UserQuestions {
  let bench: UserBench
  let dataset: UserDataset
  let isCold: Bool

  func totals() async throws -> [Timed<UserBench.Question>] {
    var measurements: [Timed<UserBench.Question>] = []
    for size in dataset.sizes {
      dataset.note("timing: totals of a user in \(Figures.count(size)) channels")
      measurements.append(
        try await time("totals of one user", channels: size, bench.questions) { try await dataset.checkTotals(size) }
      )
    }
    let badges = "badge counts of \(UserDataset.badgeUsers) users"
    dataset.note("timing: \(badges)")
    measurements.append(
      try await time(badges, channels: dataset.channels, bench.questions) { try await dataset.checkBadges() }
    )
    return measurements
  }

  func markAll() async throws -> [Timed<UserBench.Question>] {
    var measurements: [Timed<UserBench.Question>] = []
    for size in dataset.sizes {
      dataset.note("timing: everything read by a user in \(Figures.count(size)) channels")
      measurements.append(
        try await time("everything marked read, all of it new", channels: size, bench.marks) {
          if $0 > 0 { try await dataset.post(toFirst: size) }
        } _: {
          try await dataset.markAll(size)
        }
      )
      measurements.append(
        try await time("the same again, none of it new", channels: size, bench.marks) {
          try await dataset.markAll(size)
        }
      )
      try await dataset.checkTotals(size)
    }
    return measurements
  }

  private func time(
    _ question: String,
    channels: Int,
    _ count: Int,
    before: (Int) async throws -> Void = { _ in },
    _ request: () async throws -> Void
  ) async throws -> Timed<UserBench.Question> {
    let loadsBefore = await dataset.loads
    let latencies = try await Latencies.timing(count, before: before) { _ in try await request() }
    let loads = await dataset.loads - loadsBefore
    return Timed(
      UserBench.Question(question: question, isCold: isCold, channels: channels, count: count, loads: loads),
      latencies
    )
  }
}
