import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// The work for requests between two slices is limited, and further requests wait.
@Suite("Wide requests")
struct PostponedTests {
  /// A dozen members with long names, so that adding them is a wide request.
  private static let crowd = (0..<12).map { "\($0)" + String(repeating: "x", count: 100) }

  /// `team:a` and `team:b` of alice and bob, with a message each, and a limit of ten entries between two slices.
  private func harness(
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let (harness, gateway) = try harnessWithChannel { configuration in
      configuration.entriesPerTurn = 10
      configure(&configuration)
    }
    gateway.put("team:b", ["alice", "bob"])
    try harness.completeLoads()
    gateway.post("team:a", "m1", by: "alice")
    gateway.post("team:b", "m1", by: "alice")
    harness.loop.endTurn()
    try harness.persistAll()
    try harness.runUntilIdle()
    // The limit is reset.
    harness.loop.tick()
    try harness.runUntilIdle()
    _ = gateway.take()
    return (harness, gateway)
  }

  private func endAndTake(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    harness.loop.endTurn()
    try harness.persistAll()
    return gateway.take()
  }

  @Test(
    "the second of two wide requests waits for a slice, with later ones to its channel; others overtake it"
  )
  func secondOfTwoWideRequestsWaitsForSlice() throws {
    let (harness, gateway) = try harness()
    gateway.change("team:a", add: Self.crowd)  // 5
    gateway.change("team:b", add: Self.crowd)  // 6
    gateway.read("team:b", Self.crowd[3], "m1")  // 7
    gateway.getChannel("team:b")  // 8
    gateway.read("team:a", "bob", "m1")  // 9
    gateway.change("team:a", remove: ["bob"])  // 10
    let first = gateway.sent - 5
    func words(_ place: UInt32, _ text: String) -> String { "\(first + place) \(text)" }
    #expect(
      try endAndTake(harness, gateway) == [
        words(0, "channel of 14"), words(4, "row read 1 unread 0"), words(5, "channel of 13"),
      ]
    )
    #expect(harness.slices == 1 && harness.loop.isBusy)
    harness.slice()
    #expect(try endAndTake(harness, gateway) == [words(1, "channel of 14")])
    harness.slice()
    #expect(
      try endAndTake(harness, gateway) == [
        words(2, "row read 1 unread 0 uncounted 3"), words(3, "channel of 14"),
      ]
    )
    #expect(harness.slices == 0 && !harness.loop.isBusy)
  }

  @Test("wide requests are limited over all turns between two slices")
  func wideRequestsAreLimitedOverAllTurnsBetweenTwoSlices() throws {
    let (harness, gateway) = try harness()
    gateway.change("team:a", add: Self.crowd)
    #expect(try endAndTake(harness, gateway).count == 1)
    gateway.change("team:b", add: Self.crowd)
    #expect(try endAndTake(harness, gateway) == [])
    gateway.change("team:b", remove: ["alice"])
    harness.advance(100)
    harness.loop.tick()
    // The tick has reset the limit, but requests keep their order.
    gateway.change("team:b", add: ["carol"])
    #expect(try endAndTake(harness, gateway) == [])
    while harness.slices > 0 { harness.slice() }
    #expect(
      try endAndTake(harness, gateway).map { $0.drop { $0 != " " } } == [
        " channel of 14", " channel of 13", " channel of 14",
      ]
    )
  }

  @Test("wide unread counts wait in the same way")
  func wideUnreadCountsWaitInSameWay() throws {
    let (harness, gateway) = try harness()
    let many = Array(repeating: CountsEntry("team:a", "bob"), count: 120)
    gateway.unreadCounts(many)
    gateway.unreadCounts(many)
    gateway.unreadCounts([CountsEntry("team:b", "bob")])
    gateway.read("team:a", "bob", "m1")
    let replies = try endAndTake(harness, gateway)
    // The short request does not wait.
    #expect(replies.count == 3 && replies[1].hasSuffix("unread 1/0"))
    #expect(replies[0].hasSuffix(" 1/0") && replies[2].hasSuffix("row read 1 unread 0"))
    harness.slice()
    let last = try endAndTake(harness, gateway)
    #expect(last.count == 1 && last.first?.hasSuffix(" 0/0") == true)
  }

  @Test("a postponed command resent on another connection is applied once")
  func postponedCommandIsAppliedOnceWhenResent() throws {
    let (harness, _) = try harness()
    let older = harness.connect(session: 5, serial: 1)
    harness.loop.open(older.lane)
    older.change("team:a", add: Self.crowd)
    older.change("team:b", add: Self.crowd)
    older.change("team:b", remove: [Self.crowd[0]])
    #expect(try endAndTake(harness, older) == ["1 channel of 14"])
    let again = harness.connect(session: 5, serial: 2)
    harness.loop.open(again.lane)
    again.change("team:b", add: Self.crowd, counter: 2)
    again.change("team:b", remove: [Self.crowd[0]], counter: 3)
    while harness.slices > 0 { harness.slice() }
    #expect(try endAndTake(harness, again) == ["1 channel of 14", "2 channel of 13"])
    #expect(older.take() == [])
    // The commands are resent after they were applied.
    again.change("team:b", add: Self.crowd, counter: 2)
    while harness.slices > 0 { harness.slice() }
    #expect(try endAndTake(harness, again) == ["3 channel of 13"])
  }

  @Test("a crash drops postponed commands, which are applied when they are resent")
  func crashDropsPostponedCommands() throws {
    let (harness, gateway) = try harness()
    gateway.change("team:a", add: Self.crowd)
    gateway.change("team:b", add: Self.crowd)
    let counter = gateway.counter
    #expect(try endAndTake(harness, gateway).count == 1)
    let restarted = try EngineHarness(harness.storage)
    let again = restarted.connect()
    again.getChannel("team:b")
    try restarted.completeLoads()
    #expect(try endAndTake(restarted, again) == ["1 channel of 2"])
    again.change("team:b", add: Self.crowd, counter: counter)
    #expect(try endAndTake(restarted, again) == ["2 channel of 14"])
  }

  @Test("one postponed request beyond the limit is busy, and is applied when it is resent")
  func onePostponedRequestBeyondLimitIsBusy() throws {
    let (harness, gateway) = try harness { $0.postponedMax = 1 }
    gateway.change("team:a", add: Self.crowd)
    gateway.change("team:b", add: Self.crowd)
    gateway.change("team:b", add: Self.crowd + ["carol"])
    let replies = try endAndTake(harness, gateway)
    #expect(replies.count == 2 && replies.contains { $0.hasSuffix(" busy") })
    harness.slice()
    _ = try endAndTake(harness, gateway)
    gateway.change("team:b", add: Self.crowd + ["carol"], counter: gateway.counter)
    while harness.slices > 0 { harness.slice() }
    #expect(try endAndTake(harness, gateway).last?.hasSuffix("channel of 15") == true)
  }

  @Test("wide requests pause while a commit's backlog is full, and continue when the commit ends")
  func wideRequestsPauseWhileCommitBacklogIsFull() throws {
    let (harness, gateway) = try harness { $0.nextCommitBytesMax = 1 }
    gateway.change("team:a", add: Self.crowd)
    harness.loop.endTurn()
    #expect(harness.commits.count == 1)
    gateway.change("team:b", add: Self.crowd)
    #expect(harness.slices == 1)
    harness.slice()
    gateway.change("team:a", remove: Self.crowd)
    #expect(harness.slices == 0 && harness.loop.isBusy)
    try harness.persist()
    #expect(harness.commits.count == 1 && harness.slices == 1)
    harness.slice()
    try harness.persistAll()
    #expect(
      gateway.take().map { $0.drop { $0 != " " } } == [
        " channel of 14", " channel of 14", " channel of 2",
      ]
    )
  }

  /// A channel that is loaded while a wide request to it is postponed: the requests that have waited for the load came
  /// before that one.
  @Test("requests that wait for a channel's load go before a wide one that came later")
  func requestsThatWaitForLoadGoBeforeLaterWideOne() throws {
    let (before, _) = try harness()
    try before.writePages()
    let harness = try EngineHarness(before.storage) { $0.entriesPerTurn = 10 }
    let reader = harness.connect(session: 7)
    reader.getChannel("team:a")  // 1
    reader.change("team:a", add: ["carol"])  // 2
    reader.getChannel("team:a")  // 3
    #expect(harness.loads.count == 1)
    reader.change("team:b", add: Self.crowd)  // 4: uses up the limit.
    try harness.completeLoad(harness.loads[1].reference)
    reader.change("team:a", add: ["dave"] + Self.crowd)  // 5: is postponed.
    // The read of the channel is kept for the next slice.
    try harness.completeLoads()
    while harness.slices > 0 { harness.slice() }
    #expect(
      try endAndTake(harness, reader).sorted() == [
        "1 channel of 2", "2 channel of 3", "3 channel of 3", "4 channel of 14", "5 channel of 16",
      ]
    )
  }

  @Test("loaded channels are inserted a few per slice, those with waiting requests first")
  func loadedChannelsAreInsertedFewPerSlice() throws {
    let (before, gateway) = try harness()
    for number in 0..<4 {
      gateway.put("team:\(number)", ["alice", "bob"])
      try before.completeLoads()
      try before.runUntilIdle()
    }
    before.loop.endTurn()
    try before.persistAll()
    // No pages are written, so the log's tail has all channels.
    let harness = try EngineHarness(before.storage) { configuration in
      configuration.entriesPerTurn = 1
      configuration.tailLoadsMax = 3
    }
    let reader = harness.connect(session: 7)
    harness.loop.tick()
    #expect(harness.loads.count == 3)
    reader.getChannel("team:3")
    reader.getChannel("team:2")
    #expect(harness.loads.count == 5)
    try harness.completeLoads()
    // The first channel of the tail is inserted, and the others wait.
    #expect(harness.slices == 1 && harness.loop.gauges.loadedChannels == 1)
    #expect(try endAndTake(harness, reader) == [])
    // One of the other channels is always inserted, then those with requests.
    harness.slice()
    #expect(harness.loop.gauges.loadedChannels == 2)
    while harness.slices > 0 {
      harness.slice()
      try harness.completeLoads()
    }
    #expect(try endAndTake(harness, reader).sorted() == ["1 channel of 2", "2 channel of 2"])
  }
}
