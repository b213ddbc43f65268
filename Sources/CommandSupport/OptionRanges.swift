internal import ArgumentParser

/// Check options against their ranges.
package func validateRanges(_ options: [(name: String, value: Int, range: ClosedRange<Int>)]) throws {
  for (name, value, range) in options where !range.contains(value) {
    throw ValidationError("--\(name) \(value): give \(range.lowerBound) to \(range.upperBound)")
  }
}
