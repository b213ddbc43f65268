internal import ArgumentParser
internal import CommandSupport
internal import Glibc
internal import LocalStack
internal import NIOPosix

/// Command `tidemark bench push`: push acks through one stream. Every response is compared, and rows are read
/// back.
struct PushBench: Benchmark {
  static let name = "push"
  static let abstract = "Measures push acks through one stream: NDJSON and frames, by ticket and by name."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, again for each \
    run, with data in new directories under ./.tidemark. Creates channels, members, messages and tickets first, then \
    sends --count acknowledgements in one request. Half of them move a watermark, message by message for every \
    member; the others are late or repeated and move none. Prints acknowledgements a second, CPU time of each of the \
    three processes, and the growth of their memory. Compares every answer, reads rows back, and exits with 1 if one \
    is wrong. Ways: ndjson-ticket, ndjson-name, frames-name, frames-ticket.
    """

  @Option(parsing: .upToNextOption, help: ArgumentHelp("What to measure.", valueName: "ways"))
  var ways = [CommaList(PushMode.allCases)]
  @Option(help: "Number of rounds.")
  var rounds = 3
  @Option(help: "Minimum acknowledgements of a run: all members acknowledge a message, or none.")
  var count = 1_000_000
  @Option(help: "Channels.")
  var channels = 1_000
  @Option(help: "Members of each channel.")
  var members = 10
  @OptionGroup var options: BenchOptions

  func validate() throws {
    let ways: [PushMode] = ways.joined()
    guard Set(ways).count == ways.count else { throw ValidationError("--ways: give each way once") }
    try validateRanges([
      ("rounds", rounds, 1...100), ("count", count, 1_000...10_000_000), ("channels", channels, 1...100_000),
      // One page of a read state.
      ("members", members, 1...100),
    ])
  }

  func text(_ report: PushReport) -> String { report.markdown }

  func measure(_ run: BenchRun) async throws -> PushReport {
    let walk = PushWalk(atLeast: count, channels: channels, members: members)
    var report = PushReport(rounds: rounds, walk)
    let ways: [PushMode] = ways.joined()
    for round in 1...rounds {
      for mode in ways {
        let run = run.prefixed("round \(round) of \(rounds), \(mode.rawValue)")
        report.runs.append(try await measure(mode, walk, run, suffix: "-\(round)-\(mode.rawValue)"))
      }
    }
    return report
  }

  private func measure(_ mode: PushMode, _ walk: PushWalk, _ run: BenchRun, suffix: String) async throws
    -> PushReport.Run
  {
    // The set-up uses the first gateway: memory that it frees could hide growth of the measured one.
    try await run.withServices(suffix: suffix, gateways: 2) { services in
      let processes = try await services.stack.measuredProcesses()
      let dataset = PushDataset(walk: walk, client: services.client, note: run.note)
      try await dataset.make()
      let bodies = try await dataset.bodies(mode)
      let stream = PushStream(
        endpoint: services.stack.plan.gateways[1].listen,
        token: services.client.token,
        mode: mode,
        meter: ServiceCPUMeter(processes)
      )
      run.note("acknowledging")
      let client = try MemoryPeak(getpid())
      let gateway = try MemoryPeak(processes.gateway)
      let store = try MemoryPeak(processes.store)
      let outcome = try await stream.run(bodies, on: MultiThreadedEventLoopGroup.singleton.next())
      let memory = try (client: client.growth(), gateway: gateway.growth(), store: store.growth())
      run.note("reading rows back")
      let rows = try await dataset.check()
      return PushReport.Run(mode, walk, bodies: bodies, outcome: outcome, memory: memory, rowsChecked: rows)
    }
  }
}

/// Peak of a process's resident memory since its creation.
struct MemoryPeak: Sendable {
  private let processID: Int32
  private let first: Int

  init(_ processID: Int32) throws(LoadError) {
    self.processID = processID
    guard ProcessFigures.resetPeak(of: processID), let bytes = ProcessFigures.residentBytes(of: processID)
    else { throw LoadError("process \(processID): cannot reset the peak of its memory") }
    first = bytes
  }

  func growth() throws(LoadError) -> PushReport.Memory {
    guard let most = ProcessFigures.peakBytes(of: processID) else { throw LoadError("process \(processID) has exited") }
    return PushReport.Memory(before: first, most: max(first, most))
  }
}
