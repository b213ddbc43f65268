import ArgumentParser
import LoadGenerator
import LocalStack

/// tidemark bench push
struct PushCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "push",
    abstract: "Measures push acknowledgements through one stream: NDJSON and frames, by ticket and by name.",
    discussion: """
      Starts tidemark-store and tidemark-gateway --h2c, found beside this program unless --programs says where, anew for \
      each run, with data in new directories under ./.tidemark. Channels, members, messages and tickets are made first, \
      then --count acknowledgements go through one request: half of them move a watermark, a message after the other for \
      every member, the others are late or repeated and move none. Acknowledgements a second, CPU time of each of the \
      three processes, and how much memory each takes at most. Every answer is compared, rows are read back, and it exits \
      with 1 if one is wrong. Ways: ndjson-ticket, ndjson-name, frames-name, frames-ticket.
      """
  )

  @Option(parsing: .upToNextOption, help: ArgumentHelp("What to measure.", valueName: "ways"))
  var ways = [CommaList(PushWay.allCases.map(\.rawValue))]
  @Option(help: "How often everything is measured.")
  var rounds = 3
  @Option(help: "Acknowledgements of a run, at least: a message is acknowledged by all or by none.")
  var count = 1_000_000
  @Option(help: "Channels.")
  var channels = 1_000
  @Option(help: "Members of each channel.")
  var members = 10
  @OptionGroup var place: BenchPlace
  @Flag(help: "Print one JSON document, with every round, instead of the table.")
  var json = false

  private var chosen: [PushWay]? {
    let names: [String] = ways.joined()
    let known = names.compactMap { PushWay(rawValue: $0) }
    return known.count == names.count && Set(known).count == known.count ? known : nil
  }

  func validate() throws {
    guard chosen != nil else {
      throw ValidationError(
        "--ways: give ndjson-ticket, ndjson-name, frames-name or frames-ticket"
      )
    }
    let ranges: [(String, Int, ClosedRange<Int>)] = [
      ("rounds", rounds, 1...100), ("count", count, 1_000...10_000_000), ("channels", channels, 1...100_000),
      ("members", members, 1...PushBench.membersMax),
    ]
    for (name, value, range) in ranges where !range.contains(value) {
      throw ValidationError("--\(name) \(value): give \(range.lowerBound) to \(range.upperBound)")
    }
  }

  func run() async throws {
    var bench = PushBench()
    bench.ways = chosen ?? bench.ways
    bench.rounds = rounds
    bench.count = count
    bench.channels = channels
    bench.members = members
    let configured = bench
    try await place.measure("push", asJSON: json, table: { $0.markdown }) {
      try await configured.run(executables: $0, directory: $1, note: $2)
    }
  }
}
