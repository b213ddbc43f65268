/// Decides who owns a group, on one node (docs/contribute/cluster-design.md, "Ownership").
///
/// The log is the lease. The owner appends at least every half second. A candidate that receives nothing for the wait
/// time claims the group by a record of its own. The log accepts one record per position, and a claim changes the owner
/// in the same step. So no clocks are compared, and a stopped owner that resumes can append nothing.
///
/// An event and the node's time go in, actions come out. The machine reads no clock and draws no random number.
package struct Ownership: Sendable {
  /// Input of the machine.
  package enum Event: Sendable {
    /// ``Ownership/deadline`` has passed. An early call does nothing.
    case timerFired

    // Following
    /// The records that ``Action/read(from:)`` asked for. `reachesEnd`: the last one was the end of the log. Answers to
    /// reads from before the last ``loopReset(_:)`` are not passed.
    case recordsRead([GroupRecord], from: RecordPosition, reachesEnd: Bool)
    /// The records that ``Action/read(from:)`` asked for are trimmed. The log begins at `first`.
    case readTrimmed(first: RecordPosition)
    /// The loop has room for the records that ``Action/read(from:)`` asked for: they were not read for lack of it.
    case roomMade
    /// The next record's key is destroyed.
    case keyDestroyed(RecordKeyNumber)
    /// Records of ``Action/follow(from:)``.
    case recordsFollowed([GroupRecord])
    /// ``Action/follow(from:)`` has ended.
    case followEnded
    /// A probe has read owner and end of the group (``LogProbe``).
    case probeAnswered(GroupEnd)
    /// A probe has failed or is late (``LogProbe``).
    case logUnresponsive

    // Appending
    /// The outcome of an attempt to append or to claim.
    case answered(Attempt, AppendOutcome)
    /// The owner's loop has a record of a group commit. Requires ``Ownership/acceptsCommit``.
    case commitRequested(RecordContent)
    /// A member has told how far it has the log.
    case memberReported(NodeID, MemberReport)

    // Giving up
    /// This node stops soon. It releases the group if it owns it, and claims nothing any more.
    case handOverRequested
    /// Whether this node refuses commands. Then it releases the group to a member that follows, and claims after all
    /// other members.
    case refusalChanged(Bool)
    /// The loop has dropped its memory: the answer to ``Action/stepDown(_:)``. It continues after this record, the last
    /// one in local storage.
    case loopReset(LogCursor)
  }

  /// Output of the machine. The node performs the actions in order.
  package enum Action: Hashable, Sendable {
    /// Call ``GroupLog/read(_:from:max:done:)``. A failed read needs no event: it is sent again.
    case read(from: RecordPosition)
    /// Call ``GroupLog/follow(_:from:receive:)``.
    case follow(from: RecordPosition)
    /// Apply another node's record, and store it with its position.
    case apply(GroupRecord)
    /// The member cannot follow: its storage has to be replaced by another member's snapshot.
    case fetchSnapshot(SnapshotReason)
    /// The cluster has a level that the node does not support. The node neither follows what has this level, nor takes
    /// snapshots.
    case levelUnsupported(ClusterLevel)

    /// Call ``GroupLog/claim(_:done:)``.
    case claim(GroupClaim, Attempt)
    /// Call ``GroupLog/append(_:done:)``.
    case append(GroupAppend, Attempt)
    /// This node's own record is in the log: store it with its position, then release what waits for it (C3).
    case committed(GroupRecord)
    /// Become the owner: accept requests.
    case promote(OwnerEpoch)

    /// Accept no more requests: the group's release follows, and what is not committed is dropped.
    case yield
    /// Stop the loop: answer and acknowledge nothing more, drop what is not committed. Then report
    /// ``Event/loopReset``.
    case stepDown(StepDownReason)
    /// Call ``GroupLog/trim(_:)``.
    case trim(GroupTrim)
    /// The node is not a member, and a member has the data: stop the loop, and remove what storage has of the group
    /// (C9). The machine ends.
    case removeData
  }

  /// The number of a call that appends a record. A record that is sent again has a new number.
  package struct Attempt: Hashable, Comparable, Sendable, BitwiseCopyable {
    package var rawValue: UInt64
    package init(_ rawValue: UInt64) { self.rawValue = rawValue }
    package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
  }

  /// What a record has that the owner's loop appends: a part of a commit, the rest of one, or a purge.
  package struct RecordContent: Hashable, Sendable {
    package var kind: GroupRecord.Kind
    /// nil: the key in use.
    package var key: RecordKeyNumber?
    package var payload: [UInt8]

    package init(kind: GroupRecord.Kind = .batches, key: RecordKeyNumber? = nil, payload: [UInt8] = []) {
      self.kind = kind
      self.key = key
      self.payload = payload
    }
  }

  /// Why a member cannot follow.
  package enum SnapshotReason: Hashable, Sendable {
    /// The records after the member's position are trimmed: it was away for long, or is new.
    case trimmed(first: RecordPosition)
    /// The record at this position does not follow what the member has stored.
    case diverged(at: RecordPosition)
    /// The next record's key is destroyed: a purge has removed what it seals.
    case keyDestroyed(RecordKeyNumber)
  }

  /// Why a node no longer owns a group.
  package enum StepDownReason: Hashable, Sendable {
    /// Another node has claimed it.
    case deposed
    /// Its release is in the log.
    case released(to: NodeID)
  }

  enum State: Sendable {
    /// Applies the owner's records, if it is a member. Becomes claiming after a silence, or after a release to this
    /// node.
    case following(Following)
    /// Has sent a claim that is undecided. Becomes owning if it was appended, else following.
    case claiming(Claiming)
    /// Appends and answers. Becomes releasing when another member has to own the group, deposed when another node's
    /// claim is noticed.
    case owning(Owning)
    /// Has sent a release that is undecided, and answers nothing. Becomes deposed either way.
    case releasing(Releasing)
    /// Is no longer the owner; the loop still drops its memory. Becomes following.
    case deposed(LogCursor)
  }

  let group: GroupID
  let node: NodeID
  let limits: ClusterLimits
  /// Where the log has no set.
  private let initialSet: GroupSet
  /// By the latest probe; nil before the first one.
  private(set) var currentSet: GroupSet?
  /// First position of the log, by the latest probe.
  private(set) var logFirst = RecordPosition.zero.next
  /// The cluster's level, by probes and records.
  private(set) var clusterLevel: ClusterLevel
  /// Whether this node stops soon.
  private(set) var stopsSoon = false
  /// Whether this node refuses commands.
  private var refusesCommands = false
  var state: State
  private var attempts: UInt64 = 0

  /// A node starts as a follower, also if it owned the group before: what it had not committed is gone.
  ///
  /// It does nothing until the first probe is answered.
  ///
  /// - Parameters:
  ///   - initialSet: counts where the log has no set.
  ///   - stored: the last record in the node's storage.
  package init(
    group: GroupID,
    node: NodeID,
    initialSet: GroupSet,
    limits: ClusterLimits,
    stored: LogCursor,
    now: BootTime
  ) {
    self.group = group
    self.node = node
    self.initialSet = initialSet
    self.limits = limits
    clusterLevel = limits.levels.lowerBound
    state = .following(
      Following(applied: stored, isVerified: stored == .start, owner: .none, intake: .unknownSet, now: now)
    )
  }

  /// When ``Event/timerFired`` is due; it may be in the past.
  package var deadline: BootTime {
    switch state {
    case .following(let following): min(following.intake.deadline, claimTime(following))
    case .claiming(let claiming): claiming.claim.resendAt
    case .owning(let owning):
      switch owning.flight {
      case .idle(let since): since.adding(milliseconds: limits.aliveMilliseconds)
      case .undecided(let sent), .undecidedAndNext(let sent, next: _): sent.resendAt
      }
    case .releasing(let releasing): releasing.release.resendAt
    case .deposed: .never
    }
  }

  /// Whether the node may send replies now (C4), those that have waited for a commit too.
  package func mayAnswer(at now: BootTime) -> Bool {
    switch state {
    case .owning(let owning): now < owning.leaseEnd
    case .following, .claiming, .releasing, .deposed: false
    }
  }

  /// Whether ``Event/commitRequested(_:)`` is allowed: this node owns the group and no record of a commit is in flight.
  package var acceptsCommit: Bool {
    switch state {
    case .owning(let owning): owning.acceptsCommit
    case .following, .claiming, .releasing, .deposed: false
    }
  }

  /// The last record that this node has applied or committed.
  package var applied: LogCursor {
    switch state {
    case .following(let following): following.applied
    case .claiming(let claiming): claiming.applied
    case .owning(let owning): owning.applied
    case .releasing(let releasing): releasing.applied
    case .deposed(let applied): applied
    }
  }

  /// Whether this node is a member of the group; nil before the first answer of a probe.
  package var isMember: Bool? { currentSet?.members.contains(node) }

  /// Whether the node reports how far it has the group: as a member, as the owner, or because it still has data. A
  /// report is also how it learns of the members.
  package var reportsProgress: Bool {
    switch state {
    case .owning: true
    case .following(let following) where following.isOutsideWithData: true
    case .following(let following) where !following.isVerified: false
    case .following, .claiming, .releasing, .deposed: isMember == true
    }
  }

  /// The level of the records that this node appends.
  var writtenLevel: ClusterLevel { min(clusterLevel, limits.levels.upperBound) }

  /// Whether this node supports the cluster's level.
  package var supportsLevel: Bool { clusterLevel <= limits.levels.upperBound }

  /// Whether every other member is a better owner: this node refuses commands, or does not support the cluster's level.
  var isLastChoice: Bool { refusesCommands || !supportsLevel }

  /// Note that the cluster has a level.
  mutating func noted(_ level: ClusterLevel) -> [Action] {
    guard level > clusterLevel else { return [] }
    clusterLevel = level
    return supportsLevel ? [] : [.levelUnsupported(level)]
  }

  /// Take one event and say what to do.
  package mutating func handle(_ event: Event, at now: BootTime) -> [Action] {
    let first = note(event)
    let next =
      switch state {
      case .following(let following): handle(event, following: following, at: now)
      case .claiming(let claiming): handle(event, claiming: claiming, at: now)
      case .owning(let owning): handle(event, owning: owning, at: now)
      case .releasing(let releasing): handle(event, releasing: releasing, at: now)
      case .deposed: handleDeposed(event, at: now)
      }
    return first.isEmpty ? next : first + next
  }

  /// Note what an event tells in every state.
  private mutating func note(_ event: Event) -> [Action] {
    switch event {
    case .probeAnswered(let end):
      // Answers may overtake one another.
      let found = end.set ?? initialSet
      if found.revision >= currentSet?.revision ?? 0 { currentSet = found }
      logFirst = max(logFirst, end.first)
      if let level = end.level { return noted(level) }
    case .handOverRequested: stopsSoon = true
    case .refusalChanged(let refuses): refusesCommands = refuses
    default: break
    }
    return []
  }

  private mutating func handleDeposed(_ event: Event, at now: BootTime) -> [Action] {
    switch event {
    case .loopReset(let stored):
      return follow(from: stored, isVerified: stored == .start, owner: .none, at: now)
    case .timerFired, .recordsRead, .readTrimmed, .roomMade, .keyDestroyed, .recordsFollowed, .followEnded,
      .probeAnswered, .logUnresponsive, .answered, .memberReported, .handOverRequested, .refusalChanged:
      // The storage holds committed records only, and everything that comes now is read again later.
      return []
    case .commitRequested: preconditionFailure("a loop that had stepped down requested a commit")
    }
  }

  // MARK: Undecided records

  /// A record that was sent and is neither appended nor refused for certain. It is sent again unchanged until it is
  /// decided; nothing else is appended meanwhile (C2).
  struct Undecided: Sendable {
    let record: GroupRecord
    /// The lease begins here: the answer to a later attempt may concern the first one.
    let firstSentAt: BootTime
    private(set) var attempts: ClosedRange<Attempt>
    private(set) var resendAt: BootTime

    fileprivate init(_ record: GroupRecord, _ attempt: Attempt, at now: BootTime, _ limits: ClusterLimits) {
      self.record = record
      firstSentAt = now
      attempts = attempt...attempt
      resendAt = now.adding(milliseconds: limits.resendMilliseconds)
    }

    fileprivate mutating func resend(_ attempt: Attempt, at now: BootTime, _ limits: ClusterLimits) {
      attempts = attempts.lowerBound...attempt
      resendAt = now.adding(milliseconds: limits.resendMilliseconds)
    }

    /// Send again soon, unless an attempt after this one is still unanswered.
    mutating func unclear(_ attempt: Attempt, at now: BootTime, _ limits: ClusterLimits) {
      guard attempt == attempts.upperBound else { return }
      resendAt = min(resendAt, now.adding(milliseconds: limits.unclearPauseMilliseconds))
    }
  }

  mutating func firstAttempt(of record: GroupRecord, at now: BootTime) -> (Undecided, Attempt) {
    let attempt = nextAttempt()
    return (Undecided(record, attempt, at: now, limits), attempt)
  }

  mutating func nextAttempt(of undecided: inout Undecided, at now: BootTime) -> Attempt {
    let attempt = nextAttempt()
    undecided.resend(attempt, at: now, limits)
    return attempt
  }

  private mutating func nextAttempt() -> Attempt {
    attempts += 1
    return Attempt(attempts)
  }
}
