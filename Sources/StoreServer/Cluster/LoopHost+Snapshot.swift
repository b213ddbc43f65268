internal import Crypto
internal import NIOCore
internal import NIOPosix
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient
internal import StoreEngine

/// A host whose group is too far behind the shared log, or has another history: it replaces the group's data by another
/// node's (docs/cluster.md, "Snapshots").
///
/// What is received is staged, and verified by its SHA-256. Before it is installed, the shared log has to have the
/// record that follows it, or its last one. A transfer that is cut begins anew, at the next node.
extension LoopHost {
  /// Pauses between two attempts at all nodes.
  private static let pauseMin = Duration.seconds(1)
  private static let pauseMax = Duration.seconds(30)
  /// Time limit of a question to the shared log.
  private static let logTimeout = TimeAmount.seconds(5)
  /// Answers that take longer are asked again.
  private static let logAttempts = 12

  /// What this node tells the members about the group. While it receives a snapshot it needs the records behind that.
  /// Positions of another history are none of this log (C7).
  func memberReport(synced: RecordPosition) -> MemberReport {
    if let joiningAt { return MemberReport(position: joiningAt, isJoining: true) }
    return MemberReport(position: hasDiverged ? .zero : synced)
  }

  func fetchSnapshot(_ reason: Ownership.SnapshotReason) {
    if case .diverged = reason { hasDiverged = true }
    let text =
      switch reason {
      case .trimmed(let first): "the shared log begins at record \(first.rawValue)"
      case .diverged(let position): "the directory does not fit the shared log from record \(position.rawValue) on"
      }
    guard let snapshots else { return events.reported(.unusable("\(text): start from an empty directory")) }
    guard snapshotFetch == nil else { return }
    events.joining(text)
    snapshotFetch = Task { await self.fetchSnapshot(from: snapshots) }
  }

  private func fetchSnapshot(from sources: SnapshotSources) async {
    var pause = Self.pauseMin
    while !Task.isCancelled {
      for asksOwner in [false, true] {
        for address in sources.configuration().addresses.shuffled() {
          guard !Task.isCancelled else { return }
          do {
            try await receiveSnapshot(sources, address, asksOwner: asksOwner)
            return
          } catch {
            try? await eventLoop.submit { self.joiningAt = nil }.get()
            if !Task.isCancelled { events.joinFailed("\(address.host):\(address.port): \(error)") }
          }
        }
      }
      try? await Task.sleep(for: pause)
      pause = min(pause * 2, Self.pauseMax)
    }
  }

  private func receiveSnapshot(
    _ sources: SnapshotSources,
    _ address: StoreClientConfiguration.Address,
    asksOwner: Bool
  ) async throws {
    let connection = try await SnapshotConnection.open(address, sources, on: eventLoop)
    defer { eventLoop.execute { connection.value.close() } }
    guard let id = try await eventLoop.submit({ self.replica?.group }).get() else { throw CancellationError() }
    let group = GroupShards(group: id, shards: shards)
    let request = SnapshotRequest(group: id.rawValue, shards: shards, asksOwner: asksOwner)
    let reply = try await SnapshotConnection.request(connection, .snapshotBegin) { request.write(into: &$0) }
    let cursor = LogCursor(try SnapshotHead(reply.readableBytesSpan))
    // From here on the owner keeps the records that follow.
    try await eventLoop.submit {
      self.joiningAt = cursor.position
      self.reportSynced(.start)
    }.get()
    try await verify(cursor, of: id)
    let receiver = try await onThread { storage throws(StorageError) in try storage.receiveSnapshot(of: group) }
    do {
      let bytes = try await receive(connection, into: receiver)
      try await verify(cursor, of: id)
      try await install(receiver, cursor)
      events.joined(id, cursor.position, bytes)
    } catch {
      receiver.remove()
      throw error
    }
    receiver.remove()
    eventLoop.execute { self.events.installEnded(self) }
  }

  /// Stage the snapshot. One part is in memory at a time.
  private func receive(
    _ connection: NIOLoopBound<SnapshotConnection>,
    into receiver: any GroupSnapshotReceiver
  ) async throws -> UInt64 {
    var hash = SHA256()
    var total: UInt64 = 0
    while true {
      try Task.checkCancellation()
      let reply = try await SnapshotConnection.request(connection, .snapshotRead)
      let part = try SnapshotPart(reply.readableBytesSpan)
      part.bytes.withUnsafeReadableBytes { hash.update(bufferPointer: $0) }
      total += UInt64(part.bytes.readableBytes)
      guard part.total == total, part.digest.elementsEqual(hash.finalize()) else {
        throw SnapshotFailure("the bytes are not those that the other node has read")
      }
      if part.isLast { return total }
      try await onThread { _ throws(StorageError) in try receiver.append(part.bytes) }
    }
  }

  /// Check that the shared log goes on behind a record, and that it is the log's own.
  private func verify(_ cursor: LogCursor, of group: GroupID) async throws {
    for _ in 0..<Self.logAttempts {
      let outcome = try await askLog { log, done in
        log.read(group, from: cursor.position, max: 1) { done(.some($0)) }
      }
      switch outcome {
      case .records(let records, _):
        guard let record = records.first, LogCursor(after: record) == cursor else {
          throw SnapshotFailure("its last record \(cursor.position.rawValue) is not that of the shared log")
        }
        return
      case .trimmed(let first):
        guard first == cursor.position.next else {
          throw SnapshotFailure("it ends at record \(cursor.position.rawValue), the log begins at \(first.rawValue)")
        }
        let next = try await askLog { log, done in log.read(group, from: first, max: 1) { done(.some($0)) } }
        guard case .records(let records, _) = next, let record = records.first else { continue }
        guard record.previous == cursor.hash else {
          throw SnapshotFailure("record \(first.rawValue) of the shared log does not follow it")
        }
        return
      case .failed, nil: try await Task.sleep(for: .milliseconds(500))
      }
    }
    throw SnapshotFailure("the shared log does not answer")
  }

  /// Replace the group's data. The loop ends first, and its commits are before this on the same thread.
  private func install(_ receiver: any GroupSnapshotReceiver, _ cursor: LogCursor) async throws {
    try await eventLoop.submit {
      guard self.stopped == nil else { throw CancellationError() }
      self.loop.stop()
    }.get()
    let promise = eventLoop.makePromise(of: Void.self)
    eventLoop.execute { [self] in
      guard stopped == nil else { return promise.fail(CancellationError()) }
      let shardCount = hostOfShard.count
      offload(to: committer) {
        Result { () throws(StorageError) in
          try receiver.install(cursor) { stored throws(StorageError) in
            try ShardRecovery.check(stored, shardCount: shardCount, follows: true)
          }
        }
      } then: { _, result in
        promise.completeWith(result.mapError { $0 as any Error })
      }
    }
    do { try await promise.futureResult.get() } catch {
      // The loop is stopped, and the data may be gone.
      eventLoop.execute { self.events.installEnded(self) }
      throw error
    }
  }

  /// Run a call of the storage on a thread.
  private func onThread<Value: Sendable>(
    _ body: @escaping @Sendable (any StorageEngine) throws(StorageError) -> Value
  ) async throws -> Value {
    let promise = eventLoop.makePromise(of: Value.self)
    eventLoop.execute { [self] in
      guard stopped == nil else { return promise.fail(CancellationError()) }
      offload(to: readers) { [storage] in
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
    eventLoop.execute { [self] in
      guard stopped == nil, let link else { return promise.fail(CancellationError()) }
      var isAnswered = false
      func answer(_ value: Value?) {
        guard !isAnswered else { return }
        isAnswered = true
        promise.succeed(value)
      }
      eventLoop.assumeIsolated().scheduleTask(in: Self.logTimeout) { answer(nil) }
      body(link.log) { answer($0) }
    }
    return try await promise.futureResult.get()
  }
}

extension LogCursor {
  fileprivate init(_ head: SnapshotHead) {
    self.init(position: RecordPosition(head.position), epoch: OwnerEpoch(head.epoch), hash: RecordHash(head.hash))
  }
}
