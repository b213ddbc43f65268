internal import ArgumentParser
internal import CommandSupport
internal import Foundation
internal import HTTP2Session
internal import LocalStack
internal import Transfer

/// Command `tidemark bench import`: positions of members, imported into an empty store.
struct ImportBench: Benchmark {
  static let name = "import"
  static let abstract = "Imports members with their positions, beside PostgreSQL's COPY of the same rows."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, with an empty \
    directory under ./.tidemark for each round. Imports a file as `tidemark import` does, with this program as its \
    client, and compares the positions of some members with the file. PostgreSQL copies the positions from a file into \
    a table with a primary key; without the Debian package postgresql it is left out. The two take turns.
    """

  @Option(help: "Channels.")
  var channels = 1_000
  @Option(help: "Members of each channel.")
  var members = 1_000
  @Option(help: "Messages of each channel.")
  var messages = 20
  @Option(help: "Rounds; the report has each, and the medians.")
  var rounds = 3
  @OptionGroup var options: BenchOptions

  struct Round: Sendable, Encodable {
    var positions: Int
    var seconds: Double
    var gatewayCPUSeconds: Double
    var storeCPUSeconds: Double
    var clientCPUSeconds: Double
    /// Nil: PostgreSQL is not installed.
    var postgresSeconds: Double?
  }

  func validate() throws {
    try validateRanges([
      ("channels", channels, 1...100_000), ("members", members, 1...100_000), ("messages", messages, 1...10_000),
      ("rounds", rounds, 1...100),
    ])
  }

  func text(_ report: [Round]) -> String {
    func minute(_ positions: Int, _ seconds: Double) -> Int { Int(Double(positions) / seconds * 60) }
    let table = ReportTable<Round>(
      columns: [
        .count("positions", \.positions), .seconds("import", \.seconds),
        .count("positions/min") { minute($0.positions, $0.seconds) },
        .seconds("CPU of the gateway", \.gatewayCPUSeconds),
        .seconds("of the store", \.storeCPUSeconds), .seconds("of the client", \.clientCPUSeconds),
        .count("COPY, positions/min") { round in
          round.postgresSeconds.map { minute(round.positions, $0) } ?? 0
        },
      ]
    )
    let rates = report.map { minute($0.positions, $0.seconds) }.sorted()
    let median = "Median: \(Figures.count(rates[rates.count / 2])) positions/min."
    return (table.markdown(report) ?? "") + "\n\n" + median
  }

  func measure(_ run: BenchRun) async throws -> [Round] {
    let files = try ImportFiles(directory: run.directory + "-files", channels, members, messages)
    defer { files.remove() }
    run.note("writing the files")
    try files.write()
    let postgres = try await PostgresCopy.start(in: run.directory + "-postgres", run.log)
    return try await withCleanup {
      var report: [Round] = []
      for number in 0..<rounds {
        var round = try await run.prefixed("round \(number + 1)").withServices(suffix: "-\(number)") {
          try await measure(files, $0, run.note)
        }
        round.postgresSeconds = try await postgres?.copySeconds(files.rows)
        report.append(round)
      }
      return report
    } cleanUp: {
      await postgres?.stop()
    }
  }

  private func measure(_ files: ImportFiles, _ services: BenchServices, _ note: @escaping ProgressHandler) async throws
    -> Round
  {
    let meter = ServiceCPUMeter(try await services.stack.measuredProcesses())
    guard let gateway = GatewayURL("http://\(services.stack.plan.gateways[0].listen)") else {
      throw LoadError("the gateway has no URL")
    }
    let lines = LineImport(gateway: gateway, tls: nil)
    let path = files.lines
    let before = meter.start()
    let start = MonotonicClock.now
    let summary = try await lines.run {
      try LineSource(path: path)
    } token: {
      try await services.tokenIssuer.server(lifetime: BenchClient.tokenLifetime)
    } refused: { line in
      note("line \(line.line): \(line.code) \(line.detail)")
    } progress: { summary, _, _ in
      note("\(Figures.count(summary.lines)) lines")
    } note: {
      note($0)
    }
    let seconds = MonotonicClock.seconds(since: start)
    let cpu = try meter.seconds(since: before)
    guard summary.refused == 0 else { throw LoadError("\(summary.refused) lines were refused") }
    try await check(services)
    return Round(
      positions: channels * members,
      seconds: seconds,
      gatewayCPUSeconds: cpu.gateway,
      storeCPUSeconds: cpu.store,
      clientCPUSeconds: cpu.client
    )
  }

  /// Compare the positions of the first members of some channels with the file.
  private func check(_ services: BenchServices) async throws {
    for channel in stride(from: 0, to: channels, by: max(1, channels / 10)) {
      let message = "messages/\(ImportFiles.message(channel, 1))"
      let path = "/v1/channels/\(ImportFiles.cid(channel))/\(message)/readers?limit=100"
      let response = String(decoding: try await services.client.call(.get, path).body, as: UTF8.self)
      // Everybody has read the first message, but its sender does not count.
      guard response.contains("\"total\":\(members - 1)") else {
        throw LoadError("\(path): not everybody has read it: \(response.prefix(200))")
      }
    }
  }
}

/// The file of an import, and the same positions as rows for COPY.
struct ImportFiles: Sendable {
  let directory: String
  private let channels: Int
  private let members: Int
  private let messages: Int

  var lines: String { directory + "/lines.ndjson" }
  var rows: String { directory + "/rows.tsv" }

  init(directory: String, _ channels: Int, _ members: Int, _ messages: Int) throws {
    self.directory = directory
    self.channels = channels
    self.members = members
    self.messages = messages
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
  }

  static func cid(_ channel: Int) -> String { "messaging:room-\(channel)" }
  static func message(_ channel: Int, _ number: Int) -> String { "m\(channel)-\(number)" }

  func remove() { try? FileManager.default.removeItem(atPath: directory) }

  func write() throws {
    let lines = try writer(self.lines)
    let rows = try writer(self.rows)
    for channel in 0..<channels {
      let cid = Self.cid(channel)
      var text = #"{"channel":{"cid":"\#(cid)","created_at":"\#(time(0))"}}"# + "\n"
      for number in 1...messages {
        text += #"{"message":{"cid":"\#(cid)","id":"\#(Self.message(channel, number))","user_id":"user-0","#
        text += #""created_at":"\#(time(number * 60))"}}"# + "\n"
      }
      var copied = ""
      for member in 0..<members {
        let read = member * 7 % messages + 1
        let delivered = max(read, member * 11 % messages + 1)
        let (readAt, deliveredAt) = (time(read * 60 + 5), time(delivered * 60 + 2))
        let (readID, deliveredID) = (Self.message(channel, read), Self.message(channel, delivered))
        text += #"{"member":{"cid":"\#(cid)","user_id":"user-\#(member)","joined_at":"\#(time(0))","joined_seq":0,"#
        text += #""last_read_message_id":"\#(readID)","last_read_at":"\#(readAt)","#
        text += #""last_delivered_message_id":"\#(deliveredID)","last_delivered_at":"\#(deliveredAt)"}}"# + "\n"
        copied += "\(cid)\tuser-\(member)\t\(time(0))\t\(readID)\t\(readAt)\t\(deliveredID)\t\(deliveredAt)\n"
      }
      try lines.write(contentsOf: Data(text.utf8))
      try rows.write(contentsOf: Data(copied.utf8))
    }
    try lines.close()
    try rows.close()
  }

  private func writer(_ path: String) throws -> FileHandle {
    guard FileManager.default.createFile(atPath: path, contents: nil), let file = FileHandle(forWritingAtPath: path)
    else { throw LoadError("\(path) cannot be written") }
    return file
  }

  /// Return a time some seconds after the beginning of 2024.
  private func time(_ seconds: Int) -> String {
    let (day, rest) = (seconds / 86_400, seconds % 86_400)
    func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
    return "2024-01-\(two(1 + day))T\(two(rest / 3_600)):\(two(rest / 60 % 60)):\(two(rest % 60)).000Z"
  }
}
