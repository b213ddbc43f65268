internal import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import ReceiptWire
internal import StoreEngine

/// A node of a cluster gains and loses single groups. The hosts of its other groups keep running.
extension HostSupervisor {
  /// Return the callbacks of a group's host.
  func groupEvents(ofHost index: Int, generation: UInt64) -> GroupEvents {
    GroupEvents(
      promoted: { [weak self] host, epoch in self?.promoted(host, at: index, epoch) },
      yielded: { [weak self] host in self?.yielded(host) },
      deposed: { [weak self] host in self?.deposed(host, at: index, generation: generation) },
      failed: { [weak self] host, error in self?.failed(host, at: index, error, generation: generation) },
      keyAwaited: { [logger] _, missing in
        let what = missing.map { "This node reads no more of a group, since it lacks record key \($0.rawValue)" }
        logger.warning(
          """
          \(what ?? "Commands wait, since fewer than two members of a group have stored a record key"): check that the \
          other nodes run, and reach each other over TLS
          """,
          metadata: ["group": "\(index)"]
        )
      },
      dataKept: { [logger] _ in
        logger.warning(
          """
          This node is not a member of a group, and keeps the group's data until a member has it (tidemark cluster add \
          makes it a member)
          """,
          metadata: ["group": "\(index)"]
        )
      },
      removed: { [weak self] host in self?.removed(host, at: index, generation: generation) },
      levelUnsupported: { [weak self] level in self?.levelUnsupported(level) },
      joining: { [logger] reason in
        logger.notice(
          "A group needs another node's snapshot",
          metadata: ["group": "\(index)", "reason": "\(reason)"]
        )
      },
      joinFailed: { [logger] reason in
        logger.info("No snapshot of a group yet", metadata: ["group": "\(index)", "reason": "\(reason)"])
      },
      installEnded: { [weak self] host in self?.installEnded(host, at: index, generation: generation) },
      joined: { [weak self, logger] group, position, bytes in
        self?.state.withLockedValue { $0.groupCounts.snapshotsInstalled += 1 }
        logger.notice(
          "Another node's snapshot of a group is installed",
          metadata: ["group": "\(group.rawValue)", "position": "\(position.rawValue)", "bytes": "\(bytes)"]
        )
      }
    )
  }

  /// This node owns the group of a host now, and answers for its shards.
  func promoted(_ host: LoopHost, at index: Int, _ epoch: OwnerEpoch) {
    guard let owned = serving.promote(host, epoch) else { return }
    state.withLockedValue { $0.groupCounts.gained += 1 }
    tellConnections()
    logger.info(
      "This node owns a group and serves its shards",
      metadata: ["group": "\(index)", "epoch": "\(epoch.rawValue)", "owned_groups": "\(owned)"]
    )
  }

  /// This node owns the group of a host no longer: its connections lose the group's shards. Gateways resend unanswered
  /// requests to the group's next owner.
  func yielded(_ host: LoopHost) {
    guard serving.demote(host) else { return }
    state.withLockedValue { $0.groupCounts.lost += 1 }
    tellConnections()
  }

  /// The other nodes of the cluster, or their addresses, have changed: tell the connections. Numbers rise.
  func peersChanged(_ peers: [ShardMap.Peer]) {
    if serving.setPeers(peers) { tellConnections() }
  }

  /// The cluster has a level that this node does not support: it hands its groups over.
  func levelUnsupported(_ level: ClusterLevel) {
    let isNew = state.withLockedValue { state in
      defer { state.unsupportedLevel = level }
      return state.unsupportedLevel != level
    }
    guard isNew else { return }
    logger.error(
      """
      This node does not support the cluster's level: it hands its groups over, and follows nothing of that level; \
      install a newer tidemark-store
      """,
      metadata: ["level": "\(level.rawValue)", "supported": "\(ClusterLevel.supported.text)"]
    )
  }

  /// This node keeps a group no longer: make a host that waits until it does.
  func removed(_ host: LoopHost, at index: Int, generation: UInt64) {
    guard replace(host, at: index, generation: generation, pause: .zero) else { return }
    logger.notice("This node is not a member of a group: its data is removed", metadata: ["group": "\(index)"])
  }

  /// Another node owns a host's group, which this node has owned: follow it with a new host.
  func deposed(_ host: LoopHost, at index: Int, generation: UInt64) {
    guard replace(host, at: index, generation: generation, pause: .zero) else { return }
    logger.notice("A group starts again as a follower", metadata: ["group": "\(index)"])
  }

  /// The shared log does not fit what a host has from local storage: read it again, after a pause if that did not help.
  func failed(_ host: LoopHost, at index: Int, _ error: FollowError, generation: UInt64) {
    let restart = state.withLockedValue { state in
      state.groupRestarts[index, default: RestartBackoff()].failed("\(error)", at: .now)
    }
    guard replace(host, at: index, generation: generation, pause: restart.pause) else { return }
    logger.log(
      level: restart.isNew ? .error : .debug,
      """
      A group's records cannot be applied to local storage: this node neither follows nor claims the group, and tries \
      again with pauses of up to \(RestartBackoff.pauseMax); if this repeats, check that another running member has \
      all records of each of this node's groups (tidemark cluster status), then stop the node, move its data directory \
      away, and start it with an empty one
      """,
      metadata: ["group": "\(index)", "error": "\(error)", "pause": "\(restart.pause)"]
    )
  }

  /// A host has replaced its group's data by a snapshot, or has failed to: make it again, after a pause if the one
  /// before did not help.
  func installEnded(_ host: LoopHost, at index: Int, generation: UInt64) {
    let restart = state.withLockedValue { state in
      state.groupRestarts[index, default: RestartBackoff()].failed("a snapshot", at: .now)
    }
    guard replace(host, at: index, generation: generation, pause: restart.pause) else { return }
    logger.log(
      level: restart.isNew ? .notice : .debug,
      "A group starts again after a snapshot",
      metadata: ["group": "\(index)", "pause": "\(restart.pause)"]
    )
  }

  // MARK: Handing over

  /// How often a stop checks whether the groups are handed over, and how long it waits for that at most.
  private static let handOverInterval = Duration.milliseconds(10)
  private static let handOverChecksMax = 500

  /// Hand all groups over to members that follow, before a stop. Returns when they are, or no member can take them.
  func handOverGroups() async {
    guard clusterLinks != nil else { return }
    state.withLockedValue { $0.stopsSoon = true }
    let hosts = hosts
    for host in hosts { host.eventLoop.execute { host.groupHost?.handOver() } }
    for _ in 0..<Self.handOverChecksMax {
      var isDone = true
      for host in hosts {
        let isHandingOver = try? await host.eventLoop.submit { host.groupHost?.isHandingOver ?? false }.get()
        if isHandingOver == true { isDone = false }
      }
      if isDone { return }
      try? await Task.sleep(for: Self.handOverInterval)
    }
    logger.warning("Groups of this node are not handed over: other nodes claim them")
  }

  /// Tell all connections that this node serves other shards. Each handles that in a turn of its own: their routes must
  /// not change within one.
  private func tellConnections() {
    for channel in registry.channels {
      channel.eventLoop.execute { channel.pipeline.fireUserInboundEventTriggered(ServingChanged()) }
    }
  }

  /// Replace a host by another one, made from local storage, that follows.
  ///
  /// - Returns: false if the host is not in use any more, or the process stops.
  private func replace(_ host: LoopHost, at index: Int, generation: UInt64, pause: Duration) -> Bool {
    yielded(host)
    let isReplaced = state.withLockedValue { state in
      guard state.lifecycle.serves(generation), !state.stopsSoon else { return false }
      let earlier = state.replacements[index]
      state.replacements[index] = Task {
        await earlier?.value
        await self.makeReplacement(of: host, at: index, generation: generation, pause: pause)
      }
      return true
    }
    guard isReplaced else {
      reloadIfStarting(generation: generation)
      return false
    }
    return true
  }

  private func makeReplacement(of host: LoopHost, at index: Int, generation: UInt64, pause: Duration) async {
    try? await host.eventLoop.flatSubmit { host.stop() }.get()
    await sleep(pause) { $0.lifecycle.serves(generation) }
    // A host cannot be made from a directory that is lost. The other groups' owners go on without it.
    while directory.isLost, state.withLockedValue({ $0.lifecycle.serves(generation) }) {
      await sleep(.seconds(1)) { $0.lifecycle.serves(generation) }
    }
    // The storage stays open while this runs.
    let storage = state.withLockedValue { $0.lifecycle.serves(generation) ? $0.storage : nil }
    guard let storage else { return }
    do {
      try await prepareRecovery(of: storage)
      let (made, _) = try await makeHost(at: index, on: storage, generation: generation)
      let isInUse = serving.exchange(host, with: made) { hosts, hostOfShard in
        for host in hosts { host.eventLoop.execute { host.connect(hosts, hostOfShard: hostOfShard) } }
      }
      guard isInUse else {
        try? await made.eventLoop.flatSubmit { made.stop() }.get()
        return
      }
      start(made, at: index)
      // The stop may have begun meanwhile.
      if state.withLockedValue(\.stopsSoon) { made.eventLoop.execute { made.groupHost?.handOver() } }
      state.withLockedValue { $0.groupRestarts[index]?.started(at: .now) }
    } catch {
      halted(error as? StorageError ?? .failed("\(error)"), generation: generation)
    }
  }
}
