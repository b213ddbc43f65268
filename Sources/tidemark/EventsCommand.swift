import ArgumentParser
import LoadGenerator
import LocalStack

/// tidemark bench events
struct EventsCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "events",
    abstract:
      "Measures live events: from a mark to its event, idle streams, one event to many, what events add to a mark.",
    discussion: """
      Starts tidemark-store and tidemark-gateway --h2c, found beside this program unless --programs says where, with \
      data in new directories under ./.tidemark. Parts: latency times marks, one at a time, until they are answered and \
      until their events are at another client, with nothing else going on and beside --rate marks a second; streams \
      opens --streams idle streams, looks at the gateway's resident memory before, after, and after a heartbeat, then \
      registers messages of which all of them are told; cost counts the CPU time of --marks marks where nobody watches \
      anything, where another channel is watched, and where a member's stream watches all of their channels. Medians over the \
      rounds. Every answer and every event is checked, and it exits with 1 if one is wrong or does not come.
      """
  )

  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp("What to measure: latency, streams, cost.", valueName: "parts")
  )
  var parts = [CommaList(["latency", "streams", "cost"])]
  @Option(help: "How often everything is measured.")
  var rounds = 3
  @Option(help: ArgumentHelp("How long each row of latencies is measured.", valueName: "time"))
  var seconds = TimeSpanArgument(seconds: 5)
  @Option(help: "Marks a second beside the marks that are timed.")
  var rate = 10_000
  @Option(help: "Idle streams, each a user's of its own.")
  var streams = 10_000
  @Option(help: "Connections that the streams are dealt out to, at most 1000 streams to each.")
  var connections = 100
  @Option(help: "Small channels that each of those users is in; one channel more has all of them.")
  var channels = 3
  @Option(help: "Events that go to all streams, one after the other.")
  var events = 20
  @Option(help: "Marks whose CPU time is counted.")
  var marks = 200_000
  @OptionGroup var place: BenchPlace
  @Flag(help: "Print one JSON document, with every round, instead of the tables.")
  var json = false

  private var chosen: Set<EventBench.Part>? {
    let names: [String] = parts.joined()
    let known = names.compactMap { EventBench.Part(rawValue: $0) }
    return known.count == names.count ? Set(known) : nil
  }

  func validate() throws {
    guard chosen != nil else {
      throw ValidationError("--parts: give latency, streams or cost")
    }
    let ranges: [(String, Int, ClosedRange<Int>)] = [
      ("rounds", rounds, 1...100), ("rate", rate, 1...1_000_000), ("streams", streams, 1...50_000),
      ("connections", connections, 1...10_000), ("channels", channels, 0...100),
      ("events", events, 1...10_000),
      ("marks", marks, 1_000...10_000_000),
    ]
    for (name, value, range) in ranges where !range.contains(value) {
      throw ValidationError("--\(name) \(value): give \(range.lowerBound) to \(range.upperBound)")
    }
    try seconds.validate("--seconds", in: 0.001...600)
    guard connections <= streams, streams <= connections * 1_000 else {
      throw ValidationError("--connections: give each at least one of the streams, and at most 1000")
    }
  }

  func run() async throws {
    var bench = EventBench()
    bench.parts = chosen ?? bench.parts
    bench.rounds = rounds
    bench.seconds = seconds.seconds
    bench.rate = Double(rate)
    bench.streams = streams
    bench.connections = connections
    bench.channelsEach = channels
    bench.events = events
    bench.marks = marks
    let configured = bench
    try await place.measure("events", asJSON: json, table: { $0.markdown }) {
      try await configured.run(executables: $0, directory: $1, note: $2)
    }
  }
}
