import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// R7 and R8: the view that others have of a hidden user, and of a kind that is switched off.
@Suite("Stories of privacy")
struct PrivacyStoryTests {
  @Test("a hidden reader is a member who has not read; shown again, they have read since that time")
  func hiddenReaderHasNotRead() throws {
    let room = try Room("alice bob carol")
    try room.post("m1", by: "alice")
    try room.post("m2", by: "alice")
    try room.hide("bob", .read)
    try room.read("bob", "m1")
    #expect(
      room.effects.contains { if case .channel(_, .readMoved(_, _, _, true)) = $0 { true } else { false } }
    )
    #expect(try room.status("m1") == "sent 0 0 of 2")
    #expect(room.shown("bob") == "read 0 at 1000, delivered 0 at 0")
    // Bob sees his own read position.
    #expect(room.own("bob") == "read 1 at 1400, delivered 1 at 1400 unread 1")
    #expect(try room.status("m1", as: "bob") == "sent 0 0 of 2", "everybody gets the same counts")
    try room.read("carol", "m1")
    #expect(try room.status("m1") == "read 1 1 of 2")
    try room.show("bob", .read)
    #expect(try room.status("m1") == "read 2 2 of 2")
    #expect(room.shown("bob") == "read 1 at 1600, delivered 1 at 1600")
    #expect(room.own("bob") == "read 1 at 1400, delivered 1 at 1400 unread 1")
    // A move made while shown has its own time.
    try room.read("bob", "m2")
    #expect(room.shown("bob") == "read 2 at 1700, delivered 2 at 1700")
  }

  @Test("hiding also hides earlier reads; showing again restores their times")
  func hidingCoversEarlierReads() throws {
    let room = try Room("alice bob")
    try room.post("m1", by: "alice")
    try room.read("bob")
    #expect(room.shown("bob") == "read 1 at 1200, delivered 1 at 1200")
    try room.hide("bob", .read)
    #expect(room.shown("bob") == "read 0 at 1000, delivered 0 at 0")
    #expect(try room.status("m1") == "sent 0 0 of 1")
    try room.show("bob", .read)
    #expect(room.shown("bob") == "read 1 at 1200, delivered 1 at 1200")
    #expect(try room.status("m1") == "read 1 1 of 1")
  }

  @Test("after hiding twice, moves made while hidden count from the latest showing")
  func movesMadeWhileHiddenCountFromLatestShowing() throws {
    let room = try Room("alice bob")
    try room.post("m1", by: "alice")
    try room.hide("bob", .read, .delivered)
    try room.read("bob")
    try room.deliver("bob")
    try room.show("bob", .read, .delivered)
    #expect(room.shown("bob") == "read 1 at 1500, delivered 1 at 1500")
    try room.hide("bob", .read, .delivered)
    try room.show("bob", .delivered)
    #expect(room.shown("bob") == "read 0 at 1000, delivered 1 at 1700")
    try room.show("bob", .read)
    #expect(room.shown("bob") == "read 1 at 1800, delivered 1 at 1700")
  }

  @Test("the two kinds are hidden separately: a read implies delivery only as far as it is shown")
  func twoKindsAreHiddenSeparately() throws {
    let room = try Room("alice bob carol")
    try room.post("m1", by: "alice")
    try room.post("m2", by: "alice")
    try room.deliver("bob", "m1")
    try room.read("bob", "m2")
    try room.hide("bob", .read)
    #expect(room.shown("bob") == "read 0 at 1000, delivered 1 at 1300")
    #expect(try room.status("m1") == "delivered 0 1 of 2")
    #expect(try room.status("m2") == "sent 0 0 of 2")
    try room.hide("bob", .delivered)
    #expect(try room.status("m1") == "sent 0 0 of 2")
    try room.show("bob", .read)
    // Delivery is hidden, reading is not: a member who has read the message has received it.
    #expect(room.shown("bob") == "read 2 at 1400, delivered 2 at 1400")
    #expect(try room.status("m2") == "read 1 1 of 2")
    try room.deliver("bob")
    try room.show("bob", .delivered)
    #expect(room.shown("bob") == "read 2 at 1400, delivered 2 at 1900")
  }

  @Test(
    "a server sees others like a member does, with their unread counts; for a member it sees that member's own row"
  )
  func serverSeesOthersLikeMemberDoes() throws {
    let room = try Room("alice bob")
    try room.post("m1", by: "bob")
    try room.hide("alice", .read, .delivered)
    try room.post("m2", by: "alice")
    let hidden = room.effects.count {
      switch $0 {
      case .channel(_, .readMoved(_, _, _, true)), .channel(_, .deliveredMoved(_, _, _, true)): true
      default: false
      }
    }
    #expect(hidden == 2)
    #expect(room.shown("alice") == "read 0 at 1000, delivered 0 at 0")
    #expect(try room.status("m1") == "sent 0 0 of 1")
    #expect(try room.status("m2") == "sent 0 0 of 1")
    try room.show("alice", .read)
    #expect(room.shown("alice") == "read 2 at 1400, delivered 2 at 1400")
    #expect(try room.status("m1") == "read 1 1 of 1")
  }

  @Test("a member who joins while hidden has the joining position; leaving removes the row")
  func memberWhoJoinsWhileHiddenHasJoiningPosition() throws {
    let room = try Room("alice bob") { $0.history = .visible }
    try room.post("m1", by: "alice")
    try room.hide("carol", .read, .delivered)
    try room.change(add: ["carol"])
    try room.post("m2", by: "alice")
    try room.read("carol")
    #expect(room.shown("carol") == "read 1 at 1400, delivered 1 at 1400")
    #expect(room.own("carol") == "read 2 at 1600, delivered 2 at 1600 unread 0")
    #expect(try room.status("m2") == "sent 0 0 of 2")
    try room.change(remove: ["carol"])
    #expect(try room.status("m2") == "sent 0 0 of 1")
    // Shown and hidden again while away: there is no row that could copy it.
    try room.show("carol", .read)
    try room.change(add: ["carol"])
    try room.post("m3", by: "alice")
    try room.read("carol")
    #expect(try room.status("m3") == "read 1 1 of 2")
    try room.change(remove: ["carol"])
    try room.hide("carol", .read)
    try room.change(add: ["carol"])
    #expect(room.shown("carol") == "read 3 at 2400, delivered 3 at 2400")
    try room.post("m4", by: "alice")
    try room.read("carol")
    #expect(try room.status("m4") == "sent 0 0 of 2")
  }

  @Test("history hidden: the unmoved row is at 0")
  func unmovedRowOfHiddenHistoryIsZero() throws {
    let room = try Room("alice") { $0.history = .hidden }
    try room.post("m1", by: "alice")
    try room.change(add: ["bob"])
    try room.hide("bob", .read)
    try room.post("m2", by: "alice")
    try room.read("bob")
    #expect(room.shown("bob") == "read 0 at 1300, delivered 0 at 0")
    try room.show("bob", .read)
    #expect(room.shown("bob") == "read 2 at 1700, delivered 2 at 1700")
  }

  @Test("type switches hide a kind for all members: rows show the joining positions")
  func typeOptionHidesKindForAllMembers() throws {
    let room = try Room("alice")
    try room.post("m1", by: "alice")
    try room.change(add: ["bob"])
    try room.post("m2", by: "alice")
    try room.read("bob")
    try room.deliver("bob")
    try room.type { $0.readEvents = false }
    #expect(room.shown("bob") == "read 1 at 1200, delivered 2 at 1500")
    #expect(try room.status("m2") == "delivered 0 1 of 1")
    try room.type { $0.deliveryEvents = false }
    #expect(room.shown("bob") == "read 1 at 1200, delivered 1 at 1200")
    #expect(try room.status("m2") == "sent 0 0 of 1")
    try room.type { $0.readEvents = true }
    #expect(try room.status("m2") == "read 1 1 of 1")
    #expect(room.shown("bob") == "read 2 at 1400, delivered 2 at 1400")
    // A kind that the channel shows and the user hides is hidden.
    try room.hide("bob", .read)
    #expect(try room.status("m2") == "sent 0 0 of 1")
  }

  @Test("mark_unread public: a hidden row shows no own position either")
  func hiddenRowShowsNoOwnPosition() throws {
    let room = try Room("alice bob") { $0.markUnread = .public }
    for id in ["m1", "m2", "m3"] { try room.post(id, by: "alice") }
    try room.read("bob")
    try room.unread("bob", "m3")
    #expect(try room.status("m3") == "delivered 0 1 of 1")
    #expect(try room.status("m2") == "read 1 1 of 1")
    try room.hide("bob", .read)
    #expect(try room.status("m2") == "sent 0 0 of 1")
    #expect(room.shown("bob") == "read 0 at 1100, delivered 0 at 0")
  }

  @Test(
    "a server sees others alike, with their unread counts; for a member it sees that member's own row"
  )
  func serverSeesOthersAlike() throws {
    let room = try Room("alice bob carol")
    try room.post("m1", by: "alice")
    try room.hide("bob", .read)
    try room.read("bob")
    #expect(
      try room.page(as: nil) == [
        "carol: read 0 at 1000, delivered 0 at 0 unread 1",
        "bob: read 0 at 1000, delivered 0 at 0 unread 0",
        "alice: read 1 at 1100, delivered 1 at 1100 unread 0",
      ]
    )
    #expect(
      try room.page(as: "bob", isServer: true) == [
        "bob: read 1 at 1300, delivered 1 at 1300 unread 0",
        "carol: read 0 at 1000, delivered 0 at 0 unread 1",
        "alice: read 1 at 1100, delivered 1 at 1100 unread 0",
      ]
    )
    #expect(
      try room.page(as: "carol") == [
        "carol: read 0 at 1000, delivered 0 at 0 unread 1", "bob: read 0 at 1000, delivered 0 at 0",
        "alice: read 1 at 1100, delivered 1 at 1100",
      ]
    )
  }

  @Test("a hidden member's acknowledgement counts nowhere until they show again")
  func hiddenAcknowledgementCountsNowhere() throws {
    let room = try Room("alice bob carol")
    try room.postWithAcknowledgementRequest("m1", by: "alice")
    try room.hide("bob", .read)
    try room.acknowledge("bob", "m1")
    #expect(try room.status("m1") == "sent 0 0 of 2 processing")
    // The acknowledgement request waits only for members who do not hide.
    try room.acknowledge("carol", "m1")
    #expect(try room.status("m1") == "read 1 1 of 2 done")
    try room.show("bob", .read)
    #expect(try room.status("m1") == "read 2 2 of 2 done")
    try room.type { $0.readEvents = false }
    #expect(try room.status("m1") == "sent 0 0 of 2 done")
  }

  @Test("an acknowledging member who hides delivery is a reader; reading and acknowledging make one reader")
  func acknowledgingMemberIsOneReader() throws {
    let room = try Room("alice bob carol")
    try room.postWithAcknowledgementRequest("m1", by: "alice")
    try room.hide("bob", .delivered)
    try room.acknowledge("bob", "m1")
    try room.read("carol")
    try room.acknowledge("carol", "m1")
    #expect(try room.status("m1") == "read 2 2 of 2 done")
  }

  @Test("pages keep moves made while hidden; loading copies the current settings")
  func pagesKeepMovesMadeWhileHidden() throws {
    let room = try Room("alice bob carol")
    try room.post("m1", by: "alice")
    try room.hide("bob", .read, .delivered)
    try room.read("bob")
    try room.deliver("bob")
    try room.read("carol")
    room.reload()
    #expect(room.shown("bob") == "read 0 at 1000, delivered 0 at 0")
    #expect(try room.status("m1") == "read 1 1 of 2")
    try room.show("bob", .read)
    room.reload()
    #expect(room.shown("bob") == "read 1 at 1600, delivered 1 at 1600")
    #expect(try room.status("m1") == "read 2 2 of 2")
  }
}
