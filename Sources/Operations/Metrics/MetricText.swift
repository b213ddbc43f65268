/// Values in Prometheus text.
package enum MetricText {
  /// Return the value of the sample with this name, labels included; nil if it is missing.
  package static func value(_ name: String, in text: String) -> Double? {
    for line in text.split(separator: "\n") where line.hasPrefix(name + " ") {
      return Double(line.dropFirst(name.utf8.count + 1))
    }
    return nil
  }

  /// Return the sum of a metric over its labels.
  package static func sum(_ name: String, in text: String) -> Double {
    text.split(separator: "\n").filter { $0.hasPrefix(name + " ") || $0.hasPrefix(name + "{") }
      .compactMap { $0.split(separator: " ").last.flatMap { Double($0) } }.reduce(0, +)
  }
}
