internal import ArgumentParser
internal import CommandSupport
internal import HTTP2Session
internal import ReceiptModel

/// Command `tidemark bench channel`: one channel with many members. All responses are compared with the known
/// positions.
struct ChannelBench: Benchmark {
  static let name = "channel"
  static let abstract =
    "Moves positions in one channel of very many members, then times its counts, lists and read states."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, with data in a \
    new directory under ./.tidemark. The positions after all moves are known. The command first compares all counts, \
    the lists of three messages and the whole read state with them, and exits with 1 if anything differs. Then it \
    sends one query after the other on one connection.
    """

  @Option(help: "Members.")
  var members = 100_000
  @Option(help: "Approximate number of positions moved, at most 10 for each member.")
  var moves = 1_000_000
  @Option(help: "Times that each query is sent.")
  var questions = 500
  @OptionGroup var options: BenchOptions

  /// One kind of question.
  struct Question: Sendable, Encodable {
    var question: String
    /// Number of times that it was sent.
    var count: Int
  }

  struct Report: Sendable, Encodable {
    var members: Int
    var moves: Int
    var movesPerSecond: Double
    /// Responses that were compared with the expected ones.
    var compared: Int
    /// Bytes of the channel in the store's memory.
    var residentBytes: Int
    var measurements: [Timed<Question>]
  }

  func validate() throws {
    try validateRanges([("members", members, 100...1_000_000), ("questions", questions, 1...100_000)])
    guard (members...10 * members).contains(moves) else {
      throw ValidationError("--moves: give 1 to 10 for each member")
    }
  }

  func text(_ report: Report) -> String {
    let table = ReportTable<Timed<Question>>(
      columns: [.text("question", \.question), .count("asked", \.count)] + Timed.columns()
    )
    return """
      \(Figures.count(report.members)) members, \(Figures.count(report.moves)) positions moved at \
      \(Figures.count(Int(report.movesPerSecond))) a second; \(Figures.count(report.compared)) answers compared; \
      \(Figures.count(report.residentBytes >> 20)) MiB resident.

      \(table.markdown(report.measurements) ?? "")
      """
  }

  func measure(_ run: BenchRun) async throws -> Report {
    try await run.withServices { services in
      let plan = MovePlan(members: members, moves: moves)
      let dataset = LargeChannel(client: services.client, plan: plan, note: run.note)
      try await dataset.create()
      let start = MonotonicClock.now
      try await dataset.move()
      let seconds = MonotonicClock.seconds(since: start)
      let compared = try await dataset.compare()
      let resident = await services.stack.storeResidentBytes
      var measurements: [Timed<Question>] = []
      func add(_ question: String, _ latencies: Latencies) {
        measurements.append(Timed(Question(question: question, count: latencies.count), latencies))
      }
      for question in LargeChannel.Question.allCases {
        run.note("timing: \(question.rawValue)")
        add(question.rawValue, try await dataset.time(question, count: questions))
      }
      run.note("timing: marks in a small channel beside it")
      add("a mark in a small channel, while four ask for statuses and lists", try await timeNeighbour(dataset))
      add("one count, in the shard alone", try ShardCounting(plan).measure(questions))
      add("the same, where a hundred members hide", try ShardCounting(plan, hiding: 100).measure(questions))
      return Report(
        members: members,
        moves: plan.moveCount,
        movesPerSecond: Double(plan.moveCount) / seconds,
        compared: compared,
        residentBytes: resident,
        measurements: measurements
      )
    }
  }

  /// Time marks in a small channel while others query the large channel continuously.
  private func timeNeighbour(_ dataset: LargeChannel) async throws -> Latencies {
    let cid = "messaging:small"
    try await dataset.client.putChannel(cid, members: ["alice", "bob"])
    try await dataset.client.register(0..<questions, sender: "alice") { (cid, "n\($0)") }
    return try await withThrowingTaskGroup(of: Void.self) { tasks in
      for asker in 0..<4 {
        tasks.addTask {
          var number = asker
          while !Task.isCancelled {
            let call = dataset.call(asker % 2 == 0 ? .statuses : .firstUnread, number)
            try await dataset.client.expect(call.method, call.path, call.body, statuses: [200, 503])
            number += 4
          }
        }
      }
      let latencies = try await Latencies.timing(questions) { number in
        try await dataset.client.expect(.post, "/v1/channels/\(cid)/read?message_id=n\(number)&user_id=bob")
      }
      tasks.cancelAll()
      while (try? await tasks.next()) != nil {}
      return latencies
    }
  }
}

/// Counts of a ``LargeChannel``'s plan on a shard in this process, without frames, sockets and HTTP.
struct ShardCounting: ~Copyable {
  private var state = ShardState(id: ShardID(0))
  private let slot: ChannelSlot
  private let plan: MovePlan

  init(_ plan: MovePlan, hiding: Int = 0) {
    self.plan = plan
    let number = ChannelNumber(1)
    let time = Timestamp(milliseconds: 1)
    slot = state.insert(number, cid: "messaging:large", created: time, own: OptionPatch())
    for member in 0..<plan.members {
      let row = MemberOrdinal(UInt32(member))
      state.assign(.rowAssigned(row, RowRecord(user: "member-\(member)", joined: .zero, joinedAt: time)), to: slot)
    }
    for message in 1...plan.messageCount {
      let record = MessageRecord(id: "m\(message)", sender: "", flags: [], registeredAt: time)
      state.assign(.messageAssigned(SequenceNumber(UInt32(message)), record), to: slot)
    }
    for member in 0..<plan.members {
      let row = MemberOrdinal(UInt32(member))
      let (read, delivered) = (UInt32(plan.read(member)), UInt32(plan.delivered(member)))
      state.assign(.readMoved(row, to: SequenceNumber(read), at: time), to: slot)
      state.assign(.deliveredMoved(row, to: SequenceNumber(delivered), at: time), to: slot)
    }
    for member in 0..<hiding {
      state.assign(.userAssigned(UInt32(member), UserSettings(user: "member-\(member)", hidesRead: true)))
    }
    state.refresh(slot)
  }

  /// Time counts.
  ///
  /// - Throws: ``LoadError`` for inconsistent counts.
  func measure(_ times: Int) throws -> Latencies {
    var latencies = Latencies()
    for number in 0..<times {
      let message = SequenceNumber(UInt32(1 + number * 37 % plan.messageCount))
      let start = MonotonicClock.now
      let status = state.status(slot, message)
      latencies.record(since: start)
      guard status.readCount <= status.deliveredCount, status.deliveredCount <= status.memberCount else {
        throw LoadError("message \(message.rawValue): inconsistent counts")
      }
    }
    return latencies
  }
}
