internal import Crypto
internal import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import NIOPosix
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine

/// Serves backups of the whole store (Proto/frames.md, "Backup"): makes a checkpoint, serves its files, removes it. All
/// work runs on one dedicated thread, so that event loops, commits and request reads do not wait for it.
final class BackupServer: Sendable {
  private struct State {
    var current = CurrentBackup()
    /// Storage to copy; nil while the store starts or reloads its data.
    var storage: (any StorageEngine)?
    var lastConnection: CurrentBackup.ConnectionID = 0
  }

  private let state = NIOLockedValueBox(State())
  private let thread = NIOThreadPool(numberOfThreads: 1)
  private let store: SessionID
  private let clock: StoreClock
  private let logger: Logger

  init(store: SessionID, clock: StoreClock, logger: Logger) {
    self.store = store
    self.clock = clock
    self.logger = logger
    thread.start()
  }

  /// Return the number of a new connection.
  func makeConnectionID() -> CurrentBackup.ConnectionID {
    state.withLockedValue { state in
      state.lastConnection += 1
      return state.lastConnection
    }
  }

  /// Whether a backup is in progress.
  var isBusy: Bool { state.withLockedValue { !$0.current.isIdle } }

  // MARK: Storage

  func attach(_ storage: any StorageEngine) { state.withLockedValue { $0.storage = storage } }

  /// Detach the storage; returns when no backup work uses it any more.
  func detach() async {
    state.withLockedValue { $0.storage = nil }
    // There is one thread, so all earlier work is done then.
    try? await thread.runIfActive {}
  }

  func stop() async { try? await thread.shutdownGracefully() }

  // MARK: Requests; answers arrive on any thread

  typealias Completion<Value> = @Sendable (Result<Value, PartRefusal>) -> Void

  /// Make the checkpoint. It contains everything that is acknowledged now: a node that follows catches up first.
  func begin(
    _ connection: CurrentBackup.ConnectionID,
    _ hosts: [LoopHost],
    _ completion: @escaping Completion<BackupContents>
  ) {
    guard state.withLockedValue({ $0.current.begin(connection) }) else {
      return completion(.failure(PartRefusal(code: .backupUnderWay, detail: Self.oneAtATime)))
    }
    let time = clock.now()
    let indexes = hosts.map { host in
      host.eventLoop.flatSubmit {
        let caughtUp = host.groupHost?.catchUp() ?? host.eventLoop.makeSucceededVoidFuture()
        return caughtUp.map { host.loop.durableIndexes }
      }
    }
    guard let first = hosts.first?.eventLoop else { return made(.failure(Self.unavailable), completion) }
    EventLoopFuture.whenAllSucceed(indexes, on: first).whenComplete { [self] result in
      let parts: [[(shard: ShardID, index: LogIndex)]]
      switch result {
      case .success(let read): parts = read
      case .failure(let refusal as PartRefusal): return made(.failure(refusal), completion)
      case .failure: return made(.failure(Self.unavailable), completion)
      }
      let indexes = parts.flatMap { $0 }.sorted { $0.shard.rawValue < $1.shard.rawValue }.map(\.index)
      thread.submit { [self] _ in make(time, indexes, completion) }
    }
  }

  private func make(_ time: Timestamp, _ indexes: [LogIndex], _ completion: Completion<BackupContents>) {
    guard let storage = state.withLockedValue({ $0.storage }) else {
      return made(.failure(Self.unavailable), completion)
    }
    let checkpoint: any StorageCheckpoint
    do throws(StorageError) {
      checkpoint = try storage.makeCheckpoint()
    } catch {
      logger.error("A checkpoint for a backup cannot be made", metadata: ["error": "\(error)"])
      return made(.failure(PartRefusal(code: .backupFailed, detail: "\(error)")), completion)
    }
    let files = checkpoint.files.map { BackupContents.File(name: $0.name, size: $0.size) }
    let contents = BackupContents(store: store, time: time, indexes: indexes, files: files)
    made(.success((checkpoint, contents)), completion)
  }

  private func made(
    _ result: Result<(any StorageCheckpoint, BackupContents), PartRefusal>,
    _ completion: Completion<BackupContents>
  ) {
    let checkpoint = try? result.get().0
    let isAwaited = state.withLockedValue { $0.current.made(checkpoint) }
    guard isAwaited else {
      if let checkpoint { remove(checkpoint) }
      return
    }
    if case .success(let (_, contents)) = result {
      let bytes = contents.files.reduce(0) { $0 + $1.size }
      logger.notice("A backup has begun", metadata: ["files": "\(contents.files.count)", "bytes": "\(bytes)"])
    }
    completion(result.map(\.1))
  }

  /// Read a part of a file and compute its SHA-256.
  func read(
    _ connection: CurrentBackup.ConnectionID,
    _ part: BackupPart,
    _ completion: @escaping Completion<(ByteBuffer, [UInt8])>
  ) {
    perform(connection, part, countMax: BackupLimits.chunkBytesMax, completion) {
      checkpoint throws(StorageError) in
      let bytes = try checkpoint.read(Int(part.file), at: part.offset, count: Int(part.count))
      var hash = SHA256()
      bytes.withUnsafeReadableBytes { hash.update(bufferPointer: $0) }
      return (bytes, Array(hash.finalize()))
    }
  }

  /// Compute the SHA-256 of a part of a file.
  func digest(_ connection: CurrentBackup.ConnectionID, _ part: BackupPart, _ completion: @escaping Completion<[UInt8]>)
  {
    perform(connection, part, countMax: BackupLimits.digestBytesMax, completion) {
      checkpoint throws(StorageError) in
      var hash = SHA256()
      var done: UInt64 = 0
      while done < part.count {
        let count = min(part.count - done, BackupLimits.chunkBytesMax)
        let bytes = try checkpoint.read(Int(part.file), at: part.offset + done, count: Int(count))
        bytes.withUnsafeReadableBytes { hash.update(bufferPointer: $0) }
        done += count
      }
      return Array(hash.finalize())
    }
  }

  private func perform<Value: Sendable>(
    _ connection: CurrentBackup.ConnectionID,
    _ part: BackupPart,
    countMax: UInt64,
    _ completion: @escaping Completion<Value>,
    _ body: @escaping @Sendable (any StorageCheckpoint) throws(StorageError) -> Value
  ) {
    thread.submit { [self] _ in
      guard let checkpoint = state.withLockedValue({ $0.current.checkpoint(of: connection) }) else {
        return completion(.failure(PartRefusal(code: .backupNotFound, detail: Self.notFound)))
      }
      guard part.file < checkpoint.files.count, part.count >= 1, part.count <= countMax,
        case let size = checkpoint.files[Int(part.file)].size, part.offset <= size, part.count <= size - part.offset
      else {
        let detail = "file: one of \(checkpoint.files.count); offset and count: within it, at most \(countMax)"
        return completion(.failure(PartRefusal(code: .invalidField, detail: detail)))
      }
      do throws(StorageError) {
        completion(.success(try body(checkpoint)))
      } catch {
        completion(.failure(PartRefusal(code: .backupFailed, detail: "\(error)")))
      }
    }
  }

  /// Remove the connection's checkpoint, if it has one, so that another backup may begin.
  ///
  /// - Parameter reason: text for the log.
  func end(_ connection: CurrentBackup.ConnectionID, reason: String, _ completion: @escaping @Sendable () -> Void = {})
  {
    guard let checkpoint = state.withLockedValue({ $0.current.end(connection) }) else { return completion() }
    logger.notice("A backup has ended", metadata: ["reason": "\(reason)"])
    thread.submit { [self] _ in
      remove(checkpoint)
      completion()
    }
  }

  /// Call on the thread, so that no read of the checkpoint is running.
  private func remove(_ checkpoint: any StorageCheckpoint) {
    checkpoint.remove()
    state.withLockedValue { $0.current.removed() }
  }

  private static let oneAtATime = "another backup of this store is in progress; try again when it has ended"
  private static let notFound = "this connection has begun no backup, or it was silent for too long"
  private static let unavailable = PartRefusal(
    code: .unavailable,
    detail: "the store is loading its data; try again",
    retryAfterMilliseconds: 500
  )
}
