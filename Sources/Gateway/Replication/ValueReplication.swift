/// The replication of one value from its home shard to all others: assign it to each of them, announce the change of a
/// user's rows, tell the home shard that every shard has the value. A PUT drives one (``ValueChangesPart``), and so
/// does a round of ``SettingsReplication`` for a value whose gateway was lost.
struct ValueReplication {
  /// What to do next.
  enum Step: Equatable {
    /// Send the value to every shard but its home; each reply is ``assigned(isDone:)``.
    case assign
    /// Send announce_row for all channels of the user, whose rows others now see differently (R7); its end is
    /// ``announced(isDone:)``.
    case announce
    /// Send settle to the home shard; its reply is ``markedReplicated(isDone:)``.
    case markReplicated
    case end(Outcome)
  }

  enum Outcome: Equatable {
    /// Every shard has the value, and the home shard knows.
    case replicated
    /// Every shard has the value. A later round tells the home shard.
    case unreplicated
    /// A shard may lack the value, or a watcher the announcement. A later round starts again.
    case incomplete
  }

  private enum Stage {
    /// Becomes `assigning`, or what follows where there is no other shard.
    case ready
    /// Becomes `announcing`, or `markingReplicated` where nothing is announced, or `ended` after a failure.
    case assigning(waiting: Int, hasFailed: Bool)
    /// Becomes `markingReplicated`, or `ended` after a failure.
    case announcing
    /// Becomes `ended`.
    case markingReplicated
    case ended
  }

  let value: SharedValue
  let shardCount: Int
  /// Whether watchers of the user's channels are told.
  private let isAnnounced: Bool
  private var stage = Stage.ready

  init(_ value: SharedValue, shardCount: Int, isAnnounced: Bool) {
    self.value = value
    self.shardCount = shardCount
    self.isAnnounced = isAnnounced && value.isUser
  }

  mutating func start() -> Step {
    // Version 0 was never set, which is every shard's default state.
    guard value.version > 0 else { return end(.replicated) }
    guard shardCount > 1 else { return assignedToAll() }
    stage = .assigning(waiting: shardCount - 1, hasFailed: false)
    return .assign
  }

  /// Handle a shard's answer to its assignment. Nil: others have not answered yet.
  mutating func assigned(isDone: Bool) -> Step? {
    guard case .assigning(let waiting, let hasFailed) = stage else {
      preconditionFailure("an answer to an assignment that was not sent")
    }
    if waiting > 1 {
      stage = .assigning(waiting: waiting - 1, hasFailed: hasFailed || !isDone)
      return nil
    }
    return hasFailed || !isDone ? end(.incomplete) : assignedToAll()
  }

  /// Handle the end of the announcement.
  mutating func announced(isDone: Bool) -> Step { isDone ? markReplicated() : end(.incomplete) }

  /// Handle the home shard's answer.
  mutating func markedReplicated(isDone: Bool) -> Step { end(isDone ? .replicated : .unreplicated) }

  private mutating func assignedToAll() -> Step {
    guard isAnnounced else { return markReplicated() }
    stage = .announcing
    return .announce
  }

  private mutating func markReplicated() -> Step {
    stage = .markingReplicated
    return .markReplicated
  }

  private mutating func end(_ outcome: Outcome) -> Step {
    stage = .ended
    return .end(outcome)
  }
}
