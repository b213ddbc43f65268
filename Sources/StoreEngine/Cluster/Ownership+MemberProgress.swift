/// An owner knows how far the members are: it removes the records that all have synced, and may move the group to one
/// that follows closely.
extension Ownership {
  /// What an owner knows of the members' storage. It decides trims and group moves.
  struct MemberProgress: Sendable {
    private struct Member: Sendable {
      var report: MemberReport
      /// When the report has changed.
      var changedAt: BootTime
      /// Payload bytes that this owner had appended by then.
      var bytes: Int
      /// Since when its reports have come without a long pause. Nil after the first one, which may be old.
      var followsSince: BootTime?
    }

    /// By the latest reports. A member that has not reported since the claim is missing.
    private var members: [NodeID: Member] = [:]
    /// Ends of the log in the last seconds, the oldest first.
    private var ends: [(at: BootTime, last: RecordPosition)] = []
    let ownedSince: BootTime
    /// Payload bytes that this owner has appended.
    private var bytes = 0
    /// The same when it trimmed last.
    private var bytesTrimmed = 0
    /// First position after the last trim of this owner, and when it was sent.
    private var first = RecordPosition.zero.next
    private var trimmedAt: BootTime?

    init(ownedSince: BootTime) { self.ownedSince = ownedSince }

    mutating func appended(_ record: GroupRecord) { bytes += record.payload.count }

    /// - Parameter last: the last record that is committed.
    mutating func reported(
      _ report: MemberReport,
      by id: NodeID,
      last: RecordPosition,
      _ limits: ClusterLimits,
      at now: BootTime
    ) {
      noteEnd(last, limits, at: now)
      let before = members[id]
      guard before?.report != report else { return }
      var member = Member(report: report, changedAt: now, bytes: bytes)
      if let before, before.report.position < report.position, report.phase == .following {
        let hadPause = before.changedAt.adding(milliseconds: limits.followLagMilliseconds) < now
        member.followsSince = hadPause ? now : before.followsSince ?? now
      }
      members[id] = member
    }

    private mutating func noteEnd(_ last: RecordPosition, _ limits: ClusterLimits, at now: BootTime) {
      // One entry a second.
      if let newest = ends.last, newest.at.adding(milliseconds: 1_000) > now { return }
      ends.append((now, last))
      // The first one that is old enough is what a member has to have.
      while ends.count > 1, ends[1].at.adding(milliseconds: limits.followLagMilliseconds) <= now { ends.removeFirst() }
    }

    /// Return whether a member has followed closely for so long.
    func follows(_ id: NodeID, forMilliseconds time: Int64, _ limits: ClusterLimits, at now: BootTime) -> Bool {
      guard let member = members[id], let since = member.followsSince, let end = ends.first else { return false }
      return member.report.position >= end.last && since.adding(milliseconds: time) <= now
        && member.changedAt.adding(milliseconds: limits.followLagMilliseconds) >= now
    }

    /// Return the first record that has to stay, since earlier ones may be trimmed; nil: too few members have synced
    /// anything.
    ///
    /// Every member of the group holds the trim (C7), unless it is away for long and much waits for it.
    private func bound(
      of group: [NodeID],
      _ log: ClosedRange<RecordPosition>,
      _ limits: ClusterLimits,
      at now: BootTime
    ) -> RecordPosition? {
      var least: RecordPosition?
      var countedMembers = 0
      for id in group where !isAway(id, log, limits, at: now) {
        let report = members[id]?.report ?? MemberReport(position: .zero)
        if report.phase != .joining { countedMembers += 1 }
        least = min(least ?? report.position, report.position)
      }
      guard let least, countedMembers >= min(limits.membersMin, group.count) else { return nil }
      return least.next
    }

    /// Whether a member stands still for so long, and lacks so much, that it no longer holds trims. What it lacks are
    /// the records of the log, and the payloads that this owner has appended.
    private func isAway(
      _ id: NodeID,
      _ log: ClosedRange<RecordPosition>,
      _ limits: ClusterLimits,
      at now: BootTime
    ) -> Bool {
      let member = members[id]
      let still = now.nanoseconds - (member?.changedAt ?? ownedSince).nanoseconds
      let next = max(log.lowerBound, (member?.report.position ?? .zero).next)
      let records = log.upperBound < next ? 0 : Int(log.upperBound.rawValue - next.rawValue) + 1
      let waiting = bytes - (member?.bytes ?? 0) + records * limits.recordBytes
      if member?.report.phase == .joining {
        return still >= limits.joiningMilliseconds * 1_000_000 || waiting > limits.joiningBytesMax
      }
      return still >= limits.awayMilliseconds * 1_000_000 && waiting > limits.awayBytesMin
    }

    /// Return the first position of the log after a trim that is worth its cost; nil: none is.
    ///
    /// - Parameter log: the log's first record, and its last one, which stays: the next append has to find it (C1).
    mutating func trimIfDue(
      _ group: [NodeID],
      _ log: ClosedRange<RecordPosition>,
      _ limits: ClusterLimits,
      at now: BootTime
    ) -> RecordPosition? {
      guard let bound = bound(of: group, log, limits, at: now) else { return nil }
      // The log has not taken the last trim: an answer may be lost, or the set may have changed.
      if let trimmedAt, log.lowerBound < first, trimmedAt.adding(milliseconds: limits.followLagMilliseconds) <= now {
        first = log.lowerBound
      }
      // What an earlier trim removes has to be gone before: a trim removes everything before its position.
      let most = RecordPosition(log.lowerBound.rawValue + limits.trimRecordsMax)
      let before = min(bound, log.upperBound, most)
      guard before > first else { return nil }
      let count = before.rawValue - first.rawValue
      guard count >= limits.trimRecordsMin || bytes - bytesTrimmed >= limits.trimBytesMin else { return nil }
      first = before
      trimmedAt = now
      bytesTrimmed = bytes
      return before
    }
  }

  func trimIfDue(_ owning: inout Owning, at now: BootTime) -> [Action] {
    let last = owning.applied.position
    let due = owning.progress.trimIfDue(currentSet?.members ?? [], min(logFirst, last)...last, limits, at: now)
    guard let before = due else { return [] }
    let set = currentSet?.revision ?? 0
    return [.trim(GroupTrim(group: group, before: before, fence: owning.owner.fence, set: set))]
  }
}
