import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport
import Testing

/// Recovery of a shard from intact and from damaged storage.
@Suite("Recovery", .computing)
struct RecoveryTests {
  private static let shard = ShardID(0)
  private static let head = PageKey(shard: shard, channel: ChannelNumber(0), page: .shardHead)
  private static let types = PageKey(shard: shard, channel: ChannelNumber(0), page: .types)

  private static func page(_ page: PageID) -> PageKey {
    PageKey(shard: shard, channel: ChannelNumber(1), page: page)
  }

  /// `team:a` with 300 members and 300 messages: two row pages, two segments, five batches. Pages are written up to
  /// batch 3, and the log starts there.
  private func storage() throws -> MemoryStorage {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    gateway.put("team:a", (0..<300).map { "u\($0)" })
    gateway.patch("team", readEvents: false)
    try harness.completeLoads()
    try harness.persistAll()
    for number in 1...300 { gateway.post("team:a", "m\(number)", by: "u\(number % 7)") }
    harness.loop.endTurn()
    try harness.persistAll()
    harness.advance(10_000)
    gateway.read("team:a", "u9")
    harness.loop.endTurn()
    try harness.persistAll()
    let kept = harness.storage.log
    try harness.writePages()
    harness.storage.log = kept.mapValues { $0.filter { $0.key > 2 } }
    for user in ["u10", "u290"] {
      gateway.read("team:a", user)
      harness.loop.endTurn()
      try harness.persistAll()
    }
    return harness.storage
  }

  @Test("recovery reads pages, and then the log after them")
  func recoveryReadsPagesAndThenLog() throws {
    let harness = try EngineHarness(try storage())
    let gateway = harness.connect(session: 2)
    for user in ["u9", "u10", "u290", "u11"] { gateway.read("team:a", user, "m1") }
    gateway.send(.getChannelType, "team")
    harness.loop.endTurn()
    #expect(gateway.take() == ["5 type team version 1 without read events"])
    try harness.completeLoads()
    try harness.persistAll()
    #expect(gateway.take() == (1...3).map { "\($0) row read 300 unread 0" } + ["4 row read 1 unread 299"])
  }

  @Test("an empty shard recovers")
  func emptyShardRecovers() throws {
    let harness = try EngineHarness(MemoryStorage())
    harness.loop.tick()
    #expect(harness.commits.isEmpty && harness.loads.isEmpty)
  }

  struct Damage: Sendable, CustomTestStringConvertible {
    var testDescription: String
    /// The words of the error that name the place.
    var place: String
    var make: @Sendable (MemoryStorage) -> Void

    init(_ text: String, _ place: String, _ make: @escaping @Sendable (MemoryStorage) -> Void) {
      testDescription = text
      self.place = place
      self.make = make
    }
  }

  private static func rewrite(_ bytes: ByteBuffer, _ change: (inout [UInt8]) -> Void) -> ByteBuffer {
    var all = Array(bytes.readableBytesView)
    change(&all)
    return ByteBuffer(bytes: all)
  }

  static let shardDamages = [
    Damage("a batch cut short", "shard 0, log index 4") { storage in
      storage.log[shard]![4] = rewrite(storage.log[shard]![4]!) { $0.removeLast(2) }
    },
    Damage("an empty batch", "shard 0, log index 4") { $0.log[shard]![4] = ByteBuffer() },
    Damage("a batch of a later format", "shard 0, log index 3") { storage in
      storage.log[shard]![3] = rewrite(storage.log[shard]![3]!) { $0[0] = 2 }
    },
    Damage("a batch in another's place", "shard 0, log index 4: holds batch 3") { storage in
      storage.log[shard]![4] = storage.log[shard]![3]
    },
    Damage("a batch is missing", "shard 0, log index 5: follows 3") { $0.log[shard]![4] = nil },
    Damage("the batches after the head page are missing", "shard 0, log index 5") { storage in
      for index in [3, 4] as [UInt64] { storage.log[shard]![index] = nil }
    },
    Damage("the end of the log is missing", "ahead of its log") { storage in
      var bytes = ByteBuffer()
      Page(index: LogIndex(6), effects: []).write(into: &bytes)
      storage.pages[head] = bytes
    },
    Damage("the head page is missing", "shard 0, log index 3") { $0.pages[head] = nil },
    Damage("the head page is cut short", "shard 0, head page") { storage in
      storage.pages[head] = rewrite(storage.pages[head]!) { $0.removeLast() }
    },
    Damage("the types page holds another page", "shard 0, types page") { $0.pages[types] = $0.pages[head] },
    Damage("the head page holds a channel's", "shard 0, head page") {
      $0.pages[head] = $0.pages[page(.rows(0))]
    },
  ]

  @Test("a damaged shard is refused with the place of the damage", arguments: shardDamages)
  func damagedShardIsRefused(_ damage: Damage) throws {
    let storage = try storage()
    damage.make(storage)
    do {
      _ = try EngineHarness(storage)
      Issue.record("was taken")
    } catch {
      guard case .corrupt(let text) = error else { throw error }
      #expect(text.contains(damage.place), "\(text)")
    }
  }

  static let channelDamages = [
    Damage("the head page is missing", "channel 1: the head page is missing") { $0.pages[page(.head)] = nil },
    Damage("a row page is missing", "channel 1, page rows(0)") { $0.pages[page(.rows(0))] = nil },
    Damage("the last row page is missing", "channel 1, page rows(1)") { $0.pages[page(.rows(1))] = nil },
    Damage("a segment is missing", "channel 1, page segment(1)") { $0.pages[page(.segment(0))] = nil },
    Damage("the last segment is missing", "channel 1: a row names message 300") {
      $0.pages[page(.segment(1))] = nil
    },
    Damage("a page is cut short", "channel 1, page segment(0)") { storage in
      storage.pages[page(.segment(0))] = rewrite(storage.pages[page(.segment(0))]!) { $0.removeLast() }
    },
    Damage("a page stands in another's place", "channel 1, page rows(0)") { storage in
      storage.pages[page(.rows(0))] = storage.pages[page(.rows(1))]
    },
    Damage("a page of another channel", "channel 1, page head") { storage in
      var bytes = ByteBuffer()
      let effect = Effect.channel(
        ChannelNumber(2),
        .channelAssigned(cid: "team:a", created: .none, own: OptionPatch())
      )
      Page(index: LogIndex(1), effects: [effect]).write(into: &bytes)
      storage.pages[page(.head)] = bytes
    },
    Damage("a page from the future", "channel 1, page head: of log index 900") { storage in
      var bytes = ByteBuffer()
      let effect = Effect.channel(
        ChannelNumber(1),
        .channelAssigned(cid: "team:a", created: .none, own: OptionPatch())
      )
      Page(index: LogIndex(900), effects: [effect]).write(into: &bytes)
      storage.pages[page(.head)] = bytes
    },
    Damage("the directory leads to another channel", "the cid of another channel") { storage in
      var bytes = ByteBuffer()
      let effect = Effect.channel(
        ChannelNumber(1),
        .channelAssigned(
          cid: "team:other",
          created: .none,
          own: OptionPatch()
        )
      )
      Page(index: LogIndex(1), effects: [effect]).write(into: &bytes)
      storage.pages[page(.head)] = bytes
    },
  ]

  @Test(
    "a damaged channel is unavailable and its place reported; the other channels are served",
    arguments: channelDamages
  )
  func damagedChannelIsUnavailable(_ damage: Damage) throws {
    let storage = try storage()
    damage.make(storage)
    let harness = try EngineHarness(storage)
    let gateway = harness.connect(session: 2)
    gateway.read("team:a", "u1")
    gateway.put("team:b", ["alice"])
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    #expect(gateway.take().sorted() == ["1 unavailable", "2 channel of 1 new"])
    guard case .corrupt(let text)? = harness.reports.first else {
      Issue.record("reported \(harness.reports)")
      return
    }
    #expect(text.contains(damage.place), "\(text)")
  }

  @Test("any wrong byte is refused or accepted, and never traps")
  func wrongByteNeverTraps() throws {
    let whole = try storage()
    var state: UInt64 = 7
    func random(_ limit: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(state >> 33) % limit
    }
    for _ in 0..<400 {
      let storage = MemoryStorage()
      storage.data = whole.data
      let flip = { (bytes: inout [UInt8]) in bytes[random(bytes.count)] ^= UInt8(1 << random(8)) }
      if random(3) == 0 {
        let index = storage.log[Self.shard]!.keys.sorted()[random(storage.log[Self.shard]!.count)]
        storage.log[Self.shard]![index] = Self.rewrite(storage.log[Self.shard]![index]!, flip)
      } else {
        let keys = storage.pages.keys.sorted {
          ($0.channel.rawValue, $0.page.sortKey) < ($1.channel.rawValue, $1.page.sortKey)
        }
        let key = keys[random(keys.count)]
        storage.pages[key] = Self.rewrite(storage.pages[key]!, flip)
      }
      guard let harness = try? EngineHarness(storage) else { continue }
      let gateway = harness.connect(session: 2)
      gateway.getChannel("team:a")
      gateway.read("team:a", "u8", "m4")
      gateway.send(.readState, "team:a") { buffer in
        buffer.writeVarint(1)
        buffer.writeEmptyField()
        buffer.writeVarint(100)
        buffer.writeVarint(0)
      }
      gateway.send(.statuses, "team:a") { buffer in
        buffer.writeVarint(1)
        buffer.writeEmptyField()
        buffer.writeVarint(2)
        buffer.writeField("m1")
        buffer.writeField("m299")
      }
      harness.loop.endTurn()
      try harness.completeLoads()
      try harness.persistAll()
      #expect(gateway.take().count == 4)
    }
  }

  // MARK: Sessions

  @Test("a command resent after a crash is applied where it was lost, and answered where it was not")
  func commandResentAfterCrashIsAppliedWhereItWasLost() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.change("team:a", remove: ["alice"])
    harness.loop.endTurn()
    try harness.persist()
    gateway.change("team:a", add: ["alice"])
    harness.loop.endTurn()
    #expect(gateway.take() == ["2 channel of 1"])
    // The commit is lost in the crash.
    let again = try EngineHarness(harness.storage)
    let other = again.connect(session: 2)
    other.change("team:a", add: ["zoe"])
    try again.completeLoads()
    try again.persistAll()
    let resent = again.connect()
    resent.change("team:a", remove: ["alice"], counter: 2)
    resent.change("team:a", add: ["alice"], counter: 3)
    resent.change("team:a", add: ["alice"], counter: 3)
    again.loop.endTurn()
    try again.persistAll()
    #expect(resent.take().sorted() == ["1 channel of 2", "2 channel of 3", "3 channel of 3"])
  }

  @Test("a command waiting for its channel at the crash does not count as applied")
  func commandWaitingAtCrashIsNotApplied() throws {
    let (harness, _) = try harnessWithChannel()
    try harness.writePages()
    let middle = try EngineHarness(harness.storage)
    let gateway = middle.connect(session: 3)
    gateway.change("team:a", add: ["carol"])
    gateway.put("team:new", ["alice"])
    try middle.completeLoad(.cid(Array("team:new".utf8)))
    try middle.persistAll()
    #expect(gateway.take() == ["2 channel of 1 new"])
    let again = try EngineHarness(middle.storage)
    let resent = again.connect(session: 3)
    resent.change("team:a", add: ["carol"], counter: 1)
    try again.completeLoads()
    try again.persistAll()
    #expect(resent.take() == ["1 channel of 3"])
  }

  @Test("sessions survive the log trim in the head page, also after the clock was set forward")
  func sessionsSurviveLogTrim() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.change("team:a", remove: ["alice"])
    harness.loop.endTurn()
    try harness.persistAll()
    harness.advance(86_400_000)
    let other = harness.connect(session: 2)
    other.change("team:a", add: ["alice"])
    harness.loop.endTurn()
    try harness.persistAll()
    try harness.writePages()
    #expect(harness.storage.log[Self.shard]!.isEmpty)
    let again = try EngineHarness(harness.storage)
    let resent = again.connect()
    resent.change("team:a", remove: ["alice"], counter: 2)
    try again.completeLoads()
    try again.persistAll()
    #expect(resent.take() == ["1 channel of 2"])
  }

  @Test("a shard's time continues from the logged time, whatever the clock says")
  func shardTimeContinuesFromLoggedTime() throws {
    let (harness, gateway) = try harnessWithChannel()
    harness.advance(1_000_000)
    gateway.post("team:a", "m1")
    harness.loop.endTurn()
    try harness.persistAll()
    let again = try EngineHarness(harness.storage)
    let other = again.connect(session: 2)
    other.post("team:a", "m2")
    try again.completeLoads()
    let bytes = again.commits[0].batches[0].bytes
    let batch = try LogBatch(bytes.readableBytesSpan)
    #expect(batch.time == Timestamp(milliseconds: harness.clock))
  }
}
