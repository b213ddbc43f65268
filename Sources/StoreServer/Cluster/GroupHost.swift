internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient
internal import StoreEngine

/// Callbacks of a group's host to its runtime, on the host's event loop.
struct GroupEvents: Sendable {
  /// This node owns the host's group now.
  var promoted: @Sendable (LoopHost, OwnerEpoch) -> Void
  /// This node answers for the host's group no longer.
  var yielded: @Sendable (LoopHost) -> Void
  /// Another node owns the host's group, or may claim it. The loop is stopped.
  var deposed: @Sendable (LoopHost) -> Void
  /// The shared log does not fit the loop, which is stopped.
  var failed: @Sendable (LoopHost, FollowError) -> Void
  /// A follower waits for this record key; nil: commands wait because too few members have one.
  var keyAwaited: @Sendable (LoopHost, RecordKeyNumber?) -> Void
  /// This node is not a member of the host's group, but keeps its data until a member has it.
  var dataKept: @Sendable (LoopHost) -> Void
  /// This node is not a member of the host's group, and has removed its data. The loop is stopped.
  var removed: @Sendable (LoopHost) -> Void
  /// The cluster has a level that this node does not support.
  var levelUnsupported: @Sendable (ClusterLevel) -> Void
  /// The group needs a snapshot of another node, for this reason.
  var joining: @Sendable (String) -> Void
  /// An attempt to receive a snapshot has failed, for this reason. Another one follows.
  var joinFailed: @Sendable (String) -> Void
  /// The installation of a snapshot has ended or failed. The loop is stopped.
  var installEnded: @Sendable (LoopHost) -> Void
  /// A snapshot is installed. It ends with this record, and has so many bytes.
  var joined: @Sendable (GroupID, RecordPosition, UInt64) -> Void
}

/// A host's part in a cluster: makes its loop follow a group's shared log, or own it. When the node loses the group,
/// the host stops, and a new one is made from storage.
///
/// `@unchecked Sendable`: everything but the immutable properties is used on the host's event loop only. The host owns
/// this; callbacks that may come later refer to the host.
final class GroupHost: GroupReplicaDriver, @unchecked Sendable {
  private unowned let host: LoopHost
  let link: SharedLogLink
  private let nodes: NodeLinks
  /// The group's shards.
  let shards: Range<UInt16>
  private let others: OtherNodes
  let events: GroupEvents
  /// Nil when the host has stopped.
  private(set) var replica: GroupReplica?
  /// Calls ``GroupReplica/timerFired()`` at the replica's deadline.
  private var timer: Scheduled<Void>?
  private var timerDeadline = BootTime.never
  private var wasOwner = false
  /// Whether the process stops soon.
  private var stopsSoon = false
  /// Why the store takes no commands, and since when; nil: it takes them.
  private var refusal: (code: ErrorCode, since: BootTime)?
  /// A wait for a record key: of commands, or of a follower.
  private var keyWait: (since: BootTime, isLogged: Bool)?
  /// Whether it was reported that the node is outside the set, and keeps the data.
  private var hasKeptData = false
  /// The last record that a sync of local storage covers; nil: none has ended.
  private var synced: RecordPosition?
  /// Whether the shared log knows that this node, which is not a member, has nothing of the group.
  private var hasReportedNoData = false
  /// Whether a snapshot of the group is needed, and what receives it.
  private var isFetching = false
  private var snapshotFetch: Task<Void, Never>?
  /// The last record of the snapshot that is received.
  var joiningAt: RecordPosition?
  /// Whether what local storage has of the group is of another history.
  private(set) var hasDiverged = false

  /// Time after which a wait for a record key is logged.
  private static let keyWaitMilliseconds: Int64 = 5_000

  init(_ group: GroupMembership, shards: Range<UInt16>, host: LoopHost) {
    self.host = host
    self.shards = shards
    link = group.link
    nodes = group.nodes
    others = group.others
    events = group.events
    replica = GroupReplica(
      group: group.id,
      node: group.node,
      initialSet: group.initialSet,
      limits: group.limits,
      loop: host.loop,
      stored: group.stored,
      keys: group.keys,
      driver: self
    )
  }

  func stop() {
    timer?.cancel()
    snapshotFetch?.cancel()
    if let replica { link.drop(replica) }
    replica = nil
  }

  /// Whether this node owns the group, and so answers for its shards.
  var servesRequests: Bool { replica?.isOwner ?? true }

  /// Send messages to the owner of the host's shards.
  func forward(_ messages: [MessageBetweenShards]) {
    for message in messages { nodes.send(message) }
  }

  /// Report that local storage is synced up to a record (C7).
  func reportSynced(_ cursor: LogCursor) {
    host.readClock()
    synced = cursor.position
    report()
  }

  private func report() {
    guard let replica, let isMember = replica.isMember else { return }
    noteKeyWait(of: replica)
    if isMember {
      if let synced { replica.report(memberReport(synced: synced)) }
    } else if replica.reportsProgress {
      // Its data does not count. It learns here which member has it, or can take the group over.
      if !replica.isOwner, !hasKeptData {
        hasKeptData = true
        events.dataKept(host)
      }
      replica.report(MemberReport(position: .zero))
    } else {
      reportNoData(of: replica)
    }
  }

  /// Log a wait for a record key once it lasts for long.
  private func noteKeyWait(of replica: GroupReplica) {
    guard replica.waitsForKey else { return keyWait = nil }
    let since = keyWait?.since ?? bootTime
    let isLong = since.adding(milliseconds: Self.keyWaitMilliseconds) <= bootTime
    if isLong, keyWait?.isLogged == false { events.keyAwaited(host, replica.missingKey) }
    keyWait = (since, isLogged: isLong)
  }

  /// Report once that this node has nothing of the group: an earlier report may be of a disk that is lost.
  private func reportNoData(of replica: GroupReplica) {
    guard !hasReportedNoData else { return }
    link.log.report(replica.group, by: replica.node, MemberReport(position: .zero)) { [weak host] reports in
      if reports != nil { host?.groupHost?.hasReportedNoData = true }
    }
  }

  /// Give the group up if this node owns it, and claim it no more: the process stops soon.
  func handOver() {
    guard replica != nil else { return }
    stopsSoon = true
    reportThenHandle(.handOverRequested)
  }

  /// Report whether groups may move to this node, then pass on the event.
  private func reportThenHandle(_ event: Ownership.Event) {
    host.readClock()
    report()
    replica?.handle(event)
  }

  /// Time for which an owner that is about to refuse commands waits for a member that can take the group over.
  private static let handOverMilliseconds: Int64 = 3_000

  /// Record why the store takes no commands, let the group's ownership know of a change, and return why this group
  /// takes none.
  ///
  /// During a clock jump the group takes commands, with the time that the store holds, until another member owns it. It
  /// takes none if no member can take it over.
  func updateRefusal(_ code: ErrorCode?) -> ErrorCode? {
    if code != refusal?.code {
      refusal = code.map { ($0, bootTime) }
      host.eventLoop.execute { [weak host] in
        guard let groupHost = host?.groupHost, groupHost.replica != nil else { return }
        groupHost.reportThenHandle(.refusalChanged(groupHost.refusal != nil))
      }
    }
    guard let refusal, refusal.code == .clockJump else { return code }
    let isEarly = bootTime < refusal.since.adding(milliseconds: Self.handOverMilliseconds)
    return isEarly || isHandingOver ? nil : code
  }

  /// Whether another member takes the group over.
  var isHandingOver: Bool { replica?.isHandingOver ?? false }

  /// Why other nodes get no snapshot of the group from this one now; nil: they get one.
  var snapshotRefusal: String? {
    guard let replica, replica.isMember == true || replica.isOwner else { return "the node is no member of the group" }
    return replica.isPurging ? "the node purges the group: try again" : nil
  }

  // MARK: Backups

  /// How often, and how long at most, a backup waits until the node has what is acknowledged.
  private static let catchUpInterval = TimeAmount.milliseconds(50)
  private static let catchUpChecksMax = 200

  /// Return when local storage has all records that the shared log has now. Fails with a ``PartRefusal`` if this
  /// node does not keep the group, or does not catch up within 10 s.
  func catchUp() -> EventLoopFuture<Void> {
    let promise = host.eventLoop.makePromise(of: Void.self)
    guard let replica, replica.isMember == true, joiningAt == nil else {
      let detail = "this node does not keep all groups: back up one that does (tidemark cluster status)"
      promise.fail(PartRefusal(code: .backupFailed, detail: detail))
      return promise.futureResult
    }
    link.log.ends(of: [replica.group]) { [weak host] ends in
      guard let groupHost = host?.groupHost, let end = ends?.first else {
        return promise.fail(PartRefusal(code: .backupFailed, detail: "the shared log does not answer"))
      }
      groupHost.awaitStored(end.last, Self.catchUpChecksMax, promise)
    }
    return promise.futureResult
  }

  private func awaitStored(_ position: RecordPosition, _ checks: Int, _ promise: EventLoopPromise<Void>) {
    guard let replica, checks > 0 else {
      let detail = "this node lags behind the shared log: try again, or another node"
      return promise.fail(PartRefusal(code: .backupFailed, detail: detail))
    }
    guard replica.storedCursor.position < position else { return promise.succeed() }
    host.eventLoop.assumeIsolated().scheduleTask(in: Self.catchUpInterval) { [weak host] in
      guard let groupHost = host?.groupHost else { return promise.fail(CancellationError()) }
      groupHost.awaitStored(position, checks - 1, promise)
    }
  }

  /// What this node tells the members about the group. While it receives a snapshot, that is the snapshot's last
  /// record: later ones must not be trimmed. With data of another history it is position zero (C7).
  func memberReport(synced: RecordPosition) -> MemberReport {
    if let joiningAt { return MemberReport(position: joiningAt, .joining) }
    // What is written to a lost directory is on no disk.
    let isStored = !hasDiverged && refusal?.code != .dataDirectoryLost
    // No group moves to a node that refuses commands, or will not follow what comes next.
    let canOwn = !stopsSoon && refusal == nil && replica?.supportsLevel != false
    return MemberReport(position: isStored ? synced : .zero, canOwn ? .following : .ineligible)
  }

  // MARK: GroupReplicaDriver

  var bootTime: BootTime { BootTime.now() }
  var sharedLog: any GroupLog { link.log }

  func append(_ append: GroupAppend, as attempt: Ownership.Attempt) {
    link.writer.append(append) { [weak host] outcome in
      guard let host else { return }
      host.readClock()
      host.groupHost?.replica?.handle(.answered(attempt, outcome))
    }
  }

  func store(_ commit: LoopCommit) { host.write(commit) }

  func restart() { events.deposed(host) }

  func removeData() {
    snapshotFetch?.cancel()
    reportNoDataThenRemove()
  }

  /// Report that this node has nothing of the group, then remove the data. A change of the set that counts on this
  /// node's data must not find an old report.
  private func reportNoDataThenRemove() {
    guard let replica else { return }
    link.log.report(replica.group, by: replica.node, MemberReport(position: .zero)) {
      [weak host, snapshotFetch] reports in
      guard let host, host.stopped == nil else { return }
      guard reports != nil else { return host.groupHost?.afterPause { $0.reportNoDataThenRemove() } ?? () }
      Task { [weak host] in
        // It may be installing.
        await snapshotFetch?.value
        host?.eventLoop.execute { [weak host] in host?.groupHost?.removeStored() }
      }
    }
  }

  private func removeStored() {
    guard host.stopped == nil, let replica else { return }
    let group = GroupShards(group: replica.group, shards: shards)
    host.offload(to: host.committer) { [storage = host.storage] in
      Result { () throws(StorageError) in try storage.remove(group) }
    } then: { host, result in
      switch result {
      case .success: host.groupHost?.purgeRemoved()
      case .failure(let error): host.events.halted(error)
      }
    }
  }

  /// What is removed must not stay in files either (R16).
  private func purgeRemoved() {
    host.purgeStorage { host, result in
      switch result {
      case .success: host.groupHost?.events.removed(host)
      case .failure(let error):
        host.events.errorReported(error)
        host.groupHost?.afterPause(.seconds(5)) { $0.purgeRemoved() }
      }
    }
  }

  func makeRecordKey(_ number: RecordKeyNumber) -> RecordKey { .random(number) }

  func storeRecordKeys(_ keys: [RecordKey]) {
    guard let replica else { return }
    host.offload(to: host.committer) { [storage = host.storage, group = replica.group] in
      Result { () throws(StorageError) in try storage.replaceRecordKeys(keys, of: group) }
    } then: { host, result in
      host.groupHost?.replica?.recordKeysStored(keys, result)
    }
  }

  func fetchRecordKeys(from node: NodeID) {
    guard let replica else { return }
    let (group, address) = (replica.group.rawValue, others.address(node))
    Task { [weak host, others] in
      guard let eventLoop = host?.eventLoop else { return }
      var keys: [RecordKey]?
      if let address { keys = try? await Self.recordKeys(of: group, address, others, eventLoop) }
      eventLoop.execute { [weak host, keys] in
        guard let host else { return }
        host.readClock()
        host.groupHost?.replica?.recordKeysFetched(keys, from: node)
      }
    }
  }

  private static func recordKeys(
    of group: UInt8,
    _ address: StoreClientConfiguration.Address,
    _ others: OtherNodes,
    _ eventLoop: any EventLoop
  ) async throws -> [RecordKey] {
    let connection = try await NodeConnection.open(address, others, on: eventLoop)
    defer { eventLoop.execute { connection.value.close() } }
    let reply = try await NodeConnection.request(connection, .recordKeys) {
      RecordKeysRequest(group: group).write(into: &$0)
    }
    return try RecordKeyList(reply.readableBytesSpan).keys.map {
      RecordKey(number: RecordKeyNumber($0.number), secret: $0.secret)
    }
  }

  func purgeStorage() {
    host.purgeStorage { host, result in
      switch result {
      case .success: host.groupHost?.replica?.storagePurged()
      case .failure(let error):
        host.events.errorReported(error)
        host.groupHost?.afterPause(.seconds(5)) { $0.purgeStorage() }
      }
    }
  }

  func reportNow() { report() }

  func levelUnsupported(_ level: ClusterLevel) { events.levelUnsupported(level) }

  func replicaFailed(_ error: FollowError) { events.failed(host, error) }

  func replicaChanged() {
    guard let replica else { return }
    if let epoch = replica.ownedEpoch, !wasOwner { events.promoted(host, epoch) }
    if !replica.isOwner, wasOwner { events.yielded(host) }
    wasOwner = replica.isOwner
    let deadline = replica.deadline
    guard deadline != timerDeadline else { return }
    timerDeadline = deadline
    timer?.cancel()
    timer = host.eventLoop.assumeIsolated().scheduleTask(in: BootTime.now().amount(until: deadline)) { [weak host] in
      host?.groupHost?.timerFired()
    }
  }

  func followed(_ time: Timestamp) {
    link.followAges.record(Double(max(0, host.timeNow.milliseconds - time.milliseconds)) / 1_000)
  }

  /// Add this group's values.
  func add(to statistics: inout ClusterStatistics) {
    statistics.groups += 1
    guard let replica else { return }
    if replica.isMember == true, replica.storedCursor != .start { statistics.memberGroups += 1 }
    if isFetching { statistics.joiningGroups += 1 }
    if replica.waitsForKey { statistics.keyWaits += 1 }
  }

  private func timerFired() {
    timerDeadline = .never
    host.readClock()
    replica?.timerFired()
  }

  func fetchSnapshot(_ reason: Ownership.SnapshotReason) {
    if case .diverged = reason { hasDiverged = true }
    let text =
      switch reason {
      case .trimmed(let first): "the shared log begins at record \(first.rawValue)"
      case .keyDestroyed(let key): "record key \(key.rawValue) is destroyed, and the next record needs it"
      case .diverged(let position): "its data is of another history from record \(position.rawValue) on"
      }
    guard !isFetching else { return }
    isFetching = true
    events.joining(text)
    reportThenFetch()
  }

  /// Replace this node's report, then fetch a snapshot: the earlier report's purge position is of the storage that the
  /// snapshot replaces.
  private func reportThenFetch() {
    guard let replica, host.stopped == nil else { return }
    let report = replica.completed(memberReport(synced: synced ?? .zero))
    link.log.report(replica.group, by: replica.node, report) { [weak host] reports in
      guard let host, let groupHost = host.groupHost, host.stopped == nil else { return }
      guard reports != nil else { return groupHost.afterPause { $0.reportThenFetch() } }
      let fetch = SnapshotFetch(host: host, groupHost: groupHost, others: groupHost.others)
      groupHost.snapshotFetch = Task { await fetch.run() }
    }
  }

  /// Try something again after a pause, if the host still runs then.
  private func afterPause(_ pause: TimeAmount = .seconds(1), _ body: @escaping @Sendable (GroupHost) -> Void) {
    host.eventLoop.assumeIsolated().scheduleTask(in: pause) { [weak host] in
      guard let host, let groupHost = host.groupHost, host.stopped == nil else { return }
      host.readClock()
      body(groupHost)
    }
  }
}
