import Foundation
import Testing

@testable import TidemarkClient

@Suite struct ReadStateTests {
  private static let channel = Place(cid: "messaging:a")

  /// Alice's rows of a channel with bob and carol, who joined before message 3.
  private static func loaded(_ place: Place = channel) -> ReadState {
    var state = ReadState(place: place, user: "alice")
    var own = Row(joinedSeq: 0, lastReadSeq: 5, lastDeliveredSeq: 5)
    (own.unreadMessages, own.unreadEpoch) = (0, 1)
    let rows = ["alice": own, "bob": Row(joinedSeq: 0), "carol": Row(joinedSeq: 3)]
    state.apply(rows, isAll: true, now: .now - .seconds(60))
    return state
  }

  private static func event(_ text: String) throws -> Event {
    try JSON.decode(from: Data(#"{"cid":"messaging:a","created_at":"2026-01-01T00:00:00.500Z",\#(text)}"#.utf8))
  }

  private static func message(_ seq: Int, by user: String = "alice") -> Message {
    Message(cid: channel.cid, id: "m\(seq)", seq: seq, user: user)
  }

  private static func new(_ seq: Int, by user: String, silent: Bool = false) throws -> Event {
    try event(
      #""type":"message.new","user":{"id":"\#(user)"},"message":{"id":"m\#(seq)","seq":\#(seq),"silent":\#(silent)},"#
        + #""moves_position":{"read":true,"delivered":true}"#
    )
  }

  @Test func readsAndDeliveriesMoveRows() throws {
    var state = Self.loaded()
    #expect(state.deliveryStatus(of: Self.message(4)) == .sent)
    let delivered = #""type":"message.delivered","user":{"id":"bob"},"last_delivered_seq":4"#
    #expect(state.apply(try Self.event(delivered), now: .now) == [])
    #expect(state.deliveryStatus(of: Self.message(4)) == .delivered)
    #expect(state.deliveredNotRead(of: Self.message(4)) == ["bob"])
    let read = #""type":"message.read","user":{"id":"carol"},"last_read_seq":4,"last_read_message_id":"m4""#
    #expect(state.apply(try Self.event(read), now: .now) == [])
    #expect(state.deliveryStatus(of: Self.message(4)) == .read)
    #expect(state.readers(of: Self.message(4)) == ["carol"])
    #expect(state.delivered(of: Self.message(4)) == ["bob", "carol"])
    #expect(state.rows["carol"]?.lastDeliveredSeq == 4)
    #expect(state.seq(of: "m4") == 4)
    // An older position does not move a row back.
    let older = #""type":"message.read","user":{"id":"carol"},"last_read_seq":3,"last_read_message_id":"m3""#
    #expect(state.apply(try Self.event(older), now: .now) == [])
    #expect(state.rows["carol"]?.lastReadSeq == 4)
  }

  @Test func memberWhoJoinedLaterDoesNotCount() throws {
    var state = Self.loaded()
    state.rows["carol"]?.lastReadSeq = 9
    #expect(state.readers(of: Self.message(3)) == [])
    var thread = Self.loaded(Place(cid: Self.channel.cid, thread: "m1"))
    thread.rows["carol"]?.lastReadSeq = 9
    #expect(thread.readers(of: Self.message(3)) == ["carol"])
  }

  @Test func messagesOfOthersAreCounted() throws {
    var state = Self.loaded()
    let now = ContinuousClock.now
    // The first message after a query may have been counted already, so the row is queried.
    #expect(state.apply(try Self.new(6, by: "bob"), now: now) == .ownRow)
    #expect(state.unreadCount == 1)
    #expect(state.own?.firstUnreadMessageID == "m6")
    #expect(state.apply(try Self.new(7, by: "bob"), now: now) == [])
    #expect(state.unreadCount == 2)
    #expect(state.apply(try Self.new(7, by: "bob"), now: now) == [])
    #expect(state.unreadCount == 2)
    #expect(state.apply(try Self.new(8, by: "bob", silent: true), now: now) == [])
    #expect(state.unreadCount == 2)
    #expect(state.rows["bob"]?.lastReadSeq == 8)
    #expect(state.apply(try Self.new(9, by: "alice"), now: now) == [])
    #expect(state.unreadCount == 0)
    #expect(state.own?.firstUnreadMessageID == nil)
    #expect(state.deliveryStatus(of: Self.message(9)) == .sent)
  }

  @Test func statusesFollowEventsThatAreNewerThanQueries() throws {
    var state = Self.loaded()
    state.follow(6)
    state.follow(7)
    state.beginStatuses()
    let status =
      #""type":"message.status","user":{"id":"alice"},"from_seq":6,"to_seq":6,"status":"read""#
    #expect(state.apply(try Self.event(status), now: .now) == [])
    state.apply(.sent, of: 6)
    state.apply(.delivered, of: 7)
    #expect(state.deliveryStatus(of: Self.message(6)) == .read)
    #expect(state.deliveryStatus(of: Self.message(7)) == .delivered)
    state.beginStatuses()
    state.apply(.sent, of: 6)
    #expect(state.deliveryStatus(of: Self.message(6)) == .sent)
  }

  @Test func unknownMembersNeedQuery() throws {
    let read = #""type":"message.read","user":{"id":"dave"},"last_read_seq":4"#
    var state = Self.loaded()
    #expect(state.apply(try Self.event(read), now: .now) == .allRows)
    var partial = ReadState(place: Self.channel, user: "alice")
    #expect(partial.apply(try Self.event(read), now: .now) == [])
  }

  @Test func rowsComeGoAndAreReplaced() throws {
    var state = Self.loaded()
    let added = #""type":"member.added","user":{"id":"dave"},"joined_seq":5,"last_read_seq":5"#
    #expect(state.apply(try Self.event(added), now: .now) == [])
    #expect(state.rows["dave"]?.joinedSeq == 5)
    let replaced = #""type":"read_state.changed","user":{"id":"carol"},"last_read_seq":0,"last_delivered_seq":2"#
    #expect(state.apply(try Self.event(replaced), now: .now) == [])
    #expect(state.rows["carol"] == Row(joinedSeq: 3, lastReadSeq: 0, lastDeliveredSeq: 2))
    #expect(state.apply(try Self.event(#""type":"member.removed","user":{"id":"dave"}"#), now: .now) == [])
    #expect(state.rows["dave"] == nil)
  }

  @Test func ownMarksOfOtherDevicesAreTaken() throws {
    var state = Self.loaded()
    let unread =
      #""type":"notification.mark_unread","user":{"id":"alice"},"unread_messages":2,"unread_epoch":7,"#
      + #""first_unread_message_id":"m4","marked_unread":true"#
    #expect(state.apply(try Self.event(unread), now: .now) == .ownRow)
    #expect(state.unreadCount == 2)
    #expect(state.own?.unreadEpoch == 7)
    #expect(state.own?.firstUnreadMessageID == "m4")
    let read = #""type":"notification.mark_read","user":{"id":"alice"},"unread_messages":0,"unread_epoch":7"#
    #expect(state.apply(try Self.event(read), now: .now) == .ownRow)
    #expect(state.unreadCount == 0)
    #expect(state.own?.firstUnreadMessageID == nil)
  }

  @Test func optionsOfChannelThatChangeNeedQuery() throws {
    var state = Self.loaded()
    let updated = #""type":"channel.updated","channel":{"options":{"read_events":false,"delivery_events":true}}"#
    #expect(state.apply(try Self.event(updated), now: .now) == .allRows)
    #expect(state.receiptsShown == ReceiptsShown(read: false, delivered: true))
    #expect(state.apply(try Self.event(updated), now: .now) == [])
  }

  @Test func deletedMessagesAreForgotten() throws {
    var state = Self.loaded()
    for seq in 1...4 { state.know(RegisteredMessage(id: "m\(seq)", seq: seq, user: seq == 1 ? "alice" : "bob")) }
    state.follow(1, told: .read)
    #expect(state.apply(try Self.event(#""type":"message.deleted","message_id":"m1","seq":1"#), now: .now) == [])
    #expect(state.apply(try Self.event(#""type":"message.deleted","message_id":"m2","seq":2"#), now: .now) == .ownRow)
    #expect(state.apply(try Self.event(#""type":"channel.truncated","seq":3"#), now: .now) == .ownRow)
    #expect(state.newest?.id == "m4")
    #expect(state.seq(of: "m3") == nil)
    #expect(state.statuses.isEmpty)
  }

  @Test func knownMessagesAreBounded() {
    var state = Self.loaded()
    for seq in 1...(ReadState.messagesMax + 10) {
      state.know(RegisteredMessage(id: "m\(seq)", seq: seq, user: "alice"))
      state.follow(seq)
    }
    #expect(state.messages.count == ReadState.messagesMax)
    #expect(state.statuses.count == ReadState.messagesMax)
    #expect(state.seq(of: "m10") == nil)
    #expect(state.seq(of: "m11") == 11)
  }

  @Test func unknownEventsChangeNothing() throws {
    var state = Self.loaded()
    let before = state.rows
    #expect(state.apply(try Self.event(#""type":"poll.closed","user":5,"message":[]"#), now: .now) == [])
    #expect(state.rows == before)
  }
}
