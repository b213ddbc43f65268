/// The order in which a node asks others for a snapshot of a group, and its pauses. In each round it asks all nodes as
/// followers, then all of them again for the case that they own the group. A pure state machine.
struct SnapshotAttempts<Node> {
  enum Action {
    /// Report that no other node is announced.
    case reportNone
    case ask(Node, asksOwner: Bool)
    case pause(Duration)
  }

  private enum State {
    case beginningRound
    case asking(rest: ArraySlice<Node>, asksOwner: Bool)
    case endingRound
  }

  private var state = State.beginningRound
  /// Pause after this round.
  private var pause = Duration.seconds(1)

  private static var pauseMax: Duration { .seconds(30) }

  /// Return the next action, after one that has brought no snapshot.
  ///
  /// - Parameter nodes: the other nodes of now, in the order in which they are asked; read twice in each round.
  mutating func next(among nodes: @autoclosure () -> [Node]) -> Action {
    while true {
      switch state {
      case .beginningRound:
        let found = nodes()
        state = .asking(rest: found[...], asksOwner: false)
        if found.isEmpty { return .reportNone }
      case .asking(var rest, let asksOwner):
        if let node = rest.popFirst() {
          state = .asking(rest: rest, asksOwner: asksOwner)
          return .ask(node, asksOwner: asksOwner)
        }
        state = asksOwner ? .endingRound : .asking(rest: nodes()[...], asksOwner: true)
      case .endingRound:
        state = .beginningRound
        defer { pause = min(pause * 2, Self.pauseMax) }
        return .pause(pause)
      }
    }
  }
}
