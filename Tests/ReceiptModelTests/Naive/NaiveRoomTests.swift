import Testing

@testable import NaiveReceiptModel

/// The oracle alone: threads, removal, and users over all their channels, worked out by hand. The clock advances by 100
/// ms for each command, from 1100 on.
@Suite("The naive model: threads, removal, users")
struct NaiveRoomTests {
  // MARK: Threads

  @Test("R15: a thread starts with the parent's sender, who has read nothing; replying or marking joins it")
  func threadBegins() {
    var room = NaiveRoom()
    _ = room.post("m1", by: "alice")
    #expect(room.thread("m1") == "none")
    #expect(room.reply("r1", to: "m1", by: "bob") == .message(sequence: 1, isNew: true))
    #expect(room.thread("m1") == "alice 0/0 1, bob 1/1 0")
    #expect(room.reply("r2", to: "m1", by: "alice") == .message(sequence: 2, isNew: true))
    #expect(room.thread("m1") == "alice 2/2 0, bob 1/1 1")
    // Carol's position is what she has read; later replies are unread for her.
    #expect(room.readThread("carol", "m1", "r1") == .row(room.row("carol", in: "m1")))
    #expect(room.thread("m1") == "alice 2/2 0, bob 1/1 1, carol 1/1 0")
    _ = room.reply("r3", to: "m1", by: "bob")
    #expect(room.thread("m1") == "alice 2/2 1, bob 3/3 0, carol 1/1 1")
    // Replies do not count in the channel, and do not use its sequence numbers.
    #expect([room.unread("alice"), room.unread("bob"), room.unread("carol")] == ["0 1", "1 0", "1 1"])
    #expect(room.post("m2") == .message(sequence: 2, isNew: true))
  }

  @Test("R15: a sender who is not or no longer a channel member takes no part in the thread")
  func outsiderTakesNoPartInThread() {
    var room = NaiveRoom()
    _ = room.post("m1", by: "robot")
    _ = room.reply("r1", to: "m1", by: "")
    _ = room.reply("r2", to: "m1", by: "robot")
    #expect(room.thread("m1") == "")
    _ = room.reply("r3", to: "m1", by: "bob")
    // Earlier replies count for bob, who has read them.
    #expect(room.thread("m1") == "bob 3/3 0")
    #expect(room.status("r2") == "read none 1 1 1")
    #expect(room.readThread("robot", "m1") == .refused("not_a_member"))
    _ = room.post("m2", by: "alice")
    room.change(remove: "alice")
    _ = room.reply("r4", to: "m2", by: "bob")
    // Two members are left, so both take part.
    #expect(room.thread("m2") == "bob 1/1 0, carol 0/0 1")
  }

  @Test("R15: leaving the channel leaves its threads; rejoining does not join them again")
  func leavingChannelLeavesThreads() {
    var room = NaiveRoom()
    _ = room.post("m1", by: "alice")
    _ = room.reply("r1", to: "m1", by: "bob")
    room.change(remove: "alice")
    #expect(room.thread("m1") == "bob 1/1 0")
    #expect(room.status("r1") == "sent none 0 0 0")
    room.change(add: "alice")
    _ = room.reply("r2", to: "m1", by: "bob")
    #expect(room.unread("alice") == "0 0")
    _ = room.readThread("alice", "m1")
    #expect(room.thread("m1") == "bob 2/2 0, alice 2/2 0")
    #expect(room.member("alice", "r2") == "read 1600 1600 true")
    #expect(room.member("alice", "r1") == "not_expected")
  }

  @Test("R15: marks in a thread; a reply's id alone identifies its thread")
  func replyIDAloneIdentifiesThread() {
    var room = NaiveRoom()
    _ = room.post("m1", by: "alice")
    #expect(room.readThread("bob", "m1") == .row(.zeros("bob")))
    #expect(room.unreadThread("bob", "m1") == .row(.zeros("bob")))
    #expect(room.thread("m1") == "none")
    #expect(room.readThread("bob", "m9") == .refused("message_not_found"))
    for id in ["r1", "r2", "r3"] { _ = room.reply(id, to: "m1", by: "bob") }
    #expect(room.thread("m1") == "alice 0/0 3, bob 3/3 0")
    #expect(room.deliverThread("carol", "m1") == .row(.zeros("carol")))
    #expect(room.unreadThread("carol", "m1") == .refused("not_in_thread"))
    #expect(room.readThread("alice", "m1", "m1") == .refused("message_not_found"))
    _ = room.deliverThread("alice", "m1", "r2")
    #expect(room.status("r2") == "delivered none 0 1 1")
    room.read("alice", "r2")
    #expect(room.thread("m1") == "alice 2/2 1, bob 3/3 0")
    #expect(room.list("r2", .readers) == "alice@2200")
    _ = room.unreadThread("bob", "m1")
    // His own replies are not unread.
    #expect(room.thread("m1") == "alice 2/2 1, bob 0/3 0")
    let unnamed = Command.unread(cid: room.cid, user: "alice", message: "r1", epoch: nil)
    _ = room.do(unnamed)
    #expect(room.thread("m1") == "alice 0/2 3, bob 0/3 0")
    #expect(room.do(.delivered(cid: room.cid, user: "alice", message: "r3")) != .refused("message_not_found"))
    #expect(room.status("r3") == "delivered none 0 1 1")
    #expect(room.unread("alice") == "0 1")
    #expect(room.status("r2") == "read none 1 1 1")
  }

  @Test("R15: ids are unique in a channel and its threads; a reply has neither replies nor an acknowledgement request")
  func idsAreUniqueInChannelAndThreads() {
    var room = NaiveRoom()
    _ = room.post("m1", by: "alice")
    #expect(
      room.reply("r1", to: "m1", by: "bob", requestsAcknowledgement: true)
        == .message(sequence: 1, isNew: true, refusal: "receipt_not_allowed")
    )
    #expect(
      room.reply("r1", to: "m1", by: "bob", requestsAcknowledgement: true)
        == .message(sequence: 1, isNew: false, refusal: "receipt_not_allowed")
    )
    #expect(room.post("m1", by: "alice") == .message(sequence: 1, isNew: false))
    #expect(room.reply("m1", to: "m1") == .refused("message_conflict"))
    _ = room.post("m2")
    #expect(room.post("r1", by: "bob", requestsAcknowledgement: true) == .refused("message_conflict"))
    #expect(room.reply("r1", to: "m2", by: "bob", requestsAcknowledgement: true) == .refused("message_conflict"))
    #expect(room.reply("r1", to: "m1", by: "bob") == .refused("message_conflict"))
    #expect(room.reply("r2", to: "r1") == .refused("invalid_field"))
    #expect(room.reply("r2", to: "m3") == .refused("message_not_found"))
    #expect(room.acknowledge("alice", "r1") == .acknowledged(["receipt_not_requested"]))
  }

  @Test("R7, R10 in threads: hidden members look unmoved; only a reply's sender sees its counts")
  func hiddenMembersLookUnmovedInThreads() {
    var room = NaiveRoom(["counts_visible_to": "sender"])
    _ = room.post("m1", by: "alice")
    _ = room.reply("r1", to: "m1", by: "bob")
    _ = room.readThread("alice", "m1")
    #expect(room.status("r1", .member("bob")) == "read none 1 1 1")
    #expect(room.status("r1", .member("alice")) == "sent none 0 0 0")
    // Carol is not in the thread, but in the channel.
    #expect(room.status("r1", .member("carol")) == "sent none 0 0 0")
    #expect(room.status("r1", .member("dave")) == "not_a_member")
    room.hide("alice", read: true, delivered: true)
    #expect(room.status("r1", .member("bob")) == "sent none 0 0 1")
    #expect(room.unread("alice") == "0 0")
    #expect(room.member("carol", "r1") == "not_expected")
    #expect(room.member("dave", "r1") == "not_a_member")
  }

  @Test("R15, R16: deleting the parent closes its thread")
  func deletingParentClosesThread() {
    var room = NaiveRoom()
    _ = room.post("m1", by: "alice")
    _ = room.reply("r1", to: "m1", by: "bob")
    #expect(room.unread("alice") == "0 1")
    room.do(.delete(cid: room.cid, id: "m1"))
    #expect(room.unread("alice") == "0 0")
    #expect(room.status("r1") == "message_deleted")
    #expect(room.list("r1", .unread) == "message_deleted")
    #expect(room.reply("r1", to: "m1", by: "bob") == .refused("message_deleted"))
    #expect(room.reply("r2", to: "m1", by: "bob") == .refused("message_deleted"))
    #expect(room.readThread("alice", "m1") == .refused("message_deleted"))
    #expect(room.unreadThread("alice", "r1") == .refused("invalid_field"))
    #expect(room.post("r1", by: "bob") == .refused("message_deleted"))
    #expect(room.do(.delete(cid: room.cid, id: "r1")) == .position(1))
  }

  @Test("R16: a deleted reply still marks a position in its thread")
  func deletedReplyMarksPosition() {
    var room = NaiveRoom()
    _ = room.post("m1", by: "alice")
    _ = room.reply("r1", to: "m1", by: "bob")
    _ = room.reply("r2", to: "m1", by: "bob")
    #expect(room.do(.delete(cid: room.cid, id: "r2")) == .position(2))
    #expect(room.thread("m1") == "alice 0/0 1, bob 2/2 0")
    _ = room.readThread("alice", "m1", "r2")
    #expect(room.thread("m1") == "alice 2/2 0, bob 2/2 0")
    #expect(room.reply("r2", to: "m1", by: "bob") == .refused("message_deleted"))
  }

  // MARK: Removal

  @Test("R16: truncation deletes the messages before one, or all; sequence numbers continue")
  func truncationDeletesMessagesBeforeOne() {
    var room = NaiveRoom()
    for id in ["m1", "m2", "m3"] { _ = room.post(id, by: "alice") }
    _ = room.reply("r1", to: "m1", by: "bob")
    _ = room.reply("r3", to: "m3", by: "bob")
    #expect(room.unread("alice") == "0 2")
    #expect(room.unread("bob") == "3 0")
    let truncate = Command.truncate(cid: room.cid, before: "m3")
    #expect(room.do(truncate) == .channel(isNew: false, members: 3, newest: 3))
    #expect(room.do(truncate) == .channel(isNew: false, members: 3, newest: 3))
    #expect([room.status("m1"), room.status("m2")] == ["message_deleted", "message_deleted"])
    #expect([room.status("m3"), room.status("r1")] == ["sent none 0 0 2", "message_deleted"])
    #expect([room.unread("alice"), room.unread("bob")] == ["0 1", "1 0"])
    // Reading up to a deleted message still works, and its id is not free again.
    room.read("bob", "m2")
    #expect(room.model.answers(room.cid).ownRow("bob")!.lastReadID == "m2")
    #expect(room.post("m1") == .refused("message_deleted"))
    #expect(room.do(.truncate(cid: room.cid, before: "m9")) == .refused("message_not_found"))
    #expect(room.do(.truncate(cid: room.cid, before: "r3")) == .refused("message_not_found"))
    _ = room.do(.truncate(cid: room.cid, before: ""))
    #expect(room.status("m3") == "message_deleted")
    #expect(room.unread("bob") == "0 0")
    #expect(room.post("m4") == .message(sequence: 4, isNew: true))
  }

  @Test("R16: deleting a channel is idempotent; a new channel of that cid starts empty")
  func deletingChannelIsIdempotent() {
    var room = NaiveRoom()
    _ = room.post("m1", requestsAcknowledgement: true)
    #expect(room.do(.deleteChannel(cid: room.cid)) == .done(true))
    #expect(room.do(.deleteChannel(cid: room.cid)) == .done(false))
    #expect(room.post("m2") == .refused("channel_not_found"))
    #expect(room.index("alice") == "")
    let put = Command.put(cid: room.cid, settings: [:], members: [MemberSpec(user: "bob")])
    #expect(room.do(put) == .channel(isNew: true, members: 1, newest: 0))
    #expect(room.index("bob") == "team:room 0 true 1500")
    #expect(room.post("m1") == .message(sequence: 1, isNew: true))
  }

  @Test("R16: erasing a member leaves only nameless rows and messages, and can be repeated")
  func erasedMemberLeavesNamelessRows() {
    var room = NaiveRoom(["receipt_max_members": "1"])
    _ = room.post("m1", by: "bob", requestsAcknowledgement: true)
    _ = room.post("m2", by: "alice", requestsAcknowledgement: true)
    _ = room.reply("r1", to: "m1", by: "alice")
    _ = room.acknowledge("bob", "m2", note: "bob")
    room.read("carol", "m1")
    #expect(room.thread("m1") == "bob 0/0 1, alice 1/1 0")
    #expect(room.do(.eraseMember(cid: room.cid, user: "bob")) == .done(true))
    #expect(room.do(.eraseMember(cid: room.cid, user: "bob")) == .done(false))
    #expect(room.do(.eraseMember(cid: room.cid, user: "nobody")) == .done(false))
    #expect(room.thread("m1") == "alice 1/1 0")
    #expect(room.status("m2") == "sent processing 0 0 1")
    #expect(room.list("m1", .readers) == "alice@1200 carol@1500")
    #expect(room.index("bob") == "")
    // The erased record does not use the only place.
    _ = room.acknowledge("carol", "m2", note: "carol")
    #expect(room.list("m2", .readers) == "carol@1900carol")
    // After rejoining he is a new user: his earlier messages are not his.
    room.change(add: "bob")
    room.do(.unread(cid: room.cid, user: "bob", message: "m1", epoch: nil))
    #expect(room.unread("bob") == "2 0")
    #expect(room.index("bob") == "team:room 3 true 2000")
  }

  @Test("R16: a user being erased is named in nothing new; then their settings are dropped for good")
  func erasedUserIsNamedInNothingNew() {
    var room = NaiveRoom()
    room.hide("bob", read: true)
    var record = UserView(user: "bob", version: 2, hidesRead: true, isErasing: true)
    #expect(room.do(.eraseUser("bob")) == .user(record))
    #expect(room.do(.eraseUser("bob")) == .user(record))
    let put = Command.put(cid: "team:other", settings: [:], members: [MemberSpec(user: "bob")])
    #expect(room.do(put) == .refused("user_erased"))
    let change = Command.change(cid: room.cid, add: [MemberSpec(user: "bob")], remove: [])
    #expect(room.do(change) == .refused("user_erased"))
    #expect(room.post("m1", by: "bob") == .refused("user_erased"))
    #expect(room.model.channels["team:other"] == nil)
    // Marks still work.
    room.read("bob")
    _ = room.do(.eraseMember(cid: room.cid, user: "bob"))
    let gone = UserView(user: "bob", version: 3, revokedBefore: 1000, isErased: true)
    #expect(room.do(.assignErased("bob", version: 3)) == .user(gone))
    #expect(room.model.isRevoked("bob", issuedSeconds: 0) && !room.model.isRevoked("bob", issuedSeconds: 1))
    #expect(!room.model.hidesRead("bob"))
    // A settings update from before the erasure arrives late.
    _ = room.do(.assignUser(record))
    record.version = 3
    #expect(room.do(.assignUser(record)) == .user(gone))
    // The user may start again.
    room.change(add: "bob")
    record = UserView(user: "bob", version: 4, hidesRead: true, revokedBefore: 1000)
    #expect(
      room.do(.patchUser("bob", showsRead: false, showsDelivered: nil, revoked: nil)) == .user(record)
    )
    #expect(room.do(.eraseUser("nobody")) == .user(UserView(user: "nobody", version: 1, isErasing: true)))
  }

  // MARK: Users

  @Test("R13: the index lists every channel that knows a user's id")
  func indexListsEveryChannelThatKnowsUserId() {
    var room = NaiveRoom()
    _ = room.do(
      .put(cid: "dm:b", settings: [:], members: [MemberSpec(user: "bob"), MemberSpec(user: "carol")])
    )
    _ = room.post("m1", by: "robot")
    #expect(room.index("bob") == "dm:b 0 true 1100, team:room 1 true 1000")
    #expect(room.index("robot") == "team:room - false 0")
    #expect(room.index("nobody") == "")
    room.change(remove: "bob")
    #expect(room.index("bob") == "dm:b 0 true 1100, team:room 1 false 1000")
    room.change(add: "bob")
    #expect(room.index("bob") == "dm:b 0 true 1100, team:room 3 true 1400")
    room.change(add: "robot")
    #expect(room.index("robot") == "team:room 4 true 1500")
  }

  @Test("R13, R14: totals cover all channels; marking all channels read leaves threads unread")
  func totalsCoverAllChannels() {
    var room = NaiveRoom()
    _ = room.do(
      .put(cid: "dm:b", settings: [:], members: [MemberSpec(user: "bob"), MemberSpec(user: "carol")])
    )
    _ = room.do(.post(cid: "dm:b", id: "d1", sender: "carol", created: 0, isSilent: false))
    _ = room.do(.post(cid: "dm:b", id: "d2", sender: "carol", created: 0, isSilent: true))
    _ = room.post("m1", by: "bob")
    _ = room.post("m2", by: "alice")
    _ = room.post("m3", by: "robot")
    _ = room.reply("r1", to: "m1", by: "alice")
    #expect(room.model.totals("bob") == TotalsView(messages: 3, channels: 2, threads: 1))
    #expect(room.model.totals("alice") == TotalsView(messages: 1, channels: 1, threads: 0))
    #expect(room.model.totals("robot") == TotalsView())
    #expect(room.do(.readAll("bob")) == .marked(["dm:b", "team:room"]))
    #expect(room.model.totals("bob") == TotalsView(messages: 0, channels: 0, threads: 1))
    #expect(room.do(.readAll("nobody")) == .marked([]))
    room.change(remove: "bob")
    #expect(room.model.totals("bob") == TotalsView())
  }
}
