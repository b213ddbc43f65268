internal import NIOCore

/// Finds etcd's Raft leader among the servers: a follower forwards each append to it, which takes longer.
///
/// A check asks one server for its own id and the leader's. If it is another server's, the next question goes there,
/// and calls move only to a server that says of itself that it leads. So an election under way moves nothing. Between
/// two moves is ``EtcdConfiguration/leaderMoveInterval``, whatever the answers are.
///
/// Answers and times go in, decisions come out.
struct LeaderPreference {
  /// A server of the configuration, by its index.
  typealias Server = Int

  enum Decision: Equatable {
    /// Nothing more until the next check.
    case wait
    /// Ask this server for its status.
    case ask(Server)
    /// Send calls to this server, which leads.
    case move(to: Server)
  }

  private let moveInterval: TimeAmount
  /// The ids of the servers that have answered.
  private var members: [UInt64?]
  private var moveAllowedAt: NIODeadline
  /// Servers that the current check has asked.
  private var asked: Set<Server> = []

  init(servers: Int, moveInterval: TimeAmount) {
    self.moveInterval = moveInterval
    members = Array(repeating: nil, count: servers)
    moveAllowedAt = .uptimeNanoseconds(0)
  }

  /// Begin a check with the current server's status.
  mutating func check(current: Server) -> Decision {
    asked = [current]
    return .ask(current)
  }

  /// Take a server's status. `leader` is 0 without one.
  ///
  /// - Parameter isReady: whether calls can be sent to the server. A move that cannot be made must not delay the next.
  mutating func answered(
    _ server: Server,
    _ status: EtcdStatusResponse,
    current: Server,
    isReady: Bool = true,
    at now: NIODeadline
  ) -> Decision {
    members[server] = status.member
    guard status.leader != 0 else { return .wait }
    if status.leader == status.member {
      guard server != current, isReady, now >= moveAllowedAt else { return .wait }
      moveAllowedAt = now + moveInterval
      return .move(to: server)
    }
    guard now >= moveAllowedAt else { return .wait }
    // A server may have another id now, after it was replaced: its own answer decides.
    let next =
      members.indices.first { members[$0] == status.leader && !asked.contains($0) }
      ?? members.indices.first { members[$0] == nil && !asked.contains($0) }
    guard let next else { return .wait }
    asked.insert(next)
    return .ask(next)
  }
}
