package import Testing

private let looks = 6_000

/// Waits until something holds.
///
/// It looks so often that a minute goes by, and far more where the machine is busy; then the test fails, instead of waiting for ever for what will never be.
package func eventually(
  _ what: String = "what was waited for",
  sourceLocation: SourceLocation = #_sourceLocation,
  _ holds: () async throws -> Bool
) async throws {
  for _ in 0..<looks {
    if try await holds() { return }
    try await Task.sleep(for: .milliseconds(10))
  }
  Issue.record("not within \(looks) looks: \(what)", sourceLocation: sourceLocation)
  throw NeverCame()
}

/// What was waited for has not come.
package struct NeverCame: Error {}
