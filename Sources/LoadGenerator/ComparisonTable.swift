/// The figures of a comparison: medians over its rounds, as Markdown tables.
package struct ComparisonTable: Sendable {
  /// Medians of one row at one number of streams.
  package struct Line: Sendable, Codable, Hashable {
    package var row: BenchRow
    /// The row for people.
    package var what: String
    /// Requests under way at once on each connection.
    package var streams: Int
    /// Requests a second.
    package var rate: Double
    /// The rate over nghttpd's in the same round, the median of the rounds; nil for nghttpd itself, for rows that do
    /// not come over HTTP/2, and where nghttpd was not measured.
    package var ofNghttpd: Double?
    /// The row that does the most similar work, where there is one and it was measured.
    package var peer: BenchRow?
    /// The same over that row's.
    package var ofPeer: Double?
    package var p50: Double
    package var p99: Double
    /// Nil where the generator does not tell it.
    package var p999: Double?
    /// CPU microseconds per request of the generator.
    package var generatorCPU: Double?
    /// The same of all processes that answer.
    package var serverCPU: Double?
    /// The same by process.
    package var cpu: [String: Double]
  }

  package let lines: [Line]
  package let rounds: Int
  /// The processes that answer, by row, in the order that a request passes them.
  private let processes: [BenchRow: [String]]

  package init(_ measurements: [Comparison.Measurement]) {
    rounds = measurements.map(\.round).max() ?? 0
    var lines: [Line] = []
    var processes: [BenchRow: [String]] = [:]
    for streams in Set(measurements.map(\.streams)).sorted() {
      let here = measurements.filter { $0.streams == streams }
      // Within a round the machine is the same for all; over minutes it may not be.
      func ratio(_ row: BenchRow, to other: BenchRow?) -> Double? {
        guard let other, other != row else { return nil }
        let ratios = Set(here.map(\.round)).compactMap { round -> Double? in
          let runs = here.filter { $0.round == round }
          guard let own = runs.first(where: { $0.row == row })?.figures.rate,
            let others = runs.first(where: { $0.row == other })?.figures.rate, others > 0
          else { return nil }
          return own / others
        }
        return Self.median(ratios)
      }
      for row in BenchRow.allCases {
        let figures = here.filter { $0.row == row }.map(\.figures)
        guard let rate = Self.median(figures.map(\.rate)) else { continue }
        var cpu: [String: Double] = [:]
        for name in Set(figures.flatMap { $0.cpu.map(\.process) }) {
          cpu[name] = Self.median(figures.compactMap { $0.cpu.first { $0.process == name }?.perRequest })
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
            p50: Self.median(figures.map(\.p50)) ?? 0,
            p99: Self.median(figures.map(\.p99)) ?? 0,
            p999: Self.median(figures.compactMap(\.p999)),
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

  /// The middle one; of an even number, the mean of the two in the middle; nil of none.
  static func median(_ values: [Double]) -> Double? {
    guard !values.isEmpty else { return nil }
    let sorted = values.sorted()
    let middle = sorted.count / 2
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
  }

  /// Markdown tables whose columns line up in a terminal too: what comes over HTTP/2, then what is pipelined.
  package var markdown: String {
    BenchRow.Transport.allCases.compactMap { transport in
      let lines = lines.filter { $0.row.transport == transport }
      return lines.isEmpty ? nil : Self.markdown(lines, transport, processes)
    }.joined(separator: "\n\n")
  }

  private static func markdown(
    _ lines: [Line],
    _ transport: BenchRow.Transport,
    _ processes: [BenchRow: [String]]
  ) -> String {
    let isHTTP = transport == .http
    func decimal(_ value: Double?) -> String { value.map { Figures.decimal($0, digits: 2) } ?? "" }
    func microseconds(_ value: Double?) -> String { value.map { decimal($0) + " µs" } ?? "" }
    let ratioHeads = isHTTP ? ["of nghttpd", "of its peer"] : ["of its peer"]
    let head =
      [isHTTP ? "streams" : "pipeline", "what", "requests/s"] + ratioHeads + [
        "p50", "p99", "p99.9", "generator", "servers", "of them",
      ]
    let rows = lines.map { line -> [String] in
      let names = processes[line.row] ?? []
      let ofThem = names.count < 2 ? names : names.map { "\($0) \(decimal(line.cpu[$0]))" }
      let ofNghttpd = line.row == .nghttpd ? "1" : decimal(line.ofNghttpd)
      let ratios = isHTTP ? [ofNghttpd, decimal(line.ofPeer)] : [decimal(line.ofPeer)]
      return ["\(line.streams)", line.what, Figures.count(Int(line.rate))] + ratios + [
        Figures.time(microseconds: line.p50), Figures.time(microseconds: line.p99),
        line.p999.map { Figures.time(microseconds: $0) } ?? "", microseconds(line.generatorCPU),
        microseconds(line.serverCPU), ofThem.joined(separator: ", "),
      ]
    }
    return table(head: head, rows: rows, leftAligned: [1, head.count - 1])
  }

  /// What the columns mean, for those rows that are there.
  package var legend: String {
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
        "\"of its peer\" is the same over the row that does the most similar work: \(named.joined(separator: " / "))."
      )
    }
    sentences.append(
      "\"generator\" and \"servers\" are microseconds of CPU time per request, the servers' summed over all their processes."
    )
    if rows.contains(where: \.isOwn) {
      sentences.append(
        """
        Every mark-read moved its watermark and every registered message was new, all durable before they were \
        answered; after each run every watermark and count was read back. Of the answers to queries some were compared \
        field by field.
        """
      )
    }
    if rows.contains(.webdis) {
      sentences.append(
        """
        webdis speaks HTTP/1.1 only, so nghttpx is in front of it, as in front of nginx; its Redis has appendfsync always, \
        and every field was read back.
        """
      )
    }
    if rows.contains(.redis) {
      sentences.append(
        """
        redis-benchmark waits for all replies of a pipeline before it sends the next, and tells no p99.9; its Redis has \
        appendfsync always.
        """
      )
    }
    return sentences.joined(separator: " ")
  }

  static func table(head: [String], rows: [[String]], leftAligned: Set<Int>) -> String {
    let widths = head.indices.map { column in ([head] + rows).map { $0[column].count }.max() ?? 0 }
    func line(_ cells: [String]) -> String {
      let padded = cells.enumerated().map { column, cell in
        let space = String(repeating: " ", count: widths[column] - cell.count)
        return leftAligned.contains(column) ? cell + space : space + cell
      }
      return "| " + padded.joined(separator: " | ") + " |"
    }
    let rule = widths.enumerated().map { column, width in
      leftAligned.contains(column)
        ? String(repeating: "-", count: width) : String(repeating: "-", count: width - 1) + ":"
    }
    return ([line(head), line(rule)] + rows.map(line)).joined(separator: "\n")
  }
}
