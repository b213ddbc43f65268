import ArgumentParser
import LoadGenerator
import LocalStack

/// tidemark bench recovery
struct RecoveryCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "recovery",
    abstract:
      "Kills a store of many channels, just made, at rest and under load, and measures how soon it answers again.",
    discussion: """
      Starts tidemark-store and tidemark-gateway --h2c, found beside this program unless --programs says where, with \
      data in a new directory under ./.tidemark; afterwards reads back what had been acknowledged, and exits with 1 if \
      anything is missing.
      """
  )

  @Option(help: "Channels.")
  var channels = 100_000
  @Option(help: "Members of each.")
  var members = 10
  @Option(help: ArgumentHelp("How long marks are made before the second kill.", valueName: "time"))
  var load = TimeSpanArgument(seconds: 10)
  @Flag(help: "Have the kernel forget the data's files before each start, as after a power cut.")
  var cold = false
  @OptionGroup var place: BenchPlace
  @Flag(help: "Print one JSON document for each kill instead of the table.")
  var json = false

  func validate() throws {
    guard (1...10_000_000).contains(channels) else { throw ValidationError("--channels: give 1 to 10000000") }
    guard (1...100).contains(members) else { throw ValidationError("--members: give 1 to 100") }
    try load.validate("--load", in: 0.001...3600)
  }

  func run() async throws {
    try await reportingErrors("tidemark bench recovery") {
      let executables = try place.executables()
      var bench = RecoveryBench()
      bench.channels = channels
      bench.members = members
      bench.loadSeconds = load.seconds
      bench.isCold = cold
      let configured = bench
      let run = place.runDirectory("recovery")
      let progress = ProgressLine()
      if !json { Terminal.print(Self.heading) }
      let json = json
      try await withInterrupts {
        defer { progress.clear() }
        try await configured.run(executables: executables, directory: run, note: progress.show) {
          measurement in
          progress.clear()
          Terminal.print(json ? BenchPlace.document(measurement) : Self.line(measurement))
        }
      }
      if !json {
        Terminal.print("\n\(Machine.summary); the files \(cold ? "not " : "")in the kernel's cache.")
      }
    }
  }

  private static let heading = """
    | channels × members | killed | marks since rest | data | log files | tail, channels | ready | first mark | settled | memory at ready | settled |
    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
    """

  private static func line(_ one: RecoveryBench.Measurement) -> String {
    func mebibytes(_ bytes: Int) -> String { "\(Figures.count(bytes >> 20)) MiB" }
    func seconds(_ value: Double) -> String { "\(Figures.decimal(value, digits: 2)) s" }
    let cells = [
      "\(Figures.count(one.channels)) × \(one.members)", one.killed, Figures.count(one.marks),
      mebibytes(one.dataBytes),
      mebibytes(one.logBytes), Figures.count(one.tailChannels), seconds(one.readySeconds),
      seconds(one.firstMarkSeconds), seconds(one.settledSeconds), mebibytes(one.residentBytesReady),
      mebibytes(one.residentBytesSettled),
    ]
    return "| " + cells.joined(separator: " | ") + " |"
  }
}
