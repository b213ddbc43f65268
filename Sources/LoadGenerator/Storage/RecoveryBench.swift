internal import ArgumentParser
internal import CommandSupport
internal import Foundation
internal import Glibc
internal import LocalStack

/// Command `tidemark bench recovery`: restart times of a store after `kill -9`.
struct RecoveryBench: Benchmark {
  static let name = "recovery"
  static let abstract =
    "Kills a store of many channels, just made, at rest and under load, and measures how soon it answers again."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, with data in a \
    new directory under ./.tidemark. Afterwards it reads acknowledged marks back, and exits with 1 if one is \
    missing.
    """

  @Option(help: "Channels.")
  var channels = 100_000
  @Option(help: "Members of each channel.")
  var members = 10
  @Option(help: ArgumentHelp("Duration of the marks before the last kill.", valueName: "time"))
  var load = TimeSpanArgument(seconds: 10)
  @Flag(help: "Drop the data's files from the kernel's cache before each start, as after a power cut.")
  var cold = false
  @OptionGroup var options: BenchOptions

  /// Channels that are read back after each start, drawn at random.
  private static let checks = 2_000
  /// A shard writes its head page with its other pages, and that page may then be dirty again.
  private static let dirtyPagesMax = 32

  /// State of the store when it is killed.
  enum KilledState: String, CaseIterable, Codable {
    case justMade = "just made"
    case atRest = "at rest"
    case underLoad = "under load"
  }

  /// One kill and restart.
  struct Measurement: Sendable, Codable {
    var killed: KilledState
    var channels: Int
    var members: Int
    /// Acknowledged marks since the store was last at rest.
    var marks: Int
    var dataBytes: Int
    /// Bytes of the write-ahead log, which bound what the store reads at start.
    var logBytes: Int
    /// Channels with effects that only the log had, when the store was ready.
    var tailChannels = 0
    var readySeconds = 0.0
    var firstMarkSeconds = 0.0
    /// Time until every page was written and the log truncated.
    var idleSeconds = 0.0
    var residentBytesReady = 0
    var residentBytesIdle = 0
    /// Channels that were read back and compared with the acknowledged marks.
    var checked = 0
  }

  func validate() throws {
    try validateRanges([("channels", channels, 1...10_000_000), ("members", members, 1...100)])
    try load.validate("--load", in: 0.001...3600)
  }

  private static var table: ReportTable<Measurement> {
    ReportTable(columns: [
      .text("channels × members") { "\(Figures.count($0.channels)) × \($0.members)" },
      .text("killed", \.killed.rawValue), .count("marks since rest", \.marks), .mebibytes("data", \.dataBytes),
      .mebibytes("log files", \.logBytes), .count("tail, channels", \.tailChannels),
      .seconds("ready", \.readySeconds), .seconds("first mark", \.firstMarkSeconds),
      .seconds("idle", \.idleSeconds), .mebibytes("memory at ready", \.residentBytesReady),
      .mebibytes("memory when idle", \.residentBytesIdle),
    ])
  }

  func text(_ report: [Measurement]) -> String { "" }

  /// Return the last line: the measurements are printed as they are made.
  func output(_ report: [Measurement]) -> String {
    options.json ? "" : "\n\(Machine.summary); the files \(cold ? "not " : "")in the kernel's cache."
  }

  func measure(_ run: BenchRun) async throws -> [Measurement] {
    try await run.withServices { services in
      let dataset = RecoveryDataset(services, channels: channels, members: members)
      if !options.json { run.show(Self.table.heading) }
      try await dataset.create()
      var measurements: [Measurement] = []
      for state in KilledState.allCases {
        let measurement =
          state == .underLoad
          ? try await loadAndKill(services, dataset) : try await killAndStart(services, dataset, state)
        run.show(options.json ? try ReportDocument.line(measurement) : Self.table.line(measurement))
        measurements.append(measurement)
      }
      return measurements
    }
  }

  private func loadAndKill(_ services: BenchServices, _ dataset: RecoveryDataset) async throws -> Measurement {
    let marks = Task { try await dataset.load() }
    do {
      try await Task.sleep(for: .seconds(load.seconds))
      return try await killAndStart(services, dataset, .underLoad, marks: marks)
    } catch {
      marks.cancel()
      _ = try? await marks.value
      throw error
    }
  }

  private func killAndStart(
    _ services: BenchServices,
    _ dataset: RecoveryDataset,
    _ state: KilledState,
    marks: Task<Void, any Error>? = nil
  ) async throws -> Measurement {
    let (stack, note) = (services.stack, services.note)
    await stack.killStore()
    // The gateway sends the requests in flight again; no new ones are made.
    dataset.stopLoad()
    let data = stack.files.data
    var measurement = Measurement(
      killed: state,
      channels: channels,
      members: members,
      marks: dataset.takeMarkCount(),
      dataBytes: ProcessFigures.fileBytes(in: data),
      logBytes: ProcessFigures.fileBytes(in: data, ending: ".log")
    )
    if cold { Self.dropFromCache(data) }
    note("killed \(state.rawValue); starting again over \(measurement.dataBytes >> 20) MiB")
    let start = MonotonicClock.now
    async let firstMark: Void = dataset.markUntilAnswered()
    try await stack.startStore(within: .seconds(600))
    measurement.readySeconds = MonotonicClock.seconds(since: start)
    measurement.residentBytesReady = await processBytes(stack)
    measurement.tailChannels = Int(await stack.storeMetric("tidemark_store_tail_channels") ?? 0)
    try await firstMark
    measurement.firstMarkSeconds = MonotonicClock.seconds(since: start)
    try await marks?.value
    try await stack.waitUntilIdle(dirtyPagesMax: Self.dirtyPagesMax, within: 1_800, note)
    measurement.idleSeconds = MonotonicClock.seconds(since: start)
    measurement.residentBytesIdle = await processBytes(stack)
    note("reading back \(Self.checks) channels")
    measurement.checked = try await dataset.check(Self.checks)
    return measurement
  }

  private func processBytes(_ stack: LocalStack) async -> Int {
    guard let store = await stack.storeProcess else { return 0 }
    return ProcessFigures.residentBytes(of: store.processID) ?? 0
  }

  /// Sync the files of a directory, because the kernel keeps dirty pages, and ask the kernel to drop them.
  private static func dropFromCache(_ directory: String) {
    for name in (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? [] {
      let descriptor = open(directory + "/" + name, O_RDONLY)
      guard descriptor >= 0 else { continue }
      fsync(descriptor)
      posix_fadvise(descriptor, 0, 0, Int32(POSIX_FADV_DONTNEED))
      close(descriptor)
    }
  }
}
