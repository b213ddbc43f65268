internal import DequeModule
internal import ReceiptModel
internal import ReceiptWire

/// I/O that a replica of a group requests. Each request is made on the group's event loop, and its result comes back on
/// it later.
package protocol GroupReplicaDriver: AnyObject {
  /// The node's clock.
  var bootTime: BootTime { get }
  /// The shared log. Appends go through ``append(_:as:)``.
  var sharedLog: any GroupLog { get }
  /// Append this in one of the node's next transactions (``GroupWriter``), then call ``GroupReplica/handle(_:)`` with
  /// ``Ownership/Event/answered(_:_:)``.
  func append(_ append: GroupAppend, as attempt: Ownership.Attempt)
  /// Commit this to local storage, after all earlier ones, then call ``GroupReplica/stored(_:)``.
  func store(_ group: CommitGroup)
  /// Make a loop that follows, from local storage, then call ``GroupReplica/restarted(_:stored:)``. Nothing is in
  /// flight at the storage.
  func restart()
  /// Replace local storage by another member's snapshot.
  func fetchSnapshot(_ reason: Ownership.SnapshotReason)
  /// Remove local storage of the group, of which this node is no member. The replica has ended: make another one once
  /// nothing is in flight there.
  func removeData()
  /// The shared log does not fit the state. The replica has ended: make another one from local storage, once nothing
  /// is in flight there.
  func replicaFailed(_ error: FollowError)
  /// ``GroupReplica/deadline`` or ``GroupReplica/isOwner`` may have changed.
  func replicaChanged()
}

/// A group on one node: performs what its ``Ownership`` decides, between the group's loop, the shared log and local
/// storage. Not thread-safe: call everything on the group's event loop.
///
/// A commit of an owner goes to the shared log first, then to local storage with its position, and only then to the
/// loop, which releases what waits for it (C3, C5). A follower's commits go to local storage alone.
package final class GroupReplica {
  private enum State {
    /// Follows, or claims. Becomes owning with the claim.
    case following
    /// Becomes releasing for a move, and halted when another node has claimed.
    case owning
    /// Accepts and answers no requests. Becomes halted with the release.
    case releasing
    /// The loop is stopped. Becomes following with a new loop.
    case halted
    /// The loop is stopped, because the shared log does not fit it or the node is not a member. Final.
    case ended
  }

  /// A commit of the owner's loop that is on its way to the shared log, one at a time.
  private enum OwnCommit {
    case none
    /// Some of its records may be appended, and one in flight; `rest` has the others.
    case pending(CommitGroup, rest: ArraySlice<Ownership.RecordContent>)
  }

  /// A write to local storage.
  private struct Write {
    enum Kind {
      /// Of the loop, which waits for it.
      case commit
      /// Of a position alone.
      case position
    }

    let kind: Kind
    /// The position that is written; nil: none.
    let cursor: LogCursor?
  }

  package let group: GroupID
  private unowned let driver: any GroupReplicaDriver
  private var ownership: Ownership
  package private(set) var loop: StoreLoop
  private var state = State.following
  private var ownCommit = OwnCommit.none
  /// The commits of the owner that is followed.
  private var assembly = CommitAssembly()
  /// The last record whose batches the loop has; never one within a commit of several records.
  private var applied: LogCursor
  /// The last record that local storage has. A sync that begins now covers it.
  package private(set) var storedCursor: LogCursor
  /// Writes to local storage that are in flight, in order.
  private var writes: Deque<Write> = []
  /// Since when the lease has expired.
  private var expiredSince: BootTime?

  /// - Parameters:
  ///   - loop: a loop that follows, from local storage.
  ///   - stored: the last record in local storage.
  package init(
    group: GroupID,
    node: NodeID,
    initialSet: GroupSet,
    limits: ClusterLimits,
    loop: StoreLoop,
    stored: LogCursor,
    driver: any GroupReplicaDriver
  ) {
    self.group = group
    self.driver = driver
    self.loop = loop
    applied = stored
    storedCursor = stored
    ownership = Ownership(
      group: group,
      node: node,
      initialSet: initialSet,
      limits: limits,
      stored: stored,
      now: driver.bootTime
    )
  }

  package var node: NodeID { ownership.node }

  package var isOwner: Bool { ownedEpoch != nil }

  /// The epoch in which this node owns the group; nil: it does not.
  package var ownedEpoch: OwnerEpoch? {
    switch state {
    case .owning: applied.epoch
    case .following, .releasing, .halted, .ended: nil
    }
  }

  private var servesRequests: Bool {
    switch state {
    case .owning, .releasing: true
    case .following, .halted, .ended: false
    }
  }

  private var hasEnded: Bool {
    if case .ended = state { true } else { false }
  }

  /// ``Ownership/reportsProgress``
  package var reportsProgress: Bool { ownership.reportsProgress }

  /// Whether the node keeps the group; nil: not known yet.
  package var isMember: Bool? { ownership.isMember }

  /// Whether the node gives the group up for another member (``Ownership/Event/leaveRequested``).
  package var isHandingOver: Bool { ownership.isHandingOver(at: driver.bootTime) }

  /// Whether the node may answer queries now (C4).
  package var mayAnswer: Bool { ownership.mayAnswer(at: driver.bootTime) }

  /// When ``timerFired()`` is due.
  package var deadline: BootTime {
    let refusal = expiredSince?.adding(milliseconds: ClusterLimits.replyWaitMilliseconds) ?? .never
    return min(ownership.deadline, loop.lease == .lost ? .never : refusal)
  }

  package func timerFired() { handle(.timerFired) }

  /// Pass an event to the group's ``Ownership`` and perform what it decides.
  package func handle(_ event: Ownership.Event) {
    guard !hasEnded else { return }
    for action in ownership.handle(event, at: driver.bootTime) where !hasEnded { perform(action) }
    requestCommit()
    updateLease()
    driver.replicaChanged()
  }

  /// Tell the loop whether it may answer; call before requests are passed to it.
  package func updateLease() {
    let now = driver.bootTime
    guard servesRequests, !ownership.mayAnswer(at: now) else {
      expiredSince = nil
      guard loop.lease != .valid else { return }
      loop.lease = .valid
      loop.endTurn()
      return
    }
    let since = expiredSince ?? now
    expiredSince = since
    if now < since.adding(milliseconds: ClusterLimits.replyWaitMilliseconds) {
      loop.lease = .expired
    } else {
      loop.lease = .lost
      loop.endTurn()
    }
  }

  // MARK: Commits of the loop

  /// Commit a group of the loop: the loop's driver forwards ``StoreLoopDriver/commit(_:)``.
  package func commit(_ group: CommitGroup) {
    var group = group
    if loop.isFollowing {
      group.position = storedPosition
      store(group, .commit)
    } else if group.batches.count == group.followedCount {
      store(group, .commit)
    } else {
      let records = CommitParts.split(group.recordPayload(), bytesMax: ownership.limits.payloadBytesMax)
      ownCommit = .pending(group, rest: records[...])
      requestCommit()
    }
  }

  private func requestCommit() {
    switch state {
    case .owning: break
    case .following, .releasing, .halted, .ended: return
    }
    guard ownership.acceptsCommit else { return }
    guard case .pending(let group, var rest) = ownCommit, let record = rest.popFirst() else { return }
    ownCommit = .pending(group, rest: rest)
    for action in ownership.handle(.commitRequested(record), at: driver.bootTime) { perform(action) }
  }

  /// Tell the members how far this node has the group's log, and learn the same of them, for trims (C7).
  package func report(_ report: MemberReport) {
    driver.sharedLog.report(group, by: ownership.node, report) { [weak self] reports in
      guard let self, let reports else { return }
      for (member, report) in reports.sorted(by: { $0.key < $1.key }) { handle(.memberReported(member, report)) }
    }
  }

  /// Handle the result of the oldest write to local storage.
  package func stored(_ result: Result<Void, StorageError>) {
    updateLease()
    let write = writes.removeFirst()
    if case .success = result, let cursor = write.cursor { storedCursor = cursor }
    switch (write.kind, result) {
    case (.commit, _): loop.committed(result)
    case (.position, .failure(let error)): loop.fail(error)
    case (.position, .success): break
    }
    restartIfPossible()
    requestCommit()
    driver.replicaChanged()
  }

  private var storedPosition: GroupPosition { GroupPosition(group: group, cursor: applied) }

  private func store(_ group: CommitGroup, _ kind: Write.Kind) {
    writes.append(Write(kind: kind, cursor: group.position?.cursor))
    driver.store(group)
  }

  // MARK: Actions

  private func perform(_ action: Ownership.Action) {
    switch action {
    case .read(let position):
      driver.sharedLog.read(group, from: position, max: ClusterLimits.recordsPerRead) { [weak self] outcome in
        switch outcome {
        case .records(let records, let reachesEnd): self?.handle(.recordsRead(records, reachesEnd: reachesEnd))
        case .trimmed(let first): self?.handle(.readTrimmed(first: first))
        case .failed: break
        }
      }
    case .follow(let position):
      driver.sharedLog.follow(group, from: position) { [weak self] event in
        switch event {
        case .records(let records): self?.handle(.recordsFollowed(records))
        case .ended: self?.handle(.followEnded)
        }
      }
    case .apply(let record): follow(record)
    case .fetchSnapshot(let reason): driver.fetchSnapshot(reason)
    case .claim(let claim, let attempt):
      driver.sharedLog.claim(claim) { [weak self] outcome in self?.handle(.answered(attempt, outcome)) }
    case .append(let append, let attempt): driver.append(append, as: attempt)
    case .committed(let record): committed(record)
    case .promote:
      state = .owning
      loop.promote()
    case .yield: state = .releasing
    case .halt: halt()
    case .trim(let trim): driver.sharedLog.trim(trim)
    case .removeData:
      end()
      driver.sharedLog.unfollow(group)
      driver.removeData()
    }
  }

  private func follow(_ record: GroupRecord) {
    do throws(FollowError) {
      let batches: [CommitGroup.Batch]
      do throws(WireError) {
        let payload = try assembly.take(record)
        guard !assembly.isWithinCommit else { return }
        applied = LogCursor(after: record)
        guard let payload else { return storePosition() }
        batches = try CommitGroup.batches(ofRecordPayload: payload)
      } catch {
        throw .damaged(.corrupt("group \(group.rawValue), record \(record.position.rawValue): \(error)"))
      }
      try loop.follow(batches)
    } catch {
      // A position is ahead of a record that is not applied: it must not reach local storage (C6).
      end()
      driver.replicaFailed(error)
    }
  }

  private func end() {
    state = .ended
    ownCommit = .none
    loop.stop()
  }

  private func committed(_ record: GroupRecord) {
    switch record.kind {
    case .part: break
    case .claim:
      // The owner before may have ended within a commit.
      assembly = CommitAssembly()
      applied = LogCursor(after: record)
      storePosition()
    case .release, .alive:
      applied = LogCursor(after: record)
      storePosition()
    case .batches:
      guard case .pending(var group, let rest) = ownCommit, rest.isEmpty else {
        preconditionFailure("a record of no commit")
      }
      ownCommit = .none
      applied = LogCursor(after: record)
      group.position = storedPosition
      store(group, .commit)
    }
  }

  /// Store the position of a record without batches, unless a commit of the loop does. A position is never ahead of the
  /// batches before it, and a commit that waits for the shared log may have followed batches.
  private func storePosition() {
    guard case .none = ownCommit, !loop.isHalted, !loop.commits.hasFollowed else { return }
    var group = CommitGroup()
    group.position = storedPosition
    store(group, .position)
  }

  // MARK: Halting

  private func halt() {
    state = .halted
    ownCommit = .none
    loop.stop()
    restartIfPossible()
  }

  private func restartIfPossible() {
    guard case .halted = state, writes.isEmpty else { return }
    driver.restart()
  }

  /// Continue with a new loop.
  package func restarted(_ loop: StoreLoop, stored: LogCursor) {
    self.loop = loop
    applied = stored
    storedCursor = stored
    assembly = CommitAssembly()
    state = .following
    expiredSince = nil
    handle(.loopReset(stored))
  }
}
