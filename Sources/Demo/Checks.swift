/// Counter of the demo's comparisons, with the mismatches.
struct Checks {
  private(set) var count = 0
  /// Descriptions of the failed comparisons.
  private(set) var mismatches: [String] = []

  /// Compare two values.
  ///
  /// - Returns: a description of the mismatch, or nil.
  mutating func expect<Value: Equatable>(_ what: String, _ expected: Value, _ actual: Value) -> String? {
    count += 1
    guard expected != actual else { return nil }
    let text = "\(what): expected \(expected), actual \(actual)"
    mismatches.append(text)
    return text
  }
}
