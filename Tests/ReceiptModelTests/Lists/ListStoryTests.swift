import ReceiptModel
import Testing

/// R11: the members who have read a message, have received but not read it, or have done neither.
@Suite("Stories of lists")
struct ListStoryTests {
  /// alice sent m1; zoe and bob have read it, carol has received it, dave has done neither. late joined after it.
  private func room() -> ListRoom {
    let room = ListRoom(["zoe", "alice", "carol", "bob", "dave"])
    room.post("m1", by: "alice")
    room.clock = 1_100
    room.receive("carol", 1)
    room.read("bob", 1)
    room.clock = 1_200
    room.read("zoe", 1)
    room.join(["late"])
    return room
  }

  @Test("R11: the three lists in join order omit the sender and members who joined later")
  func listsInJoinOrderOmitSenderAndLaterMembers() {
    let room = room()
    #expect(room.page(.readers) == "zoe@1200 bob@1100")
    #expect(room.page(.delivered) == "carol@1100")
    #expect(room.page(.unread) == "carol dave")
    room.post("m2")
    #expect(room.page(.unread, "m2") == "zoe alice carol bob dave late")
    room.leave("dave")
    room.join(["dave"])
    #expect(room.page(.unread) == "carol")
    #expect(room.page(.readers, "m9") == "message_not_found")
    room.delete(1)
    for list in MemberList.allCases { #expect(room.page(list) == "message_deleted") }
  }

  @Test("R11: lists by time, then by the user ids' bytes")
  func listsByTimeAreOrderedByTimeAndID() {
    let room = room()
    room.clock = 1_100
    room.read("dave", 1)
    #expect(room.page(.readers, order: .time) == "bob@1100 dave@1100 zoe@1200")
    #expect(room.page(.readers, order: .time, limit: 1) == "bob@1100 | t1100-bob")
    #expect(room.page(.readers, order: .time, limit: 1, cursor: "t1100-bob") == "dave@1100 | t1100-dave")
    #expect(room.page(.readers, order: .time, limit: 1, cursor: "t1100-dave") == "zoe@1200")
    #expect(room.page(.readers, order: .time, cursor: "t1200-zoe") == "")
    // Also after a cursor whose entry is gone.
    #expect(room.page(.readers, order: .time, cursor: "t1100-c") == "dave@1100 zoe@1200")
    #expect(room.page(.readers, order: .time, cursor: "t0-zoe") == "bob@1100 dave@1100 zoe@1200")
    room.post("m2")
    #expect(room.page(.unread, "m2", order: .time, limit: 3) == "alice bob carol | t0-carol")
    #expect(room.page(.unread, "m2", order: .time, limit: 3, cursor: "t0-carol") == "dave late zoe")
  }

  @Test("R11: by time, members without a kept time come last, once, while the clock advances")
  func membersWithoutTimeComeLast() {
    let room = ListRoom(["zoe", "alice", "carol", "bob"])
    room.post("m1", by: "alice", requestsAcknowledgement: true)
    for user in ["zoe", "carol", "bob"] { room.acknowledge(user, 1, isKept: false) }
    var cursor = ""
    var names: [String] = []
    for turn in 0..<3 {
      room.clock = 2_000 + Int64(turn)
      let page = room.page(.readers, order: .time, limit: 1, cursor: cursor)
      let parts = page.split(separator: " | ").map(String.init)
      names.append(parts[0])
      cursor = parts.count > 1 ? parts[1] : ""
    }
    #expect(names == ["bob@~2000", "carol@~2001", "zoe@~2002"])
    #expect(cursor == "")
  }

  @Test("R11: order by time is limited to 1,000 current members", arguments: [1_000, 1_001])
  func orderByTimeIsLimitedTo1000Members(members: Int) {
    let room = ListRoom((1...members).map { "u\($0)" })
    room.post("m1")
    let isThere = members <= 1_000
    #expect(
      room.page(.unread, order: .time, limit: 2) == (isThere ? "u1 u10 | t0-u10" : "order_not_available")
    )
    #expect(room.page(.unread, limit: 2) == "u1 u2 | j2")
    // A former member does not count.
    room.leave("u1")
    #expect(room.page(.unread, order: .time, limit: 1) == "u10 | t0-u10")
  }

  @Test(
    "R11: pages of any size list every member once, with a cursor only where a next page exists",
    arguments: 1...4
  )
  func pagesOfAnySizeListEveryMemberOnce(limit: Int) {
    let room = room()
    room.clock = 1_300
    room.read("dave", 1)
    let whole: [ListOrder: String] = [
      .joined: "zoe@1200 bob@1100 dave@1300", .time: "bob@1100 zoe@1200 dave@1300",
      .timeDescending: "dave@1300 zoe@1200 bob@1100",
    ]
    for order in ListOrder.allCases {
      var found: [String] = []
      var cursor = ""
      var pages = 0
      repeat {
        let page = room.page(.readers, order: order, limit: limit, cursor: cursor)
        let parts = page.split(separator: "|", omittingEmptySubsequences: false)
        found += parts[0].split(separator: " ").map(String.init)
        cursor = parts.count > 1 ? String(parts[1].dropFirst()) : ""
        pages += 1
        room.restart()
      } while !cursor.isEmpty
      #expect(found.joined(separator: " ") == whole[order])
      #expect(pages == (3 + limit - 1) / limit)
    }
  }

  @Test("R11: a page is right while members join, leave, read, hide and show between pages")
  func pageIsRightWhileMembersChange() {
    let room = room()
    #expect(room.page(.unread, limit: 1) == "carol | j4")
    room.read("carol", 1)
    room.join(["new"])
    #expect(room.page(.unread, limit: 1, cursor: "j4") == "dave")
    #expect(room.page(.readers, limit: 1) == "zoe@1200 | j2")
    // Carol reads before the cursor and bob leaves: the next page lists the members from row 2 on.
    room.leave("bob")
    #expect(room.page(.readers, limit: 1, cursor: "j2") == "carol@1200")
    room.hide("carol", read: true)
    #expect(room.page(.readers, limit: 1, cursor: "j2") == "")
    #expect(room.page(.unread, limit: 1) == "carol | j4")
    room.clock = 1_400
    room.hide("carol")
    #expect(room.page(.readers, limit: 1, cursor: "j2") == "carol@1200")
    // No cursor where the remaining members are not in the list.
    room.leave("dave")
    #expect(room.page(.readers, limit: 2) == "zoe@1200 carol@1200")
  }

  @Test(
    "R11: cursors of another form or order are refused",
    arguments: [
      "j", "j-1", "j01", "j1x", "j4294967296", "r1", "1", "t1-bob", "k1-bob", "j1-bob", "J1", "j 1",
      "j99999999999999999999",
    ]
  )
  func cursorsOfAnotherFormOrOrderAreRefused(cursor: String) {
    #expect(room().page(.readers, cursor: cursor) == "invalid_cursor")
  }

  @Test(
    "R11: invalid cursors in order of time are refused",
    arguments: [
      "t", "t1", "t1-", "t-bob", "t01-bob", "t1-b b", "j1", "t1x-bob", "t9223372036854775808-bob", "t1_bob",
    ]
  )
  func invalidTimeCursorsAreRefused(cursor: String) {
    #expect(room().page(.readers, order: .time, cursor: cursor) == "invalid_cursor")
  }

  @Test("R11: a cursor beyond all rows returns an empty page")
  func cursorBeyondAllRowsReturnsEmptyPage() {
    let room = room()
    for cursor in ["j5", "j6", "j4294967295"] { #expect(room.page(.unread, cursor: cursor) == "") }
    #expect(room.page(.readers, cursor: "j0") == "zoe@1200 bob@1100")
    #expect(room.page(.readers, order: .time, cursor: "t9223372036854775807-a") == "")
  }

  @Test("R7: a hidden member is listed as unread; after showing again, as a reader since then")
  func hiddenMemberIsListedAsUnread() {
    let room = room()
    room.post("m2", by: "alice")
    room.hide("bob", read: true)
    room.read("bob", 2)
    room.clock = 1_500
    #expect(room.page(.readers) == "zoe@1200")
    #expect(room.page(.unread) == "carol bob dave")
    #expect(room.status("bob") == "sent 0 0")
    room.hide("bob")
    #expect(room.page(.readers) == "zoe@1200 bob@1100")
    // This step was made while hidden.
    #expect(room.page(.readers, "m2") == "bob@~1500")
    #expect(room.status("bob", "m2") == "read 1500 1500 ~")
    #expect(room.status("bob", "m2", viewer: "bob") == "read 1200 1200")
    room.hide("carol", delivered: true)
    #expect(room.page(.delivered) == "")
    room.clock = 1_600
    room.hide("carol")
    #expect(room.page(.delivered) == "carol@1100")
  }

  @Test("R8: a kind that the channel hides is in no list")
  func kindThatChannelHidesIsInNoList() {
    let room = room()
    room.set { $0.readEvents = false }
    #expect(room.page(.readers) == "")
    #expect(room.page(.unread) == "zoe carol bob dave")
    #expect(room.page(.delivered) == "carol@1100")
    room.set { $0.deliveryEvents = false }
    #expect(room.page(.delivered) == "")
    #expect(room.status("zoe") == "sent 0 0")
    #expect(room.status("zoe", viewer: "zoe") == "read 1200 1200")
  }

  @Test("R4: with mark_unread=public the lists follow own positions")
  func listsFollowOwnPositionsWhereMarkUnreadIsPublic() {
    let room = room()
    room.markUnread("bob", after: 0)
    #expect(room.page(.readers) == "zoe@1200 bob@1100")
    // In their own view too the message is delivered: they have read it once.
    #expect(room.status("bob", viewer: "bob") == "delivered 0 1100")
    room.set { $0.markUnread = .public }
    #expect(room.page(.readers) == "zoe@1200")
    #expect(room.status("bob") == "delivered 0 1100")
    #expect(room.page(.unread) == "carol bob dave")
  }

  @Test("R9: an acknowledgement makes a reader, at the earlier time, with its note")
  func acknowledgementMakesReader() {
    let room = ListRoom(["alice", "bob", "carol", "dave"])
    room.post("m1", by: "alice", requestsAcknowledgement: true)
    room.clock = 1_100
    room.acknowledge("bob", 1, note: "!")
    room.hide("dave", read: true)
    room.acknowledge("dave", 1, note: "?")
    room.read("carol", 1)
    room.clock = 1_200
    room.read("bob", 1)
    room.acknowledge("carol", 1, note: "+")
    #expect(room.page(.readers) == "bob@1100! carol@1100+")
    #expect(room.page(.unread) == "dave")
    #expect(room.status("dave", viewer: "dave") == "read 1100 1100")
    #expect(room.status("dave") == "sent 0 0")
    room.clock = 1_300
    room.hide("dave")
    #expect(room.page(.readers) == "bob@1100! carol@1100+ dave@~1300?")
    room.set { $0.readEvents = false }
    #expect(room.page(.readers) == "")
  }

  @Test("R10: with counts for the sender only, others get no lists and only their own status")
  func listsAreHiddenFromOthersThanSender() {
    let room = room()
    room.set { $0.countsVisibleTo = .sender }
    for viewer in ["", "alice"] { #expect(room.page(.readers, viewer: viewer) == "zoe@1200 bob@1100") }
    #expect(room.page(.readers, viewer: "bob") == "counts_not_visible")
    #expect(room.page(.readers, viewer: "nobody") == "not_a_member")
    #expect(room.status("zoe", viewer: "bob") == "counts_not_visible")
    #expect(room.status("bob", viewer: "bob") == "read 1100 1100")
    #expect(room.status("late", viewer: "late") == "not_expected")
    #expect(room.status("nobody", viewer: "bob") == "not_a_member")
  }

  @Test("the statuses of a message's members have times, or the reason for their absence")
  func statusesOfMessageMembersHaveTimes() {
    let room = room()
    #expect(room.status("zoe") == "read 1200 1200")
    #expect(room.status("carol") == "delivered 0 1100")
    #expect(room.status("dave") == "sent 0 0")
    // The sender's positions moved with it.
    #expect(room.status("alice") == "read 1000 1000")
    #expect(room.status("late") == "not_expected")
    room.leave("zoe")
    #expect(room.status("zoe") == "not_a_member")
    room.clock = 1_300
    room.read("carol", 1)
    #expect(room.status("carol") == "read 1300 1100")
    room.delete(1)
    #expect(room.status("carol") == "message_deleted")
  }

  @Test("a list built in slices is the same, and includes changes made meanwhile", arguments: [1, 2, 70])
  func listBuiltInSlicesIsSame(rows: Int) {
    for order in ListOrder.allCases {
      let room = room()
      var slices = 0
      room.betweenSlices = { slices += 1 }
      for list in MemberList.allCases {
        #expect(room.page(list, order: order, slice: rows) == room.page(list, order: order))
      }
      #expect(slices > 0)
      // The first slice listed Zoe, who hides before the last.
      room.betweenSlices = {
        room.clock = 1_300
        room.hide("zoe", read: true)
        room.read("dave", 1)
      }
      let left = order == .timeDescending ? "dave@1300 bob@1100" : "bob@1100 dave@1300"
      #expect(room.page(.readers, order: order, slice: rows) == left)
      room.betweenSlices = { room.delete(1) }
      #expect(room.page(.unread, order: order, slice: 1) == "message_deleted")
    }
  }

  @Test("R4: an unread count with a low marker omits own messages, wherever the marker moves")
  func unreadCountOmitsOwnMessages() {
    let room = ListRoom(["alice", "bob"])
    for number in 1...600 { room.post("m\(number)", by: number % 3 == 0 ? "bob" : "alice") }
    #expect(room.unread("bob") == "0 from 0")
    room.markUnread("bob", after: 0)
    #expect(room.unread("bob") == "400 from 1")
    room.markUnread("bob", after: 590)
    #expect(room.unread("bob") == "6 from 592")
    room.delete(592)
    room.delete(600)
    #expect(room.unread("bob") == "5 from 593")
    room.markUnread("bob", after: 2)
    room.delete(3)
    #expect(room.unread("bob") == "397 from 4")
    // The marker skips a run of own messages.
    room.markUnread("bob", after: nil)
    for number in 601...900 { room.post("m\(number)", by: "bob") }
    room.post("m901", by: "alice")
    room.markUnread("bob", after: 599)
    #expect(room.unread("bob") == "1 from 901")
    room.restart()
    #expect(room.unread("bob") == "1 from 901")
  }
}
