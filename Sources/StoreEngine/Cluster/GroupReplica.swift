internal import DequeModule
package import ReceiptModel
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
  func store(_ commit: LoopCommit)
  /// Make a loop that follows, from local storage, then call ``GroupReplica/restarted(_:stored:)``. Nothing is in
  /// flight at the storage.
  func restart()
  /// Report, then replace local storage by another member's snapshot.
  func fetchSnapshot(_ reason: Ownership.SnapshotReason)
  /// The node's program does not support the cluster's level.
  func levelUnsupported(_ level: ClusterLevel)
  /// Make a random record key of this number.
  func makeRecordKey(_ number: RecordKeyNumber) -> RecordKey
  /// Replace the group's record keys in local storage by these, durably, then call
  /// ``GroupReplica/recordKeysStored(_:_:)``.
  func storeRecordKeys(_ keys: [RecordKey])
  /// Read the record keys that a node has, then call ``GroupReplica/recordKeysFetched(_:from:)``.
  func fetchRecordKeys(from node: NodeID)
  /// Run ``StorageEngine/purge()`` until it succeeds, then call ``GroupReplica/storagePurged()``.
  func purgeStorage()
  /// What this node reports about the group has changed.
  func reportNow()
  /// A commit of another owner is applied; its newest batch has this time.
  func followed(_ time: Timestamp)
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
    /// Becomes releasing for a move, and stepped down when another node has claimed.
    case owning
    /// Accepts and answers no requests. Becomes stepped down with the release.
    case releasing
    /// The loop is stopped. Becomes following with a new loop.
    case steppedDown
    /// The loop is stopped, because the shared log does not fit it or the node is not a member. Final.
    case ended
  }

  /// A commit of the owner's loop that is on its way to the shared log, one at a time.
  private enum OwnCommit {
    case none
    /// No record of it is made. Becomes pending as soon as there is a key.
    case unsealed(LoopCommit)
    /// Some of its records may be appended, and one in flight; `rest` has the others.
    case pending(LoopCommit, rest: ArraySlice<Ownership.RecordContent>)
  }

  /// A write to local storage.
  private struct Write {
    enum Kind {
      /// A commit that the loop waits for.
      case commit
      /// Only a position.
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
  private var keys: RecordKeys
  private var purges = GroupPurges()
  /// Writes that were in flight when a purge began to wait for them.
  private var purgeWrites = 0
  /// The last record whose batches the loop has; never one within a commit of several records.
  private var loopCursor: LogCursor
  /// The last record that local storage has. A sync that begins now covers it.
  package private(set) var storedCursor: LogCursor
  /// Writes to local storage that are in flight, in order.
  private var writes: Deque<Write> = []
  /// Since when the lease has expired.
  private var expiredSince: BootTime?
  /// Whether records are read once the loop has room for them.
  private var isReadPostponed = false
  /// Number of loops before this one. Answers to their reads are dropped.
  private var restarts = 0

  /// - Parameters:
  ///   - loop: a loop that follows, from local storage.
  ///   - stored: the last record in local storage.
  ///   - keys: the record keys in local storage.
  package init(
    group: GroupID,
    node: NodeID,
    initialSet: GroupSet,
    limits: ClusterLimits,
    loop: StoreLoop,
    stored: LogCursor,
    keys: [RecordKey],
    driver: any GroupReplicaDriver
  ) {
    self.group = group
    self.driver = driver
    self.loop = loop
    self.keys = RecordKeys(node: node, stored: keys, applied: stored)
    loopCursor = stored
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
    case .owning: loopCursor.epoch
    case .following, .releasing, .steppedDown, .ended: nil
    }
  }

  private var servesRequests: Bool {
    switch state {
    case .owning, .releasing: true
    case .following, .steppedDown, .ended: false
    }
  }

  private var hasEnded: Bool {
    if case .ended = state { true } else { false }
  }

  /// ``Ownership/reportsProgress``
  package var reportsProgress: Bool { ownership.reportsProgress }

  /// ``Ownership/supportsLevel``
  package var supportsLevel: Bool { ownership.supportsLevel }

  /// Whether the node is a member of the group; nil: not known yet.
  package var isMember: Bool? { ownership.isMember }

  /// Whether the node gives the group up for another member (``Ownership/Event/handOverRequested``).
  package var isHandingOver: Bool { ownership.isHandingOver(at: driver.bootTime) }

  /// Whether the node may answer queries now (C4).
  package var mayAnswer: Bool { ownership.mayAnswer(at: driver.bootTime) }

  /// When ``timerFired()`` is due.
  package var deadline: BootTime {
    guard !hasEnded else { return .never }
    let refusal = expiredSince?.adding(milliseconds: ClusterLimits.replyWaitMilliseconds) ?? .never
    return min(ownership.deadline, keys.deadline, loop.lease == .lost ? .never : refusal)
  }

  package func timerFired() { handle(.timerFired) }

  /// Pass an event to the group's ``Ownership`` and perform what it decides.
  package func handle(_ event: Ownership.Event) {
    guard !hasEnded else { return }
    if let event = readable(event) {
      for action in ownership.handle(event, at: driver.bootTime) where !hasEnded { perform(action) }
    }
    requestCommit()
    exchangeKeys()
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

  /// Commit what the loop has: the loop's driver forwards ``StoreLoopDriver/commit(_:)``.
  package func commit(_ commit: LoopCommit) {
    var commit = commit
    if loop.isFollowing {
      commit.position = storedPosition
      store(commit, .commit)
    } else if commit.batches.count == commit.followedCount {
      // The shared log has all batches already.
      store(commit, .commit)
    } else {
      ownCommit = .unsealed(commit)
      requestCommit()
    }
  }

  private func requestCommit() {
    switch state {
    case .owning: break
    case .following, .releasing, .steppedDown, .ended: return
    }
    makeKeyIfDue()
    guard ownership.acceptsCommit, let record = nextRecord() else { return }
    for action in ownership.handle(.commitRequested(record), at: driver.bootTime) { perform(action) }
  }

  /// Return the next record of the loop's commit, or of a purge between two commits.
  private func nextRecord() -> Ownership.RecordContent? {
    if case .pending(let commit, var rest) = ownCommit {
      guard let record = rest.popFirst() else { return nil }
      ownCommit = .pending(commit, rest: rest)
      return record
    }
    guard let key = keys.sealing(members, at: driver.bootTime, ownership.limits) else { return nil }
    if let first = purges.takeAppend(key.number, at: driver.bootTime) {
      return .init(kind: .purge(first: first), key: key.number)
    }
    guard case .unsealed(let commit) = ownCommit else { return nil }
    let sealed = key.seal(commit.recordPayload())
    let records = CommitParts.split(sealed, key: key.number, bytesMax: ownership.limits.payloadBytesMax)
    ownCommit = .pending(commit, rest: records.dropFirst())
    return records[0]
  }

  /// Tell the members how far this node has the group's log, and learn the same of them, for trims (C7), keys and
  /// purges.
  package func report(_ report: MemberReport) {
    let report = completed(report)
    driver.sharedLog.report(group, by: ownership.node, report) { [weak self] reports in
      if let reports { self?.reported(reports) }
    }
  }

  /// Handle the members' reports, all of one reading.
  package func reported(_ reports: [NodeID: MemberReport]) {
    for (member, report) in reports.sorted(by: { $0.key < $1.key }) {
      keys.reported(report.key, by: member)
      purges.reported(report.purged, by: member)
      handle(.memberReported(member, report))
    }
    guard !hasEnded else { return }
    exchangeKeys()
    if purges.endIfDone(members, node: node) { loop.purged(.success(())) }
  }

  /// Handle the result of the oldest write to local storage.
  package func stored(_ result: Result<Void, StorageError>) {
    updateLease()
    let write = writes.removeFirst()
    if purgeWrites > 0 { purgeWrites -= 1 }
    if case .success = result, let cursor = write.cursor { storedCursor = cursor }
    switch (write.kind, result) {
    case (.commit, _): loop.committed(result)
    case (.position, .failure(let error)): loop.fail(error)
    case (.position, .success): break
    }
    restartIfPossible()
    continuePurge()
    requestCommit()
    readIfPostponed()
    driver.replicaChanged()
  }

  /// Read the records that were not read for lack of room, if the loop has it now. Call this after loads of channels.
  package func readIfPostponed() {
    guard isReadPostponed, !hasEnded, loop.isFollowing, loop.hasRoomToFollow else { return }
    isReadPostponed = false
    handle(.roomMade)
  }

  // MARK: Keys

  private var members: [NodeID] { ownership.currentSet?.members ?? [] }

  /// Return an event without the records that this node has no key for, nor those behind them. Nil: nothing is left;
  /// they are read again until another node has given the key.
  private func readable(_ event: Ownership.Event) -> Ownership.Event? {
    switch event {
    case .recordsRead(let records, let position, reachesEnd: _):
      guard let count = keys.firstUnreadable(records, after: ownership.applied.position) else { return event }
      return count == 0 ? nil : .recordsRead(Array(records.prefix(count)), from: position, reachesEnd: false)
    case .recordsFollowed(let records):
      guard let count = keys.firstUnreadable(records, after: ownership.applied.position) else { return event }
      return .recordsFollowed(Array(records.prefix(count)))
    default: return event
    }
  }

  /// Return a report with what the replica knows of keys and purges.
  package func completed(_ report: MemberReport) -> MemberReport {
    var report = report
    report.key = keys.newest
    report.purged = purges.done
    return report
  }

  private func makeKeyIfDue() {
    let now = driver.bootTime
    if purges.needsKey(newerThan: keys.newest) { keys.requestKey(at: now) }
    guard let number = keys.numberIfDue(after: loopCursor.position, at: now) else { return }
    driver.storeRecordKeys(keys.beginStoring(driver.makeRecordKey(number), first: ownership.logFirst))
  }

  /// Fetch other nodes' keys, or let them learn of this node's.
  private func exchangeKeys() {
    guard !hasEnded else { return }
    let now = driver.bootTime
    if keys.takeReport(members, at: now, ownership.limits) { driver.reportNow() }
    if let source = keys.sourceIfDue(at: now, ownership.limits) { driver.fetchRecordKeys(from: source) }
  }

  /// Whether a commit waits because too few members have a record key, or a follower because this node lacks one.
  package var waitsForKey: Bool {
    if missingKey != nil { return true }
    guard case .unsealed = ownCommit else { return false }
    return keys.sealing(members, at: driver.bootTime, ownership.limits) == nil
  }

  /// The record keys in local storage, for other nodes.
  package var recordKeys: [RecordKey] { keys.stored }

  /// The key that a record needs and the node does not have.
  package var missingKey: RecordKeyNumber? { keys.missingKey }

  /// Take a node's record keys; nil: it has not answered.
  package func recordKeysFetched(_ fetched: [RecordKey]?, from source: NodeID) {
    guard !hasEnded else { return }
    let new = keys.fetched(fetched, from: source, at: driver.bootTime, ownership.limits)
    if let new { driver.storeRecordKeys(new) }
    driver.replicaChanged()
    if let key = keys.destroyedKey { handle(.keyDestroyed(key)) }
  }

  /// Continue after the record keys in local storage were replaced by these.
  package func recordKeysStored(_ stored: [RecordKey], _ result: Result<Void, StorageError>) {
    guard !hasEnded else { return }
    if case .failure(let error) = result { return loop.fail(error) }
    keys.stored(stored, at: driver.bootTime, ownership.limits)
    driver.reportNow()
    continuePurge()
    requestCommit()
    driver.replicaChanged()
  }

  // MARK: Purges

  /// Whether a purge has not yet cleaned local storage.
  package var isPurging: Bool { purges.isUnderWay }

  /// Purge the group (R16): the loop's driver forwards ``StoreLoopDriver/purge()``. The loop's log is trimmed.
  package func purge() {
    switch state {
    case .owning:
      purges.begin(after: loopCursor.position)
      requestCommit()
    case .following:
      purges.trimmed()
      purgeWrites = writes.count
      continuePurge()
    case .releasing, .steppedDown, .ended: break
    }
  }

  /// Destroy the keys from before a purge record, then purge the storage. Before keys are destroyed, all that they have
  /// sealed must be on disk: earlier writes have ended, and the removal of the keys syncs them (C6).
  private func continuePurge() {
    guard let target = purges.destroying, purgeWrites == 0, !keys.isStoring else { return }
    if let left = keys.beginDestroying(before: target.key) { return driver.storeRecordKeys(left) }
    purges.storageBegan()
    driver.purgeStorage()
  }

  /// Continue after local storage was purged.
  package func storagePurged() {
    guard !hasEnded else { return }
    let hasNext = purges.storageEnded()
    driver.reportNow()
    // An owner's round ends with the members' reports.
    if purges.hasRound { return }
    loop.purged(.success(()))
    if hasNext, loop.isFollowing { loop.purgeFollowed() }
  }

  private var storedPosition: GroupCursor { GroupCursor(group: group, cursor: loopCursor) }

  private func store(_ commit: LoopCommit, _ kind: Write.Kind) {
    writes.append(Write(kind: kind, cursor: commit.position?.cursor))
    driver.store(commit)
  }

  // MARK: Actions

  private func perform(_ action: Ownership.Action) {
    switch action {
    case .read(let position): read(from: position)
    case .follow(let position):
      driver.sharedLog.follow(group, from: position) { [weak self] event in
        switch event {
        case .records(let records): self?.receive(records)
        case .ended: self?.handle(.followEnded)
        }
      }
    case .apply(let record): follow(record)
    case .fetchSnapshot(let reason):
      // The snapshot may be of a node that has not purged yet.
      purges = GroupPurges()
      driver.fetchSnapshot(reason)
    case .levelUnsupported(let level): driver.levelUnsupported(level)
    case .claim(let claim, let attempt):
      driver.sharedLog.claim(claim) { [weak self] outcome in self?.handle(.answered(attempt, outcome)) }
    case .append(let append, let attempt): driver.append(append, as: attempt)
    case .committed(let record): committed(record)
    case .promote:
      state = .owning
      keys.promoted(at: driver.bootTime)
      loop.promote()
    case .yield:
      state = .releasing
      keys.yielded()
    case .stepDown: stepDown()
    case .trim(let trim): driver.sharedLog.trim(trim)
    case .removeData:
      end()
      driver.sharedLog.unfollow(group)
      driver.removeData()
    }
  }

  // MARK: Records of the log

  /// Read records, or wait until the loop has room for them.
  private func read(from position: RecordPosition) {
    isReadPostponed = !loop.hasRoomToFollow
    guard !isReadPostponed else { return }
    let restarts = restarts
    driver.sharedLog.read(group, from: position, max: ClusterLimits.recordsPerRead) { [weak self] outcome in
      guard let self, restarts == self.restarts else { return }
      switch outcome {
      case .records(let records, let reachesEnd):
        handle(.recordsRead(records, from: position, reachesEnd: reachesEnd))
      case .trimmed(let first): handle(.readTrimmed(first: first))
      case .failed: break
      }
    }
  }

  /// Take new records of the log. If the loop has no room for more, those that come next are read when it has.
  private func receive(_ records: [GroupRecord]) {
    handle(.recordsFollowed(records))
    guard loop.isFollowing, !loop.hasRoomToFollow else { return }
    driver.sharedLog.unfollow(group)
    handle(.followEnded)
  }

  private func follow(_ record: GroupRecord) {
    do throws(FollowError) {
      let batches: [LoopCommit.Batch]
      do throws(WireError) {
        let sealed = try assembly.add(record)
        keys.applied(record, at: driver.bootTime, ownership.limits)
        guard !assembly.isWithinCommit else { return }
        loopCursor = LogCursor(after: record)
        guard let sealed else { return noteRecordWithoutBatches(record) }
        guard let payload = keys.key(record.key)?.open(sealed) else { throw .badValue(.key) }
        batches = try LoopCommit.batches(ofRecordPayload: payload)
      } catch {
        throw .damaged(.corrupt("group \(group.rawValue), record \(record.position.rawValue): \(error)"))
      }
      try loop.follow(batches)
      driver.followed(loop.followedTime)
    } catch {
      // The ownership counts this record already. Its position must not reach local storage (C6).
      end()
      driver.replicaFailed(error)
    }
  }

  private func noteRecordWithoutBatches(_ record: GroupRecord) {
    storePosition()
    guard case .purge(let first) = record.kind, purges.followed(record, first: first) else { return }
    loop.purgeFollowed()
  }

  private func end() {
    state = .ended
    ownCommit = .none
    loop.stop()
  }

  private func committed(_ record: GroupRecord) {
    keys.applied(record, at: driver.bootTime, ownership.limits)
    switch record.kind {
    case .part: break
    case .claim:
      // The owner before may have ended within a commit.
      assembly = CommitAssembly()
      loopCursor = LogCursor(after: record)
      storePosition()
    case .release, .alive:
      loopCursor = LogCursor(after: record)
      storePosition()
    case .unknown: preconditionFailure("an owner appended a record that it cannot read")
    case .purge:
      loopCursor = LogCursor(after: record)
      storePosition()
      purges.appended(record, at: driver.bootTime, ownership.limits)
      purgeWrites = writes.count
      continuePurge()
    case .batches:
      guard case .pending(var commit, let rest) = ownCommit, rest.isEmpty else {
        preconditionFailure("a record of no commit")
      }
      ownCommit = .none
      loopCursor = LogCursor(after: record)
      commit.position = storedPosition
      store(commit, .commit)
    }
  }

  /// Store the position of a record without batches, unless a commit of the loop does. A position is never ahead of the
  /// batches before it, and a commit that waits for the shared log may have followed batches.
  private func storePosition() {
    guard case .none = ownCommit, !loop.isHalted, !loop.commits.hasFollowed else { return }
    var commit = LoopCommit()
    commit.position = storedPosition
    store(commit, .position)
  }

  // MARK: Stepping down

  private func stepDown() {
    state = .steppedDown
    ownCommit = .none
    keys.yielded()
    purges = GroupPurges()
    loop.stop()
    restartIfPossible()
  }

  private func restartIfPossible() {
    guard case .steppedDown = state, writes.isEmpty else { return }
    driver.restart()
  }

  /// Continue with a new loop.
  package func restarted(_ loop: StoreLoop, stored: LogCursor) {
    self.loop = loop
    restarts += 1
    loopCursor = stored
    storedCursor = stored
    assembly = CommitAssembly()
    isReadPostponed = false
    state = .following
    expiredSince = nil
    handle(.loopReset(stored))
  }
}
