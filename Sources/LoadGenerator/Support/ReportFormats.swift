internal import Foundation

/// Markdown table of a report. A column has a heading and makes a cell of each row.
struct ReportTable<Row> {
  struct Column {
    var heading: String
    var isLeftAligned = false
    var cell: (Row) -> String

    static func text(_ heading: String, _ cell: @escaping (Row) -> String) -> Column {
      Column(heading: heading, isLeftAligned: true, cell: cell)
    }
    static func number(_ heading: String, _ cell: @escaping (Row) -> String) -> Column {
      Column(heading: heading, cell: cell)
    }
    static func count(_ heading: String, _ value: @escaping (Row) -> Int) -> Column {
      number(heading) { Figures.count(value($0)) }
    }
    /// Return a column of times in microseconds, in the unit that suits it.
    static func time(_ heading: String, _ microseconds: @escaping (Row) -> Double) -> Column {
      number(heading) { Figures.time(microseconds: microseconds($0)) }
    }
    static func milliseconds(_ heading: String, digits: Int = 3, _ microseconds: @escaping (Row) -> Int) -> Column {
      number(heading) { "\(Figures.decimal(Double(microseconds($0)) / 1_000, digits: digits)) ms" }
    }
    static func seconds(_ heading: String, _ value: @escaping (Row) -> Double) -> Column {
      number(heading) { "\(Figures.decimal(value($0), digits: 2)) s" }
    }
    static func mebibytes(_ heading: String, _ bytes: @escaping (Row) -> Int) -> Column {
      number(heading) { "\(Figures.count(bytes($0) >> 20)) MiB" }
    }
    static func microseconds(_ heading: String, _ value: @escaping (Row) -> Double?) -> Column {
      number(heading) { value($0).map { "\(Figures.decimal($0, digits: 2)) µs" } ?? "" }
    }
  }

  let columns: [Column]

  /// Return the table of all rows, padded to columns of equal width; nil without rows.
  func markdown(_ rows: [Row]) -> String? {
    guard !rows.isEmpty else { return nil }
    let cells = [columns.map(\.heading)] + rows.map { row in columns.map { $0.cell(row) } }
    let widths = columns.indices.map { column in cells.map { $0[column].count }.max() ?? 0 }
    var lines = cells.map { cells in
      line(
        zip(zip(columns, widths), cells).map { column, cell in
          let space = String(repeating: " ", count: column.1 - cell.count)
          return column.0.isLeftAligned ? cell + space : space + cell
        }
      )
    }
    lines.insert(rule(widths), at: 1)
    return lines.joined(separator: "\n")
  }

  /// Heading of a table whose rows are printed one at a time, without padding.
  var heading: String { line(columns.map(\.heading)) + "\n" + rule(columns.map { _ in 4 }) }

  /// Return the row of such a table.
  func line(_ row: Row) -> String { line(columns.map { $0.cell(row) }) }

  private func line(_ cells: [String]) -> String { "| " + cells.joined(separator: " | ") + " |" }

  private func rule(_ widths: [Int]) -> String {
    line(
      zip(columns, widths).map { column, width in
        column.isLeftAligned ? String(repeating: "-", count: width) : String(repeating: "-", count: width - 1) + ":"
      }
    )
  }
}

/// JSON documents of reports.
enum ReportDocument {
  /// Encode a value in one line.
  static func line(_ value: some Encodable) throws -> String {
    try text(value, [.sortedKeys])
  }

  /// Encode a value as an indented document.
  static func pretty(_ value: some Encodable) throws -> String {
    try text(value, [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes])
  }

  private static func text(_ value: some Encodable, _ format: JSONEncoder.OutputFormatting) throws -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = format
    return String(decoding: try encoder.encode(value), as: UTF8.self)
  }
}
