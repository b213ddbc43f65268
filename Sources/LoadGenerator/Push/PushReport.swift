/// Measurements of a ``PushBench`` by run, and a table of their medians.
struct PushReport: Sendable, Codable {
  /// Resident memory of a process in bytes.
  struct Memory: Sendable, Codable {
    var before: Int
    var most: Int

    var grown: Int { most - before }
  }

  struct Run: Sendable, Codable {
    var way: PushMode
    var acknowledgements: Int
    var seconds: Double
    var perSecond: Double
    /// CPU time per push ack.
    var clientMicroseconds: Double
    var gatewayMicroseconds: Double
    var storeMicroseconds: Double
    var clientMemory: Memory
    var gatewayMemory: Memory
    var storeMemory: Memory
    /// Mean size of a push ack in the request's body.
    var bytesEach: Double
    var rowsChecked: Int
  }

  var rounds: Int
  var channels: Int
  var members: Int
  /// Messages of each channel.
  var messages: Int
  /// Push acks of each run.
  var acknowledgements: Int
  /// Push acks that move a watermark.
  var moves: Int
  var runs: [Run] = []

  init(rounds: Int, _ walk: PushWalk) {
    self.rounds = rounds
    channels = walk.channels
    members = walk.members
    messages = walk.messages
    acknowledgements = walk.count
    moves = walk.moves
  }

  /// Summary of the load, then medians over the rounds, as Markdown.
  var markdown: String { "\(summary)\n\n\(table)" }

  private var summary: String {
    let rows = runs.map(\.rowsChecked).min() ?? 0
    return """
      \(Figures.count(acknowledgements)) acknowledgements a run, all through one stream: \
      \(Figures.count(moves)) move a watermark (\(Figures.count(messages)) messages, one after the other, for each of \
      \(Figures.count(members)) members of \(Figures.count(channels)) channels), \
      \(Figures.count(acknowledgements - moves)) are repeated, most of them late, and move none. Medians of \
      \(Figures.count(rounds)) rounds; every answer compared, \(Figures.count(rows)) rows read back after each run.
      """
  }

  private var table: String {
    let runsByMode = PushMode.allCases.map { mode in runs.filter { $0.way == mode } }.filter { !$0.isEmpty }
    return ReportTable<[Run]>(columns: [
      .text("through") { $0[0].way.title },
      .number("bytes each") { Figures.decimal($0.median(\.bytesEach), digits: 0) },
      .count("acks/s") { Int($0.median(\.perSecond).rounded()) },
      .microseconds("client, an ack") { $0.median(\.clientMicroseconds) },
      .microseconds("gateway, an ack") { $0.median(\.gatewayMicroseconds) },
      .microseconds("store, an ack") { $0.median(\.storeMicroseconds) },
      .number("client grew by") { Self.memory($0.map(\.clientMemory)) },
      .number("gateway grew by") { Self.memory($0.map(\.gatewayMemory)) },
      .number("store grew by") { Self.memory($0.map(\.storeMemory)) },
    ]).markdown(runsByMode) ?? ""
  }

  private static func memory(_ rounds: [Memory]) -> String {
    func mebibytes(_ bytes: (Memory) -> Int) -> String {
      Figures.decimal(rounds.median { Double(bytes($0)) } / 1_048_576, digits: 1)
    }
    return "\(mebibytes(\.grown)) of \(mebibytes(\.most)) MiB"
  }
}

extension PushReport.Run {
  init(
    _ mode: PushMode,
    _ walk: PushWalk,
    bodies: PushBodies,
    outcome: PushStream.Outcome,
    memory: (client: PushReport.Memory, gateway: PushReport.Memory, store: PushReport.Memory),
    rowsChecked: Int
  ) {
    func each(_ seconds: Double) -> Double { seconds * 1e6 / Double(walk.count) }
    self.init(
      way: mode,
      acknowledgements: walk.count,
      seconds: outcome.seconds,
      perSecond: Double(walk.count) / outcome.seconds,
      clientMicroseconds: each(outcome.cpu.client),
      gatewayMicroseconds: each(outcome.cpu.gateway),
      storeMicroseconds: each(outcome.cpu.store),
      clientMemory: memory.client,
      gatewayMemory: memory.gateway,
      storeMemory: memory.store,
      bytesEach: Double(bodies.byteCount) / Double(walk.count),
      rowsChecked: rowsChecked
    )
  }
}
