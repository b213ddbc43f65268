import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreEngine
@testable import StoreRocksDB

/// No trace is left of an erased user or a deleted channel, read through RocksDB and in its files (R16).
@Suite("Erasure on RocksDB")
struct ErasureTests {
  private static let user = "gone.person@example"
  private static let note = "a note of theirs"
  private static let cids = (0..<12).map { "team:room\($0)" }

  private func put(_ harness: ErasureHarness, _ cid: String, _ users: [String]) {
    harness.send(.putChannel, cid) { payload in
      payload.writeOptionPatch(OptionPatch())
      payload.writeVarint(users.count)
      for user in users {
        payload.writeField(user)
        payload.writeEmptyField()
      }
    }
  }

  private func post(_ harness: ErasureHarness, _ cid: String, _ id: String, by sender: String) {
    harness.send(.registerMessage, cid) { payload in
      payload.writeField(id)
      payload.writeField(sender)
      payload.writeTime(.none)
      payload.writeVarint(UInt64(2))
    }
  }

  private func change(_ harness: ErasureHarness, _ cid: String, add: [String], remove: [String]) {
    harness.send(.changeMembers, cid) { payload in
      payload.writeVarint(add.count)
      for user in add {
        payload.writeField(user)
        payload.writeEmptyField()
      }
      payload.writeVarint(remove.count)
      for user in remove { payload.writeField(user) }
    }
  }

  private func assign(_ harness: ErasureHarness, version: UInt64, flags: UInt64) {
    for shard in 0..<UInt16(ErasureHarness.shardCount) {
      harness.send(.assignUser, Self.user, shard: ShardID(shard)) { payload in
        payload.writeVarint(version)
        payload.writeVarint(flags)
        for _ in 0..<3 { payload.writeTime(.none) }
      }
    }
  }

  /// A member who sends, reads, acknowledges with a note, leaves and rejoins; in some channels only a sender.
  private func live(_ harness: ErasureHarness, _ round: Int) {
    for (number, cid) in Self.cids.enumerated() {
      let isMember = number % 4 != 3
      put(harness, cid, ["alice", "bob"] + (isMember ? [Self.user] : []))
      for message in 0..<40 {
        post(harness, cid, "m\(round)-\(message)", by: message % 2 == 0 ? "alice" : Self.user)
      }
      guard isMember else { continue }
      harness.send(.acknowledge, cid) { payload in
        payload.writeField(Self.user)
        payload.writeField(Self.note)
        payload.writeVarint(1)
        payload.writeField("m\(round)-0")
      }
      harness.send(.markRead, cid) { payload in
        payload.writeField(Self.user)
        payload.writeEmptyField()
        payload.writeVarint(0)
      }
      if number % 3 == 0 { change(harness, cid, add: [Self.user], remove: [Self.user]) }
    }
    harness.turn()
  }

  @Test("after erasure and a purge no trace of the user is left, and all other data is there")
  func afterErasureAndPurgeNoTraceOfUserIsLeft() throws {
    let directory = TestDirectory()
    let harness = try ErasureHarness(directory)
    let texts = [Self.user, Self.note]
    assign(harness, version: 1, flags: 1)
    live(harness, 0)
    for _ in 0..<3 { harness.tick() }
    // Reopening moves the write-ahead log into tables, and starts a new one.
    try harness.restart()
    live(harness, 1)
    harness.tick()
    live(harness, 2)
    assign(harness, version: 2, flags: 4)
    harness.turn()
    // The traces exist before the erasure, so the search works.
    let before = try harness.traces(texts)
    for place in ["log", "pages"] {
      for text in texts { #expect(before.contains("\(place): \(text)")) }
    }
    #expect(try harness.files(with: texts).contains { $0.hasSuffix(".log") })

    _ = harness.takeFirstBytes()
    for cid in Self.cids { harness.send(.eraseMember, cid) { $0.writeField(Self.user) } }
    harness.turn()
    #expect(harness.takeFirstBytes() == Self.cids.map { _ in 1 })
    assign(harness, version: 3, flags: 8)
    harness.turn()
    _ = harness.takeFirstBytes()
    // The shards return the round to ask for next; 0 means that the erasure has ended.
    var rounds: [UInt8] = [0, 0]
    var asked = 0
    repeat {
      asked += 1
      for shard in 0..<UInt16(ErasureHarness.shardCount) {
        harness.send(.purge, nil, shard: ShardID(shard)) { $0.writeVarint(Int(rounds[Int(shard)])) }
      }
      harness.turn()
      rounds = harness.takeFirstBytes()
    } while rounds != [0, 0] && asked < 10
    #expect(rounds == [0, 0])
    #expect(try harness.traces(texts) == [])
    #expect(try harness.files(with: texts) == [])
    #expect(harness.faults == [])
    try harness.restart()
    #expect(try harness.traces(texts) == [])
    #expect(try harness.files(with: texts) == [])
    for cid in Self.cids { harness.send(.getChannel, cid) }
    harness.turn()
    for (_, payload) in harness.replies {
      let channel = try ChannelFields(payload.readableBytesSpan)
      #expect(channel.memberCount == 2 && channel.newest == SequenceNumber(120))
    }
    #expect(harness.replies.count == Self.cids.count && harness.faults == [])
  }

  @Test("a deleted channel leaves no key behind, and its cid can be reused")
  func deletedChannelLeavesNoKeyBehind() throws {
    let directory = TestDirectory()
    let harness = try ErasureHarness(directory)
    for round in 0..<2 { live(harness, round) }
    for _ in 0..<3 { harness.tick() }
    for cid in Self.cids { harness.send(.deleteChannel, cid) }
    put(harness, Self.cids[0], ["carol"])
    harness.turn()
    for _ in 0..<3 { harness.tick() }
    // Only the members' indexes remember the deletion, for a while.
    #expect(Set(try harness.traces(Array(Self.cids[1...9]))) == Set(Self.cids[1...9].map { "pages: \($0)" }))
    let left = try harness.traces(Array(Self.cids[1...9])) { page in
      page.effects.allSatisfy {
        if case .channel(_, .membershipAssigned(_, let entry)) = $0 { entry.isGone } else { false }
      }
    }
    #expect(left == [])
    #expect(Set(try harness.traces(["team:room", Self.note])) == ["pages: team:room"])
    try harness.restart()
    _ = harness.takeFirstBytes()
    harness.send(.getChannel, Self.cids[0])
    harness.turn()
    let payload = harness.replies[0].payload
    let channel = try ChannelFields(payload.readableBytesSpan)
    #expect(channel.memberCount == 1)
    #expect(harness.faults == [])
  }

  // MARK: The storage engine

  private func page(_ channel: UInt64, _ page: PageID, cid: String? = nil) -> LoopCommit.PageWrite {
    LoopCommit.PageWrite(
      key: PageKey(shard: ShardID(1), channel: ChannelNumber(channel), page: page),
      cid: cid.map { Array($0.utf8) },
      bytes: ByteBuffer(string: "\(channel) \(page)")
    )
  }

  private func drop(_ channel: UInt64, _ cid: String) -> LoopCommit.Drop {
    LoopCommit.Drop(shard: ShardID(1), channel: ChannelNumber(channel), cid: Array(cid.utf8))
  }

  @Test("a drop deletes all keys of its channel, and the name only if the name is still its own")
  func dropDeletesAllKeysOfChannel() throws {
    let directory = TestDirectory()
    let engine = try directory.open()
    func number(_ cid: String) throws -> UInt64? {
      try engine.read(ShardID(1), .cid(Array(cid.utf8)))?.number.rawValue
    }
    let kinds: [PageID] = [
      .head, .rows(0), .rows(65_535), .segment(0), .acknowledgements(SequenceNumber(.max)), .steps(0, 0),
      .steps(65_535, .max), .threadRows(SequenceNumber(.max), 3), .threadSegment(SequenceNumber(1), 0),
      .memberships(3),
    ]
    var commit = LoopCommit()
    for channel in [4, 5, 6] as [UInt64] {
      commit.pages += kinds.map { page(channel, $0, cid: $0 == .head ? "team:\(channel)" : nil) }
    }
    try engine.commit(commit)
    commit = LoopCommit()
    commit.drops = [drop(5, "team:5"), drop(4, "team:6")]
    try engine.commit(commit)
    #expect(try number("team:4") == nil && number("team:5") == nil && number("team:6") == 6)
    for channel in [4, 5] as [UInt64] {
      #expect(try engine.read(ShardID(1), .number(ChannelNumber(channel))) == nil)
      #expect(
        try engine.readSteps(ShardID(1), ChannelNumber(channel), rowPage: 0, segments: 0..<1).isEmpty
      )
    }
    #expect(try engine.read(ShardID(1), .number(ChannelNumber(6)))?.pages.count == kinds.count - 2)
    // In one commit drops come before pages.
    commit = LoopCommit()
    commit.drops = [drop(6, "team:6")]
    commit.pages = [page(7, .head, cid: "team:6")]
    try engine.commit(commit)
    #expect(try number("team:6") == 7)
    commit = LoopCommit()
    commit.drops = [drop(6, "team:6"), drop(6, "team:none")]
    try engine.commit(commit)
    #expect(try number("team:6") == 7)
  }

  @Test("an index of channels is found by its user's id, which no key contains")
  func indexIsFoundByUserID() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    var commit = LoopCommit()
    commit.pages = [page(3, .head, cid: Self.user), page(4, .head, cid: "team:a")]
    try engine.commit(commit)
    for _ in 0..<2 {
      #expect(try engine.read(ShardID(1), .cid(Array(Self.user.utf8)))?.number == ChannelNumber(3))
      #expect(try engine.read(ShardID(1), .cid(Array("gone.person@exampl".utf8))) == nil)
      engine.close()
      engine = try directory.open()
    }
    commit = LoopCommit()
    commit.drops = [drop(3, Self.user)]
    try engine.commit(commit)
    #expect(try engine.read(ShardID(1), .cid(Array(Self.user.utf8))) == nil)
    engine.close()
    #expect(try directory.files(with: [Self.user]) == [])
  }

  @Test(
    "overwritten and dropped values leave every file when due, in an idle store too"
  )
  func oldValuesLeaveEveryFile() async throws {
    var settings = RocksDBSettings()
    settings.oldValuesSecondsMax = 1
    let directory = TestDirectory()
    var engine = try directory.open()
    func files() throws -> [String] { try directory.files(with: [Self.user]) }
    // No similar text precedes the name, so compression leaves it readable in its table.
    func named(_ channel: UInt64) -> LoopCommit.PageWrite {
      var write = page(channel, .head, cid: "team:\(channel)")
      write.bytes = ByteBuffer(string: Self.user)
      return write
    }
    for isDropped in [false, true] {
      var commit = LoopCommit()
      commit.pages = [named(4), page(5, .head, cid: "team:5")]
      try engine.commit(commit)
      try engine.purge()
      let before = try files()
      #expect(before.contains { $0.hasSuffix(".sst") })
      commit = LoopCommit()
      if isDropped { commit.drops = [drop(4, "team:4")] } else { commit.pages = [page(4, .head)] }
      try engine.commit(commit)
      try engine.purge()
      #expect(try files().allSatisfy { $0.hasSuffix(".sst") } && !files().isEmpty)
      // As the store process does every hour.
      engine.close()
      engine = try directory.open(settings: settings)
      try await eventually("no file has what was dropped") {
        engine.compactOld()
        return try files().isEmpty
      }
      #expect(try engine.read(ShardID(1), .number(ChannelNumber(5)))?.pages.count == 1)
      engine.close()
      engine = try directory.open()
    }
  }

  @Test(
    "a purge removes old write-ahead logs, and trimmed data from the tables, while writes continue"
  )
  func purgeRemovesOldWriteAheadLogs() async throws {
    let directory = TestDirectory()
    let engine = try directory.open()
    func has(_ suffix: String) throws -> Bool {
      try !directory.files(with: ["what has to go"]) { $0.hasSuffix(suffix) }.isEmpty
    }
    for round in 0..<3 as Range<UInt64> {
      for index in 1...20 as ClosedRange<UInt64> {
        var commit = LoopCommit(index: round * 100 + index)
        commit.batches[0].bytes = ByteBuffer(string: "what has to go \(index)")
        try engine.commit(commit)
      }
      #expect(try has(".log"))
      // In the second round the data is in the log's tables first. Tables are compressed, so a text is found only if no
      // similar text precedes it.
      if round == 1 { try engine.purge() }
      var trim = LoopCommit()
      let after = LogIndex(round == 0 ? 0 : (round - 1) * 100 + 20)
      trim.logTrims = [LoopCommit.LogTrim(shard: ShardID(0), after: after, through: LogIndex(round * 100 + 20))]
      if round == 1 {
        let (inTables, inLogs) = (try has(".sst"), try has(".log"))
        #expect(inTables && !inLogs)
      }
      try engine.commit(trim)
      let writer = Task.detached {
        for index in 21...60 as ClosedRange<UInt64> {
          var commit = LoopCommit(index: round * 100 + index)
          commit.batches[0].bytes = ByteBuffer(string: "kept")
          try engine.commit(commit)
        }
      }
      try engine.purge()
      try await writer.value
      #expect(try !has(".log") && !has(".sst"))
      // Another purge has nothing to do.
      try engine.purge()
      #expect(try !has(".log") && !has(".sst"))
    }
    #expect(try engine.recover(ShardID(0)).log.count == 40)
    engine.close()
    #expect(try directory.open().recover(ShardID(0)).log.count == 40)
  }
}
