/// Owning and releasing: a node appends to a group's log.
extension Ownership {
  struct Owning: Sendable {
    /// The record in flight, one at a time (C2).
    enum Flight: Sendable {
      /// No record is in flight. `since`: when the last committed one was first sent. Becomes undecided with the next.
      case idle(since: BootTime)
      /// Becomes idle when the record is committed.
      case undecided(Undecided)
      /// An `alive` record was in flight when a commit was requested, which follows it.
      case undecidedAndNext(Undecided, next: RecordContent)
    }

    /// The last record that is committed.
    var applied: LogCursor
    let owner: GroupOwner
    var leaseEnd: BootTime
    var flight: Flight
    /// The member that the group moves to, as soon as nothing is in flight; nil: the group stays.
    var handover: NodeID?
    var progress: MemberProgress

    init(claim: Undecided, owner: GroupOwner, _ limits: ClusterLimits) {
      applied = LogCursor(after: claim.record)
      self.owner = owner
      leaseEnd = claim.firstSentAt.adding(milliseconds: limits.leaseMilliseconds)
      flight = .idle(since: claim.firstSentAt)
      progress = MemberProgress(ownedSince: claim.firstSentAt)
    }

    /// A commit may wait for an `alive` record, but not for another commit.
    var acceptsCommit: Bool {
      guard handover == nil else { return false }
      return switch flight {
      case .idle: true
      case .undecided(let sent): sent.record.kind == .alive
      case .undecidedAndNext: false
      }
    }
  }

  struct Releasing: Sendable {
    let applied: LogCursor
    let owner: GroupOwner
    let to: NodeID
    var release: Undecided
  }

  // MARK: Owning

  mutating func handle(_ event: Event, owning: Owning, at now: BootTime) -> [Action] {
    var owning = owning
    switch event {
    case .timerFired:
      guard now >= deadline else { return [] }
      return continueFlight(owning, at: now)
    case .answered(let attempt, let outcome): return answered(attempt, outcome, owning, at: now)
    case .commitRequested(let content):
      precondition(owning.acceptsCommit, "a commit was requested while another is in flight")
      switch owning.flight {
      case .idle: return append(content, owning, at: now)
      case .undecided(let sent): owning.flight = .undecidedAndNext(sent, next: content)
      case .undecidedAndNext: break
      }
      state = .owning(owning)
      return []
    case .memberReported(let member, let report):
      owning.progress.reported(report, by: member, last: owning.applied.position, limits, at: now)
      let trim = trimIfDue(&owning, at: now)
      return trim + handOverIfDue(owning, at: now)
    case .handOverRequested, .refusalChanged: return handOverIfDue(owning, at: now)
    case .recordsFollowed(let records), .recordsRead(let records, from: _, reachesEnd: _):
      return records.contains { $0.epoch > owning.owner.epoch } ? depose(owning.applied) : []
    case .probeAnswered(let end):
      return end.owner.epoch > owning.owner.epoch ? depose(owning.applied) : handOverIfDue(owning, at: now)
    case .readTrimmed, .roomMade, .keyDestroyed, .followEnded, .logUnresponsive:
      return []
    case .loopReset: preconditionFailure("an owner's loop was reset before it stepped down")
    }
  }

  /// Send the undecided record again unchanged, or an `alive` record where none is.
  private mutating func continueFlight(_ owning: Owning, at now: BootTime) -> [Action] {
    var owning = owning
    switch owning.flight {
    case .idle: return append(RecordContent(kind: .alive), owning, at: now)
    case .undecided(var sent):
      let attempt = nextAttempt(of: &sent, at: now)
      owning.flight = .undecided(sent)
      state = .owning(owning)
      return [send(sent, owning.owner, attempt)]
    case .undecidedAndNext(var sent, let next):
      let attempt = nextAttempt(of: &sent, at: now)
      owning.flight = .undecidedAndNext(sent, next: next)
      state = .owning(owning)
      return [send(sent, owning.owner, attempt)]
    }
  }

  private mutating func append(_ content: RecordContent, _ owning: Owning, at now: BootTime) -> [Action] {
    var owning = owning
    let record = owning.applied.record(
      content.kind,
      epoch: owning.owner.epoch,
      level: writtenLevel,
      key: content.key,
      payload: content.payload
    )
    let (sent, attempt) = firstAttempt(of: record, at: now)
    owning.flight = .undecided(sent)
    state = .owning(owning)
    return [send(sent, owning.owner, attempt)]
  }

  private func send(_ sent: Undecided, _ owner: GroupOwner, _ attempt: Attempt) -> Action {
    .append(GroupAppend(group: group, record: sent.record, fence: owner.fence), attempt)
  }

  private mutating func answered(
    _ attempt: Attempt,
    _ outcome: AppendOutcome,
    _ owning: Owning,
    at now: BootTime
  ) -> [Action] {
    var owning = owning
    switch owning.flight {
    case .idle: return []
    case .undecided(var sent):
      guard sent.attempts.contains(attempt) else { return [] }
      switch outcome {
      case .committed:
        commit(sent, &owning)
        owning.flight = .idle(since: sent.firstSentAt)
        state = .owning(owning)
        guard let to = owning.handover else { return [.committed(sent.record)] }
        return [.committed(sent.record)] + release(owning, to: to, at: now)
      case .fenced: return depose(owning.applied)
      case .unclear:
        sent.unclear(attempt, at: now, limits)
        owning.flight = .undecided(sent)
      }
    case .undecidedAndNext(var sent, let next):
      guard sent.attempts.contains(attempt) else { return [] }
      switch outcome {
      case .committed:
        commit(sent, &owning)
        // What is not sent is dropped with a release, like everything that is not committed.
        if let to = owning.handover { return [.committed(sent.record)] + release(owning, to: to, at: now) }
        return [.committed(sent.record)] + append(next, owning, at: now)
      case .fenced: return depose(owning.applied)
      case .unclear:
        sent.unclear(attempt, at: now, limits)
        owning.flight = .undecidedAndNext(sent, next: next)
      }
    }
    state = .owning(owning)
    return []
  }

  private func commit(_ sent: Undecided, _ owning: inout Owning) {
    owning.applied = LogCursor(after: sent.record)
    owning.leaseEnd = sent.firstSentAt.adding(milliseconds: limits.leaseMilliseconds)
    owning.progress.appended(sent.record)
  }

  /// Another node owns the group. An undecided record is dropped: if it is in the log after all, it is read there.
  private mutating func depose(_ applied: LogCursor) -> [Action] {
    state = .deposed(applied)
    return [.stepDown(.deposed)]
  }

  // MARK: Moves

  /// Choose the next owner if another member has to own the group, and release it to that one as soon as nothing is in
  /// flight. The choice is kept.
  private mutating func handOverIfDue(_ owning: Owning, at now: BootTime) -> [Action] {
    var owning = owning
    if owning.handover == nil { owning.handover = nextOwner(owning, at: now) }
    if let to = owning.handover, case .idle = owning.flight { return release(owning, to: to, at: now) }
    state = .owning(owning)
    return []
  }

  /// Return the member that has to own the group instead of this node; nil: none, or it does not follow closely.
  private func nextOwner(_ owning: Owning, at now: BootTime) -> NodeID? {
    guard let members = currentSet?.members else { return nil }
    guard stopsSoon || isLastChoice || !members.contains(node) else {
      guard let preferred = members.first, preferred != node else { return nil }
      let isSteady = owning.progress.follows(preferred, forMilliseconds: limits.steadyMilliseconds, limits, at: now)
      return isSteady ? preferred : nil
    }
    return members.first { $0 != node && owning.progress.follows($0, forMilliseconds: 0, limits, at: now) }
  }

  /// Whether this node is handing its group over, or will as soon as nothing is in flight. Also whether it may soon:
  /// only the members' second reports tell a new owner whether they keep up.
  package func isHandingOver(at now: BootTime) -> Bool {
    switch state {
    case .owning(let owning):
      guard stopsSoon || isLastChoice, currentSet?.members.contains(where: { $0 != node }) == true else { return false }
      return nextOwner(owning, at: now) != nil
        || now < owning.progress.ownedSince.adding(milliseconds: limits.followLagMilliseconds)
    case .releasing: return true
    case .following, .claiming, .deposed: return false
    }
  }

  /// This node answers no queries from now on, not only once the release is committed: the other node may claim as soon
  /// as the record is in the log.
  private mutating func release(_ owning: Owning, to: NodeID, at now: BootTime) -> [Action] {
    let record = owning.applied.record(.release(to: to), epoch: owning.owner.epoch, level: writtenLevel)
    let (release, attempt) = firstAttempt(of: record, at: now)
    state = .releasing(Releasing(applied: owning.applied, owner: owning.owner, to: to, release: release))
    return [.yield, send(release, owning.owner, attempt)]
  }

  mutating func handle(_ event: Event, releasing: Releasing, at now: BootTime) -> [Action] {
    var releasing = releasing
    switch event {
    case .timerFired:
      guard now >= releasing.release.resendAt else { return [] }
      let attempt = nextAttempt(of: &releasing.release, at: now)
      state = .releasing(releasing)
      return [send(releasing.release, releasing.owner, attempt)]
    case .answered(let attempt, let outcome):
      guard releasing.release.attempts.contains(attempt) else { return [] }
      switch outcome {
      case .committed:
        state = .deposed(LogCursor(after: releasing.release.record))
        return [.committed(releasing.release.record), .stepDown(.released(to: releasing.to))]
      case .fenced: return depose(releasing.applied)
      case .unclear:
        releasing.release.unclear(attempt, at: now, limits)
        state = .releasing(releasing)
        return []
      }
    case .recordsFollowed(let records), .recordsRead(let records, from: _, reachesEnd: _):
      return records.contains { $0.epoch > releasing.owner.epoch } ? depose(releasing.applied) : []
    case .probeAnswered(let end):
      return end.owner.epoch > releasing.owner.epoch ? depose(releasing.applied) : []
    case .readTrimmed, .roomMade, .keyDestroyed, .followEnded, .logUnresponsive, .memberReported, .handOverRequested,
      .refusalChanged:
      return []
    case .commitRequested, .loopReset: preconditionFailure("the loop of a releasing owner has no commits")
    }
  }
}
