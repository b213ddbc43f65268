import Testing

@testable import StoreServer

/// The order in which a node asks others for a snapshot of a group.
@Suite struct SnapshotAttemptsTests {
  private struct Case: Sendable {
    var name: String
    /// The other nodes at each reading; the last ones stay.
    var readings: [[String]]
    /// The first actions, in short.
    var actions: [String]
  }

  private static let cases = [
    Case(
      name: "all nodes as followers, then as owners",
      readings: [["a", "b"]],
      actions: ["ask a", "ask b", "ask owner a", "ask owner b", "pause 1.0", "ask a", "ask b", "ask owner a"]
    ),
    Case(
      name: "the nodes are read again for the owners, and for the next round",
      readings: [["a"], ["b", "a"], ["c"]],
      actions: ["ask a", "ask owner b", "ask owner a", "pause 1.0", "ask c", "ask owner c", "pause 2.0"]
    ),
    Case(
      name: "a node that is announced after the report",
      readings: [[], ["a"]],
      actions: ["report none", "ask owner a", "pause 1.0", "ask a", "ask owner a", "pause 2.0"]
    ),
    Case(
      name: "no node, and pauses up to their limit",
      readings: [[]],
      actions: [1, 2, 4, 8, 16, 30, 30].flatMap { (pause: Double) in ["report none", "pause \(pause)"] }
    ),
  ]

  @Test(arguments: cases)
  private func nodesAreAskedInOrderWithPausesBetweenRounds(_ test: Case) {
    var attempts = SnapshotAttempts<String>()
    var readings = test.readings
    func nodes() -> [String] { readings.count > 1 ? readings.removeFirst() : readings[0] }
    let actions = test.actions.map { _ -> String in
      switch attempts.next(among: nodes()) {
      case .reportNone: "report none"
      case .ask(let node, let asksOwner): asksOwner ? "ask owner \(node)" : "ask \(node)"
      case .pause(let duration): "pause \(duration / Duration.seconds(1))"
      }
    }
    #expect(actions == test.actions, "\(test.name)")
  }
}
