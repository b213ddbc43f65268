internal import ArgumentParser
internal import CommandOutput
internal import CommandSupport
internal import Glibc
internal import Synchronization
internal import Transfer

/// Command `tidemark bench import`: members with their positions, imported into an empty store.
struct ImportBench: Benchmark {
  static let name = "import"
  static let abstract = "Imports members with their positions, beside PostgreSQL's \\copy of the same rows, in turn."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, again for each \
    round, with empty data in a new directory under ./.tidemark. Imports a file as `tidemark import` does, then \
    compares the positions of evenly spread channels with the file, and exits with 1 if one is wrong. PostgreSQL, from \
    Debian's package postgresql, copies the same rows into a table with a primary key, with fsync and \
    synchronous_commit on; without the package its row is empty. For root its data is under /var/tmp, because \
    PostgreSQL does not run as root.
    """

  @Flag(help: "Run one round with little data, as a test with rough figures.")
  var quick = false
  @Option(help: "Channels. Default 1000.")
  var channels: Int?
  @Option(help: "Members of each channel, which are the rows. Default 1000.")
  var members: Int?
  @Option(help: "Messages of each channel. Default 20.")
  var messages: Int?
  @Option(help: "Rounds, in turn; the medians are printed. Default 3.")
  var rounds: Int?
  @OptionGroup var options: BenchOptions

  /// Timeout of one import in seconds.
  private static let importLimit = 3_600
  /// Channels whose positions are compared.
  private static let checkedChannels = 10

  func validate() throws {
    try validateRanges([
      ("channels", channels ?? 1, 1...100_000), ("members", members ?? 1, 1...100_000),
      // Their times are in one month.
      ("messages", messages ?? 1, 1...10_000), ("rounds", rounds ?? 1, 1...100),
    ])
  }

  func text(_ report: ImportReport) -> String { report.markdown }

  func measure(_ run: BenchRun) async throws -> ImportReport {
    let files = ImportFiles(
      directory: run.directory + "-files",
      channels: channels ?? (quick ? 20 : 1_000),
      members: members ?? (quick ? 50 : 1_000),
      messages: messages ?? (quick ? 5 : 20)
    )
    defer { files.remove() }
    run.note("writing the files")
    try files.write()
    guard let version = PostgresServer.installedVersion() else {
      run.log("PostgreSQL is left out, as it is not installed: apt-get install \(PostgresServer.package)")
      return try await measure(run, files, beside: nil)
    }
    run.note("starting PostgreSQL \(version)")
    let postgres = try await PostgresServer.start(version: version, in: run.directory + "-postgres")
    return try await withCleanup {
      if Self.device(of: postgres.directory) != Self.device(of: files.directory) {
        run.log("The data of PostgreSQL is on another file system than that of the store: \(postgres.directory)")
      }
      return try await measure(run, files, beside: postgres)
    } cleanUp: {
      await postgres.stop()
    }
  }

  private func measure(
    _ run: BenchRun,
    _ files: ImportFiles,
    beside postgres: PostgresServer?
  ) async throws -> ImportReport {
    var report = ImportReport(files, postgresVersion: postgres?.version)
    let rounds = rounds ?? (quick ? 1 : 3)
    for round in 1...rounds {
      let run = run.prefixed("round \(round) of \(rounds)")
      let measured = try await run.withServices(suffix: "-\(round)") { try await measureImport(of: files, $0) }
      report.imports.append(measured)
      guard let postgres else { continue }
      run.note("PostgreSQL copies the same rows")
      let copy = try await postgres.copy(files.rows, into: "positions", columns: ImportFiles.columns)
      guard copy.rows == files.rowCount else {
        throw LoadError("PostgreSQL has \(copy.rows) rows, expected \(files.rowCount)")
      }
      report.copies.append(ImportReport.Copy(rows: copy.rows, seconds: copy.seconds))
    }
    return report
  }

  private func measureImport(of files: ImportFiles, _ services: BenchServices) async throws -> ImportReport.Import {
    let meter = ServiceCPUMeter(try await services.stack.measuredProcesses())
    let lines = LineImport(gateway: try services.gatewayURL, tls: nil)
    let (path, token, note) = (files.lines, services.client.token, services.note)
    let problem = FirstProblem()
    let cpuStart = meter.start()
    let start = MonotonicClock.now
    _ = try await withTimeLimit(seconds: Self.importLimit, waitingFor: "the import") {
      try await lines.run(
        { try LineSource(path: path) },
        token: { token },
        refused: { problem.set("line \($0.line): \($0.code) \($0.detail)") },
        progress: { summary, _, _ in note("\(Figures.count(summary.lines)) lines imported") },
        note: { problem.set($0) }
      )
    }
    let seconds = MonotonicClock.seconds(since: start)
    let cpu = try meter.seconds(since: cpuStart)
    // An import that had to connect again measures something else.
    if let text = problem.text { throw LoadError("the import was refused or interrupted: \(text)") }
    note("comparing positions")
    let checked = try await check(files, services.client)
    return ImportReport.Import(rows: files.rowCount, seconds: seconds, cpu: cpu, rowsChecked: checked)
  }

  /// Compare the positions of evenly spread channels with the file.
  ///
  /// - Returns: the number of compared rows.
  private func check(_ files: ImportFiles, _ client: BenchClient) async throws -> Int {
    let expected = Dictionary(
      uniqueKeysWithValues: (0..<files.members).map { (ImportFiles.user($0), files.position($0)) }
    )
    var checked = 0
    for channel in stride(from: 0, to: files.channels, by: max(1, files.channels / Self.checkedChannels)) {
      let cid = ImportFiles.cid(channel)
      let rows = try await client.readState(cid)
      guard Set(rows.map(\.user.id)) == Set(expected.keys), rows.count == files.members else {
        throw LoadError("\(cid): \(rows.count) members, expected \(files.members)")
      }
      for row in rows {
        guard let position = expected[row.user.id], row.last_read_seq == position.read,
          row.last_read_message_id == ImportFiles.message(channel, position.read),
          row.last_delivered_seq == position.delivered,
          row.last_delivered_message_id == ImportFiles.message(channel, position.delivered)
        else { throw LoadError("\(cid): the positions of \(row.user.id) are not those of the file: \(row)") }
      }
      checked += rows.count
    }
    return checked
  }

  /// Return the device of a path's file system; nil if there is no such file.
  private static func device(of path: String) -> dev_t? {
    var information = stat()
    return stat(path, &information) == 0 ? information.st_dev : nil
  }
}

/// First problem of an import.
private final class FirstProblem: Sendable {
  private let value = Mutex<String?>(nil)

  var text: String? { value.withLock { $0 } }

  func set(_ text: String) {
    value.withLock { if $0 == nil { $0 = text } }
  }
}
