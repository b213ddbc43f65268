import Testing

@testable import NaiveReceiptModel

/// The oracle alone: small cases of the rules (docs/api/semantics.md), worked out by hand. The random comparisons
/// depend on these answers.
@Suite("The naive model")
struct NaiveModelTests {
  @Test("R7: others see a hidden member as unmoved; showing again counts from that time")
  func othersSeeHiddenMemberAsUnmoved() {
    var room = NaiveRoom()
    _ = room.post("m1")
    room.read("bob", "m1")
    #expect(room.status("m1") == "read none 1 1 2")
    room.hide("bob", read: true)
    #expect(room.status("m1") == "sent none 0 0 2")
    #expect(room.list("m1", .readers) == "")
    #expect(room.list("m1", .unread) == "bob@0 carol@0")
    #expect(room.member("bob", "m1") == "sent 0 0 true")
    #expect(room.member("bob", "m1", .member("bob")) == "read 1200 1200 true")
    #expect(room.member("bob", "m1", .serverFor("bob")) == "read 1200 1200 true")
    _ = room.post("m2")
    room.read("bob", "m2")
    let hidden = room.model.answers(room.cid).shownRow("bob", hasOwn: true)!
    #expect(hidden.lastRead == 0 && hidden.lastReadAt == 1000 && hidden.lastDelivered == 0)
    #expect(hidden.own!.unread == 0)
    #expect(room.model.answers(room.cid).ownRow("bob")!.lastReadAt == 1500)
    room.hide("bob", read: false)
    let shown = room.model.answers(room.cid).shownRow("bob", hasOwn: false)!
    #expect(shown.lastRead == 2 && shown.lastReadAt == 1600)
    #expect(room.list("m1", .readers) == "bob@1200")
    #expect(room.list("m2", .readers) == "bob@~1600")
    #expect(room.member("bob", "m2", .member("bob")) == "read 1500 1500 true")
  }

  @Test("R7: read and delivery receipts are hidden separately")
  func readAndDeliveryReceiptsAreHiddenSeparately() {
    var room = NaiveRoom()
    room.hide("bob", delivered: true)
    _ = room.post("m1")
    room.deliver("bob")
    #expect(room.status("m1") == "sent none 0 0 2")
    room.read("bob")
    #expect(room.status("m1") == "read none 1 1 2")
    room.hide("bob", read: true, delivered: false)
    #expect(room.status("m1") == "delivered none 0 1 2")
    #expect(room.list("m1", .delivered) == "bob@~1500")
  }

  @Test(
    "R8: without read_events all members look unmoved, acknowledging is not reading but still works"
  )
  func withoutReadEventsAllMembersLookUnmoved() {
    var room = NaiveRoom(["read_events": "false"])
    _ = room.post("m1", requestsAcknowledgement: true)
    room.read("bob")
    #expect(room.status("m1") == "sent processing 0 0 2")
    _ = room.acknowledge("bob", "m1")
    _ = room.acknowledge("carol", "m1")
    #expect(room.status("m1") == "sent done 0 0 2")
    #expect(room.list("m1", .readers) == "")
    room.deliver("bob")
    #expect(room.status("m1") == "delivered done 0 1 2")
    room.set(["delivery_events": "false", "read_events": "true"])
    #expect(room.status("m1") == "read done 2 2 2")
  }

  @Test("R19: the rule counts members who do not hide, rounds up, and needs at least one")
  func ruleCountsMembersWhoDoNotHide() {
    var room = NaiveRoom(["status_rule": "all"], ["alice", "bob", "carol", "dave"])
    _ = room.post("m1")
    room.read("bob")
    #expect(room.status("m1") == "sent none 1 1 3")
    room.deliver("carol")
    room.hide("dave", read: true, delivered: true)
    // Two members are expected; bob has read it, and both have received it.
    #expect(room.status("m1") == "delivered none 1 2 3")
    for (rule, word) in [
      ("50%", "read"), ("51%", "delivered"), ("1%", "read"), ("1", "read"), ("9", "delivered"),
    ] {
      room.set(["status_rule": rule])
      #expect(room.status("m1") == "\(word) none 1 2 3", "\(rule)")
    }
    room.hide("bob", read: true, delivered: true)
    room.hide("carol", read: true, delivered: true)
    #expect(room.status("m1") == "sent none 0 0 3")
  }

  @Test("R9: an acknowledgement request is done once all shown recipients acknowledged; otherwise it expires")
  func requestIsDoneOnceAllRecipientsAcknowledged() {
    var room = NaiveRoom(["receipt_ttl": "1"])
    _ = room.post("m1", requestsAcknowledgement: true)  // at 1100
    _ = room.post("m2")
    #expect(room.status("m1") == "sent processing 0 0 2")
    #expect(room.status("m2") == "sent none 0 0 2")
    #expect(room.acknowledge("alice", "m1") == .acknowledged(["own_message"]))
    #expect(
      room.acknowledge("bob", "m1", "m2", "m3", "m1", note: "!")
        == .acknowledged(["ok", "receipt_not_requested", "message_not_found", "ok"])
    )
    #expect(room.status("m1") == "read processing 1 1 2")
    #expect(room.list("m1", .readers) == "bob@1400!")
    room.hide("carol", read: true)
    #expect(room.status("m1") == "read done 1 1 2")
    room.hide("bob", read: true)
    // No recipient is left.
    #expect(room.status("m1") == "sent processing 0 0 2")
    room.clock = 2000
    #expect(room.acknowledge("dave", "m1") == .refused("not_a_member"))  // at 2100
    #expect(room.status("m1") == "sent expired 0 0 2")
    #expect(room.acknowledge("bob", "m1") == .acknowledged(["ok"]))
    #expect(room.acknowledge("carol", "m1") == .acknowledged(["receipt_expired"]))
    room.do(.change(cid: room.cid, add: [MemberSpec(user: "dave")], remove: []))
    _ = room.post("m3", requestsAcknowledgement: true)
    room.do(.change(cid: room.cid, add: [MemberSpec(user: "erin")], remove: []))
    #expect(room.acknowledge("erin", "m3") == .acknowledged(["not_expected"]))
    #expect(room.status("m3") == "sent processing 0 0 3")
  }

  @Test("R9: limits of acknowledgement requests, and eviction of the oldest acknowledgement")
  func requestsAreLimitedAndEvictOldestAcknowledgement() {
    var room = NaiveRoom([
      "receipt_request_roles": "admin", "receipt_daily_limit": "1", "receipt_max_members": "1",
    ])
    #expect(
      room.post("m1", requestsAcknowledgement: true)
        == .message(sequence: 1, isNew: true, refusal: "receipt_not_allowed")
    )
    room.do(.change(cid: room.cid, add: [MemberSpec(user: "alice", role: "admin")], remove: []))
    #expect(room.post("m2", requestsAcknowledgement: true) == .message(sequence: 2, isNew: true))
    #expect(
      room.post("m3", requestsAcknowledgement: true)
        == .message(sequence: 3, isNew: true, refusal: "receipt_limit_reached")
    )
    #expect(
      room.post("m3", requestsAcknowledgement: true)
        == .message(sequence: 3, isNew: false, refusal: "receipt_limit_reached")
    )
    _ = room.acknowledge("bob", "m2", note: "b")
    room.hide("carol", read: true)
    _ = room.acknowledge("carol", "m2", note: "c")
    #expect(room.list("m2", .readers) == "bob@1600b")
    room.do(.change(cid: room.cid, add: [], remove: ["carol"]))
    #expect(room.status("m2") == "read done 1 1 1")
    room.set(["receipt_max_members": "0"])
    room.do(.delivered(cid: room.cid, user: "bob", message: ""))
    room.clock = 86_400_000
    #expect(room.post("m4", requestsAcknowledgement: true) == .message(sequence: 4, isNew: true))
    _ = room.acknowledge("bob", "m4", note: "gone")
    #expect(room.list("m4", .readers) == "bob@~\(room.clock)")
  }

  @Test("R9: mark-read acknowledges in channels of two, always, or never")
  func readAcknowledges() {
    var room = NaiveRoom(["mark_unread": "public"])
    _ = room.post("m1", requestsAcknowledgement: true)
    room.read("bob")
    #expect(room.status("m1") == "read processing 1 1 2")
    room.do(.change(cid: room.cid, add: [], remove: ["carol"]))
    #expect(room.status("m1") == "read processing 1 1 1")
    room.read("bob")
    #expect(room.status("m1") == "read done 1 1 1")
    // A member who acknowledged has read the message, wherever their marker moves.
    room.do(.unread(cid: room.cid, user: "bob", message: "m1", epoch: nil))
    #expect(room.list("m1", .readers) == "bob@1400")
    room.set(["read_acks_receipts": "never"])
    _ = room.post("m2", requestsAcknowledgement: true)
    room.read("bob")
    #expect(room.status("m2") == "read processing 1 1 1")
  }

  @Test("R10: with counts_visible_to=sender only the sender sees counts")
  func onlySenderSeesCounts() {
    var room = NaiveRoom(["counts_visible_to": "sender"])
    _ = room.post("m1", requestsAcknowledgement: true)
    _ = room.acknowledge("bob", "m1")
    _ = room.acknowledge("carol", "m1")
    for viewer in [Viewer.server, .member("alice"), .serverFor("alice")] {
      #expect(room.status("m1", viewer) == "read done 2 2 2")
      #expect(room.list("m1", .readers, .time, viewer) == "bob@1200 carol@1300")
    }
    for viewer in [Viewer.member("bob"), .serverFor("bob")] {
      #expect(room.status("m1", viewer) == "sent processing 0 0 0")
      #expect(room.list("m1", .unread, .joined, viewer) == "counts_not_visible")
      #expect(room.member("carol", "m1", viewer) == "counts_not_visible")
      #expect(room.member("bob", "m1", viewer) == "read 1200 1200 true")
      #expect(try! room.model.answers(room.cid).readState(viewer).get().map(\.user) == ["bob"])
    }
    #expect(room.status("m1", .member("dave")) == "not_a_member")
  }

  @Test("R11: lists of readers, delivered and unread members, in join order or by time and then id")
  func listsAreInJoinOrderOrByTime() {
    var room = NaiveRoom([:], ["zoe", "bob", "carol", "alice"])
    _ = room.post("m1", by: "alice")
    room.read("carol")
    room.clock -= 100
    room.read("bob")
    room.read("zoe")
    #expect(room.list("m1", .readers) == "zoe@1300 bob@1200 carol@1200")
    #expect(room.list("m1", .readers, .time) == "bob@1200 carol@1200 zoe@1300")
    _ = room.post("m2", by: "bob")
    room.deliver("zoe")
    #expect(room.list("m2", .delivered) == "zoe@1500")
    #expect(room.list("m2", .unread) == "zoe@0 carol@0 alice@0")
    #expect(room.list("m2", .unread, .time) == "alice@0 carol@0 zoe@0")
    #expect(room.member("bob", "m2") == "read 1400 1400 true")
  }

  @Test("R17: the first step that reached the message answers, as long as it is kept")
  func firstStepThatReachedMessageAnswers() {
    var room = NaiveRoom(["kept_steps": "2"])
    for id in ["m1", "m2", "m3"] { _ = room.post(id) }  // 1100, 1200, 1300
    for id in ["m1", "m2", "m3"] { room.read("bob", id) }  // 1400, 1500, 1600
    #expect(room.list("m1", .readers) == "bob@~1500")
    #expect(room.list("m2", .readers) == "bob@1500")
    #expect(room.list("m3", .readers) == "bob@1600")
    room.set(["kept_steps": "0"])
    #expect(room.list("m1", .readers) == "bob@~1600")
    #expect(room.list("m3", .readers) == "bob@~1600")
  }

  @Test("each change raises the version of a user's settings; tokens issued before a revocation are refused")
  func eachChangeRaisesVersionOfUserSettings() {
    var room = NaiveRoom()
    let none = UserView(user: "bob")
    #expect(room.do(.patchUser("bob", showsRead: true, showsDelivered: nil, revoked: nil)) == .user(none))
    let first = UserView(user: "bob", version: 1, hidesRead: true)
    #expect(room.do(.patchUser("bob", showsRead: false, showsDelivered: nil, revoked: nil)) == .user(first))
    #expect(room.do(.patchUser("bob", showsRead: false, showsDelivered: nil, revoked: nil)) == .user(first))
    var second = first
    second.version = 2
    second.revokedBefore = 5000
    #expect(room.do(.patchUser("bob", showsRead: nil, showsDelivered: nil, revoked: 5000)) == .user(second))
    #expect(room.model.isRevoked("bob", issuedSeconds: 4) && !room.model.isRevoked("bob", issuedSeconds: 5))
    #expect(room.do(.assignUser(first)) == .user(second))
  }
}
