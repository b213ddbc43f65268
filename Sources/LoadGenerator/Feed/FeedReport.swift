/// Measurements of a ``FeedBench`` by round, and tables of their medians.
struct FeedReport: Sendable, Encodable {
  /// Marks of one run.
  struct Marks: Sendable, Encodable {
    var row: BenchRow
    var round: Int
    /// Whether the store kept the feed.
    var isOn: Bool
    var figures: RunFigures
  }

  /// One consumer that has read the whole feed, client included. CPU time is per record.
  struct Reading: Sendable, Encodable {
    var records: Int
    /// Marks that have a record each, those of the warm-up included.
    var marks: Int
    var bytesEach: Double
    var seconds: Double
    var recordsPerSecond: Double
    var clientMicroseconds: Double
    var gatewayMicroseconds: Double
    var storeMicroseconds: Double

    init(_ outcome: FeedReader.Outcome, marks: Int, cpu: ServiceCPUMeter.Seconds) {
      let count = Double(max(outcome.records, 1))
      records = outcome.records
      self.marks = marks
      bytesEach = Double(outcome.byteCount) / count
      seconds = outcome.seconds
      recordsPerSecond = outcome.seconds > 0 ? count / outcome.seconds : 0
      clientMicroseconds = cpu.client * 1e6 / count
      gatewayMicroseconds = cpu.gateway * 1e6 / count
      storeMicroseconds = cpu.store * 1e6 / count
    }
  }

  var rounds: Int
  var connections: Int
  var streams: Int
  var marks: [Marks] = []
  var readings: [Reading] = []

  init(rounds: Int, connections: Int, streams: Int) {
    self.rounds = rounds
    self.connections = connections
    self.streams = streams
  }

  // MARK: Text

  /// Medians over the rounds, as Markdown.
  var markdown: String {
    let summary = """
      Medians of \(rounds) rounds, \(connections) connections of \(streams) streams. "Of off" is the median of each \
      round's ratio of rates.
      """
    let reading = """
      One consumer of `0/1` reads all records from the beginning, client included. CPU time is per record, that of the \
      ten seconds without records before the last heartbeat included.
      """
    return [summary, marksTable, reading, readingTable].compactMap(\.self).joined(separator: "\n\n")
  }

  private func runs(_ row: BenchRow, isOn: Bool) -> [Marks] { marks.filter { $0.row == row && $0.isOn == isOn } }

  /// Return the ratio of the rates with and without the feed; nil for the runs without it.
  private func ratio(_ runs: [Marks]) -> Double? {
    guard let first = runs.first, first.isOn else { return nil }
    let off = self.runs(first.row, isOn: false)
    return zip(runs, off).map { $0.figures.rate / $1.figures.rate }.medianValue(\.self)
  }

  private static func cpu(_ runs: [Marks], of process: String) -> Double? {
    runs.compactMap { $0.figures.cpu(of: process) }.medianValue(\.self)
  }

  private var marksTable: String? {
    let columns: [ReportTable<[Marks]>.Column] = [
      .text("what") { $0[0].row.title },
      .text("feed") { $0[0].isOn ? "on" : "off" },
      .count("marks/s") { Int($0.median(\.figures.rate).rounded()) },
      .number("lowest to highest") { $0.spread(\.figures.rate) },
      .number("of off") { runs in ratio(runs).map { Figures.decimal($0, digits: 2) } ?? "" },
      .microseconds("gateway, a mark") { Self.cpu($0, of: "gateway") },
      .microseconds("store, a mark") { Self.cpu($0, of: "store") },
    ]
    let rows = FeedBench.rows.flatMap { row in [false, true].map { runs(row, isOn: $0) } }.filter { !$0.isEmpty }
    return ReportTable(columns: columns).markdown(rows)
  }

  private var readingTable: String? {
    let columns: [ReportTable<[Reading]>.Column] = [
      .count("records") { Int($0.median { Double($0.records) }) },
      .number("bytes each") { Figures.decimal($0.median(\.bytesEach), digits: 0) },
      .count("records/s") { Int($0.median(\.recordsPerSecond).rounded()) },
      .number("lowest to highest") { $0.spread(\.recordsPerSecond) },
      .seconds("time") { $0.median(\.seconds) },
      .microseconds("client, a record") { $0.median(\.clientMicroseconds) },
      .microseconds("gateway, a record") { $0.median(\.gatewayMicroseconds) },
      .microseconds("store, a record") { $0.median(\.storeMicroseconds) },
    ]
    return ReportTable(columns: columns).markdown(readings.isEmpty ? [] : [readings])
  }
}
