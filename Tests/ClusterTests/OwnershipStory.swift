import StoreEngine
import Testing

/// A story of one ``Ownership``: rows of events, each with the actions or the answer that it must give.
///
/// The group's members are the nodes 1, 2 and 3 in the order of their ranks. Times are in milliseconds.
struct OwnershipStory: CustomTestStringConvertible {
  /// What happens in a row.
  enum Input {
    case event(Ownership.Event)
    /// Whether the node may answer queries, and when it wants to be called.
    case lease
    case deadline
    /// Whether a stop waits for the hand-over.
    case handOver
    /// Whether the node reports how far it has the group.
    case report
  }

  struct Row {
    let at: Int64
    let input: Input
    let expected: String

    init(_ at: Int64, _ event: Ownership.Event, _ expected: String) {
      self.init(at, input: .event(event), expected)
    }

    init(_ at: Int64, input: Input, _ expected: String) {
      self.at = at
      self.input = input
      self.expected = expected
    }
  }

  let testDescription: String
  let node: NodeID
  /// The highest level that the node supports.
  let levelMax: ClusterLevel
  let rows: [Row]
  /// The last record in the node's storage.
  let stored: LogCursor

  /// ``ClusterLimits/recordBytes``
  let recordBytes: Int

  init(
    _ testDescription: String,
    node: UInt16 = 1,
    levelMax: UInt8 = 2,
    recordBytes: Int = 0,
    stored: LogCursor = .start,
    _ rows: [Row]...
  ) {
    self.stored = stored
    self.recordBytes = recordBytes
    self.levelMax = ClusterLevel(levelMax)
    self.testDescription = testDescription
    self.node = NodeID(node)
    self.rows = rows.flatMap { $0 }
  }

  /// Runs the rows and compares.
  func check() {
    var limits = ClusterLimits()
    limits.trimRecordsMin = 3
    limits.levels = .oldest...levelMax
    limits.awayMilliseconds = 3_000
    limits.awayBytesMin = 3
    limits.recordBytes = recordBytes
    var ownership = Ownership(
      group: GroupID(0),
      node: node,
      initialSet: GroupSet(members: [NodeID(1), NodeID(2), NodeID(3)], revision: 0),
      limits: limits,
      stored: stored,
      now: Self.time(0)
    )
    for row in rows {
      let now = Self.time(row.at)
      let found: String
      switch row.input {
      case .event(let event): found = Self.text(ownership.handle(event, at: now))
      case .lease: found = ownership.mayAnswer(at: now) ? "answers" : "answers nothing"
      case .report: found = ownership.reportsProgress ? "reports" : "reports nothing"
      case .handOver: found = ownership.isHandingOver(at: now) ? "waits" : "does not wait"
      case .deadline:
        let deadline = ownership.deadline
        found = deadline == .never ? "never" : "\(deadline.nanoseconds / 1_000_000)"
      }
      #expect(found == row.expected, "at \(row.at)")
    }
  }

  static func time(_ milliseconds: Int64) -> BootTime {
    BootTime(nanoseconds: 0).adding(milliseconds: milliseconds)
  }

  // MARK: Text of actions

  private static func text(_ actions: [Ownership.Action]) -> String {
    actions.isEmpty ? "-" : actions.map(text).joined(separator: ", ")
  }

  private static func text(_ action: Ownership.Action) -> String {
    switch action {
    case .read(let from): "read \(from.rawValue)"
    case .follow(let from): "follow \(from.rawValue)"
    case .apply(let record): "apply \(text(record))"
    case .fetchSnapshot(.trimmed(let first)): "fetch snapshot, log begins at \(first.rawValue)"
    case .fetchSnapshot(.keyDestroyed(let key)): "fetch snapshot, key \(key.rawValue) destroyed"
    case .fetchSnapshot(.diverged(let at)): "fetch snapshot, diverged at \(at.rawValue)"
    case .levelUnsupported(let level): "level \(level.rawValue) unsupported"
    case .claim(let claim, let attempt): "send \(text(claim.record)) as attempt \(attempt.rawValue)"
    case .append(let append, let attempt): "send \(text(append.record)) as attempt \(attempt.rawValue)"
    case .committed(let record): "committed \(record.position.rawValue)"
    case .promote(let epoch): "promote to epoch \(epoch.rawValue)"
    case .yield: "yield"
    case .removeData: "remove data"
    case .stepDown(.deposed): "step down, deposed"
    case .stepDown(.released(let to)): "step down, released to \(to.rawValue)"
    case .trim(let trim): "trim before \(trim.before.rawValue)"
    }
  }

  private static func text(_ record: GroupRecord) -> String {
    let kind =
      switch record.kind {
      case .batches: "batches \(record.payload)"
      case .part: "part \(record.payload)"
      case .claim(let node): "claim by \(node.rawValue)"
      case .release(let to): "release to \(to.rawValue)"
      case .alive: "alive"
      case .purge(let first): first == .zero ? "purge" : "purge again of \(first.rawValue)"
      case .unknown: "unknown"
      }
    if record.level > .oldest { return "\(record.position.rawValue) \(kind) of level \(record.level.rawValue)" }
    return "\(record.position.rawValue) \(kind)"
  }
}

// MARK: Records and events of the stories

extension OwnershipStory {
  /// Owners by epoch. The log's revision of an owner is ten times its epoch.
  static func owner(_ node: UInt16, epoch: UInt64) -> GroupOwner {
    GroupOwner(node: NodeID(node), epoch: OwnerEpoch(epoch), fence: OwnerFence(epoch * 10))
  }

  /// The log that a story begins with: node 2 claimed the group, wrote, and is alive.
  static let log = records(after: .start, [(.claim(by: NodeID(2)), 1), (.batches, 1), (.alive, 1)])
  static let end = LogCursor(after: log[2])

  /// The log after this node's claim, and two records later.
  static let claimed = LogCursor(after: records(after: end, [(.claim(by: NodeID(1)), 2)])[0])
  static let released = LogCursor(
    after: records(after: claimed, [(.batches, 2), (.release(to: NodeID(3)), 2)])[1]
  )

  static func records(after cursor: LogCursor, _ kinds: [(GroupRecord.Kind, UInt64)]) -> [GroupRecord] {
    var cursor = cursor
    return kinds.map { kind, epoch in
      let record = cursor.record(kind, epoch: OwnerEpoch(epoch), payload: kind == .batches ? [7] : [])
      cursor = LogCursor(after: record)
      return record
    }
  }

  /// Rows at time 0: the node probes the log, reads it, and follows it.
  static let following = [
    Row(0, .timerFired, "-"),
    Row(0, probe(owner: owner(2, epoch: 1), last: 3), "read 1"),
    Row(
      0,
      .recordsRead(log, from: RecordPosition(1), reachesEnd: true),
      "apply 1 claim by 2, apply 2 batches [7], apply 3 alive, follow 4"
    ),
  ]

  /// Rows up to 2,050 ms: the node claims the group; the claim is record 4.
  static let owning =
    following + [
      Row(2_000, .timerFired, "send 4 claim by 1 as attempt 1"),
      Row(2_050, committed(1), "committed 4, promote to epoch 2"),
    ]

  /// - Parameter set: the members of a set of this revision; nil: the log has none.
  static func probe(
    owner: GroupOwner,
    last: UInt64,
    set: (members: [UInt16], revision: UInt64)? = nil,
    level: UInt8 = 2
  ) -> Ownership.Event {
    .probeAnswered(
      GroupEnd(
        owner: owner,
        first: RecordPosition(1),
        last: RecordPosition(last),
        set: set.map { GroupSet(members: $0.members.map { NodeID($0) }, revision: $0.revision) },
        level: ClusterLevel(level)
      )
    )
  }

  static func committed(_ attempt: UInt64) -> Ownership.Event {
    .answered(Ownership.Attempt(attempt), .committed(owner(1, epoch: 2)))
  }

  static func fenced(_ attempt: UInt64, by owner: GroupOwner) -> Ownership.Event {
    .answered(Ownership.Attempt(attempt), .fenced(owner))
  }

  static func unclear(_ attempt: UInt64) -> Ownership.Event {
    .answered(Ownership.Attempt(attempt), .unclear)
  }

  static func synced(_ member: UInt16, _ position: UInt64) -> Ownership.Event {
    .memberReported(NodeID(member), MemberReport(position: RecordPosition(position)))
  }

  static func joining(_ member: UInt16, _ position: UInt64) -> Ownership.Event {
    .memberReported(NodeID(member), MemberReport(position: RecordPosition(position), .joining))
  }

  static func ineligible(_ member: UInt16, _ position: UInt64) -> Ownership.Event {
    .memberReported(NodeID(member), MemberReport(position: RecordPosition(position), .ineligible))
  }
}
