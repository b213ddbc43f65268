internal import Foundation

/// Numbers as text.
package enum Figures {
  /// Format 1234567 as "1,234,567".
  package static func count(_ value: Int) -> String {
    let digits = Array(String(abs(value)))
    var text = value < 0 ? "-" : ""
    for (index, digit) in digits.enumerated() {
      if index > 0 && (digits.count - index) % 3 == 0 { text += "," }
      text.append(digit)
    }
    return text
  }

  /// Format microseconds as "850 µs", "4.21 ms" or "1.30 s".
  package static func time(microseconds: Double) -> String {
    switch microseconds {
    case ..<1000: String(format: "%.0f µs", microseconds)
    case ..<1_000_000: String(format: "%.2f ms", microseconds / 1000)
    default: String(format: "%.2f s", microseconds / 1_000_000)
    }
  }

  /// Format a decimal with a number of digits behind the point.
  package static func decimal(_ value: Double, digits: Int) -> String {
    String(format: "%.\(digits)f", value)
  }
}

/// JSON documents of reports.
package enum ReportDocument {
  /// Encode a value in one line.
  package static func line(_ value: some Encodable) throws -> String {
    try text(value, [.sortedKeys])
  }

  /// Encode a value as an indented document.
  package static func pretty(_ value: some Encodable) throws -> String {
    try text(value, [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes])
  }

  private static func text(_ value: some Encodable, _ format: JSONEncoder.OutputFormatting) throws -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = format
    return String(decoding: try encoder.encode(value), as: UTF8.self)
  }
}
