internal import NIOCore
internal import StoreEngine

/// A host of a cluster's group. When the node loses the group, the host halts, and a new one is made from storage.
extension LoopHost: GroupReplicaDriver {
  var bootTime: BootTime { BootTime.now() }
  var sharedLog: any GroupLog { link!.log }

  func append(_ append: GroupAppend, as attempt: Ownership.Attempt) {
    link!.writer.append(append) { [weak self] outcome in
      guard let self else { return }
      readClock()
      replica?.handle(.answered(attempt, outcome))
    }
  }

  /// Report that local storage is synced up to a record (C7).
  func reportSynced(_ cursor: LogCursor) {
    readClock()
    replica?.report(memberReport(synced: cursor.position))
  }

  func store(_ group: CommitGroup) { write(group) }

  func restart() { events.deposed(self) }

  /// Whether this node answers for the host's shards: it owns their group, or there is no cluster.
  var servesRequests: Bool { replica?.isOwner ?? true }

  /// Send messages to the owner of the host's shards; call on the loop.
  func forward(_ messages: [MessageBetweenShards]) {
    for message in messages { nodes?.send(message) }
  }

  /// Fail a purge (R16): the shared log and the other nodes still have what was erased.
  func refusePurge() {
    eventLoop.execute { [self] in
      readClock()
      loop.purged(.failure(.failed("erasures cannot be completed in a cluster yet")))
    }
  }

  func replicaFailed(_ error: FollowError) { events.failed(self, error) }

  func replicaChanged() {
    guard let replica else { return }
    if let epoch = replica.ownedEpoch, !wasOwner { events.promoted(self, epoch) }
    wasOwner = replica.isOwner
    let deadline = replica.deadline
    guard deadline != replicaTimerDeadline else { return }
    replicaTimerDeadline = deadline
    replicaTimer?.cancel()
    replicaTimer = eventLoop.assumeIsolated().scheduleTask(in: BootTime.now().amount(until: deadline)) {
      [weak self] in
      guard let self else { return }
      replicaTimerDeadline = .never
      readClock()
      self.replica?.timerFired()
    }
  }
}
