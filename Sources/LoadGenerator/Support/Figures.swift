internal import Foundation

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

extension Collection {
  /// Return the median of a value over the elements: the middle value, or the mean of the two middle values; nil
  /// without elements.
  func medianValue(_ value: (Element) -> Double) -> Double? {
    guard !isEmpty else { return nil }
    let sorted = map(value).sorted()
    let middle = sorted.count / 2
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
  }

  /// Format the lowest and the highest of a value over the elements, as in "900 to 1,100"; empty without elements.
  func spread(_ value: (Element) -> Double) -> String {
    let values = map(value)
    guard let lowest = values.min(), let highest = values.max() else { return "" }
    return "\(Figures.count(Int(lowest.rounded()))) to \(Figures.count(Int(highest.rounded())))"
  }

  /// Return the median of a value over the elements; 0 without elements.
  func median(_ value: (Element) -> Double) -> Double { medianValue(value) ?? 0 }
}
