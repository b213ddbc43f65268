internal import Foundation
internal import Glibc
internal import LocalStack

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

extension Collection {
  /// Return the median of a value over the elements: the middle value, or the mean of the two middle values; nil
  /// without elements.
  func medianValue(_ value: (Element) -> Double) -> Double? {
    guard !isEmpty else { return nil }
    let sorted = map(value).sorted()
    let middle = sorted.count / 2
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
  }

  /// Return the median of a value over the elements; 0 without elements.
  func median(_ value: (Element) -> Double) -> Double { medianValue(value) ?? 0 }
}

/// Numbers as text.
enum Figures {
  /// Format 1234567 as "1,234,567".
  static func count(_ value: Int) -> String {
    let digits = Array(String(abs(value)))
    var text = value < 0 ? "-" : ""
    for (index, digit) in digits.enumerated() {
      if index > 0 && (digits.count - index) % 3 == 0 { text += "," }
      text.append(digit)
    }
    return text
  }

  /// Format microseconds as "850 µs", "4.21 ms" or "1.30 s".
  static func time(microseconds: Double) -> String {
    switch microseconds {
    case ..<1000: String(format: "%.0f µs", microseconds)
    case ..<1_000_000: String(format: "%.2f ms", microseconds / 1000)
    default: String(format: "%.2f s", microseconds / 1_000_000)
    }
  }

  /// Format a decimal with a number of digits behind the point.
  static func decimal(_ value: Double, digits: Int) -> String {
    String(format: "%.\(digits)f", value)
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

/// Machine and build of a measurement.
enum Machine {
  /// Processors and system in one line.
  static var summary: String {
    let processors = ProcessInfo.processInfo.processorCount
    let model = value("model name", in: "/proc/cpuinfo", separator: ":") ?? "unknown processor"
    let system = value("PRETTY_NAME", in: "/etc/os-release", separator: "=") ?? "Linux"
    var name = utsname()
    uname(&name)
    let release = withUnsafeBytes(of: &name.release) { bytes in
      String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }
    return "\(processors) × \(model), \(system), Linux \(release)"
  }

  /// Return whether a directory is on a file system in memory, where a sync costs nothing.
  static func isInMemory(_ directory: String) -> Bool {
    // With a file handle: by path, Foundation reads at most 4 KiB of a file whose size is reported as 0.
    guard let file = FileHandle(forReadingAtPath: "/proc/self/mounts"), let data = try? file.readToEnd()
    else { return false }
    let type = fileSystem(of: directory, mounts: String(decoding: data, as: UTF8.self))
    return ["tmpfs", "ramfs"].contains(type)
  }

  /// Return the type of the file system of a path: that of the longest mount point above it, the last of equal ones.
  static func fileSystem(of path: String, mounts: String) -> String? {
    var found: (point: Substring, type: Substring)?
    for line in mounts.split(separator: "\n") {
      let fields = line.split(separator: " ")
      guard fields.count > 2 else { continue }
      let point = fields[1]
      let isAbove = point == "/" || path == point || path.hasPrefix(point + "/")
      if isAbove && point.count >= (found?.point.count ?? 0) { found = (point, fields[2]) }
    }
    return found.map { String($0.type) }
  }

  /// Warn that a program without optimization measures nothing useful.
  static func warnAboutDebugBuild(_ command: String) {
    #if DEBUG
      Terminal.printError("\(command): this is a debug build; measure with a release build")
    #endif
  }

  private static func value(_ key: String, in file: String, separator: Character) -> String? {
    guard let data = FileManager.default.contents(atPath: file) else { return nil }
    for line in String(decoding: data, as: UTF8.self).split(separator: "\n") where line.hasPrefix(key) {
      guard let at = line.firstIndex(of: separator) else { continue }
      return line[line.index(after: at)...].trimmingCharacters(in: CharacterSet(charactersIn: " \"\t"))
    }
    return nil
  }
}
