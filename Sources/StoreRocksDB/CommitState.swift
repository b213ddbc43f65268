internal import NIOCore

/// What the commits of all event loops share, under one lock.
struct CommitState {
  /// Logged bytes after which the engine syncs the write-ahead log, so that a later failure can close it safely.
  static let presyncBytes = 4 << 20

  enum Start: Hashable {
    case ready
    /// Check the free space, then call ``passedSpaceCheck(_:at:)``.
    case needsSpaceCheck
    /// An earlier write or flush has failed.
    case failed
  }

  private(set) var hasFailed = false
  private var spaceChecks = SpaceCheckPace()
  private var writes = UnsyncedWrites()
  private var loggedSincePresync = 0
  /// Empty write batches that no commit uses, at most one for each commit that was in flight at the same time.
  private var idleBatches: [RocksDBWriteBatch] = []

  /// Begin a commit of so many bytes.
  mutating func begin(_ byteCount: Int, at now: NIODeadline) -> Start {
    guard !hasFailed else { return .failed }
    return spaceChecks.isDue(byteCount, at: now) ? .needsSpaceCheck : .ready
  }

  mutating func passedSpaceCheck(_ byteCount: Int, at now: NIODeadline) { spaceChecks.passed(byteCount, at: now) }

  mutating func writeBegan() { writes.writeBegan() }

  /// End a write.
  ///
  /// - Parameter logBytes: what it has added to the log; nil: it failed.
  /// - Returns: whether the write-ahead log must be synced now.
  mutating func writeEnded(_ logBytes: Int?) -> Bool {
    writes.writeEnded()
    guard let logBytes else { return false }
    loggedSincePresync += logBytes
    guard loggedSincePresync >= Self.presyncBytes else { return false }
    loggedSincePresync = 0
    return true
  }

  /// Return an empty write batch for one commit. Commits of event loops overlap, so each has a batch of its own.
  mutating func takeBatch() -> RocksDBWriteBatch { idleBatches.popLast() ?? RocksDBWriteBatch() }

  /// Take back an empty write batch of a commit that has ended.
  mutating func giveBack(_ batch: RocksDBWriteBatch) { idleBatches.append(batch) }

  /// Return whether writes need a sync. Call it before the sync, which covers all writes that have ended.
  mutating func takeSyncDue() -> Bool { writes.takeDue() }

  /// Record that a write or a flush has failed.
  mutating func failed() { hasFailed = true }
}
