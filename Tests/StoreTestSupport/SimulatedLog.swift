package import StoreEngine

/// The shared log's state machine: etcd's keys and the transactions on them, without a network.
package final class SimulatedLog {
  /// A condition of a transaction that a broken log does not check.
  package enum MissingCheck: Hashable {
    /// The owner is the one that appends.
    case owner
    /// The position is free.
    case position
    /// The position before exists.
    case predecessor
    /// A trim keeps the last record.
    case lastRecord
  }

  package struct Group {
    package var owner = GroupOwner.none
    package var records: [RecordPosition: GroupRecord] = [:]
    package var first = RecordPosition.zero.next
    package var last = RecordPosition.zero
    package var reports: [NodeID: MemberReport] = [:]
    package var set: GroupSet?
  }

  package private(set) var groups: [Group]
  /// The cluster's level.
  package var level: ClusterLevel?
  private let missing: Set<MissingCheck>
  private var revision: UInt64 = 0
  /// Called for each record before it is in the log.
  package var accepted: (GroupID, GroupRecord) -> Void = { _, _ in }

  package init(groupCount: Int, missing: Set<MissingCheck>) {
    groups = Array(repeating: Group(), count: groupCount)
    self.missing = missing
  }

  package subscript(group: GroupID) -> Group {
    get { groups[Int(group.rawValue)] }
    set { groups[Int(group.rawValue)] = newValue }
  }

  package func ends(of groups: [GroupID]) -> [GroupEnd] {
    groups.map { id in
      let group = self[id]
      return GroupEnd(owner: group.owner, first: group.first, last: group.last, set: group.set, level: level)
    }
  }

  package func append(_ appends: [GroupAppend]) -> [AppendOutcome] {
    precondition(Set(appends.map(\.group)).count == appends.count, "a group occurs twice in a transaction")
    let holds = appends.allSatisfy { append in
      isOwner(append.fence, of: append.group) && isPlaceFree(append.record, in: append.group)
    }
    if holds {
      revision += 1
      for append in appends { put(append.record, in: append.group) }
      return appends.map { .committed(self[$0.group].owner) }
    }
    // The transaction's other branch: it reads owner and record of each group.
    return appends.map { append in
      let group = self[append.group]
      guard group.owner.fence == append.fence else { return .fenced(group.owner) }
      switch group.records[append.record.position] {
      case append.record: return .committed(group.owner)
      case .some: return .fenced(group.owner)
      case .none: return .unclear
      }
    }
  }

  package func claim(_ claim: GroupClaim, by node: NodeID) -> AppendOutcome {
    if isOwner(claim.seen, of: claim.group), isPlaceFree(claim.record, in: claim.group) {
      revision += 1
      let owner = GroupOwner(node: node, epoch: claim.record.epoch, fence: OwnerFence(revision))
      self[claim.group].owner = owner
      put(claim.record, in: claim.group)
      return .committed(owner)
    }
    let group = self[claim.group]
    let isIn =
      group.owner.node == node && group.owner.epoch == claim.record.epoch
      && group.records[claim.record.position] == claim.record
    return isIn ? .committed(group.owner) : .fenced(group.owner)
  }

  package func read(_ group: GroupID, from position: RecordPosition, max: Int) -> ReadOutcome {
    let log = self[group]
    guard position >= log.first else { return .trimmed(first: log.first) }
    var records: [GroupRecord] = []
    var next = position
    while records.count < max, let record = log.records[next] {
      records.append(record)
      next = next.next
    }
    return .records(records, reachesEnd: next > log.last)
  }

  package func report(_ group: GroupID, by node: NodeID, _ report: MemberReport) -> [NodeID: MemberReport] {
    self[group].reports[node] = report
    return self[group].reports
  }

  /// Change a group's set.
  package func change(_ group: GroupID, members: [NodeID]) {
    revision += 1
    self[group].set = GroupSet(members: members, revision: revision)
  }

  package func trim(_ trim: GroupTrim) {
    var log = self[trim.group]
    var before = trim.before
    if missing.contains(.lastRecord), before == log.last { before = before.next }
    guard log.owner.fence == trim.fence, log.set?.revision ?? 0 == trim.set, before > log.first else { return }
    while log.first < before {
      log.records[log.first] = nil
      log.first = log.first.next
    }
    self[trim.group] = log
  }

  private func isOwner(_ fence: OwnerFence, of group: GroupID) -> Bool {
    self[group].owner.fence == fence || missing.contains(.owner)
  }

  private func isPlaceFree(_ record: GroupRecord, in group: GroupID) -> Bool {
    let log = self[group]
    let isFree = log.records[record.position] == nil || missing.contains(.position)
    guard record.position != RecordPosition.zero.next else { return isFree }
    let before = RecordPosition(record.position.rawValue - 1)
    return isFree && (log.records[before] != nil || missing.contains(.predecessor))
  }

  private func put(_ record: GroupRecord, in group: GroupID) {
    accepted(group, record)
    self[group].records[record.position] = record
    self[group].last = max(self[group].last, record.position)
  }
}
