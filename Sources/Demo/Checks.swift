/// What the demo compares: how much, and what was not as it should be.
struct Checks {
  private(set) var count = 0
  /// Those that failed, in words.
  private(set) var mismatches: [String] = []

  /// Compares.
  ///
  /// - Returns: a mismatch in words, nil for none.
  mutating func expect<Value: Equatable>(_ what: String, _ expected: Value, _ actual: Value) -> String? {
    count += 1
    guard expected != actual else { return nil }
    let text = "\(what): expected \(expected), actual \(actual)"
    mismatches.append(text)
    return text
  }
}
