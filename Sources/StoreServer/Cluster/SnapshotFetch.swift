internal import Crypto
internal import NIOCore
internal import NIOPosix
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient
internal import StoreEngine

/// Replaces the data of a host's group by another node's, if the group is too far behind the shared log or has another
/// history (docs/contribute/cluster-design.md, "Snapshots").
///
/// What is received is staged, and verified by its SHA-256. Before it is installed, ``SnapshotVerification`` compares
/// it with the shared log. After a cut the transfer restarts at the next node.
struct SnapshotFetch: Sendable {
  /// Time limit of a question to the shared log.
  private static let logTimeout = TimeAmount.seconds(5)
  /// Pause after a question that was not answered.
  private static let logPause = Duration.milliseconds(500)

  let host: LoopHost
  let groupHost: GroupHost
  let others: OtherNodes

  private var eventLoop: any EventLoop { host.eventLoop }

  /// Try one node after the other until a snapshot is installed or the task is cancelled.
  func run() async {
    var attempts = SnapshotAttempts<StoreClientConfiguration.Address>()
    while !Task.isCancelled {
      switch attempts.next(among: others.configuration().addresses.shuffled()) {
      case .reportNone: groupHost.events.joinFailed("no other node is announced")
      case .ask(let address, let asksOwner):
        do {
          try await receiveSnapshot(address, asksOwner: asksOwner)
          return
        } catch {
          try? await eventLoop.submit { groupHost.joiningAt = nil }.get()
          if !Task.isCancelled { groupHost.events.joinFailed("\(address.host):\(address.port): \(error)") }
        }
      case .pause(let duration): try? await Task.sleep(for: duration)
      }
    }
  }

  private func receiveSnapshot(
    _ address: StoreClientConfiguration.Address,
    asksOwner: Bool
  ) async throws {
    let connection = try await NodeConnection.open(address, others, on: eventLoop)
    defer { eventLoop.execute { connection.value.close() } }
    guard let id = try await eventLoop.submit({ groupHost.replica?.group }).get() else { throw CancellationError() }
    let group = GroupShards(group: id, shards: groupHost.shards)
    let request = SnapshotRequest(group: id.rawValue, shards: groupHost.shards, asksOwner: asksOwner)
    let reply = try await NodeConnection.request(connection, .snapshotBegin) { request.write(into: &$0) }
    let cursor = LogCursor(try SnapshotHead(reply.readableBytesSpan))
    let applied = try await eventLoop.submit {
      groupHost.hasDiverged ? RecordPosition.zero : groupHost.replica?.storedCursor.position ?? .zero
    }.get()
    guard cursor.position > applied else {
      throw NodeFetchFailure("the snapshot ends with record \(cursor.position.rawValue), which this node has")
    }
    // From here on the owner keeps the records that follow.
    try await eventLoop.submit {
      groupHost.joiningAt = cursor.position
      groupHost.reportSynced(.start)
    }.get()
    try await verify(cursor, of: id)
    let receiver = try await onThread { storage throws(StorageError) in try storage.receiveSnapshot(of: group) }
    do {
      let bytes = try await receive(connection, into: receiver)
      try await verify(cursor, of: id)
      try await install(receiver, cursor, of: id)
      groupHost.events.joined(id, cursor.position, bytes)
    } catch {
      receiver.remove()
      throw error
    }
    receiver.remove()
    eventLoop.execute { restart() }
  }

  /// Stage the snapshot. One part is in memory at a time.
  private func receive(
    _ connection: NIOLoopBound<NodeConnection>,
    into receiver: any GroupSnapshotReceiver
  ) async throws -> UInt64 {
    var hash = SHA256()
    var total: UInt64 = 0
    while true {
      try Task.checkCancellation()
      let reply = try await NodeConnection.request(connection, .snapshotRead)
      let part = try SnapshotPart(reply.readableBytesSpan)
      part.bytes.withUnsafeReadableBytes { hash.update(bufferPointer: $0) }
      total += UInt64(part.bytes.readableBytes)
      guard part.total == total, part.digest.elementsEqual(hash.finalize()) else {
        throw NodeFetchFailure("the bytes are not those that the other node has read")
      }
      if part.isLast { return total }
      try await onThread { _ throws(StorageError) in try receiver.append(part.bytes) }
    }
  }

  /// Check that the snapshot belongs to the shared log, and that the log has what follows it.
  private func verify(_ cursor: LogCursor, of group: GroupID) async throws {
    var verification = SnapshotVerification(of: cursor)
    var action = verification.first
    while true {
      switch action {
      case .accept: return
      case .reject(let reason): throw NodeFetchFailure(reason)
      case .read(let position, let afterPause):
        if afterPause { try await Task.sleep(for: Self.logPause) }
        let outcome = try await askLog { log, done in log.read(group, from: position, max: 1) { done(.some($0)) } }
        action = verification.handle(outcome)
      }
    }
  }

  /// Replace the group's data. The loop ends first, and its commits are before this on the same thread.
  private func install(
    _ receiver: any GroupSnapshotReceiver,
    _ cursor: LogCursor,
    of group: GroupID
  ) async throws {
    try await eventLoop.submit {
      guard host.stopped == nil else { throw CancellationError() }
      host.loop.stop()
    }.get()
    let promise = eventLoop.makePromise(of: Void.self)
    eventLoop.execute {
      guard host.stopped == nil else { return promise.fail(CancellationError()) }
      let shardCount = host.hostOfShard.count
      host.offload(to: host.committer) { [storage = host.storage] in
        Result { () throws(StorageError) in
          try receiver.install(cursor) { stored throws(StorageError) in
            try ShardRecovery.check(stored, shardCount: shardCount, follows: true)
          }
          // Keys that a purge before the snapshot has destroyed elsewhere. What was replaced leaves the files with the
          // next purge if that fails.
          let keys = try storage.recordKeys(of: group).filter { $0.number >= cursor.key }
          try storage.replaceRecordKeys(keys, of: group)
          try? storage.purge()
        }
      } then: { _, result in
        promise.completeWith(result.mapError { $0 as any Error })
      }
    }
    do { try await promise.futureResult.get() } catch {
      // The loop is stopped, and the data may be gone.
      eventLoop.execute { restart() }
      throw error
    }
  }

  /// Let the node make another host from what is stored.
  private func restart() { groupHost.events.installEnded(host) }

  /// Run a call of the storage on a thread.
  private func onThread<Value: Sendable>(
    _ body: @escaping @Sendable (any StorageEngine) throws(StorageError) -> Value
  ) async throws -> Value {
    let promise = eventLoop.makePromise(of: Value.self)
    eventLoop.execute {
      guard host.stopped == nil else { return promise.fail(CancellationError()) }
      host.offload(to: host.readers) { [storage = host.storage] in
        Result { () throws(StorageError) in try body(storage) }
      } then: { _, result in
        promise.completeWith(result.mapError { $0 as any Error })
      }
    }
    return try await promise.futureResult.get()
  }

  /// Ask the shared log; nil: it has not answered in time.
  private func askLog<Value: Sendable>(
    _ body: @escaping @Sendable (any GroupLog, @escaping (Value?) -> Void) -> Void
  ) async throws -> Value? {
    let promise = eventLoop.makePromise(of: Value?.self)
    eventLoop.execute {
      guard host.stopped == nil else { return promise.fail(CancellationError()) }
      var isAnswered = false
      func answer(_ value: Value?) {
        guard !isAnswered else { return }
        isAnswered = true
        promise.succeed(value)
      }
      eventLoop.assumeIsolated().scheduleTask(in: Self.logTimeout) { answer(nil) }
      body(groupHost.link.log) { answer($0) }
    }
    return try await promise.futureResult.get()
  }
}

extension LogCursor {
  fileprivate init(_ head: SnapshotHead) {
    self.init(
      position: RecordPosition(head.position),
      epoch: OwnerEpoch(head.epoch),
      hash: RecordHash(head.hash),
      key: RecordKeyNumber(head.key)
    )
  }
}
