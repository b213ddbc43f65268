internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The settlement of one value from its home shard to all others: assign it to each of them, announce the change of a
/// user's rows, tell the home shard that every shard has the value. A PUT drives one (``ValueChangesPart``), and so
/// does a round of ``SettlementRounds`` for a value whose gateway was lost.
struct ValueSettlement {
  /// An action for the caller to perform.
  enum Action: Equatable {
    /// Send the value to every shard but its home; each reply is ``assigned(isDone:)``.
    case assign
    /// Send announce_row for all channels of the user, whose rows others now see differently (R7); its end is
    /// ``announced(isDone:)``.
    case announce
    /// Send settle to the home shard; its reply is ``settled(isDone:)``.
    case settle
    case end(Outcome)
  }

  enum Outcome: Equatable {
    /// Every shard has the value, and the home shard knows.
    case settled
    /// Every shard has the value. A later round tells the home shard.
    case unsettled
    /// A shard may lack the value, or a watcher the announcement. A later round starts again.
    case incomplete
  }

  private enum Stage {
    /// Becomes `assigning`, or what follows where there is no other shard.
    case ready
    /// Becomes `announcing`, or `settling` where nothing is announced, or `ended` after a failure.
    case assigning(waiting: Int, hasFailed: Bool)
    /// Becomes `settling`, or `ended` after a failure.
    case announcing
    /// Becomes `ended`.
    case settling
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

  mutating func start() -> Action {
    // Version 0 was never set, which is every shard's default state.
    guard value.version > 0 else { return end(.settled) }
    guard shardCount > 1 else { return assignedToAll() }
    stage = .assigning(waiting: shardCount - 1, hasFailed: false)
    return .assign
  }

  /// Handle a shard's answer to its assignment. Nil: others have not answered yet.
  mutating func assigned(isDone: Bool) -> Action? {
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
  mutating func announced(isDone: Bool) -> Action { isDone ? settle() : end(.incomplete) }

  /// Handle the home shard's answer.
  mutating func settled(isDone: Bool) -> Action { end(isDone ? .settled : .unsettled) }

  private mutating func assignedToAll() -> Action {
    guard isAnnounced else { return settle() }
    stage = .announcing
    return .announce
  }

  private mutating func settle() -> Action {
    stage = .settling
    return .settle
  }

  private mutating func end(_ outcome: Outcome) -> Action {
    stage = .ended
    return .end(outcome)
  }
}

/// A versioned value that every shard has. Its home shard decides changes. The result is assigned to all others,
/// and the value is settled at home when the last of them has it (Proto/frames.md, 0x17 to 0x1C).
enum SharedValue: Equatable {
  case channelType(ChannelTypeRecord)
  case user(UserSettings)

  /// Identifies one version of one value.
  struct Identity: Hashable {
    var isUser: Bool
    var name: ExactText
    var version: UInt64
  }

  var identity: Identity { Identity(isUser: isUser, name: ExactText(name), version: version) }

  var isUser: Bool {
    switch self {
    case .channelType: false
    case .user: true
    }
  }

  /// The type's name, or the user's id.
  var name: String {
    switch self {
    case .channelType(let record): record.name
    case .user(let settings): settings.user
    }
  }

  /// 0: never set; there is nothing to settle.
  var version: UInt64 {
    switch self {
    case .channelType(let record): record.version
    case .user(let settings): settings.version
    }
  }

  var assignKind: FrameKind {
    switch self {
    case .channelType: .assignChannelType
    case .user: .assignUser
    }
  }

  func home(shardCount: Int) -> ShardID {
    let name = Array(name.utf8)
    return ShardID.owning(name.span.bytes, count: shardCount)
  }

  /// Write the fields of assign_channel_type or assign_user after the counter.
  func writeAssignment(into buffer: inout ByteBuffer) {
    switch self {
    case .channelType(let record): buffer.writeAssignChannelType(version: record.version, record.options)
    case .user(let settings): buffer.writeAssignUser(settings)
    }
  }

  /// Write the fields of settle after the counter.
  func writeSettle(into buffer: inout ByteBuffer) {
    buffer.writeSettle(isUser: isUser, version: version)
  }
}
