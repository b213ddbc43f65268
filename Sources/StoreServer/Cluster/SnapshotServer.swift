internal import Crypto
internal import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import NIOPosix
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine

/// Gives groups' snapshots to other nodes, one at a time, and record keys (Proto/frames.md, "Snapshots and record
/// keys"). Snapshots are read on one thread, so that event loops, commits and reads do not wait for them.
final class SnapshotServer: Sendable {
  /// The number of a connection that asks.
  typealias ConnectionID = UInt64

  struct Open {
    let connection: ConnectionID
    let snapshot: any GroupSnapshot
    let beganAt: NIODeadline
    var hash = SHA256()
    var total: UInt64 = 0
    /// Bytes that are read and not sent: an entry may be larger than a part.
    var rest = ByteBuffer()

    /// Whether the receiver's owner keeps no more records for it: it would receive the rest for nothing. The time is
    /// the same in all clusters: their limits differ in bytes only (``ClusterLimits/init(groupCount:)``).
    func isTooOld(at now: NIODeadline) -> Bool {
      now - beganAt >= .milliseconds(ClusterLimits().joiningMilliseconds)
    }

    mutating func nextPart() throws(StorageError) -> SnapshotPart {
      if rest.readableBytes == 0 { rest = try snapshot.next(SnapshotPart.byteCount) }
      let bytes = rest.readSlice(length: min(rest.readableBytes, SnapshotPart.byteCount)) ?? ByteBuffer()
      bytes.withUnsafeReadableBytes { hash.update(bufferPointer: $0) }
      total += UInt64(bytes.readableBytes)
      return SnapshotPart(isLast: bytes.readableBytes == 0, total: total, digest: Array(hash.finalize()), bytes: bytes)
    }
  }

  private struct State {
    var lastConnection: ConnectionID = 0
    var open: Open?
  }

  /// Bytes of a snapshot in one second, so that commits and requests have most of the disk and the network.
  static let bytesPerSecondMax: Int64 = 64 << 20

  private let state = NIOLockedValueBox(State())
  private let thread = NIOThreadPool(numberOfThreads: 1)
  private let logger: Logger

  init(logger: Logger) {
    self.logger = logger
    thread.start()
  }

  func stop() async {
    try? await thread.runIfActive { self.close(nil, reason: "the node is shutting down") }
    try? await thread.shutdownGracefully()
  }

  func makeConnectionID() -> ConnectionID {
    state.withLockedValue { state in
      state.lastConnection += 1
      return state.lastConnection
    }
  }

  // MARK: Requests; answers arrive on any thread

  typealias Completion<Value> = @Sendable (Result<Value, PartRefusal>) -> Void

  /// Make a snapshot of a group.
  func begin(
    _ connection: ConnectionID,
    _ request: SnapshotRequest,
    _ serving: ServingState.Serving?,
    _ completion: @escaping Completion<SnapshotHead>
  ) {
    guard let serving, Int(request.group) < serving.hosts.count else {
      return make(connection, request, serving, completion)
    }
    let host = serving.hosts[Int(request.group)]
    host.eventLoop.execute { [self] in
      if let refusal = host.groupHost?.snapshotRefusal { return completion(.failure(Self.unavailable(refusal))) }
      make(connection, request, serving, completion)
    }
  }

  private func make(
    _ connection: ConnectionID,
    _ request: SnapshotRequest,
    _ serving: ServingState.Serving?,
    _ completion: @escaping Completion<SnapshotHead>
  ) {
    thread.submit { [self] _ in
      guard state.withLockedValue({ $0.open == nil }) else {
        let detail = "this node is giving a snapshot to another node"
        return completion(.failure(PartRefusal(code: .busy, detail: detail, retryAfterMilliseconds: 1_000)))
      }
      completion(Result { () throws(PartRefusal) in try make(connection, request, serving) })
    }
  }

  private func make(
    _ connection: ConnectionID,
    _ request: SnapshotRequest,
    _ serving: ServingState.Serving?
  ) throws(PartRefusal) -> SnapshotHead {
    let index = Int(request.group)
    guard let serving else { throw Self.unavailable("the node is loading its data") }
    guard index < serving.hosts.count, request.shards.upperBound <= serving.hostOfShard.count,
      serving.hostOfShard.indices.allSatisfy({
        request.shards.contains(UInt16($0)) == (Int(serving.hostOfShard[$0]) == index)
      })
    else { throw PartRefusal(code: .invalidField, detail: "group \(index) has other shards here") }
    guard request.asksOwner || !serving.isServed(index) else {
      throw Self.unavailable("the node owns the group: ask a follower first")
    }
    let snapshot: any GroupSnapshot
    do throws(StorageError) {
      let group = GroupShards(group: GroupID(request.group), shards: request.shards)
      snapshot = try serving.hosts[index].storage.makeSnapshot(of: group)
    } catch {
      throw Self.unavailable("\(error)")
    }
    let cursor = snapshot.cursor
    guard cursor.position > .zero else {
      snapshot.close()
      throw Self.unavailable("the node has no data of the group")
    }
    state.withLockedValue { $0.open = Open(connection: connection, snapshot: snapshot, beganAt: .now()) }
    logger.notice(
      "Another node receives a snapshot of a group",
      metadata: ["group": "\(index)", "position": "\(cursor.position.rawValue)"]
    )
    return SnapshotHead(
      position: cursor.position.rawValue,
      epoch: cursor.epoch.rawValue,
      hash: cursor.hash.rawValue,
      key: cursor.key.rawValue
    )
  }

  /// Read the record keys of a group.
  func keys(
    of group: UInt8,
    _ serving: ServingState.Serving?,
    _ completion: @escaping Completion<RecordKeyList>
  ) {
    guard let serving, Int(group) < serving.hosts.count else {
      return completion(.failure(Self.unavailable("the node is loading its data, or has no group \(group)")))
    }
    let host = serving.hosts[Int(group)]
    host.eventLoop.execute {
      let keys = host.groupHost?.replica?.recordKeys ?? []
      completion(.success(RecordKeyList(keys: keys.map { .init(number: $0.number.rawValue, secret: $0.secret) })))
    }
  }

  /// Read the next part.
  ///
  /// - Parameter completion: also gets when the part may be sent, for the limit on bandwidth.
  func read(_ connection: ConnectionID, _ completion: @escaping Completion<(SnapshotPart, notBefore: NIODeadline)>) {
    thread.submit { [self] _ in
      guard var open = state.withLockedValue({ $0.open }), open.connection == connection else {
        let detail = "this connection has begun no snapshot, or it was silent for too long"
        return completion(.failure(PartRefusal(code: .backupNotFound, detail: detail)))
      }
      guard !open.isTooOld(at: .now()) else {
        close(connection, reason: "it took too long")
        return completion(.failure(PartRefusal(code: .backupNotFound, detail: "the snapshot took too long")))
      }
      do throws(StorageError) {
        let part = try open.nextPart()
        state.withLockedValue { $0.open = open }
        let nanoseconds = Int64(Double(open.total) / Double(Self.bytesPerSecondMax) * 1e9)
        completion(.success((part, notBefore: open.beganAt + .nanoseconds(nanoseconds))))
      } catch {
        completion(.failure(Self.unavailable("\(error)")))
      }
    }
  }

  /// End the snapshot of a connection, if it has one.
  func end(_ connection: ConnectionID, reason: String) {
    thread.submit { [self] _ in close(connection, reason: reason) }
  }

  private func close(_ connection: ConnectionID?, reason: String) {
    let ended = state.withLockedValue { state -> Open? in
      guard let open = state.open, connection == nil || open.connection == connection else { return nil }
      state.open = nil
      return open
    }
    guard let ended else { return }
    ended.snapshot.close()
    logger.notice("A snapshot has ended", metadata: ["reason": "\(reason)", "bytes": "\(ended.total)"])
  }

  private static func unavailable(_ detail: String) -> PartRefusal {
    PartRefusal(code: .unavailable, detail: detail, retryAfterMilliseconds: 1_000)
  }
}
