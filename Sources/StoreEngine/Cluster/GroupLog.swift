/// The log that the nodes of a cluster share: one sequence of records for each group, and each group's owner.
///
/// Nine calls; an engine such as etcd is behind them. All calls are made on one event loop, and all results come back
/// on it later. No call blocks. A result may come late or never: the engine sets no time limit, ``Ownership`` does.
/// After an unclear outcome the engine turns to its next server.
///
/// An engine gives three promises. Everything that it acknowledges is on stable storage of a majority. The conditions
/// of a call are checked in one step with its effect (C1). ``ends(of:done:)`` is linearizable.
package protocol GroupLog: AnyObject {
  /// Append one record to each of several groups, all or none, in one transaction. Results are in the same order.
  /// Requires that no group occurs twice.
  ///
  /// Conditions for each group: the owner is still the one that appends (``GroupAppend/fence``); the record's position
  /// is free; the position before exists. The last one keeps a delayed copy of an old transaction from being applied
  /// below the trimmed part. If the conditions of another group failed, this group's result is
  /// ``AppendOutcome/unclear``.
  func append(_ appends: [GroupAppend], done: @escaping ([AppendOutcome]) -> Void)

  /// Change the owner and append the claim, in one step.
  ///
  /// Conditions: the owner is still ``GroupClaim/seen``; the record's position is free; the position before exists,
  /// except for position 1.
  func claim(_ claim: GroupClaim, done: @escaping (AppendOutcome) -> Void)

  /// Owner, extent and set of several groups, and the cluster's level, linearizable; in the same order. `nil`: the call
  /// failed.
  func ends(of groups: [GroupID], done: @escaping ([GroupEnd]?) -> Void)

  /// Read at most `max` records from a position on, in order.
  func read(_ group: GroupID, from position: RecordPosition, max: Int, done: @escaping (ReadOutcome) -> Void)

  /// Deliver every record from a position on, in order, as they are appended. It replaces this node's earlier call for
  /// the group. After ``FollowEvent/ended`` nothing more comes.
  func follow(_ group: GroupID, from position: RecordPosition, receive: @escaping (FollowEvent) -> Void)

  /// End this node's call of ``follow(_:from:receive:)`` for a group. Nothing more comes of it.
  func unfollow(_ group: GroupID)

  /// Store how far this node has a group's log, and read the same of all nodes that have ever reported. nil: the call
  /// failed; the next report covers it.
  func report(
    _ group: GroupID,
    by node: NodeID,
    _ report: MemberReport,
    done: @escaping ([NodeID: MemberReport]?) -> Void
  )

  /// Remove records. A lost call needs no repetition: the next trim covers it.
  ///
  /// Conditions: the owner is still the one that trims; the group's set is the same; the first position only rises.
  func trim(_ trim: GroupTrim)

  /// Close the connections. Open calls fail, and later calls do.
  func close()
}

/// The owner of a group, as the log knows it.
package struct GroupOwner: Hashable, Sendable {
  package var node: NodeID
  package var epoch: OwnerEpoch
  package var fence: OwnerFence

  package init(node: NodeID, epoch: OwnerEpoch, fence: OwnerFence) {
    self.node = node
    self.epoch = epoch
    self.fence = fence
  }

  /// The owner of a group that was never claimed.
  package static let none = GroupOwner(node: .none, epoch: .zero, fence: .none)
}

/// The log's own revision of a group's owner. It changes with each claim, also with two claims by one node.
package struct OwnerFence: Hashable, Sendable, BitwiseCopyable {
  package var rawValue: UInt64
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
  /// The revision of an owner that does not exist.
  package static let none = OwnerFence(0)
}

/// A record that the owner appends.
package struct GroupAppend: Hashable, Sendable {
  package var group: GroupID
  package var record: GroupRecord
  /// The owner that appends.
  package var fence: OwnerFence

  package init(group: GroupID, record: GroupRecord, fence: OwnerFence) {
    self.group = group
    self.record = record
    self.fence = fence
  }
}

/// A claim that a candidate appends.
package struct GroupClaim: Hashable, Sendable {
  package var group: GroupID
  package var record: GroupRecord
  /// The owner that the candidate replaces.
  package var seen: OwnerFence

  package init(group: GroupID, record: GroupRecord, seen: OwnerFence) {
    self.group = group
    self.record = record
    self.seen = seen
  }
}

/// How far a member has a group's log.
package struct MemberReport: Hashable, Sendable {
  /// What the member does.
  package enum Phase: Hashable, Sendable {
    /// It follows or owns the group.
    case following
    /// It installs a snapshot. It has none of these records yet, and needs those that follow.
    case joining
    /// It follows, but must not become the owner: its process stops soon, or it refuses commands, or it does not
    /// support the cluster's level.
    case ineligible
  }

  /// The last record that its storage has synced. While it joins: the one that its snapshot ends with.
  package var position: RecordPosition
  package var phase: Phase
  /// The newest record key in its storage.
  package var key = RecordKeyNumber.none
  /// The last purge record for which the member's process has purged its storage.
  package var purged = RecordPosition.zero

  package init(position: RecordPosition, _ phase: Phase = .following) {
    self.position = position
    self.phase = phase
  }

  /// Return whether the member has all records, in its storage or as the next ones in the log, and can read these.
  ///
  /// - Parameters:
  ///   - first: first position of the log.
  ///   - inUse: the key that is in use.
  package func hasRecords(before first: RecordPosition, key inUse: RecordKeyNumber) -> Bool {
    phase != .joining && position > .zero && position.next >= first && key >= inUse
  }
}

/// Removal of a group's records before a position.
package struct GroupTrim: Hashable, Sendable {
  package var group: GroupID
  /// The first position that stays.
  package var before: RecordPosition
  package var fence: OwnerFence
  /// Revision of the set whose members have synced the records (C7).
  package var set: UInt64

  package init(group: GroupID, before: RecordPosition, fence: OwnerFence, set: UInt64 = 0) {
    self.group = group
    self.before = before
    self.fence = fence
    self.set = set
  }
}

/// Result of one attempt to append a record or a claim.
package enum AppendOutcome: Hashable, Sendable {
  /// The record is in the log: through this attempt, or an earlier one whose answer was lost.
  case committed(GroupOwner)
  /// The record can never be appended. For an append, another node is the owner. For a claim, the owner or the end of
  /// the log has changed.
  case fenced(GroupOwner)
  /// The record may be in the log or may still be appended: a timeout, a lost connection, a change of the log's leader,
  /// or a transaction that failed for another group's sake.
  case unclear
}

/// Owner, extent and set of a group, and the level of its cluster.
package struct GroupEnd: Hashable, Sendable {
  package var owner: GroupOwner
  /// First position that is not trimmed.
  package var first: RecordPosition
  /// Position of the last record; zero in an empty log.
  package var last: RecordPosition
  /// Nil: nobody has changed the group's initial set.
  package var set: GroupSet?
  /// The cluster's level; nil: none is stored.
  package var level: ClusterLevel?

  package init(
    owner: GroupOwner,
    first: RecordPosition,
    last: RecordPosition,
    set: GroupSet? = nil,
    level: ClusterLevel? = nil
  ) {
    self.level = level
    self.owner = owner
    self.first = first
    self.last = last
    self.set = set
  }
}

/// Result of ``GroupLog/read(_:from:max:done:)``.
package enum ReadOutcome: Hashable, Sendable {
  /// Records from the position on. `reachesEnd`: the last one was the end of the log.
  case records([GroupRecord], reachesEnd: Bool)
  /// The position is trimmed. The log begins at `first`.
  case trimmed(first: RecordPosition)
  case failed
}

/// What ``GroupLog/follow(_:from:receive:)`` delivers.
package enum FollowEvent: Hashable, Sendable {
  case records([GroupRecord])
  /// The connection is lost, or the position is trimmed.
  case ended
}
