import Foundation
import NIOCore
import ReceiptModel
import StoreRocksDB
import Testing

@testable import StoreEngine

@Suite("RocksDB engine")
struct RocksDBEngineTests {
  private func page(_ shard: UInt16, _ channel: UInt64, _ page: PageID, cid: String? = nil)
    -> LoopCommit.PageWrite
  {
    LoopCommit.PageWrite(
      key: PageKey(shard: ShardID(shard), channel: ChannelNumber(channel), page: page),
      cid: cid.map { Array($0.utf8) },
      bytes: ByteBuffer(string: "\(shard) \(channel) \(page)")
    )
  }

  private func texts(_ channel: StoredChannel?) -> [String]? {
    channel?.pages.map { String(buffer: $0.bytes) }
  }

  @Test("a group's position is stored with its commit, and stays where a commit has none")
  func positionIsStoredWithItsCommit() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    #expect(try engine.position(of: GroupID(3)) == .start)
    let claim = LogCursor.start.record(.claim(by: NodeID(1)), epoch: OwnerEpoch(1))
    let batches = LogCursor(after: claim).record(.batches, epoch: OwnerEpoch(1), payload: [1])
    for record in [claim, batches] {
      var commit = LoopCommit()
      commit.position = GroupCursor(group: GroupID(3), cursor: LogCursor(after: record))
      try engine.commit(commit)
      #expect(try engine.position(of: GroupID(3)) == LogCursor(after: record))
    }
    try engine.commit(LoopCommit(index: 1))
    engine.close()
    engine = try directory.open()
    #expect(try engine.position(of: GroupID(3)) == LogCursor(after: batches))
    #expect(try engine.position(of: GroupID(2)) == .start)
    engine.close()
  }

  @Test("a directory is one node's of one cluster")
  func directoryIsOneNodes() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    try engine.adopt(asNode: NodeID(2))
    engine.close()
    engine = try directory.open()
    try engine.adopt(asNode: NodeID(2))
    let error = #expect(throws: StorageError.self) { try engine.adopt(asNode: NodeID(3)) }
    #expect(error?.description.contains("is that of node 2: give --node 2, or an empty directory") == true)
    // Another cluster's nodes have numbers of their own.
    try engine.adopt(store: SessionID(high: 7, low: 9), [])
    engine.close()
    engine = try directory.open()
    try engine.adopt(asNode: NodeID(3))
    engine.close()
  }

  @Test("log, pages and directory round-trip, also after reopening")
  func storageRoundTrips() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    var commit = LoopCommit(index: 1)
    commit.pages += [
      page(1, 5, .head, cid: "team:five"), page(1, 5, .rows(0)), page(1, 5, .segment(3)), page(1, 0, .types),
      page(1, 6, .head, cid: "team:six"),
    ]
    try engine.commit(commit)
    for isReopened in [false, true] {
      if isReopened {
        engine.close()
        engine = try directory.open()
      }
      #expect(try engine.indices(0) == [1] && engine.indices(1) == [1])
      let state = try engine.recover(ShardID(1))
      #expect(state.head == LoopCommit.content(1, 1, 40))
      #expect(state.types.map { String(buffer: $0) } == "1 0 types")
      let five = try engine.read(ShardID(1), .cid(Array("team:five".utf8)))
      #expect(five?.number == ChannelNumber(5))
      #expect(texts(five) == ["1 5 head", "1 5 rows(0)", "1 5 segment(3)"])
      #expect(texts(try engine.read(ShardID(1), .number(ChannelNumber(6)))) == ["1 6 head"])
    }
    #expect(try engine.read(ShardID(1), .cid(Array("team:none".utf8))) == nil)
    #expect(try engine.read(ShardID(0), .cid(Array("team:five".utf8))) == nil)
    #expect(try engine.read(ShardID(1), .number(ChannelNumber(7))) == nil)
    let empty = try engine.recover(ShardID(3))
    #expect(empty.head == nil && empty.types == nil && empty.log.isEmpty)
  }

  @Test("pages of users' settings load with their shard, in rising order, the newest version of each")
  func pagesOfUsersSettingsLoadWithShard() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    var commit = LoopCommit(index: 1)
    commit.pages += [
      page(1, 0, .users(300)), page(1, 0, .users(0)), page(2, 0, .users(7)), page(1, 0, .users(1)),
      page(1, 0, .types), page(1, 0, .shardHead), page(0, 5, .rows(0)),
    ]
    try engine.commit(commit)
    var later = LoopCommit(index: 2)
    var changed = page(1, 0, .users(1))
    changed.bytes = ByteBuffer(string: "changed")
    later.pages.append(changed)
    try engine.commit(later)
    for isReopened in [false, true] {
      if isReopened {
        engine.close()
        engine = try directory.open()
      }
      let users = try engine.recover(ShardID(1)).users
      #expect(users.map(\.page) == [0, 1, 300])
      #expect(users.map { String(buffer: $0.bytes) } == ["1 0 users(0)", "changed", "1 0 users(300)"])
      #expect(try engine.recover(ShardID(2)).users.map(\.page) == [7])
      #expect(try engine.recover(ShardID(0)).users.isEmpty)
    }
  }

  @Test("a shard's own pages load with it, and no channel's pages do")
  func ownPagesOfShardAreLoaded() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    var commit = LoopCommit(index: 1)
    let own: [PageID] = [
      .types, .shardHead, .users(2), .outbox(0), .outbox(1_023), .index, .webhooks(0), .webhooks(255), .tokens,
      .consumers,
    ]
    commit.pages += own.reversed().map { page(1, 0, $0) }
    commit.pages += [
      page(1, 1, .head, cid: "alice"), page(1, 1, .memberships(0)), page(1, 1, .memberships(1)),
    ]
    commit.pages += [page(2, 0, .outbox(7)), page(0, 4, .rows(0))]
    try engine.commit(commit)
    for isReopened in [false, true] {
      if isReopened {
        engine.close()
        engine = try directory.open()
      }
      let stored = try engine.recover(ShardID(1))
      #expect(stored.pages.map(\.page) == own)
      #expect(stored.pages.map { String(buffer: $0.bytes) } == own.map { "1 0 \($0)" })
      #expect(try engine.recover(ShardID(2)).pages.map(\.page) == [.outbox(7)])
      let index = try engine.read(ShardID(1), .cid(Array("alice".utf8)))
      #expect(texts(index) == ["1 1 head", "1 1 memberships(0)", "1 1 memberships(1)"])
      // Read by its number, to find its name.
      #expect(texts(try engine.read(ShardID(1), .head(ChannelNumber(1)))) == ["1 1 head"])
      #expect(try engine.read(ShardID(1), .head(ChannelNumber(2))) == nil)
    }
  }

  @Test("keys sort by their numbers: log, pages of a channel, channels, shards")
  func keysSortByNumbers() throws {
    let directory = TestDirectory()
    let engine = try directory.open(shards: 300)
    var commit = LoopCommit()
    let indices: [UInt64] = [1, 2, 9, 10, 255, 256, 257, 65_535, 65_536, 1 << 40]
    for index in indices.reversed() {
      commit.batches.append(
        LoopCommit.Batch(shard: ShardID(0), index: LogIndex(index), bytes: LoopCommit.content(0, index, 40))
      )
      commit.batches.append(
        LoopCommit.Batch(
          shard: ShardID(256),
          index: LogIndex(index),
          bytes: LoopCommit.content(256, index, 40)
        )
      )
    }
    let pages: [PageID] = [
      .head, .rows(0), .rows(1), .rows(255), .rows(256), .rows(65_535), .segment(0), .segment(300),
      .segment(16_777_215),
    ]
    for number in pages.reversed() {
      for channel in [1, 2, 255, 256] as [UInt64] { commit.pages.append(page(0, channel, number)) }
      commit.pages.append(page(1, 1, number))
    }
    try engine.commit(commit)
    #expect(try engine.indices(0) == indices && engine.indices(256) == indices)
    #expect(try engine.indices(1) == [] && engine.indices(255) == [])
    for channel in [1, 2, 255, 256] as [UInt64] {
      let read = try engine.read(ShardID(0), .number(ChannelNumber(channel)))
      #expect(read?.pages.map(\.page) == pages)
      #expect(texts(read) == pages.map { "0 \(channel) \($0)" })
    }
  }

  @Test("a log trim deletes its shard's log up to its index, and nothing else")
  func logTrimDeletesShardLogUpToIndex() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    for index in 1...9 as ClosedRange<UInt64> { try engine.commit(LoopCommit(index: index)) }
    var commit = LoopCommit()
    commit.logTrims.append(LoopCommit.LogTrim(shard: ShardID(0), after: .zero, through: LogIndex(6)))
    try engine.commit(commit)
    #expect(try engine.indices(0) == [7, 8, 9] && engine.indices(1) == Array(1...9))
    // A batch and a trim in one commit, and a trim of everything.
    commit = LoopCommit(index: 10)
    commit.logTrims = [
      LoopCommit.LogTrim(shard: ShardID(0), after: LogIndex(6), through: LogIndex(9)),
      LoopCommit.LogTrim(shard: ShardID(1), after: .zero, through: LogIndex(9)),
    ]
    try engine.commit(commit)
    engine.close()
    engine = try directory.open()
    #expect(try engine.indices(0) == [10] && engine.indices(1) == [10])
  }

  @Test("an empty commit changes nothing")
  func emptyCommitChangesNothing() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    try engine.commit(LoopCommit(index: 1))
    engine.close()
    engine = try directory.open()
    let before = try engine.indices(0)
    try engine.commit(LoopCommit())
    engine.close()
    engine = try directory.open()
    #expect(try engine.indices(0) == before && !before.isEmpty)
    engine.close()
  }

  // MARK: Opening

  private func refusal(_ open: () throws -> RocksDBEngine) throws -> String {
    do {
      _ = try open()
      return "was opened"
    } catch let error as StorageError {
      guard case .unusable(let text) = error else { throw error }
      return text
    }
  }

  @Test("the number of shards and the store's identity are kept; another number is refused")
  func numberOfShardsAndStoreIdentityAreKept() throws {
    let directory = TestDirectory()
    let created = try directory.open(shards: 5, store: 11)
    #expect(created.identity.shardCount == 5 && created.identity.store == SessionID(high: 7, low: 11))
    created.close()
    for asked in [nil, 5] {
      let engine = try directory.open(shards: asked, store: 12)
      #expect(engine.identity == created.identity)
      engine.close()
    }
    let text = try refusal { try directory.open(shards: 6) }
    #expect(text.contains("--shards 6") && text.contains("created with 5 shards"), "\(text)")
    // The refusal leaves no lock behind.
    try directory.open(shards: nil).close()
  }

  @Test("a new directory has 16 shards by default; 0 and more than 4096 are refused")
  func shardCountIsBounded() throws {
    #expect(try TestDirectory().open(shards: nil).identity.shardCount == 16)
    for count in [-1, 0, 4_097] {
      #expect(try refusal { try TestDirectory().open(shards: count) }.contains("1 to 4096"))
    }
    #expect(try TestDirectory().open(shards: 4_096).identity.shardCount == 4_096)
  }

  @Test("an open directory cannot be opened again, and the error names the remedy")
  func openDirectoryCannotBeOpenedAgain() throws {
    let directory = TestDirectory()
    let first = try directory.open()
    let text = try refusal { try directory.open() }
    #expect(text.contains(directory.path) && text.contains("another tidemark-store has this directory open"))
    try first.commit(LoopCommit(index: 1))
    first.close()
    #expect(try directory.open().indices(0) == [1])
  }

  @Test("a path that is no directory is refused by name")
  func pathThatIsNoDirectoryIsRefused() throws {
    let file = NSTemporaryDirectory() + "tidemark-file-\(UUID().uuidString)"
    try Data().write(to: URL(fileURLWithPath: file))
    defer { try? FileManager.default.removeItem(atPath: file) }
    let text = try refusal {
      try RocksDBEngine(directory: file + "/data", shardCount: nil, newStore: SessionID(high: 0, low: 1))
    }
    #expect(text.contains("--data \(file)/data"))
  }
}
