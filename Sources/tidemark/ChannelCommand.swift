import ArgumentParser
import LoadGenerator
import LocalStack

/// tidemark bench channel
struct ChannelCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "channel",
    abstract:
      "Moves positions in one channel of very many members, then times its counts, lists and read states.",
    discussion: """
      Starts tidemark-store and tidemark-gateway --h2c, found beside this program unless --programs says where, with \
      data in a new directory under ./.tidemark. What the moves come to is known, so all counts, the lists of three messages and \
      the whole read state are compared with it first; exits with 1 if anything differs. Questions are asked one after the other \
      on one connection.
      """
  )

  @Option(help: "Members.")
  var members = 100_000
  @Option(help: "Positions moved, about: at most 10 for each member.")
  var moves = 1_000_000
  @Option(help: "How often each question is asked.")
  var questions = 500
  @OptionGroup var place: BenchPlace
  @Flag(help: "Print one JSON document instead of the table.")
  var json = false

  func validate() throws {
    guard (100...1_000_000).contains(members) else { throw ValidationError("--members: give 100 to 1000000") }
    guard (members...10 * members).contains(moves) else {
      throw ValidationError("--moves: give 1 to 10 for each member")
    }
    guard (1...100_000).contains(questions) else { throw ValidationError("--questions: give 1 to 100000") }
  }

  func run() async throws {
    var bench = ChannelBench()
    bench.members = members
    bench.moves = moves
    bench.questions = questions
    let configured = bench
    try await place.measure("channel", asJSON: json, table: Self.table) {
      try await configured.run(executables: $0, directory: $1, note: $2)
    }
  }

  private static func table(_ report: ChannelBench.Report) -> String {
    func milliseconds(_ value: Int) -> String { "\(Figures.decimal(Double(value) / 1_000, digits: 3)) ms" }
    let rows = report.measurements.map { one in
      let cells = [
        one.question, Figures.count(one.count), milliseconds(one.p50Microseconds),
        milliseconds(one.p99Microseconds),
        milliseconds(one.maxMicroseconds),
      ]
      return "| " + cells.joined(separator: " | ") + " |"
    }
    return """
      \(Figures.count(report.members)) members, \(Figures.count(report.moves)) positions moved at \
      \(Figures.count(Int(report.movesPerSecond))) a second; \(Figures.count(report.compared)) answers compared; \
      \(Figures.count(report.residentBytes >> 20)) MiB resident.

      | question | asked | p50 | p99 | longest |
      | --- | ---: | ---: | ---: | ---: |
      \(rows.joined(separator: "\n"))
      """
  }
}
