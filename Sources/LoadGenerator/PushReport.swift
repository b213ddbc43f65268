/// What a ``PushBench`` has measured, run by run, and as a table of medians.
package struct PushReport: Sendable, Codable {
  /// A process's memory, resident, in bytes.
  package struct Memory: Sendable, Codable {
    package var before: Int
    package var most: Int

    var grown: Int { most - before }
  }

  package struct Run: Sendable, Codable {
    package var way: PushWay
    package var acknowledgements: Int
    package var seconds: Double
    package var perSecond: Double
    /// CPU time of one acknowledgement.
    package var clientMicroseconds: Double
    package var gatewayMicroseconds: Double
    package var storeMicroseconds: Double
    package var clientMemory: Memory
    package var gatewayMemory: Memory
    package var storeMemory: Memory
    /// Bytes of one acknowledgement in the request's body.
    package var bytesEach: Double
    package var rowsChecked: Int
  }

  package var rounds: Int
  package var channels: Int
  package var members: Int
  /// Of each channel.
  package var messages: Int
  /// Of each run.
  package var acknowledgements: Int
  /// Of these, those that move a watermark.
  package var moves: Int
  package var runs: [Run] = []

  init(rounds: Int, _ walk: PushWalk) {
    self.rounds = rounds
    channels = walk.channels
    members = walk.members
    messages = walk.messages
    acknowledgements = walk.count
    moves = walk.moves
  }

  /// What was sent, then medians over the rounds, as Markdown.
  package var markdown: String { "\(summary)\n\n\(table)" }

  private var summary: String {
    let rows = runs.map(\.rowsChecked).min() ?? 0
    return """
      \(Figures.count(acknowledgements)) acknowledgements a run, all through one stream: \(Figures.count(moves)) move a watermark \
      (\(Figures.count(messages)) messages, one after the other, for each of \(Figures.count(members)) members of \
      \(Figures.count(channels)) channels), \(Figures.count(acknowledgements - moves)) are repeated, most of them late, and move none. \
      Medians of \(Figures.count(rounds)) rounds; every answer compared, \(Figures.count(rows)) rows read back after each run.
      """
  }

  private var table: String {
    let rows = PushWay.allCases.compactMap { way -> [String]? in
      let here = runs.filter { $0.way == way }
      guard !here.isEmpty else { return nil }
      func median(_ value: (Run) -> Double) -> Double { ComparisonTable.median(here.map(value)) ?? 0 }
      func microseconds(_ value: (Run) -> Double) -> String {
        "\(Figures.decimal(median(value), digits: 2)) µs"
      }
      func memory(_ value: (Run) -> Memory) -> String {
        func mebibytes(_ bytes: (Memory) -> Int) -> String {
          Figures.decimal(median { Double(bytes(value($0))) } / 1_048_576, digits: 1)
        }
        return "\(mebibytes(\.grown)) of \(mebibytes(\.most)) MiB"
      }
      return [
        way.title, Figures.decimal(median(\.bytesEach), digits: 0),
        Figures.count(Int(median(\.perSecond).rounded())), microseconds(\.clientMicroseconds),
        microseconds(\.gatewayMicroseconds), microseconds(\.storeMicroseconds), memory(\.clientMemory),
        memory(\.gatewayMemory), memory(\.storeMemory),
      ]
    }
    return ComparisonTable.table(
      head: [
        "through", "bytes each", "acks/s", "client, an ack", "gateway, an ack", "store, an ack",
        "client grew by", "gateway grew by", "store grew by",
      ],
      rows: rows,
      leftAligned: [0]
    )
  }
}

extension PushReport.Run {
  /// - Parameters:
  ///   - memory: of the client, the gateway and the store, as `outcome` has their CPU times.
  init(
    _ way: PushWay,
    _ walk: PushWalk,
    _ bodies: PushBodies,
    _ outcome: PushStream.Outcome,
    memory: [PushReport.Memory],
    rowsChecked: Int
  ) {
    func each(_ seconds: Double) -> Double { seconds * 1e6 / Double(walk.count) }
    self.init(
      way: way,
      acknowledgements: walk.count,
      seconds: outcome.seconds,
      perSecond: Double(walk.count) / outcome.seconds,
      clientMicroseconds: each(outcome.cpuSeconds[0]),
      gatewayMicroseconds: each(outcome.cpuSeconds[1]),
      storeMicroseconds: each(outcome.cpuSeconds[2]),
      clientMemory: memory[0],
      gatewayMemory: memory[1],
      storeMemory: memory[2],
      bytesEach: Double(bodies.byteCount) / Double(walk.count),
      rowsChecked: rowsChecked
    )
  }
}
