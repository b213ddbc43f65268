import ArgumentParser
import LoadGenerator
import LocalStack

/// tidemark bench users
struct UsersCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "users",
    abstract:
      "Times totals of what is unread, badge counts and marking everything read, of users in many channels.",
    discussion: """
      Starts tidemark-store and tidemark-gateway --h2c, found beside this program unless --programs says where, with \
      data in a new directory under ./.tidemark. Asks with all channels in memory first, then after a start with little \
      memory and all of them on storage. What is unread is known: every answer is compared with it, and it exits with 1 if \
      one differs. Questions are asked one after the other on one connection. Then it times marks in a small channel while \
      badge counts are asked for, large channels are made, and the index is rebuilt.
      """
  )

  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp("In how many channels the users are, one each.", valueName: "channels")
  )
  var sizes = [CommaList([10, 1000, 10000])]
  @Option(help: "How often each question is asked.")
  var questions = 100
  @Option(help: "How often everything is marked read.")
  var marks = 5
  @Option(help: ArgumentHelp("The store's --memory where channels are on storage, in MiB.", valueName: "MiB"))
  var memory = 1
  @OptionGroup var place: BenchPlace
  @Flag(help: "Print one JSON document instead of the table.")
  var json = false

  private var channelCounts: [Int]? {
    let counts: [Int] = sizes.joined()
    return counts.isEmpty || !counts.allSatisfy((1...100_000).contains) ? nil : counts
  }

  func validate() throws {
    guard let counts = channelCounts, Set(counts).count == counts.count, counts.count <= 10 else {
      throw ValidationError("--sizes: give up to 10 different numbers from 1 to 100000")
    }
    guard (1...100_000).contains(questions) else { throw ValidationError("--questions: give 1 to 100000") }
    guard (1...1_000).contains(marks) else { throw ValidationError("--marks: give 1 to 1000") }
    guard (1...1 << 20).contains(memory) else { throw ValidationError("--memory: give 1 to 1048576 MiB") }
  }

  func run() async throws {
    var bench = UserBench()
    bench.sizes = channelCounts ?? bench.sizes
    bench.questions = questions
    bench.marks = marks
    bench.memoryBytes = memory << 20
    let configured = bench
    try await place.measure("users", asJSON: json, table: Self.table) {
      try await configured.run(executables: $0, directory: $1, note: $2)
    }
  }

  private static func table(_ report: UserBench.Report) -> String {
    func milliseconds(_ value: Int) -> String { "\(Figures.decimal(Double(value) / 1_000, digits: 3)) ms" }
    func mebibytes(_ bytes: Int) -> String { "\(Figures.decimal(Double(bytes) / 1_048_576, digits: 1)) MiB" }
    let rows = report.measurements.map { one in
      let cells = [
        one.question, Figures.count(one.channels), one.isCold ? "on storage" : "in memory",
        Figures.count(one.count), milliseconds(one.p50Microseconds), milliseconds(one.p99Microseconds),
        milliseconds(one.maxMicroseconds), Figures.count(one.loads),
      ]
      return "| " + cells.joined(separator: " | ") + " |"
    }
    let besides = report.besides.map { one in
      let cells = [
        one.work, one.isCold ? "on storage" : "in memory", milliseconds(one.workMicroseconds),
        Figures.count(one.count), milliseconds(one.p50Microseconds), milliseconds(one.p99Microseconds),
        milliseconds(one.maxMicroseconds),
      ]
      return "| " + cells.joined(separator: " | ") + " |"
    }
    return """
      \(Figures.count(report.channels)) channels, \(mebibytes(report.residentBytes)) in memory; with --memory \
      \(mebibytes(report.memoryBytes)) there were \(mebibytes(report.coldResidentBytes)) after totals were asked for.

      | question | channels | they were | asked | p50 | p99 | longest | loads |
      | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |
      \(rows.joined(separator: "\n"))

      | marks beside | its channels were | it took | marks | p50 | p99 | longest |
      | --- | --- | ---: | ---: | ---: | ---: | ---: |
      \(besides.joined(separator: "\n"))
      """
  }
}
