import ArgumentParser
import LoadGenerator
import LocalStack

/// tidemark bench memory
struct MemoryCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "memory",
    abstract: "Uses more channels than the store has memory for, a few much and most of them seldom.",
    discussion: """
      Starts tidemark-store and tidemark-gateway --h2c, found beside this program unless --programs says where, with \
      data in a new directory under ./.tidemark. Of the requests 70 % read a read state, 15 % mark a message read, 15 % \
      register one; which channel, is drawn by Zipf's law. Afterwards reads back what had been acknowledged, and exits \
      with 1 if anything is missing.
      """
  )

  @Option(help: "Channels.")
  var channels = 100_000
  @Option(help: "Members of each.")
  var members = 10
  @Option(help: ArgumentHelp("The store's --memory, in MiB.", valueName: "MiB"))
  var memory = 32
  @Option(help: ArgumentHelp("How long they are used.", valueName: "time"))
  var seconds = TimeSpanArgument(seconds: 20)
  @Option(help: "Requests under way at once.")
  var concurrency = 64
  @Option(help: "Zipf's exponent.")
  var exponent = 0.99
  @OptionGroup var place: BenchPlace
  @Flag(help: "Print one JSON document instead of the table.")
  var json = false

  func validate() throws {
    guard (1_000...10_000_000).contains(channels) else {
      throw ValidationError("--channels: give 1000 to 10000000")
    }
    guard (1...100).contains(members) else { throw ValidationError("--members: give 1 to 100") }
    guard (1...1 << 20).contains(memory) else { throw ValidationError("--memory: give 1 to 1048576 MiB") }
    try seconds.validate("--seconds", in: 0.001...3600)
    guard (1...4096).contains(concurrency) else { throw ValidationError("--concurrency: give 1 to 4096") }
    guard exponent > 0, exponent < 1 else { throw ValidationError("--exponent: between 0 and 1") }
  }

  func run() async throws {
    var bench = MemoryBench()
    bench.channels = channels
    bench.members = members
    bench.memoryBytes = memory << 20
    bench.seconds = seconds.seconds
    bench.concurrency = concurrency
    bench.exponent = exponent
    let configured = bench
    try await place.measure("memory", asJSON: json, table: Self.table) {
      try await configured.run(executables: $0, directory: $1, note: $2)
    }
  }

  private static func table(_ one: MemoryBench.Measurement) -> String {
    func mebibytes(_ bytes: Int) -> String { "\(Figures.count(bytes >> 20)) MiB" }
    func milliseconds(_ value: Int) -> String { "\(Figures.decimal(Double(value) / 1_000, digits: 2)) ms" }
    let share = one.requests == 0 ? 0 : 100 * one.loads / one.requests
    let cells = [
      mebibytes(one.memoryBytes), mebibytes(one.dataSetBytes), Figures.count(one.channels),
      Figures.count(Int(one.requestsPerSecond)), milliseconds(one.p50Microseconds),
      milliseconds(one.p99Microseconds), milliseconds(one.maxMicroseconds), "\(share) %",
      Figures.count(one.refused), mebibytes(one.residentBytesMax), mebibytes(one.processBytesMax),
    ]
    return """
      | --memory | data set | channels | requests/s | p50 | p99 | longest | read from storage | refused | channels at most | process at most |
      | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
      | \(cells.joined(separator: " | ")) |
      """
  }
}
