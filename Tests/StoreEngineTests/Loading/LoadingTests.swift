import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Loading of channels from storage, and the requests that wait for it.
@Suite("Loading channels")
struct LoadingTests {
  private let a = ChannelReference.cid(Array("team:a".utf8))
  private let b = ChannelReference.cid(Array("team:b".utf8))

  /// A store with `team:a` and `team:b` of alice and bob, each with message m1, restarted from pages.
  private func restarted(
    hasWrittenPages: Bool = true,
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> EngineHarness {
    let harness = try EngineHarness()
    let gateway = harness.connect(session: 99)
    for cid in ["team:a", "team:b"] {
      gateway.put(cid, ["alice", "bob"])
      gateway.post(cid, "m1")
    }
    try harness.completeLoads()
    try harness.persistAll()
    if hasWrittenPages { try harness.writePages() }
    return try EngineHarness(harness.storage, configure: configure)
  }

  @Test("requests wait for their channel in order, and block no other")
  func requestsWaitForChannelInOrder() throws {
    let harness = try restarted()
    let gateway = harness.connect()
    gateway.change("team:a", add: ["carol"])
    gateway.getChannel("team:a")
    gateway.getChannel("team:b")
    gateway.change("team:a", remove: ["carol"])
    harness.loop.endTurn()
    #expect(harness.loads.map(\.reference) == [a, b])
    try harness.completeLoad(b)
    #expect(gateway.take() == ["3 channel of 2"])
    try harness.completeLoad(a)
    #expect(gateway.take() == [])
    try harness.persist()
    #expect(gateway.take() == ["1 channel of 3", "2 channel of 3", "4 channel of 2"])
  }

  @Test("a put of a missing channel creates it, also for the requests queued behind it")
  func putOfMissingChannelCreatesIt() throws {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    gateway.getChannel("team:new")
    gateway.read("team:new", "alice")
    gateway.put("team:new", ["alice"])
    gateway.getChannel("team:new")
    try harness.completeLoads()
    #expect(gateway.take() == ["1 channel_not_found", "2 channel_not_found"])
    try harness.persist()
    #expect(gateway.take() == ["3 channel of 1 new", "4 channel of 1"])
  }

  @Test("one channel beyond the limit of concurrent loads is busy, and nothing is applied")
  func channelBeyondConcurrentLoadsIsBusy() throws {
    let harness = try restarted { $0.loadsMax = 1 }
    let gateway = harness.connect()
    gateway.getChannel("team:a")
    gateway.change("team:b", add: ["carol"])
    gateway.getChannel("team:a")
    harness.loop.endTurn()
    #expect(gateway.take() == ["2 busy"])
    try harness.completeLoads()
    #expect(gateway.take() == ["1 channel of 2", "3 channel of 2"])
    // Its reply may be lost: the command does not count as applied.
    gateway.change("team:a", add: ["dave"])
    let again = harness.connect()
    again.change("team:b", add: ["carol"], counter: 1)
    again.getChannel("team:b")
    try harness.completeLoads()
    try harness.persistAll()
    #expect(again.take() == ["1 channel of 3", "2 channel of 3"])
  }

  @Test("one request beyond the limit of waiting requests for a channel is busy")
  func requestBeyondWaitingLimitIsBusy() throws {
    let harness = try restarted { $0.waitingPerLoadMax = 2 }
    let gateway = harness.connect()
    for _ in 0..<4 { gateway.getChannel("team:a") }
    gateway.getChannel("team:b")
    harness.loop.endTurn()
    #expect(gateway.take() == ["3 busy", "4 busy"])
    try harness.completeLoads()
    #expect(gateway.take() == ["1 channel of 2", "2 channel of 2", "5 channel of 2"])
  }

  @Test("an unreadable channel is unavailable, others are served, and the next request reads it again")
  func unreadableChannelIsUnavailable() throws {
    let harness = try restarted()
    let gateway = harness.connect()
    gateway.change("team:a", add: ["carol"])
    gateway.change("team:b", add: ["carol"])
    try harness.completeLoad(a, failing: true)
    #expect(gateway.take() == ["1 unavailable"])
    #expect(harness.reports == [.failed("bad sector")])
    try harness.completeLoad(b)
    try harness.persistAll()
    #expect(gateway.take() == ["2 channel of 3"])
    // The resend on another connection is applied, because the original was not.
    let again = harness.connect()
    again.change("team:a", add: ["carol"], counter: 1)
    try harness.completeLoads()
    try harness.persistAll()
    #expect(again.take() == ["1 channel of 3"])
  }

  @Test("a malformed waiting request ends its connection, not the others")
  func malformedWaitingRequestEndsConnection() throws {
    let harness = try restarted()
    let gateway = harness.connect()
    let other = harness.connect(session: 2)
    gateway.send(.getChannel, "team:a") { $0.writeInteger(UInt8(1)) }
    other.getChannel("team:a")
    gateway.change("team:b", add: ["carol"])
    try harness.completeLoad(a)
    #expect(gateway.ended == [.trailingBytes])
    #expect(other.take() == ["1 channel of 2"] && other.ended == [])
    // The loop reads no more from the connection and drops its waiting requests. The client resends all of them, in
    // order.
    gateway.change("team:b", add: ["dave"])
    try harness.completeLoads()
    try harness.persistAll()
    other.getChannel("team:b")
    harness.loop.endTurn()
    #expect(other.take() == ["2 channel of 2"] && gateway.take() == [])
  }

  @Test("a waiting command without a valid counter ends its connection before anything is read")
  func waitingCommandWithMalformedCounterEndsConnection() throws {
    let harness = try restarted()
    let gateway = harness.connect()
    gateway.send(.markRead, "team:a", counter: 0) { _ in }
    #expect(gateway.ended == [.badValue(.counter)] && harness.loads.isEmpty)
  }

  @Test("a waiting command resent on another connection is applied once")
  func waitingCommandResentIsAppliedOnce() throws {
    let harness = try restarted()
    let gateway = harness.connect(serial: 1)
    harness.loop.open(gateway.lane)
    gateway.change("team:a", add: ["carol"])
    gateway.change("team:a", remove: ["carol"])
    let again = harness.connect(serial: 2)
    harness.loop.open(again.lane)
    #expect(gateway.lane.isClosed)
    again.change("team:a", add: ["carol"], counter: 1)
    again.change("team:a", remove: ["carol"], counter: 2)
    again.change("team:a", add: ["dave"], counter: 3)
    try harness.completeLoads()
    try harness.persistAll()
    #expect(gateway.take() == [])
    // Requests that waited on the older connection are applied only when they are resent.
    #expect(again.take() == ["1 channel of 3", "2 channel of 2", "3 channel of 3"])
  }

  @Test("an older connection that opens late is closed")
  func olderConnectionThatOpensLateIsClosed() throws {
    let (harness, _) = try harnessWithChannel()
    let newer = harness.connect(serial: 8)
    let older = harness.connect(serial: 7)
    harness.loop.open(newer.lane)
    harness.loop.open(older.lane)
    #expect(older.lane.isClosed && !newer.lane.isClosed)
    older.post("team:a", "m1")
    newer.getChannel("team:a")
    harness.loop.endTurn()
    #expect(harness.commits.isEmpty && newer.take() == ["1 channel of 2"])
    // Closing the older connection does not close the newer one.
    harness.loop.close(older.lane)
    let third = harness.connect(serial: 9)
    harness.loop.open(third.lane)
    #expect(newer.lane.isClosed)
  }

  // MARK: The log's tail

  @Test("a tail channel loaded to trim the log does not overtake requests that wait for it")
  func tailKeepsOrder() throws {
    let harness = try restarted(hasWrittenPages: false)
    let gateway = harness.connect()
    gateway.change("team:a", add: ["carol"])
    harness.loop.tick()
    #expect(harness.loads.map(\.reference) == [a, .number(ChannelNumber(1)), .number(ChannelNumber(2))])
    try harness.completeLoad(.number(ChannelNumber(1)))
    gateway.change("team:a", remove: ["carol"])
    harness.loop.endTurn()
    // The read by name is ignored.
    try harness.completeLoads()
    try harness.persistAll()
    #expect(gateway.take() == ["1 channel of 3", "2 channel of 2"])
  }

  @Test(
    "a tail channel already loaded by name ignores its read by number, whatever pages exist"
  )
  func loadedTailChannelIgnoresReadByNumber() throws {
    let harness = try restarted(hasWrittenPages: false)
    // A crash between two page writes: the rows are in storage, the head is in the log only.
    var rows: [Effect] = []
    for (_, bytes) in harness.storage.log[ShardID(0)]!.sorted(by: { $0.key < $1.key }) {
      rows += try LogBatch(bytes.readableBytesSpan).effects.filter {
        $0.channel == ChannelNumber(1) && $0.page == .rows(0)
      }
    }
    var page = ByteBuffer()
    Page(index: LogIndex(1), effects: rows).write(into: &page)
    harness.storage.pages[PageKey(shard: ShardID(0), channel: ChannelNumber(1), page: .rows(0))] = page
    let gateway = harness.connect()
    gateway.getChannel("team:a")
    harness.loop.tick()
    try harness.completeLoad(a)
    try harness.completeLoads()
    #expect(gateway.take() == ["1 channel of 2"] && harness.reports == [])
    #expect(harness.loop.gauges.tailChannels == 0)
  }

  @Test("an unreadable tail channel is retried, and the log is trimmed afterwards")
  func unreadableTailChannelIsRetried() throws {
    let harness = try restarted(hasWrittenPages: false) { $0.tailRetryMilliseconds = 5_000 }
    harness.loop.tick()
    try harness.completeLoad(failing: true)
    try harness.completeLoads()
    harness.advance(4_000)
    harness.loop.tick()
    #expect(harness.loads.isEmpty)
    #expect(harness.loop.gauges.tailChannels == 1)
    try harness.persistAll()
    try harness.writePages()
    #expect(harness.loop.gauges.tailChannels == 0)
    #expect(harness.storage.log[ShardID(0)]!.isEmpty)
  }

  @Test("a busy store still loads the tail")
  func busyStoreLoadsTheTail() throws {
    let harness = try restarted(hasWrittenPages: false) { $0.tailLoadsMax = 1 }
    let gateway = harness.connect()
    for number in 0..<20 { gateway.getChannel("team:other\(number)") }
    harness.loop.tick()
    #expect(harness.loads.last?.reference == .number(ChannelNumber(1)))
  }
}
