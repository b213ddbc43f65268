import ArgumentParser
import Foundation
import LoadGenerator
import LocalStack

/// tidemark bench compare: what `make bench` runs.
struct CompareCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "compare",
    abstract: "Requests through the real gateway and store beside other servers, in turn.",
    discussion: """
      Starts tidemark-store and tidemark-gateway --h2c, found beside this program, and the programs of others that the \
      rows need, from Debian's packages, all on free loopback ports, with data in a new directory under ./.tidemark. \
      Prints medians, ratios and CPU time per request as Markdown tables.
      Our rows: read-query, read-body, register, read-state-16, read-state-100, status, and store-frames (the store \
      alone, without HTTP). Theirs: nghttpd (a static file; package nghttp2-server), nghttpx-nginx (the same behind a \
      proxy; nghttp2-proxy, nginx), nghttpx-webdis (HSET with appendfsync always; nghttp2-proxy, webdis, redis-server, \
      redis-tools), redis-benchmark (the same, pipelined; redis-server, redis-tools).
      """
  )

  @Flag(help: "One short round: shows that it works, with rough figures.")
  var quick = false
  @Option(help: "Rounds, in turn; the medians are printed. Default 3.")
  var rounds: Int?
  @Option(parsing: .upToNextOption, help: "Rows, see above. Default: all.")
  var rows: [CommaList<BenchRow>] = []
  @Option(help: "Connections.")
  var connections = 16
  @Option(parsing: .upToNextOption, help: "Streams on each connection; without HTTP, requests pipelined.")
  var streams = [CommaList([1, 10, 100])]
  @Option(help: ArgumentHelp("The measured time of each run. Default 3s.", valueName: "time"))
  var seconds: TimeSpanArgument?
  @Option(
    help: """
      Answers after which a run ends before its time. Default 150000, 500000 and 1000000 for 1, 10 and 100 streams.
      """
  )
  var requests: Int?
  @Option(help: ArgumentHelp("Where the data of the run goes.", valueName: "dir"))
  var directory = ".tidemark"
  @Flag(help: "Print one JSON document instead of the table.")
  var json = false

  func validate() throws {
    guard (1...99).contains(rounds ?? 1) else { throw ValidationError("--rounds: give 1 to 99") }
    guard (1...99).contains(connections) else { throw ValidationError("--connections: give 1 to 99") }
    guard streams.joined().allSatisfy({ (1...100).contains($0) }) else {
      throw ValidationError("--streams: give 1 to 100; more nghttpd does not allow")
    }
    try seconds?.validate("--seconds", in: 0.1...600)
    guard Set(rows.joined()).count == rows.joined().count else {
      throw ValidationError("--rows: give each row once")
    }
    guard (1000...100_000_000).contains(requests ?? 1000) else {
      throw ValidationError("--requests: give 1000 to 100000000")
    }
  }

  func run() async throws {
    try await reportingErrors("tidemark bench compare") {
      let executables = try Executables.besideThisOne()
      var comparison = quick ? Comparison.quick : Comparison()
      comparison.connections = connections
      comparison.streams = streams.joined()
      if !rows.isEmpty { comparison.rows = rows.joined() }
      if let rounds { comparison.rounds = rounds }
      if let seconds { comparison.seconds = seconds.seconds }
      if let requests { comparison.requests = { _ in requests } }
      let configured = comparison
      let path = FileManager.default.currentDirectoryPath
      let parent = directory.hasPrefix("/") ? directory : path + "/" + directory
      let run = parent + "/bench-" + String(UInt32.random(in: 0...UInt32.max), radix: 16)
      let progress = ProgressLine()
      let measurements = try await withInterrupts {
        defer { progress.clear() }
        return try await configured.run(
          executables: executables,
          directory: run,
          note: progress.show,
          measured: { measurement in
            progress.clear()
            Terminal.printError(Self.line(measurement))
          }
        )
      }
      try show(ComparisonTable(measurements), isInMemory: Machine.isInMemory(parent))
    }
  }

  private static func line(_ measurement: Comparison.Measurement) -> String {
    let figures = measurement.figures
    let cpu = figures.cpu.map { "\($0.process) \(Figures.decimal($0.perRequest, digits: 2))" }
      .joined(separator: ", ")
    return """
      round \(measurement.round)  \(measurement.streams) streams  \(measurement.row.title): \
      \(Figures.count(Int(figures.rate)))/s, p99 \(Figures.time(microseconds: figures.p99)), \
      µs of CPU: \(cpu)
      """
  }

  private func show(_ table: ComparisonTable, isInMemory: Bool) throws {
    if json {
      let encoder = JSONEncoder()
      encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
      Terminal.print(String(decoding: try encoder.encode(table.lines), as: UTF8.self))
    } else {
      let rounds = table.rounds == 1 ? "One round" : "Medians of \(table.rounds) rounds"
      Terminal.print(
        """
        \(rounds), \(connections) connections. \(Machine.summary).

        \(table.markdown)

        \(table.legend)
        """
      )
    }
    if Machine.isDebugBuild {
      Terminal.printError("A debug build: these figures are worth nothing. make bench builds for release.")
    }
    if isInMemory {
      Terminal.printError(
        "The data was in memory (tmpfs), where a sync costs nothing: give --directory on a disk."
      )
    }
  }
}
