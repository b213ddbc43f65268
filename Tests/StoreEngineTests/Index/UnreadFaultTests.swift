import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Unread counts with damaged pages, with threads' pages, and at their limits.
@Suite("Unread counts: damage and limits")
struct UnreadFaultTests {
  // MARK: Damage

  @Test(
    "a damaged page makes only the entries that need it unavailable",
    arguments: [
      (page: PageID.head, damage: "cut off", reply: "unread unavailable 2/0"),
      (PageID.head, "gone", "unread unavailable 2/0"),
      (PageID.head, "another's", "unread unavailable 2/0"),
      (PageID.rows(0), "cut off", "unread unavailable 2/0"),
      (PageID.rows(0), "another's", "unread unavailable 2/0"),
      (PageID.segment(0), "cut off", "unread unavailable 2/0"),
      (PageID.segment(0), "gone", "unread unavailable 2/0"),
      (PageID.segment(0), "another's", "unread unavailable 2/0"),
      (PageID.segment(0), "ahead", "unread unavailable 2/0"),
    ]
  )
  func damagedPageMakesOnlyEntriesThatNeedItUnavailable(_ page: PageID, _ damage: String, _ reply: String)
    throws
  {
    let (harness, gateway) = try storedHarness(4)
    gateway.read("team:3", "alice", "m1")
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    try harness.writePages()
    let again = try EngineHarness(harness.storage)
    let later = again.connect()
    let key = PageKey(shard: ShardID(0), channel: ChannelNumber(4), page: page)
    var bytes = try #require(again.storage.pages[key])
    switch damage {
    case "gone": again.storage.pages[key] = nil
    case "cut off": again.storage.pages[key] = bytes.readSlice(length: bytes.readableBytes - 3)
    case "ahead":
      var page = try Page(bytes.readableBytesSpan)
      page.index = LogIndex(1_000)
      bytes.clear()
      page.write(into: &bytes)
      again.storage.pages[key] = bytes
    default:
      let other = PageKey(shard: ShardID(0), channel: ChannelNumber(3), page: page)
      again.storage.pages[key] = again.storage.pages[other]
    }
    later.unreadCounts([CountsEntry("team:3", "alice"), CountsEntry("team:2", "alice")])
    again.loop.endTurn()
    again.completePeek()
    try again.completeLoads()
    #expect(later.last == reply)
    #expect(again.reports.count == 1)
    #expect(again.loop.gauges.loadedChannels == 0)
  }

  @Test("a channel that cannot be read whole is unavailable, and the others are answered")
  func channelThatCannotBeReadWholeIsUnavailable() throws {
    let (harness, gateway) = try storedHarness(4)
    // A row of another user.
    gateway.unreadCounts([
      CountsEntry("team:3", "alice", 1), CountsEntry("team:2", "alice"), CountsEntry("team:1", "zoe"),
    ])
    harness.loop.endTurn()
    harness.completePeek()
    // The row is on the same page. Only a user without a row there requires the whole channel.
    #expect(harness.loads.count == 1)
    try harness.completeLoad(failing: true)
    #expect(gateway.last == "unread 3/0 2/0 unavailable")
  }

  // MARK: Threads

  @Test("threads with unread replies are counted from their pages alone")
  func threadsWithUnreadRepliesAreCountedFromPagesAlone() throws {
    let (harness, gateway) = try storedHarness(5)
    let channel = ChannelNumber(5)
    func put(_ page: PageID, _ effects: [Effect]) {
      var bytes = ByteBuffer()
      Page(index: LogIndex(1), effects: effects).write(into: &bytes)
      harness.storage.pages[PageKey(shard: ShardID(0), channel: channel, page: page)] = bytes
    }
    func row(_ row: UInt32, _ user: String, read: UInt32, marker: UInt32? = nil, hasLeft: Bool = false)
      -> ChannelEffect
    {
      .rowAssigned(
        MemberOrdinal(row),
        RowRecord(
          user: user,
          hasLeft: hasLeft,
          joined: .zero,
          joinedAt: Timestamp(milliseconds: 1),
          read: SequenceNumber(read),
          marker: marker.map { SequenceNumber($0) }
        )
      )
    }
    func reply(_ number: UInt32, by sender: String, _ flags: MessageRecord.Flags = []) -> ChannelEffect {
      let record = MessageRecord(
        id: "r\(number)",
        sender: sender,
        flags: flags,
        registeredAt: Timestamp(milliseconds: 1)
      )
      return .messageAssigned(SequenceNumber(number), record)
    }
    func thread(_ parent: UInt32, _ rows: [ChannelEffect], _ replies: [ChannelEffect]) {
      let parent = SequenceNumber(parent)
      put(.threadRows(parent, 0), rows.map { .channel(channel, .inThread(parent, $0)) })
      put(.threadSegment(parent, 0), replies.map { .channel(channel, .inThread(parent, $0)) })
    }
    // m4 is deleted below, so its thread counts nowhere.
    thread(
      1,
      [row(0, "alice", read: 2), row(1, "bob", read: 1)],
      [reply(1, by: "bob"), reply(2, by: "alice")]
    )
    thread(2, [row(0, "alice", read: 0)], [reply(1, by: "bob", .silent), reply(2, by: "bob", .deleted)])
    thread(3, [row(0, "alice", read: 2, marker: 0)], [reply(1, by: "alice"), reply(2, by: "bob")])
    thread(4, [row(0, "alice", read: 0), row(1, "bob", read: 0)], [reply(1, by: "carol")])
    func ask() -> String {
      gateway.unreadCounts([CountsEntry("team:4", "alice"), CountsEntry("team:4", "bob", 1)])
      harness.loop.endTurn()
      if !harness.peeks.isEmpty { harness.completePeek() }
      return gateway.last
    }
    #expect(ask() == "unread 4/2 4/2")
    thread(3, [row(0, "alice", read: 2, marker: 0)], [reply(1, by: "alice"), reply(2, by: "alice")])
    #expect(ask() == "unread 4/1 4/2")
    thread(1, [row(0, "alice", read: 2), row(1, "bob", read: 1, hasLeft: true)], [reply(1, by: "bob")])
    #expect(ask() == "unread 4/1 4/1")
    let key = PageKey(shard: ShardID(0), channel: channel, page: .segment(0))
    let bytes = try #require(harness.storage.pages[key])
    var page = try Page(bytes.readableBytesSpan)
    page.effects = page.effects.map { effect in
      guard case .channel(channel, .messageAssigned(SequenceNumber(4), var record)) = effect else {
        return effect
      }
      record.flags.insert(.deleted)
      return .channel(channel, .messageAssigned(SequenceNumber(4), record))
    }
    put(.segment(0), page.effects)
    #expect(ask() == "unread 4/0 4/0")
    #expect(harness.reports == [])
    #expect(harness.loop.gauges.loadedChannels == 0)
  }

  // MARK: Limits

  @Test("unread_counts checks limits, names and shards")
  func unreadCountsChecksLimits() throws {
    let (before, _) = try storedHarness(2)
    let harness = try EngineHarness(before.storage, shards: [0], of: 2)
    let gateway = harness.connect()
    func isHere(_ cid: String) -> Bool { ShardID.owning(Array(cid.utf8).span.bytes, count: 2) == ShardID(0) }
    let here = try #require((0..<100).map { "other:\($0)" }.first { isHere($0) })
    let elsewhere = try #require((0..<100).map { "other:\($0)" }.first { !isHere($0) })
    gateway.unreadCounts([])
    gateway.unreadCounts(Array(repeating: CountsEntry(here, "alice"), count: 1_025))
    harness.loop.endTurn()
    #expect(gateway.take() == ["1 invalid_field", "2 invalid_field"])
    gateway.unreadCounts([
      CountsEntry(elsewhere, "alice"), CountsEntry("alice", "alice"), CountsEntry(here, "no\u{7}user"),
      CountsEntry("", "alice"),
    ])
    harness.loop.endTurn()
    #expect(gateway.take() == ["3 unread wrong_shard invalid_field invalid_field invalid_field"])
    gateway.unreadCounts(Array(repeating: CountsEntry(here, "alice"), count: 1_024))
    harness.loop.endTurn()
    harness.completePeek()
    #expect(gateway.last.split(separator: " ").count { $0 == "channel_not_found" } == 1_024)
    #expect(gateway.ended.isEmpty)
    // The list announces one entry and has none.
    gateway.send(.unreadCounts, nil) { $0.writeVarint(1) }
    #expect(gateway.ended.count == 1)
  }

  @Test("waiting unread counts are limited: one more is busy, and those of closed connections are dropped")
  func waitingUnreadCountsAreLimited() throws {
    let (harness, gateway) = try storedHarness(3) { $0.unreadRequestsMax = 2 }
    let other = harness.connect(session: 2)
    gateway.unreadCounts([CountsEntry("team:1", "alice")])
    other.unreadCounts([CountsEntry("team:1", "alice")])
    gateway.unreadCounts([CountsEntry("team:2", "alice")])
    harness.loop.endTurn()
    #expect(gateway.take() == ["2 busy"])
    harness.loop.close(other.lane)
    harness.completePeek()
    harness.completePeek()
    #expect(gateway.take() == ["1 unread 1/0"])
    #expect(other.take() == [])
    #expect(!harness.loop.isBusy)
    gateway.unreadCounts([CountsEntry("team:2", "alice")])
    harness.loop.endTurn()
    harness.completePeek()
    #expect(gateway.take() == ["3 unread 2/0"])
  }

  @Test("unread counts are busy while too many channels load, and stale reads change nothing later")
  func unreadCountsAreBusyWhileChannelsLoad() throws {
    let (harness, gateway) = try storedHarness(4) { $0.loadsMax = 1 }
    gateway.getChannel("team:1")
    gateway.unreadCounts([
      CountsEntry("team:2", "zoe"), CountsEntry("team:1", "alice"), CountsEntry("team:3", "alice"),
    ])
    harness.loop.endTurn()
    harness.completePeek()
    #expect(gateway.take() == ["2 busy"])
    try harness.completeLoads()
    #expect(gateway.take() == ["1 channel of 2"])
    #expect(!harness.loop.isBusy)
    gateway.unreadCounts([CountsEntry("team:3", "alice"), CountsEntry("team:1", "alice")])
    harness.loop.endTurn()
    harness.completePeek()
    #expect(gateway.take() == ["3 unread 3/0 1/0"])
  }

  @Test("a revoked token is refused")
  func revokedTokenIsRefused() throws {
    let (harness, gateway) = try storedHarness(2)
    gateway.send(.patchUser, "alice") { payload in
      payload.writeVarint(4)
      payload.writeVarint(0)
      payload.writeTime(Timestamp(milliseconds: 50_000))
    }
    harness.loop.endTurn()
    try harness.persistAll()
    _ = gateway.take()
    gateway.unreadCounts([CountsEntry("team:1", "bob", 1), CountsEntry("team:1", "alice")], issued: 40)
    gateway.unreadCounts([CountsEntry("team:1", "alice")], issued: 60)
    harness.loop.endTurn()
    harness.completePeek()
    #expect(gateway.take() == ["2 token_revoked", "3 unread 1/0"])
  }
}
