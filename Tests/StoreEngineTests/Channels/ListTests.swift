import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreEngine

extension Gateway {
  /// Request a list. The reply has its users, and `+` with the cursor if there is a next page.
  func list(
    _ cid: String,
    _ list: MemberList,
    _ message: String = "m1",
    order: ListOrder = .joined,
    limit: UInt64 = 100,
    cursor: String = "",
    viewer: String = ""
  ) {
    send(.listMembers, cid) { payload in
      payload.writeListMembers(
        viewer: Array(viewer.utf8).span.bytes,
        isServer: viewer.isEmpty,
        message: Array(message.utf8).span.bytes,
        list: list,
        order: order,
        limit: Int(limit),
        cursor: Array(cursor.utf8).span.bytes
      )
    }
  }

  func members(_ cid: String, _ users: [String], _ message: String = "m1", viewer: String = "") {
    send(.memberStatuses, cid) { payload in
      payload.writeMemberStatuses(
        viewer: Array(viewer.utf8).span.bytes,
        isServer: viewer.isEmpty,
        message: Array(message.utf8).span.bytes,
        userCount: users.count
      )
      for user in users { payload.writeField(user) }
    }
  }

  /// Request statuses as a server.
  func statuses(_ cid: String, _ messages: [String]) {
    send(.statuses, cid) { payload in
      payload.writeVarint(1)
      payload.writeEmptyField()
      payload.writeVarint(messages.count)
      for message in messages { payload.writeField(message) }
    }
  }
}

@Suite("Lists and slices")
struct ListTests {
  /// `team:a` with alice, bob and m1 by alice; `team:b` with this many members and m1; all in storage.
  private func harness(
    members: Int = 100,
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (EngineHarness, Gateway) {
    let (harness, gateway) = try harnessWithChannel { configuration in
      configuration.sliceRows = 40
      configuration.shortRows = 10
      configure(&configuration)
    }
    gateway.post("team:a", "m1", by: "alice")
    gateway.put("team:b", (1...members).map { "u\($0)" })
    harness.loop.endTurn()
    try harness.completeLoads()
    gateway.post("team:b", "m1")
    harness.loop.endTurn()
    try harness.persistAll()
    _ = gateway.take()
    return (harness, gateway)
  }

  private static func words(_ replies: [String]) -> [String] {
    replies.map { String($0.drop { $0 != " " }.dropFirst()) }
  }

  @Test("list_members and member_statuses give answers and refusals")
  func listMembersAndMemberStatusesGiveAnswersAndRefusals() throws {
    let (harness, gateway) = try harness()
    gateway.read("team:a", "bob", "m1")
    harness.loop.endTurn()
    try harness.persistAll()
    _ = gateway.take()
    gateway.list("team:a", .readers)
    gateway.list("team:a", .unread)
    gateway.list("team:a", .readers, order: .time, viewer: "alice")
    gateway.list("team:b", .unread, limit: 2)
    gateway.list("team:b", .unread, limit: 2, cursor: "j98")
    gateway.list("team:a", .readers, limit: 0)
    gateway.list("team:a", .readers, limit: 101)
    gateway.list("team:a", .readers, cursor: "x")
    gateway.list("team:a", .readers, viewer: "zoe")
    gateway.list("team:a", .readers, "m2")
    gateway.members("team:a", ["bob", "zoe", "alice"])
    gateway.members("team:a", [])
    gateway.members("team:a", Array(repeating: "bob", count: 101))
    gateway.members("team:a", ["bob"], "m2")
    gateway.members("team:a", ["bob"], viewer: "zoe")
    harness.loop.endTurn()
    #expect(
      Self.words(gateway.take()) == [
        "bob@1000", "nobody", "bob@1000", "u1 u2 of 100 + j2", "u99 u100", "invalid_field", "invalid_field",
        "invalid_cursor", "not_a_member", "message_not_found", "bob read, zoe not_a_member, alice read",
        "invalid_field", "invalid_field", "message_not_found", "not_a_member",
      ]
    )
  }

  @Test("a list that shows a move leaves once the move is durable")
  func listLeavesOnceMoveIsDurable() throws {
    let (harness, gateway) = try harness()
    gateway.read("team:a", "bob", "m1")
    gateway.list("team:a", .readers)
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    try harness.persist()
    #expect(Self.words(gateway.take()) == ["row read 1 unread 0", "bob@1000"])
  }

  @Test("a long list is built in slices, and other channels are answered between them")
  func longListIsBuiltInSlices() throws {
    let (harness, gateway) = try harness()
    gateway.list("team:b", .readers)
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    #expect(harness.slices == 1)
    #expect(harness.loop.isBusy)
    harness.slice()
    #expect(gateway.take() == [])
    gateway.read("team:a", "bob", "m1")
    // Reads ahead of the scan are included; reads behind it are not.
    gateway.read("team:b", "u1", "m1")
    gateway.read("team:b", "u100", "m1")
    harness.loop.endTurn()
    try harness.persistAll()
    #expect(Self.words(gateway.take()).count == 3)
    var left = 10
    while harness.slices > 0, left > 0 {
      harness.slice()
      left -= 1
    }
    // The total is computed when the page is complete.
    #expect(Self.words(gateway.take()) == ["u100@1000 of 2"])
    #expect(harness.slices == 0)
    #expect(!harness.loop.isBusy)
  }

  @Test("sliced queries take turns")
  func slicedQueriesTakeTurns() throws {
    let (harness, gateway) = try harness()
    for _ in 0..<3 { gateway.list("team:b", .readers) }
    harness.loop.endTurn()
    // Each slice serves one query, and no slice is requested twice.
    var slices = 0
    while harness.slices > 0, slices < 100 {
      #expect(harness.slices == 1)
      harness.slice()
      slices += 1
    }
    #expect(Self.words(gateway.take()) == ["nobody", "nobody", "nobody"])
    #expect((4..<100).contains(slices))
  }

  @Test("one sliced query beyond the limit is busy; those of closed connections do not count")
  func oneSlicedQueryBeyondLimitIsBusy() throws {
    let (harness, gateway) = try harness { $0.slicedQueriesMax = 2 }
    let other = harness.connect(session: 2)
    harness.loop.open(other.lane)
    other.list("team:b", .readers)
    gateway.list("team:b", .readers)
    gateway.list("team:b", .readers)
    harness.loop.endTurn()
    #expect(Self.words(gateway.take()) == ["busy"])
    harness.loop.close(other.lane)
    gateway.list("team:b", .readers)
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    while harness.slices > 0 { harness.slice() }
    #expect(Self.words(gateway.take()) == ["nobody", "nobody"])
    #expect(other.take() == [])
  }

  @Test("a query whose connection has closed is dropped")
  func queryWhoseConnectionHasClosedIsDropped() throws {
    let (harness, gateway) = try harness()
    gateway.list("team:b", .readers)
    harness.loop.endTurn()
    harness.loop.close(gateway.lane)
    #expect(harness.slices == 1)
    harness.slice()
    #expect(harness.slices == 0)
    #expect(!harness.loop.isBusy)
    #expect(gateway.take() == [])
  }

  @Test("a channel stays in memory while a query on it is in progress")
  func channelStaysInMemoryWhileQueryOnItIsInProgress() throws {
    let (harness, gateway) = try harness { $0.residentBytesMax = 1 }
    try harness.writePages()
    _ = gateway.take()
    gateway.list("team:b", .readers)
    harness.loop.endTurn()
    try harness.completeLoads()
    #expect(harness.slices == 1)
    let name = Array("team:b".utf8)
    func isLoaded() -> Bool { harness.loop.isLoaded(ShardID(0), cid: name.span.bytes) }
    // Time and turns that suffice for eviction.
    for _ in 0..<5 {
      harness.advance(1_000)
      harness.loop.tick()
      try harness.persistAll()
      harness.loop.endTurn()
      #expect(isLoaded())
    }
    while harness.slices > 0 { harness.slice() }
    #expect(Self.words(gateway.take()) == ["nobody"])
    for _ in 0..<5 {
      harness.advance(1_000)
      harness.loop.tick()
      try harness.persistAll()
      harness.loop.endTurn()
    }
    #expect(!isLoaded())
  }

  @Test("a halted loop runs no further slices")
  func haltedLoopRunsNoFurtherSlices() throws {
    let (harness, gateway) = try harness()
    gateway.list("team:b", .readers)
    gateway.read("team:a", "bob", "m1")
    harness.loop.endTurn()
    harness.fail()
    harness.slice()
    #expect(harness.slices == 0)
    #expect(gateway.take() == [])
  }
}
