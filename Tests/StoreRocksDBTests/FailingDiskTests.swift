import Foundation
import NIOCore
import ReceiptModel
import StoreEngine
import StoreRocksDB
import TestSupport
import Testing

/// Failing commits: after closing and reopening all acknowledged data is there.
@Suite("Failing disk", .serialized)
struct FailingDiskTests {
  /// Mount a temporary file system of this size.
  private static func mountTemporary(_ mebibytes: Int) throws -> String {
    let path = NSTemporaryDirectory() + "tidemark-full-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    let isMounted = mount("tmpfs", path, "tmpfs", 0, "size=\(mebibytes)m") == 0
    try #require(isMounted, "\(String(cString: strerror(errno)))")
    return path
  }

  private static func unmount(_ path: String) {
    umount2(path, Int32(MNT_DETACH))
    try? FileManager.default.removeItem(atPath: path)
  }

  /// Write another program's file that leaves 200 MiB.
  private static func fill(_ mounted: String, _ name: String) throws {
    let attributes = try FileManager.default.attributesOfFileSystem(forPath: mounted)
    let count = (attributes[.systemFreeSize] as! NSNumber).intValue - (200 << 20)
    let file = Foundation.open(mounted + name, O_RDWR | O_CREAT, 0o600)
    defer { _ = Foundation.close(file) }
    #expect(count > 0 && posix_fallocate(file, 0, count) == 0)
  }

  @Test(
    "a commit is refused where the disk is almost full, and no acknowledged data is lost",
    .needs(canMount, "it mounts a file system, as root")
  )
  func commitIsRefusedWhereDiskIsAlmostFull() throws {
    let mounted = try Self.mountTemporary(900)
    defer { Self.unmount(mounted) }
    let path = mounted + "/data"
    let storage = try RocksDBStorage(directory: path, shardCount: 2, newStore: SessionID(high: 7, low: 1))
    let engine = try storage.open() as! RocksDBEngine
    for index in 1...5 as ClosedRange<UInt64> { try engine.commit(LoopCommit(index: index)) }
    // Another file takes the free space; the reserve stays.
    try Self.fill(mounted, "/first")
    // A commit of this size checks the free space whenever the last check was: both its batches and pages count.
    let commit = LoopCommit(index: 6, bytes: SpaceCheckPace.bytesMax / 4)
    do {
      try engine.commit(commit)
      Issue.record("was committed")
    } catch {
      guard case .failed(let text) = error else { throw error }
      #expect(text.contains("MiB of space are free"), "\(text)")
    }
    storage.close(engine)
    try Self.fill(mounted, "/second")
    #expect(throws: StorageError.self) { try storage.open() }
    for name in ["/first", "/second"] { try FileManager.default.removeItem(atPath: mounted + name) }
    let again = try storage.open() as! RocksDBEngine
    let last = try Self.check(again, 5, 40)
    #expect(last == 5)
    try again.commit(LoopCommit(index: 6))
    storage.close(again)
    let reserve = try FileManager.default.attributesOfItem(atPath: path + "/reserve")
    #expect(reserve[.size] as! Int == RocksDBStorage.reserveBytes)
  }

  /// In a child process: the limit of file sizes holds for all files of a process, so for those of other tests too.
  @Test("a failed append is reported, the store can be reopened, and no acknowledged data is lost")
  func failedAppendLosesNoAcknowledgedData() async {
    await #expect(processExitsWith: .success) { try FailingDiskTests.failAppend() }
  }

  private static func failAppend() throws {
    let directory = TestDirectory()
    let storage = try RocksDBStorage(
      directory: directory.path,
      shardCount: 2,
      newStore: SessionID(high: 7, low: 1)
    )
    let engine = try storage.open() as! RocksDBEngine
    let bytes = 1 << 20
    let acknowledged: UInt64 = 12
    for index in 1...acknowledged { try engine.commit(LoopCommit(index: index, bytes: bytes)) }
    // The write-ahead log has 48 MiB. For one commit no file of this process may grow beyond 40 MiB, so its append
    // fails.
    signal(SIGXFSZ, SIG_IGN)
    let kind = __rlimit_resource_t(RLIMIT_FSIZE.rawValue)
    var before = rlimit()
    getrlimit(kind, &before)
    var limit = before
    limit.rlim_cur = 40 << 20
    setrlimit(kind, &limit)
    let failure = #expect(throws: StorageError.self) {
      try engine.commit(LoopCommit(index: acknowledged + 1, bytes: bytes))
    }
    setrlimit(kind, &before)
    #expect("\(failure as Any)".contains("File too large"), "\(failure as Any)")
    // Another loop's commit, before the store is closed.
    #expect(throws: StorageError.self) {
      try engine.commit(LoopCommit(index: acknowledged + 1, bytes: bytes))
    }
    storage.close(engine)
    let again = try storage.open() as! RocksDBEngine
    let last = try Self.check(again, acknowledged, bytes)
    try again.commit(LoopCommit(index: last + 1, bytes: bytes))
    storage.close(again)
  }

  /// - Returns: the last commit. One commit that was not acknowledged may be there, if it is whole.
  @discardableResult
  private static func check(_ engine: RocksDBEngine, _ acknowledged: UInt64, _ bytes: Int) throws -> UInt64 {
    let indices = try engine.indices(0, bytes: bytes)
    #expect(indices.starts(with: 1...acknowledged) && indices.count <= Int(acknowledged) + 1)
    #expect(try engine.indices(1, bytes: bytes) == indices)
    return indices.last ?? 0
  }

  @Test("storage opens only once, and again after closing; its identity stays")
  func storageOpensOnlyOnce() throws {
    let directory = TestDirectory()
    let storage = try RocksDBStorage(
      directory: directory.path,
      shardCount: 3,
      newStore: SessionID(high: 7, low: 5)
    )
    #expect(storage.shardCount == 3 && storage.store == SessionID(high: 7, low: 5))
    for index in 1...4 as ClosedRange<UInt64> {
      let engine = try storage.open() as! RocksDBEngine
      #expect(try storage.open() as! RocksDBEngine === engine)
      try engine.commit(LoopCommit(index: index))
      storage.close(engine)
    }
    let engine = try storage.open() as! RocksDBEngine
    #expect(try engine.indices(0) == [1, 2, 3, 4])
    #expect(throws: StorageError.self) {
      try RocksDBStorage(directory: directory.path, shardCount: 3, newStore: SessionID(high: 7, low: 6))
    }
    try engine.commit(LoopCommit(index: 5))
    storage.close(engine)
  }
}

@Suite("Pace of free-space checks")
struct SpaceCheckPaceTests {
  /// A commit after this many milliseconds.
  private struct Commit {
    let bytes: Int
    let time: NIODeadline

    init(_ bytes: Int, at milliseconds: Int64) {
      self.bytes = bytes
      time = .uptimeNanoseconds(0) + .milliseconds(milliseconds)
    }
  }

  /// Whether each commit checks; a check passes unless the commit's index is in `failing`.
  private func checks(_ commits: [Commit], failing: Set<Int> = []) -> [Bool] {
    var pace = SpaceCheckPace()
    return commits.enumerated().map { index, commit in
      let isDue = pace.isDue(commit.bytes, at: commit.time)
      if isDue, !failing.contains(index) { pace.passed(commit.bytes, at: commit.time) }
      return isDue
    }
  }

  @Test("a commit checks the free space 100 ms after the last check that passed")
  func commitChecksFreeSpace100MillisecondsAfterLastCheck() {
    let commits = [0, 99, 100, 101, 102].map { Commit(1, at: $0) }
    #expect(checks(commits, failing: [2]) == [true, false, true, true, false])
  }

  @Test("a commit checks the free space before the commits since the last check reach 4 MiB")
  func commitChecksFreeSpaceBefore4MiBAreUnchecked() {
    let commits = [1 << 20, 2 << 20, 1 << 20, 1 << 20, 4 << 20].map { Commit($0, at: 0) }
    #expect(checks(commits) == [true, false, true, false, true])
  }
}
