import Testing

@testable import ReceiptModel

/// R10: `counts_visible_to`.
@Suite("Visibility of counts")
struct CountsVisibleTests {
  @Test("with sender only, others get zeros and sent; a server that acts for no user sees all counts")
  func senderOnlyHidesCountsFromOthers() throws {
    let room = try Room("alice bob carol") { $0.countsVisibleTo = .sender }
    try room.post("m1", by: "alice")
    try room.post("m2", by: "bob")
    try room.read("carol")
    #expect(try room.status("m1", as: "alice") == "read 2 2 of 2")
    #expect(try room.status("m2", as: "alice") == "sent 0 0 of 0")
    #expect(try room.status("m2", as: "bob") == "read 1 1 of 2")
    #expect(try room.status("m1", as: "carol") == "sent 0 0 of 0")
    #expect(try room.status("m1") == "read 2 2 of 2")
    // A server on behalf of a member sees what the member sees.
    let forCarol = try room.viewer("carol", isServer: true)
    #expect(room.state.status(room.slot, room.sequence("m1"), viewer: forCarol).memberCount == 0)
    try room.type { $0.countsVisibleTo = .members }
    #expect(try room.status("m1", as: "carol") == "read 2 2 of 2")
  }

  @Test("a sender who left and rejoined is still the sender; system messages have no sender")
  func senderWhoLeftAndRejoinedIsStillSender() throws {
    let room = try Room("alice bob") { $0.countsVisibleTo = .sender }
    try room.post("m1", by: "alice")
    try room.post("m2", by: "")
    try room.change(remove: ["alice"])
    try room.change(add: ["alice"])
    try room.read("bob")
    #expect(try room.status("m1", as: "alice") == "read 1 1 of 1")
    #expect(try room.status("m2", as: "alice") == "sent 0 0 of 0")
    #expect(try room.status("m2") == "read 1 1 of 1")
    // Registering it again does not show its counts to another user.
    let (bob, alice) = (Array("bob".utf8), Array("alice".utf8))
    let (other, own) = (
      room.state.sender(bob.span.bytes, in: room.slot), room.state.sender(alice.span.bytes, in: room.slot)
    )
    #expect(room.state.status(room.slot, room.sequence("m1"), viewer: other).status == .sent)
    #expect(room.state.status(room.slot, room.sequence("m1"), viewer: own).status == .read)
  }

  @Test("acknowledgements: other members see `receipt_status` as if no member had acknowledged")
  func requestStatusHidesAcknowledgementsFromOthers() throws {
    let room = try Room("alice bob carol") { $0.countsVisibleTo = .sender }
    try room.postWithAcknowledgementRequest("m1", by: "alice", expiresAt: 2_000)
    try room.post("m2", by: "alice")
    try room.acknowledge("bob", "m1")
    #expect(try room.status("m1", as: "bob") == "sent 0 0 of 0 processing")
    #expect(try room.status("m2", as: "bob") == "sent 0 0 of 0")
    try room.acknowledge("carol", "m1")
    // One command more: the shard's time is that of its last command.
    while room.now.milliseconds < 2_000 { try room.deliver("bob") }
    try room.deliver("bob")
    #expect(try room.status("m1", as: "alice") == "read 2 2 of 2 done")
    #expect(try room.status("m1", as: "bob") == "sent 0 0 of 0 expired")
  }

  @Test("read state: other members see only their own row, on the first page, without a next page")
  func readStateHasOnlyOwnRow() throws {
    let room = try Room("alice bob carol") { $0.countsVisibleTo = .sender }
    try room.post("m1", by: "alice")
    try room.read("bob")
    let bob = "bob: read 1 at 1300, delivered 1 at 1300 unread 0"
    #expect(try room.page(as: "bob") == [bob])
    #expect(try room.page(as: "bob", isServer: true) == [bob])
    #expect(try room.page(as: "bob", limit: 1) == [bob])
    #expect(try room.page(as: "bob", cursor: 3) == [])
    #expect(try room.page(as: nil).count == 3)
    #expect(try room.page(as: nil, limit: 2).last == "more")
  }

  @Test("a batch of statuses equals single queries")
  func batchOfStatusesEqualsSingleQueries() throws {
    let room = try Room("alice bob carol") { $0.countsVisibleTo = .sender }
    for number in 0..<60 { try room.post("m\(number)", by: number % 3 == 0 ? "alice" : "bob") }
    try room.read("carol", "m40")
    let ids = (0..<60).map { "m\($0)" }.reversed() + ["m7", "none"]
    for user in ["alice", "bob", "carol", nil] {
      let single = try ids.dropLast().map { try room.status($0, as: user) }
      #expect(try room.statuses(ids, as: user) == single + ["message_not_found"])
    }
  }
}
