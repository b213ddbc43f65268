/// The figures of a comparison: medians over its rounds, as a Markdown table.
package struct ComparisonTable: Sendable {
  /// Medians of one row at one number of streams.
  package struct Line: Sendable, Codable, Hashable {
    package var streams: Int
    package var row: Comparison.Row
    /// Requests a second.
    package var rate: Double
    /// The rate over the peer's in the same round, the median of the rounds; nil for the peer itself.
    package var ofPeer: Double?
    package var p50: Double
    package var p99: Double
    package var p999: Double
    /// CPU microseconds per request by process: generator, and gateway and store, or nghttpd.
    package var cpu: [String: Double]
  }

  package let lines: [Line]
  package let rounds: Int

  package init(_ measurements: [Comparison.Measurement]) {
    rounds = measurements.map(\.round).max() ?? 0
    var lines: [Line] = []
    for streams in Set(measurements.map(\.streams)).sorted() {
      let here = measurements.filter { $0.streams == streams }
      func reports(_ row: Comparison.Row) -> [LoadReport] { here.filter { $0.row == row }.map(\.report) }
      // Within a round the machine is the same for all; over minutes it may not be.
      func ofPeer(_ row: Comparison.Row) -> Double? {
        guard row != .peer else { return nil }
        let ratios = Set(here.map(\.round)).compactMap { round -> Double? in
          let reports = here.filter { $0.round == round }
          guard let own = reports.first(where: { $0.row == row })?.report.rate,
            let peer = reports.first(where: { $0.row == .peer })?.report.rate, peer > 0
          else { return nil }
          return own / peer
        }
        return Self.median(ratios)
      }
      for row in Comparison.Row.allCases {
        let reports = reports(row)
        guard let rate = Self.median(reports.map(\.rate)) else { continue }
        var cpu: [String: Double] = [:]
        for name in Set(reports.flatMap { $0.cpu.map(\.process) }) {
          cpu[name] = Self.median(reports.compactMap { $0.cpu.first { $0.process == name }?.perRequest })
        }
        lines.append(
          Line(
            streams: streams,
            row: row,
            rate: rate,
            ofPeer: ofPeer(row),
            p50: Self.median(reports.map(\.latencies.p50)) ?? 0,
            p99: Self.median(reports.map(\.latencies.p99)) ?? 0,
            p999: Self.median(reports.map(\.latencies.p999)) ?? 0,
            cpu: cpu
          )
        )
      }
    }
    self.lines = lines
  }

  /// The middle one; of an even number, the mean of the two in the middle; nil of none.
  static func median(_ values: [Double]) -> Double? {
    guard !values.isEmpty else { return nil }
    let sorted = values.sorted()
    let middle = sorted.count / 2
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
  }

  /// A Markdown table whose columns line up in a terminal too.
  package var markdown: String {
    let head = [
      "streams", "what", "requests/s", "of nghttpd", "p50", "p99", "p99.9", "generator", "gateway or nghttpd",
      "store",
    ]
    let rows = lines.map { line in
      func cpu(_ name: String) -> String? { line.cpu[name].map { Figures.decimal($0, digits: 2) + " µs" } }
      return [
        "\(line.streams)", line.row.rawValue, Figures.count(Int(line.rate)),
        line.ofPeer.map { Figures.decimal($0, digits: 2) } ?? "1",
        Figures.time(microseconds: line.p50), Figures.time(microseconds: line.p99),
        Figures.time(microseconds: line.p999), cpu("generator") ?? "",
        cpu("gateway") ?? cpu(PeerServer.name) ?? "", cpu("store") ?? "",
      ]
    }
    return Self.table(head: head, rows: rows, leftAligned: [1])
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
