/// Medians of a ``Comparison`` over its rounds, and Markdown tables of them.
struct ComparisonTable: Sendable {
  /// Medians of one row at one number of streams.
  struct Line: Sendable, Codable, Hashable {
    var row: BenchRow
    /// Title of the row.
    var what: String
    /// Streams on each connection.
    var streams: Int
    /// Requests a second.
    var rate: Double
    /// Median of the ratio to nghttpd's rate in the same round; nil for nghttpd itself, for rows without HTTP/2, and
    /// if nghttpd was not measured.
    var ofNghttpd: Double?
    /// Peer of the row, if it was measured.
    var peer: BenchRow?
    /// Median of the ratio to the peer's rate.
    var ofPeer: Double?
    var p50: Double
    var p99: Double
    /// Nil if the generator does not report it.
    var p999: Double?
    /// CPU time of the generator per request, in microseconds.
    var generatorCPU: Double?
    /// CPU time of all servers.
    var serverCPU: Double?
    /// CPU time by process.
    var cpu: [String: Double]
  }

  let lines: [Line]
  let rounds: Int
  /// Servers by row, in the order in which a request passes them.
  private let processes: [BenchRow: [String]]

  init(_ measurements: [Comparison.Measurement]) {
    rounds = measurements.map(\.round).max() ?? 0
    var lines: [Line] = []
    var processes: [BenchRow: [String]] = [:]
    for streams in Set(measurements.map(\.streams)).sorted() {
      let here = measurements.filter { $0.streams == streams }
      // Of the same round, because the speed of the machine may change over minutes.
      func ratio(_ row: BenchRow, to other: BenchRow?) -> Double? {
        guard let other, other != row else { return nil }
        let ratios = Set(here.map(\.round)).compactMap { round -> Double? in
          let runs = here.filter { $0.round == round }
          guard let own = runs.first(where: { $0.row == row })?.figures.rate,
            let others = runs.first(where: { $0.row == other })?.figures.rate, others > 0
          else { return nil }
          return own / others
        }
        return ratios.medianValue(\.self)
      }
      for row in BenchRow.allCases {
        let figures = here.filter { $0.row == row }.map(\.figures)
        guard let rate = figures.medianValue(\.rate) else { continue }
        var cpu: [String: Double] = [:]
        for name in Set(figures.flatMap { $0.cpu.map(\.process) }) {
          cpu[name] = figures.compactMap { $0.cpu.first { $0.process == name }?.perRequest }.medianValue(\.self)
        }
        processes[row] = figures.first?.cpu.map(\.process).filter { $0 != Self.generator }
        let servers = cpu.filter { $0.key != Self.generator }
        let ofPeer = ratio(row, to: row.peer)
        lines.append(
          Line(
            row: row,
            what: row.title,
            streams: streams,
            rate: rate,
            ofNghttpd: row.transport == .http ? ratio(row, to: .nghttpd) : nil,
            peer: ofPeer == nil ? nil : row.peer,
            ofPeer: ofPeer,
            p50: figures.median(\.p50),
            p99: figures.median(\.p99),
            p999: figures.compactMap(\.p999).medianValue(\.self),
            generatorCPU: cpu[Self.generator],
            serverCPU: servers.isEmpty ? nil : servers.values.reduce(0, +),
            cpu: cpu
          )
        )
      }
    }
    self.lines = lines
    self.processes = processes
  }

  private static let generator = "generator"

  /// One table of the rows over HTTP/2 and one of the pipelined rows.
  var markdown: String {
    BenchRow.Transport.allCases.compactMap { transport in
      table(isHTTP: transport == .http).markdown(lines.filter { $0.row.transport == transport })
    }.joined(separator: "\n\n")
  }

  private func table(isHTTP: Bool) -> ReportTable<Line> {
    func decimal(_ value: Double?) -> String { value.map { Figures.decimal($0, digits: 2) } ?? "" }
    let processes = processes
    var columns: [ReportTable<Line>.Column] = [
      .number(isHTTP ? "streams" : "pipeline") { "\($0.streams)" }, .text("what", \.what),
      .count("requests/s") { Int($0.rate) },
    ]
    if isHTTP {
      columns.append(.number("of nghttpd") { $0.row == .nghttpd ? "1" : decimal($0.ofNghttpd) })
    }
    columns += [
      .number("of its peer") { decimal($0.ofPeer) }, .time("p50", \.p50), .time("p99", \.p99),
      .number("p99.9") { $0.p999.map { Figures.time(microseconds: $0) } ?? "" },
      .microseconds("generator", \.generatorCPU), .microseconds("servers", \.serverCPU),
      .text("of them") { line in
        let names = processes[line.row] ?? []
        return (names.count < 2 ? names : names.map { "\($0) \(decimal(line.cpu[$0]))" }).joined(separator: ", ")
      },
    ]
    return ReportTable(columns: columns)
  }

  /// Explanation of the columns that are present.
  var legend: String {
    var sentences: [String] = []
    let rows = Set(lines.map(\.row))
    if lines.contains(where: { $0.ofNghttpd != nil }) {
      sentences.append("\"of nghttpd\" is the rate over nghttpd's in the same round.")
    }
    let peers = BenchRow.allCases.filter { peer in lines.contains { $0.peer == peer } }
    if !peers.isEmpty {
      let named = peers.map { peer in
        let own = BenchRow.allCases.filter { rows.contains($0) && $0.peer == peer }.map(\.title)
        return "\(peer.title) for \(own.joined(separator: "; "))"
      }
      sentences.append(
        """
        "of its peer" is the same over the row that does the most similar work: \(named.joined(separator: " / ")).
        """
      )
    }
    sentences.append(
      """
      "generator" and "servers" are microseconds of CPU time per request, the servers' summed over all their processes.
      """
    )
    if rows.contains(where: \.isOwn) {
      sentences.append(
        """
        Every mark-read moved its watermark and every registered message was new, all durable before the answer; after \
        each run every watermark and count was read back. A sample of the answers to queries was compared field by \
        field.
        """
      )
    }
    if rows.contains(.webdis) {
      sentences.append(
        """
        webdis speaks HTTP/1.1 only, so nghttpx is in front of it, as in front of nginx; its Redis has appendfsync \
        always, and every field was read back.
        """
      )
    }
    if rows.contains(.redis) {
      sentences.append(
        """
        redis-benchmark waits for all replies of a pipeline before it sends the next, and reports no p99.9; its Redis \
        has appendfsync always.
        """
      )
    }
    return sentences.joined(separator: " ")
  }
}
