/// Measurements of an ``ImportBench`` by round, and a table of their medians.
struct ImportReport: Sendable, Encodable {
  /// One import, client included.
  struct Import: Sendable, Encodable {
    var seconds: Double
    var rowsPerMinute: Double
    /// CPU time of the whole import.
    var clientSeconds: Double
    var gatewaySeconds: Double
    var storeSeconds: Double
    var rowsChecked: Int

    init(rows: Int, seconds: Double, cpu: ServiceCPUMeter.Seconds, rowsChecked: Int) {
      self.seconds = seconds
      rowsPerMinute = Double(rows) / seconds * 60
      clientSeconds = cpu.client
      gatewaySeconds = cpu.gateway
      storeSeconds = cpu.store
      self.rowsChecked = rowsChecked
    }
  }

  /// One `\copy` of PostgreSQL, client included.
  struct Copy: Sendable, Encodable {
    var seconds: Double
    var rowsPerMinute: Double

    init(rows: Int, seconds: Double) {
      self.seconds = seconds
      rowsPerMinute = Double(rows) / seconds * 60
    }
  }

  var channels: Int
  /// Members of each channel.
  var members: Int
  /// Messages of each channel.
  var messages: Int
  /// Members of all channels, each with two positions and their times.
  var rows: Int
  /// Nil: PostgreSQL is not installed.
  var postgresVersion: Int?
  var imports: [Import] = []
  /// In the order of the imports; empty without PostgreSQL.
  var copies: [Copy] = []

  init(_ files: ImportFiles, postgresVersion: Int?) {
    channels = files.channels
    members = files.members
    messages = files.messages
    rows = files.rowCount
    self.postgresVersion = postgresVersion
  }

  // MARK: Text

  /// A line of the table: the rounds of one program.
  private struct Line {
    var what: String
    var rates: [Double]
    var seconds: [Double]
    /// Empty: not measured.
    var imports: [Import] = []

    func cpu(_ value: (Import) -> Double) -> String {
      imports.medianValue(value).map { "\(Figures.decimal($0, digits: 2)) s" } ?? ""
    }
  }

  /// Summary of the load, medians over the rounds, and the ratio to PostgreSQL, as Markdown.
  var markdown: String {
    let checked = imports.map(\.rowsChecked).min() ?? 0
    let summary = """
      \(Figures.count(rows)) rows, each with a read and a delivered position and their times, into an empty store: \
      \(Figures.count(channels)) channels of \(Figures.count(members)) members and \(Figures.count(messages)) \
      messages. Medians of \(imports.count) rounds, client included; \(Figures.count(checked)) rows compared after each.
      """
    return [summary, table, ratio].compactMap(\.self).joined(separator: "\n\n")
  }

  private var table: String? {
    let columns: [ReportTable<Line>.Column] = [
      .text("what", \.what),
      .number("rows/min") { line in line.rates.medianValue(\.self).map { Figures.count(Int($0.rounded())) } ?? "" },
      .number("lowest to highest") { $0.rates.spread(\.self) },
      .number("time") { line in line.seconds.medianValue(\.self).map { "\(Figures.decimal($0, digits: 2)) s" } ?? "" },
      .number("CPU, client") { $0.cpu(\.clientSeconds) },
      .number("CPU, gateway") { $0.cpu(\.gatewaySeconds) },
      .number("CPU, store") { $0.cpu(\.storeSeconds) },
    ]
    let own = Line(
      what: "import through the gateway",
      rates: imports.map(\.rowsPerMinute),
      seconds: imports.map(\.seconds),
      imports: imports
    )
    let peer = Line(
      what: postgresVersion.map { "PostgreSQL \($0), \\copy" }
        ?? "PostgreSQL, \\copy: not installed (apt-get install \(PostgresServer.package))",
      rates: copies.map(\.rowsPerMinute),
      seconds: copies.map(\.seconds)
    )
    return ReportTable(columns: columns).markdown([own, peer])
  }

  private var ratio: String? {
    let ratios = zip(imports, copies).map { $0.rowsPerMinute / $1.rowsPerMinute }
    return ratios.medianValue(\.self).map {
      "The import has \(Figures.decimal($0, digits: 2)) of the rate of \\copy, the median of each round's ratio."
    }
  }
}
