import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// The memory budget for channels: the order of eviction, and that evicted channels lose no data.
@Suite("Eviction")
struct EvictionTests {
  /// The bytes of a channel with two members and a message, on this platform.
  private static func channelBytes() throws -> Int {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    gateway.put("team:0", ["alice", "bob"])
    gateway.post("team:0", "m1")
    try harness.completeLoads()
    return harness.loop.gauges.residentBytes
  }

  /// A harness with memory for `room` such channels, and `count` of them in storage.
  private func harness(room: Int, count: Int) throws -> (harness: EngineHarness, gateway: Gateway) {
    let bytes = try Self.channelBytes()
    let harness = try EngineHarness { $0.residentBytesMax = room * bytes + bytes / 2 }
    let gateway = harness.connect()
    for number in 0..<count {
      gateway.put("team:\(number)", ["alice", "bob"])
      gateway.post("team:\(number)", "m1")
      harness.loop.endTurn()
      try harness.completeLoads()
      try harness.persistAll()
    }
    _ = gateway.take()
    return (harness, gateway)
  }

  private func isLoaded(_ harness: EngineHarness, _ number: Int) -> Bool {
    let cid = Array("team:\(number)".utf8)
    return harness.loop.isLoaded(ShardID(0), cid: cid.span.bytes)
  }

  @Test("resident memory stays within the budget, and every channel is read back unchanged")
  func residentMemoryStaysWithinBudget() throws {
    let (harness, gateway) = try harness(room: 4, count: 20)
    #expect(harness.loop.gauges.loadedChannels <= 4)
    #expect(harness.loop.counters.channelsEvicted >= 16)
    for number in 0..<20 {
      gateway.read("team:\(number)", "alice", "m1")
      gateway.getChannel("team:\(number)")
      harness.loop.endTurn()
      try harness.completeLoads()
      try harness.persistAll()
    }
    let replies = gateway.take()
    #expect(replies.count { $0.hasSuffix("row read 1 unread 0") } == 20)
    #expect(replies.count { $0.hasSuffix("channel of 2") } == 20)
    #expect(harness.loop.gauges.loadedChannels <= 4)
  }

  @Test("a moved position survives eviction")
  func movedPositionSurvivesEviction() throws {
    let (harness, gateway) = try harness(room: 1, count: 3)
    gateway.read("team:0", "alice", "m1")
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    for number in [1, 2] {
      gateway.getChannel("team:\(number)")
      harness.loop.endTurn()
      try harness.completeLoads()
      try harness.persistAll()
    }
    #expect(!isLoaded(harness, 0))
    _ = gateway.take()
    gateway.send(.readState, "team:0") { payload in
      payload.writeVarint(0)
      payload.writeField("alice")
      payload.writeVarint(10)
      payload.writeVarint(0)
    }
    gateway.read("team:0", "alice")
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    #expect(
      gateway.take().map { $0.split(separator: " ").dropFirst().joined(separator: " ") } == [
        "2 rows", "row read 1 unread 0",
      ]
    )
    // A repeated mark moves nothing, so there is nothing to log.
    #expect(harness.commits.isEmpty)
  }

  @Test("a channel stays in memory until its effects or their pages are on storage")
  func dirtyChannelStaysInMemory() throws {
    let (harness, gateway) = try harness(room: 1, count: 2)
    gateway.read("team:0", "alice", "m1")
    gateway.read("team:1", "alice", "m1")
    harness.loop.endTurn()
    try harness.completeLoads()
    // Two channels are in memory, which exceeds the budget, because their effects are in flight.
    #expect(harness.loop.gauges.loadedChannels == 2)
    #expect(harness.commits.count == 1)
    harness.loop.tick()
    #expect(harness.loop.gauges.loadedChannels == 2)
    // The effects are in storage. The pages are written early, with the next commit.
    try harness.persist()
    #expect(harness.commits.first?.pages.isEmpty == false)
    #expect(harness.loop.gauges.loadedChannels == 2)
    try harness.persistAll()
    #expect(harness.loop.gauges.loadedChannels <= 1)
    #expect(harness.commits.isEmpty)
  }

  @Test("a channel used repeatedly stays in memory; one used once does not evict it")
  func channelUsedRepeatedlyStaysInMemory() throws {
    let (harness, gateway) = try harness(room: 4, count: 40)
    var loadsOfHot = 0
    for number in 1..<40 {
      gateway.getChannel("team:0")
      loadsOfHot += harness.loads.count
      try harness.completeLoads()
      gateway.getChannel("team:\(number)")
      try harness.completeLoads()
      harness.loop.endTurn()
    }
    #expect(loadsOfHot <= 1)
    #expect(isLoaded(harness, 0))
  }

  @Test("a channel larger than the whole budget is served")
  func channelLargerThanBudgetIsServed() throws {
    let harness = try EngineHarness { $0.residentBytesMax = 1 }
    let gateway = harness.connect()
    gateway.put("team:big", (0..<500).map { "user\($0)" })
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    #expect(harness.loop.gauges.loadedChannels == 0)
    for _ in 0..<3 {
      gateway.getChannel("team:big")
      harness.loop.endTurn()
      try harness.completeLoads()
      try harness.persistAll()
      // After two ticks without use the channel is evicted.
      for _ in 0..<2 {
        harness.loop.tick()
        try harness.persistAll()
      }
      #expect(harness.loop.gauges.loadedChannels == 0)
    }
    #expect(
      gateway.take() == ["1 channel of 500 new", "2 channel of 500", "3 channel of 500", "4 channel of 500"]
    )
  }

  @Test(
    "a busy channel larger than the budget blocks no other, and is not reloaded for each request"
  )
  func busyLargeChannelBlocksNoOther() throws {
    let harness = try EngineHarness { $0.residentBytesMax = 20_000 }
    let gateway = harness.connect()
    gateway.put("team:small", ["alice"])
    gateway.put("team:big", (0..<900).map { "user\($0)" })
    for number in 0..<40 { gateway.post("team:big", "m\(number)") }
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    _ = gateway.take()
    let loads = harness.loop.counters.channelsLoaded
    for round in 0..<40 {
      gateway.read("team:big", "user\(round)", "m\(round)")
      if round == 20 { gateway.getChannel("team:small") }
      harness.loop.endTurn()
      try harness.completeLoads()
      // The next mark arrives before the previous mark's pages are in storage.
      if !harness.commits.isEmpty { try harness.persist() }
    }
    try harness.persistAll()
    let replies = gateway.take()
    #expect(replies.count { $0.hasSuffix("channel of 1") } == 1)
    #expect(replies.count { $0.contains("row read") } == 40)
    #expect(harness.loop.counters.channelsLoaded - loads <= 4)
  }

  @Test("loads without room wait, and all are answered")
  func loadsWithoutRoomWait() throws {
    let (harness, gateway) = try harness(room: 2, count: 12)
    for number in 0..<12 { gateway.getChannel("team:\(number)") }
    harness.loop.endTurn()
    #expect(harness.loads.count <= 4)
    #expect(harness.loop.counters.loadsDelayed >= 6)
    var highest = 0
    while !harness.loads.isEmpty {
      try harness.completeLoad()
      highest = max(highest, harness.loop.gauges.loadedChannels)
    }
    #expect(gateway.take().count { $0.hasSuffix("channel of 2") } == 12)
    #expect(highest <= 4)
  }

  @Test("a load that waits for room is not started once its requests' connections have closed")
  func cancelledDelayedLoadDoesNotStart() throws {
    let (harness, gateway) = try harness(room: 2, count: 12)
    let loads = harness.loop.counters.channelsLoaded
    let leaving = harness.connect(session: 2)
    for number in 0..<10 { leaving.getChannel("team:\(number)") }
    leaving.change("team:5", add: ["carol"])
    gateway.getChannel("team:9")
    harness.loop.endTurn()
    let started = harness.loads.count
    #expect(started <= 4)
    harness.loop.close(leaving.lane)
    try harness.completeLoads()
    #expect(gateway.take().map { $0.hasSuffix("channel of 2") } == [true])
    #expect(harness.loop.counters.channelsLoaded - loads <= UInt64(started + 1))
    #expect(!harness.loop.isBusy)
    // The command was not applied, but its resend is.
    let again = harness.connect(session: 2)
    again.change("team:5", add: ["carol"], counter: 1)
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    #expect(again.take() == ["1 channel of 3"])
    #expect(leaving.take() == [])
  }

  @Test("a freed slot is reused by the next channel without state of the previous one")
  func reusedSlotHasNoStateOfPreviousChannel() throws {
    let (harness, gateway) = try harness(room: 1, count: 30)
    gateway.change("team:29", add: ["carol"])
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    for number in [3, 29, 7] {
      gateway.getChannel("team:\(number)")
      harness.loop.endTurn()
      try harness.completeLoads()
      try harness.persistAll()
    }
    #expect(
      gateway.take().map { $0.split(separator: " ").dropFirst().joined(separator: " ") }
        == ["channel of 3", "channel of 2", "channel of 3", "channel of 2"]
    )
  }
}
