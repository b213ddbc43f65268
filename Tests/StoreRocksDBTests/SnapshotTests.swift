import Foundation
import NIOCore
import ReceiptModel
import StoreRocksDB
import Testing

@testable import StoreEngine

/// Snapshots of groups, from one data directory to another.
@Suite struct SnapshotTests {
  private static let group = GroupShards(group: GroupID(1), shards: 4..<8)

  private static func with(_ body: (TestDirectory) throws -> Void) throws {
    let directory = TestDirectory()
    try withExtendedLifetime(directory) { try body(directory) }
  }

  /// Run `body` with the engines of a node that gives a snapshot and of one that receives it, in its directory.
  private static func withNodes(
    _ body: (_ from: RocksDBEngine, _ to: RocksDBEngine, _ target: TestDirectory) throws -> Void
  ) throws {
    try with { source in
      try with { target in try body(try engine(source), try engine(target), target) }
    }
  }

  private static func engine(_ directory: TestDirectory) throws -> RocksDBEngine {
    try RocksDBEngine(directory: directory.path, shardCount: 12, newStore: SessionID(high: 1, low: 2))
  }

  private static func cursor(_ position: UInt64) -> LogCursor {
    LogCursor(position: RecordPosition(position), epoch: OwnerEpoch(3), hash: RecordHash(position * 7))
  }

  /// Commit a batch, a page and a channel's name to each shard.
  private static func fill(_ engine: RocksDBEngine, _ shards: Range<UInt16>, value: UInt8, position: UInt64) throws {
    var commit = LoopCommit()
    for shard in shards {
      let id = ShardID(shard)
      commit.batches.append(.init(shard: id, index: LogIndex(position), bytes: ByteBuffer(bytes: [value])))
      let page = PageKey(shard: id, channel: ChannelNumber(UInt64(shard) + 1), page: .head)
      let bytes = ByteBuffer(bytes: Array(repeating: value, count: 3_000))
      commit.pages.append(.init(key: page, cid: Array("a:\(shard)".utf8), bytes: bytes))
    }
    commit.position = GroupCursor(group: group.group, cursor: cursor(position))
    try engine.commit(commit)
  }

  /// The data of these tests is none of a store's.
  private static func accept(_ stored: [(shard: ShardID, state: StoredShard)]) throws(StorageError) {}

  private static func copy(_ snapshot: any GroupSnapshot, to receiver: any GroupSnapshotReceiver) throws -> Int {
    var parts = 0
    while case let bytes = try snapshot.next(4_000), bytes.readableBytes > 0 {
      try receiver.append(bytes)
      parts += 1
    }
    return parts
  }

  private static func content(_ engine: RocksDBEngine, _ shard: UInt16) throws -> [[UInt8]] {
    let id = ShardID(shard)
    let log = try engine.recover(id).log.map { index, bytes in
      [UInt8(truncatingIfNeeded: index.rawValue)] + bytes.readableBytesView
    }
    let channel = try engine.read(id, .cid(Array("a:\(shard)".utf8)))
    return log + (channel?.pages.map { Array($0.bytes.readableBytesView.prefix(1)) } ?? [])
  }

  @Test("an installed snapshot replaces its group's data, also after a reopen, and nothing else")
  func snapshotReplacesOnlyItsGroup() throws {
    try Self.withNodes { from, to, target in
      try Self.fill(from, 0..<12, value: 1, position: 50)
      try Self.fill(to, 0..<12, value: 2, position: 9)
      let snapshot = try from.makeSnapshot(of: Self.group)
      #expect(snapshot.cursor == Self.cursor(50))
      // The snapshot does not have what is committed after it.
      try Self.fill(from, 4..<8, value: 3, position: 51)
      let receiver = try to.receiveSnapshot(of: Self.group)
      #expect(try Self.copy(snapshot, to: receiver) > 3)
      snapshot.close()
      #expect(throws: StorageError.self) { try snapshot.next(1) }
      // The old data remains until the installation.
      #expect(try Self.content(to, 5) == [[9, 2], [2]])
      try receiver.install(Self.cursor(50), checking: Self.accept)
      receiver.remove()
      try Self.checkReplaced(to)
      try Self.checkReplaced(try reopened(to, target))
    }
  }

  private static func checkReplaced(_ engine: RocksDBEngine) throws {
    #expect(try engine.position(of: group.group) == cursor(50))
    for shard in 0..<12 as Range<UInt16> {
      let isNew = group.shards.contains(shard)
      #expect(try content(engine, shard) == (isNew ? [[50, 1], [1]] : [[9, 2], [2]]), "\(shard)")
    }
  }

  private func reopened(_ engine: RocksDBEngine, _ directory: TestDirectory) throws -> RocksDBEngine {
    engine.close()
    return try Self.engine(directory)
  }

  @Test("an installation that fails leaves no data of its group, and all data of others")
  func failedInstallationLeavesNoData() throws {
    try Self.withNodes { from, to, target in
      try Self.fill(from, 4..<8, value: 1, position: 50)
      try Self.fill(to, 0..<12, value: 2, position: 9)
      let snapshot = try from.makeSnapshot(of: Self.group)
      let receiver = try to.receiveSnapshot(of: Self.group)
      _ = try Self.copy(snapshot, to: receiver)
      // Ends within an entry.
      try receiver.append(ByteBuffer(bytes: [0, 10, 1]))
      #expect(try Self.content(to, 5) == [[9, 2], [2]])
      #expect(throws: StorageError.self) { try receiver.install(Self.cursor(50), checking: Self.accept) }
      // The node makes its loop again from the open storage.
      try Self.checkEmpty(to)
      let again = try reopened(to, target)
      try Self.checkEmpty(again)
      #expect(try Self.stagedFiles(target) == [])
    }
  }

  private static func checkEmpty(_ engine: RocksDBEngine) throws {
    #expect(try engine.position(of: group.group) == .start)
    #expect(try content(engine, 5) == [])
    #expect(try content(engine, 3) == [[9, 2], [2]])
  }

  private static func stagedFiles(_ directory: TestDirectory) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: directory.path).filter { $0.hasPrefix("snapshot-") }
  }

  /// The other node's own decoder may refuse what this one's takes: another version, or damage before its checksum.
  @Test("shards that cannot be used are not installed")
  func unusableShardsAreNotInstalled() throws {
    try Self.withNodes { from, to, _ in
      // No batch begins with this byte.
      try Self.fill(from, 4..<8, value: 1, position: 50)
      try Self.fill(to, 0..<12, value: 2, position: 9)
      let receiver = try to.receiveSnapshot(of: Self.group)
      _ = try Self.copy(try from.makeSnapshot(of: Self.group), to: receiver)
      var shards: [UInt16] = []
      #expect(throws: StorageError.self) {
        try receiver.install(Self.cursor(50)) { stored throws(StorageError) in
          shards = stored.map(\.shard.rawValue)
          try ShardRecovery.check(stored, shardCount: 12, follows: true)
        }
      }
      #expect(shards == [4, 5, 6, 7])
      try Self.checkEmpty(to)
    }
  }

  private static let endlessFields: [[UInt8]] = [
    [0] + Array(repeating: 0xFF, count: 10),
    // 64 MiB and a byte.
    [0, 0x81, 0x80, 0x80, 0x20],
    [0, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F],
  ]

  /// Bytes that are taken for an incomplete entry are kept in memory until the rest of it is there.
  @Test("fields without an end are refused", arguments: endlessFields)
  func fieldsWithoutEndAreRefused(_ bytes: [UInt8]) throws {
    try Self.with { target in
      let to = try Self.engine(target)
      let receiver = try to.receiveSnapshot(of: Self.group)
      try receiver.append(ByteBuffer(bytes: bytes))
      let error = #expect(throws: StorageError.self) {
        try receiver.install(Self.cursor(50), checking: Self.accept)
      }
      #expect(try #require(error).description.contains("field"))
    }
  }

  /// Staged bytes may fill the disk, and RocksDB needs space to open.
  @Test("staged files are removed before the directory is opened")
  func stagedFilesAreRemovedBeforeOpening() throws {
    try Self.with { target in
      let engine = try Self.engine(target)
      let path = target.path + "/snapshot-1-5"
      #expect(FileManager.default.createFile(atPath: path, contents: Data([1])))
      // The directory is in use.
      #expect(throws: StorageError.self) { try Self.engine(target) }
      #expect(try Self.stagedFiles(target) == [])
      engine.close()
    }
  }

  @Test("a snapshot with entries of another group is refused")
  func otherGroupsEntriesAreRefused() throws {
    try Self.withNodes { from, to, _ in
      try Self.fill(from, 0..<12, value: 1, position: 50)
      let snapshot = try from.makeSnapshot(of: GroupShards(group: GroupID(1), shards: 4..<9))
      let receiver = try to.receiveSnapshot(of: Self.group)
      _ = try Self.copy(snapshot, to: receiver)
      #expect(throws: StorageError.self) { try receiver.install(Self.cursor(50), checking: Self.accept) }
    }
  }

  @Test("a snapshot of closed storage cannot be read, and no new one made")
  func closedStorageEndsItsSnapshots() throws {
    try Self.with { source in
      let engine = try Self.engine(source)
      try Self.fill(engine, 4..<8, value: 1, position: 50)
      let snapshot = try engine.makeSnapshot(of: Self.group)
      _ = try snapshot.next(1)
      engine.close()
      #expect(throws: StorageError.self) { try snapshot.next(1) }
      snapshot.close()
      #expect(throws: StorageError.self) { try engine.makeSnapshot(of: Self.group) }
    }
  }
}
