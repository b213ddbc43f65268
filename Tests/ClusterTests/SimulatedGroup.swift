import StoreEngine
import TestSupport

/// One group in one process.
protocol SimulatedGroup: AnyObject {
  var id: GroupID { get }
  var isOwner: Bool { get }
  /// Whether the node keeps the group; nil: not known yet.
  var isMember: Bool? { get }
  /// Whether the node may answer queries now.
  var mayAnswer: Bool { get }
  /// The last record of the snapshot that the node receives; nil: it receives none.
  var joiningAt: RecordPosition? { get }
  /// Whether the node supports the cluster's level.
  var supportsLevel: Bool { get }
  /// Whether the node reports how far it has the group.
  var reportsProgress: Bool { get }
  /// When ``handle(_:)`` has to be called with ``Ownership/Event/timerFired``.
  var deadline: BootTime { get }
  func handle(_ event: Ownership.Event)
  /// Handle all members' reports.
  func reported(_ reports: [NodeID: MemberReport])
  /// Return a report with what the group adds to it.
  func completed(_ report: MemberReport) -> MemberReport
  /// Remove what is logged so far from all members (R16).
  func askPurge()
  /// Perform a client's command. `done(false)`: it was refused unapplied. Without an answer its outcome is unknown.
  func submit(_ write: Write, isResent: Bool, done: @escaping (Bool) -> Void)
  /// Answer with a register's value, if the node may.
  func read(_ register: Int, done: @escaping (Write?) -> Void)
}

extension SimulatedGroup {
  var joiningAt: RecordPosition? { nil }

  func reported(_ reports: [NodeID: MemberReport]) {
    for (member, report) in reports.sorted(by: { $0.key < $1.key }) { handle(.memberReported(member, report)) }
  }

  func completed(_ report: MemberReport) -> MemberReport { report }

  /// Registers have no purges.
  func askPurge() {}
}

/// A member's storage of one group, which outlives the process. A crash loses what was not synced.
protocol SimulatedStorage: AnyObject {
  /// The last record in the storage, and in its synced part.
  var position: RecordPosition { get }
  var synced: RecordPosition { get }
  func sync()
  func crash(_ random: inout SplitMix64)
  func makeGroup(_ id: GroupID, _ process: SimulatedProcess) -> any SimulatedGroup
  /// Compare the content with the group's whole history.
  func check(_ oracle: ClusterOracle, _ node: NodeID, _ group: GroupID)
}
