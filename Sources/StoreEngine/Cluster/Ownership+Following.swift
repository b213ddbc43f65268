/// Following and claiming: everything before a node owns a group.
extension Ownership {
  struct Following: Sendable {
    /// How records reach the node.
    enum Intake: Sendable {
      /// The set is not known. Becomes reading or outside with the first answer of a probe.
      case unknownSet
      /// It reads. Becomes watching at the end of the log.
      case reading(from: RecordPosition, resendAt: BootTime)
      /// It receives new records. Becomes reading after a gap, a lost connection or a watch that lags.
      case watching
      /// It waits for a snapshot, or for a program that supports the cluster's level, and follows no more.
      case stranded
      /// The node is not a member. Becomes reading when it is one. Data that it has stays until a member has it.
      case outside

      var deadline: BootTime {
        switch self {
        case .reading(_, let resendAt): resendAt
        case .unknownSet, .watching, .stranded, .outside: .never
        }
      }
    }

    /// What a candidate waits for before it claims.
    enum ClaimTrigger: Sendable {
      /// A silence of the owner.
      case silence
      /// Nothing: the owner has released the group to this node.
      case released
    }

    var applied: LogCursor
    /// The log has the last applied record, or the next one follows it by its hash. Until then the log may have another
    /// history, so the node is no copy of it and reports nothing (C7).
    var isVerified: Bool
    /// The owner that the last probe has seen. A claim has to replace the owner whose records were applied.
    var owner: GroupOwner
    var intake: Intake
    /// Start of the silence: the last new record, or the last failed probe.
    var quietSince: BootTime
    var claimTrigger = ClaimTrigger.silence
    /// End of the log by the last probe. The watch has to reach it before the next one.
    var expected: RecordPosition

    /// Whether the node is not a member, and has data of the group.
    var isOutsideWithData: Bool {
      if case .outside = intake { applied != .start } else { false }
    }

    init(applied: LogCursor, isVerified: Bool, owner: GroupOwner, intake: Intake, now: BootTime) {
      self.applied = applied
      self.isVerified = isVerified
      self.owner = owner
      self.intake = intake
      quietSince = now
      expected = applied.position
    }
  }

  struct Claiming: Sendable {
    let applied: LogCursor
    /// The owner that the claim replaces.
    let replaced: GroupOwner
    var claim: Undecided
  }

  // MARK: Following

  mutating func handle(_ event: Event, following: Following, at now: BootTime) -> [Action] {
    var following = following
    switch event {
    case .timerFired:
      if now >= claimTime(following) { return claim(following, at: now) }
      guard now >= following.intake.deadline else { return [] }
      return read(following, at: now)
    case .recordsRead(let records, let position, let reachesEnd):
      var actions: [Action] = []
      if position == following.applied.position { verify(&following, records, reachesEnd: reachesEnd, &actions) }
      let continues = apply(records, to: &following, at: now, &actions)
      guard case .reading = following.intake, continues else {
        state = .following(following)
        return actions
      }
      guard reachesEnd else { return actions + read(following, at: now) }
      following.intake = .watching
      state = .following(following)
      return actions + [.follow(from: following.applied.position.next)]
    case .readTrimmed(let first):
      // A node that has left the set takes no snapshot.
      guard case .reading = following.intake else { return [] }
      // The last applied record is no longer there, but the next one is, and carries its hash.
      if first == following.applied.position.next { return read(following, from: first, at: now) }
      guard first > following.applied.position.next else { return [] }
      following.intake = .stranded
      state = .following(following)
      return fetchSnapshot(.trimmed(first: first))
    case .roomMade:
      guard case .reading = following.intake else { return [] }
      return read(following, at: now)
    case .keyDestroyed(let key):
      switch following.intake {
      case .reading, .watching: following.intake = .stranded
      case .unknownSet, .stranded, .outside: return []
      }
      state = .following(following)
      return fetchSnapshot(.keyDestroyed(key))
    case .recordsFollowed(let records): return receive(records, following, at: now)
    case .followEnded:
      guard case .watching = following.intake else { return [] }
      return read(following, at: now)
    case .probeAnswered(let end): return probed(end, following, at: now)
    case .logUnresponsive:
      following.quietSince = now
      state = .following(following)
      return []
    case .memberReported(let member, let report): return memberReported(member, report, following)
    case .answered, .handOverRequested, .refusalChanged:
      // Answers are of an ownership that has ended. The others only change when the node claims.
      return []
    case .commitRequested, .loopReset: preconditionFailure("the loop of a follower has no commits")
    }
  }

  private mutating func probed(_ end: GroupEnd, _ following: Following, at now: BootTime) -> [Action] {
    var following = following
    let lags = following.applied.position < following.expected
    // Answers may overtake one another.
    if end.owner.epoch >= following.owner.epoch { following.owner = end.owner }
    following.expected = max(following.expected, end.last)
    switch (following.intake, isMember: isMember == true) {
    case (.unknownSet, isMember: true), (.outside, isMember: true): return read(following, at: now)
    case (.watching, isMember: true): if lags { return read(following, at: now) }
    case (.reading, isMember: true), (.stranded, isMember: true), (.outside, isMember: false): break
    case (.unknownSet, isMember: false), (.reading, isMember: false), (.watching, isMember: false),
      (.stranded, isMember: false):
      // This node was the last owner: until another one has claimed the group, this may be the only copy.
      if following.owner.node == node { break }
      return leaveSet(following)
    }
    state = .following(following)
    return []
  }

  /// Follow the group no longer.
  private mutating func leaveSet(_ following: Following) -> [Action] {
    var following = following
    var awaitsSnapshot = false
    if case .stranded = following.intake { awaitsSnapshot = true }
    following.intake = .outside
    state = .following(following)
    return awaitsSnapshot && following.applied == .start ? [.removeData] : []
  }

  /// Remove this node's data if a member has all trimmed records: it can read the others in the log. Until then this
  /// may be the last copy.
  private func memberReported(_ member: NodeID, _ report: MemberReport, _ following: Following) -> [Action] {
    guard following.isOutsideWithData, member != node, currentSet?.members.contains(member) == true else { return [] }
    return report.hasRecords(before: logFirst, key: following.applied.key) ? [.removeData] : []
  }

  /// Become a follower that continues after `applied`.
  ///
  /// - Parameter isVerified: the log had this record when the node applied it.
  mutating func follow(
    from applied: LogCursor,
    isVerified: Bool,
    owner: GroupOwner,
    at now: BootTime
  ) -> [Action] {
    read(
      Following(applied: applied, isVerified: isVerified, owner: owner, intake: .unknownSet, now: now),
      at: now
    )
  }

  /// Read the records after the last applied one; at first that one too, to verify it.
  private mutating func read(_ following: Following, at now: BootTime) -> [Action] {
    let last = following.applied.position
    return read(following, from: following.isVerified ? last.next : last, at: now)
  }

  private mutating func read(_ following: Following, from position: RecordPosition, at now: BootTime) -> [Action] {
    var following = following
    following.intake = .reading(from: position, resendAt: now.adding(milliseconds: limits.resendMilliseconds))
    state = .following(following)
    return [.read(from: position)]
  }

  /// Compare the last applied record with the log's. A log that ends before it, or has another one there, has another
  /// history: the node needs a snapshot. The answer is to a read from that record: a read is sent again before its
  /// answer comes, and after a trim the one of the next record is sent too.
  private func verify(
    _ following: inout Following,
    _ records: [GroupRecord],
    reachesEnd: Bool,
    _ actions: inout [Action]
  ) {
    let applied = following.applied
    // The next record is compared when it is applied.
    guard case .reading(applied.position, _) = following.intake, !following.isVerified else { return }
    if let first = records.first {
      following.isVerified = first.position == applied.position && first.hash == applied.hash
    } else if !reachesEnd {
      return
    }
    guard !following.isVerified else { return }
    following.intake = .stranded
    actions += fetchSnapshot(.diverged(at: applied.position))
  }

  private mutating func receive(_ records: [GroupRecord], _ following: Following, at now: BootTime) -> [Action] {
    var following = following
    var actions: [Action] = []
    let continues = apply(records, to: &following, at: now, &actions)
    state = .following(following)
    guard !continues, case .watching = following.intake else { return actions }
    return actions + read(following, at: now)
  }

  /// Apply the records that follow the position, skip those that are applied. False after a gap, and where the chain of
  /// hashes breaks or the level is not supported.
  private mutating func apply(
    _ records: [GroupRecord],
    to following: inout Following,
    at now: BootTime,
    _ actions: inout [Action]
  ) -> Bool {
    switch following.intake {
    case .stranded, .outside: return false
    case .unknownSet, .reading, .watching: break
    }
    for record in records where record.position > following.applied.position {
      guard record.position == following.applied.position.next else { return false }
      guard record.previous == following.applied.hash else {
        following.intake = .stranded
        actions += fetchSnapshot(.diverged(at: record.position))
        return false
      }
      actions += noted(record.level)
      guard record.level <= limits.levels.upperBound else {
        following.intake = .stranded
        return false
      }
      following.applied = LogCursor(after: record)
      following.isVerified = true
      following.quietSince = now
      following.claimTrigger = record.kind == .release(to: node) ? .released : .silence
      actions.append(.apply(record))
    }
    return true
  }

  /// Return the request for a snapshot; nothing if this node does not support the cluster's level.
  private func fetchSnapshot(_ reason: SnapshotReason) -> [Action] { supportsLevel ? [.fetchSnapshot(reason)] : [] }

  // MARK: Claiming

  /// Return when the node claims. A release needs no wait: its owner answers nothing since it sent the release. A node
  /// that is the last choice claims after all other members.
  func claimTime(_ following: Following) -> BootTime {
    guard !stopsSoon, case .watching = following.intake, let rank = currentSet?.members.firstIndex(of: node),
      following.owner.epoch == following.applied.epoch
    else { return .never }
    switch following.claimTrigger {
    case .released where !isLastChoice: return following.quietSince
    case .released, .silence:
      let candidatesAhead = isLastChoice ? rank + (currentSet?.members.count ?? 0) : rank
      let wait = limits.waitMilliseconds + limits.rankMilliseconds * Int64(candidatesAhead)
      return following.quietSince.adding(milliseconds: wait)
    }
  }

  private mutating func claim(_ following: Following, at now: BootTime) -> [Action] {
    let record = following.applied.record(
      .claim(by: node),
      epoch: following.owner.epoch.next,
      level: writtenLevel
    )
    let (claim, attempt) = firstAttempt(of: record, at: now)
    let claiming = Claiming(applied: following.applied, replaced: following.owner, claim: claim)
    state = .claiming(claiming)
    return [send(claiming, attempt)]
  }

  private func send(_ claiming: Claiming, _ attempt: Attempt) -> Action {
    .claim(GroupClaim(group: group, record: claiming.claim.record, seen: claiming.replaced.fence), attempt)
  }

  mutating func handle(_ event: Event, claiming: Claiming, at now: BootTime) -> [Action] {
    var claiming = claiming
    switch event {
    case .timerFired:
      guard now >= claiming.claim.resendAt else { return [] }
      let attempt = nextAttempt(of: &claiming.claim, at: now)
      state = .claiming(claiming)
      return [send(claiming, attempt)]
    case .answered(let attempt, let outcome):
      guard claiming.claim.attempts.contains(attempt) else { return [] }
      switch outcome {
      case .committed(let owner):
        state = .owning(Owning(claim: claiming.claim, owner: owner, limits))
        return [.committed(claiming.claim.record), .promote(owner.epoch)]
      case .fenced(let owner): return follow(from: claiming.applied, isVerified: true, owner: owner, at: now)
      case .unclear:
        claiming.claim.unclear(attempt, at: now, limits)
        state = .claiming(claiming)
        return []
      }
    case .recordsFollowed(let records), .recordsRead(let records, from: _, reachesEnd: _):
      // The claim's position may be taken by another record. If the record is the claim itself, the answer follows:
      // only that has the fence.
      let record = claiming.claim.record
      guard records.contains(where: { $0.position == record.position && $0 != record }) else { return [] }
      let actions = follow(from: claiming.applied, isVerified: true, owner: claiming.replaced, at: now)
      guard case .following(let following) = state else { return actions }
      return receive(records, following, at: now) + actions
    case .readTrimmed, .roomMade, .keyDestroyed, .followEnded, .probeAnswered, .logUnresponsive, .memberReported,
      .handOverRequested, .refusalChanged:
      return []
    case .commitRequested, .loopReset: preconditionFailure("the loop of a candidate has no commits")
    }
  }
}
