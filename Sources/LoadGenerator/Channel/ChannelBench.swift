package import ArgumentParser
internal import CommandSupport
internal import HTTP2Session
internal import LocalStack
internal import ReceiptModel

/// Command `tidemark bench channel`: one channel with many members. All responses are compared with the known
/// positions.
package struct ChannelBench: Benchmark {
  package static let name = "channel"
  package static let abstract =
    "Moves positions in one channel of very many members, then times its counts, lists and read states."
  package static let discussion = """
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
  @OptionGroup package var options: BenchOptions

  /// Latencies of one kind of question.
  package struct Measurement: Sendable, Codable {
    var question: String
    var count: Int
    var p50Microseconds: Int
    var p99Microseconds: Int
    var maxMicroseconds: Int

    init(_ question: String, _ latencies: Latencies) {
      self.question = question
      count = latencies.count
      p50Microseconds = Int(latencies.p50)
      p99Microseconds = Int(latencies.p99)
      maxMicroseconds = Int(latencies.max)
    }
  }

  package struct Report: Sendable, Codable {
    var members: Int
    var moves: Int
    var movesPerSecond: Double
    /// Responses that were compared with the expected ones.
    var compared: Int
    /// Bytes of the channel in the store's memory.
    var residentBytes: Int
    var measurements: [Measurement]
  }

  package init() {}

  package func validate() throws {
    try validateRanges([("members", members, 100...1_000_000), ("questions", questions, 1...100_000)])
    guard (members...10 * members).contains(moves) else {
      throw ValidationError("--moves: give 1 to 10 for each member")
    }
  }

  package func text(_ report: Report) -> String {
    let table = ReportTable<Measurement>(columns: [
      .text("question", \.question), .count("asked", \.count), .milliseconds("p50", \.p50Microseconds),
      .milliseconds("p99", \.p99Microseconds), .milliseconds("longest", \.maxMicroseconds),
    ])
    return """
      \(Figures.count(report.members)) members, \(Figures.count(report.moves)) positions moved at \
      \(Figures.count(Int(report.movesPerSecond))) a second; \(Figures.count(report.compared)) answers compared; \
      \(Figures.count(report.residentBytes >> 20)) MiB resident.

      \(table.markdown(report.measurements) ?? "")
      """
  }

  package func measure(_ run: BenchRun) async throws -> Report {
    try await run.withServices { stack, files in
      let tokenIssuer = try await TokenIssuer(secretFile: files.jwtSecret)
      let endpoint = stack.plan.gateways[0].listen
      return try await BenchClient.with(endpoint, tokenIssuer: tokenIssuer) { client in
        let plan = MovePlan(members: members, moves: moves)
        let dataset = LargeChannel(client: client, plan: plan)
        try await dataset.create(run.note)
        let start = MonotonicClock.now
        try await dataset.move(run.note)
        let seconds = MonotonicClock.seconds(since: start)
        let compared = try await dataset.compare(run.note)
        let resident = await stack.storeResidentBytes
        var measurements: [Measurement] = []
        for question in LargeChannel.Question.allCases {
          run.note("timing: \(question.rawValue)")
          measurements.append(try await measure(question, dataset))
        }
        measurements.append(try await measureNeighbour(dataset, run.note))
        for (name, hiding) in [
          ("one count, in the shard alone", 0), ("the same, where a hundred members hide", 100),
        ] {
          measurements.append(Measurement(name, try ShardCounting(plan, hiding: hiding).measure(questions)))
        }
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
  }

  private func measure(_ question: LargeChannel.Question, _ dataset: LargeChannel) async throws -> Measurement {
    var latencies = Latencies()
    for number in 0..<questions {
      let call = dataset.call(question, number)
      let start = MonotonicClock.now
      try await dataset.client.expect(call.method, call.path, call.body)
      latencies.record(since: start)
    }
    return Measurement(question.rawValue, latencies)
  }

  /// Time marks in a small channel while others query the large channel continuously.
  private func measureNeighbour(
    _ dataset: LargeChannel,
    _ note: @escaping ProgressHandler
  ) async throws -> Measurement {
    note("timing: marks in a small channel beside it")
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
      var latencies = Latencies()
      for number in 0..<questions {
        let start = MonotonicClock.now
        try await dataset.client.expect(.post, "/v1/channels/\(cid)/read?message_id=n\(number)&user_id=bob")
        latencies.record(since: start)
      }
      tasks.cancelAll()
      while (try? await tasks.next()) != nil {}
      return Measurement("a mark in a small channel, while four ask for statuses and lists", latencies)
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
      state.assign(
        .rowAssigned(row, RowRecord(user: "member-\(member)", joined: .zero, joinedAt: time)),
        to: slot
      )
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
