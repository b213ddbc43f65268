import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// The forms of an event for each kind of viewer, and their JSON.
@Suite struct EventJSONTests {
  private static let time = Timestamp(milliseconds: 1_767_225_600_000)
  private static let text = "2026-01-01T00:00:00.000Z"

  static func row(
    own: RowEventFields.Own = [],
    shown: RowEventFields.Shown = [],
    thread: String = "",
    unreadInChannel: UInt32? = nil
  ) -> EventFields {
    var mine = RowEventRow(
      user: "bob",
      lastRead: time,
      lastReadMessage: "m5",
      lastReadSequence: SequenceNumber(5),
      lastDelivered: time,
      lastDeliveredMessage: "m9",
      lastDeliveredSequence: SequenceNumber(9),
      own: RowEventRow.OwnDetails(
        unreadMessages: 4,
        firstUnreadMessage: "m6",
        unreadEpoch: 2,
        isFlaggedUnread: true,
        unreadMentions: 3
      )
    )
    let ownRow = mine
    mine.own = nil
    mine.lastReadMessage = "m8"
    mine.lastReadSequence = SequenceNumber(8)
    return .row(
      RowEventFields(
        thread: thread,
        own: own,
        shown: shown,
        at: time,
        unreadInChannel: unreadInChannel,
        ownRow: ownRow,
        shownRow: shown.isEmpty ? nil : mine
      )
    )
  }

  static let added = MemberEventFields(
    user: "bob",
    role: "admin",
    at: time,
    memberCount: 3,
    readSequence: SequenceNumber(9),
    readMessage: "m9",
    joined: SequenceNumber(9)
  )

  static let status = status(of: "alice")

  static func status(of sender: String) -> EventFields {
    .status(
      StatusEventFields(
        thread: "",
        sender: sender,
        from: SequenceNumber(3),
        to: SequenceNumber(7),
        lastMessage: "m7",
        status: .delivered,
        at: time
      )
    )
  }

  static let receipt = EventFields.receipt(
    ReceiptEventFields(
      sequence: SequenceNumber(7),
      message: "m7",
      sender: "alice",
      status: .processing,
      readCount: 1,
      unreadCount: 2,
      user: "bob",
      note: "on \"my\" way",
      at: time,
      acknowledgedCount: 1,
      acknowledgedAt: time
    )
  )

  private func names(_ event: EventFields, _ viewer: EventViewer) -> [String] {
    let forms = event.forms(for: viewer)
    return EventForm.allCases.filter { forms.contains(EventForm.Forms($0)) }.map { "\($0)" }
  }

  static let audiences: [(EventFields, others: [String], subject: [String], server: [String])] = [
    (row(shown: .read), ["read"], ["read"], ["read"]),
    (
      row(own: .read, shown: [.read, .delivered]), ["read", "delivered"], ["read", "delivered", "markRead"],
      ["read", "delivered"]
    ),
    // R7: hidden from others, but not from the user's own devices.
    (row(own: .read), [], ["markRead"], []),
    // R4, private: others still see the watermark.
    (row(own: .unread), [], ["markUnread"], []),
    (row(own: .unread, shown: .row), ["rowShown"], ["rowOwn", "markUnread"], ["rowServer"]),
    (row(shown: .row), ["rowShown"], ["rowOwn"], ["rowServer"]),
    // R10: counts_visible_to sender.
    (row(own: .read, shown: [.read, .serversOnly]), [], ["markRead"], ["read"]),
    (row(shown: [.row, .serversOnly]), [], [], ["rowServer"]),
    (row(), [], [], []),
    (status, [], ["status"], ["status"]),
    (receipt, [], ["receipt"], ["receipt"]),
    (.channelDeleted(at: time), ["channelDeleted"], ["channelDeleted"], ["channelDeleted"]),
    (
      .memberRemoved(user: "bob", at: time, memberCount: 1), ["memberRemoved"], ["memberRemoved"],
      ["memberRemoved"]
    ),
  ]

  @Test func formsDependOnViewer() {
    for (event, others, subject, server) in Self.audiences {
      #expect(names(event, .user(isSubject: false)) == others, "\(event)")
      #expect(names(event, .user(isSubject: true)) == subject, "\(event)")
      #expect(names(event, .server) == server, "\(event)")
    }
  }

  private func json(_ form: EventForm, _ event: EventFields) throws -> NSDictionary {
    let block = String(buffer: EventJSON.block(form, of: event, cid: "messaging:general"))
    let lines = block.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    try #require(lines.count == 3 && lines[2].isEmpty)
    let data = try #require(lines[1].hasPrefix("data: ") ? lines[1].dropFirst(6) : nil)
    let read = try JSONSerialization.jsonObject(with: Data(data.utf8)) as? NSDictionary
    let object = try #require(read?.mutableCopy() as? NSMutableDictionary)
    #expect(lines[0] == "event: \(object["type"] as? String ?? "")")
    #expect(object["cid"] as? String == "messaging:general")
    #expect(object["channel_type"] as? String == "messaging" && object["channel_id"] as? String == "general")
    #expect(object["created_at"] as? String == Self.text)
    for key in ["cid", "channel_type", "channel_id", "created_at"] { object.removeObject(forKey: key) }
    return object
  }

  private static var bob: NSDictionary { ["id": "bob"] }

  @Test func rowEventIsWrittenInEachForm() throws {
    let all: RowEventFields.Shown = [.read, .delivered, .row]
    let event = Self.row(own: [.read, .unread], shown: all)
    let table: [(EventForm, NSDictionary)] = [
      (.read, ["type": "message.read", "user": Self.bob, "last_read_message_id": "m8", "last_read_seq": 8]),
      (
        .delivered,
        [
          "type": "message.delivered", "user": Self.bob, "last_delivered_at": Self.text,
          "last_delivered_message_id": "m9", "last_delivered_seq": 9,
        ]
      ),
      (
        .rowShown,
        [
          "type": "read_state.changed", "user": Self.bob, "last_read": Self.text,
          "last_read_message_id": "m8",
          "last_read_seq": 8, "last_delivered_at": Self.text, "last_delivered_message_id": "m9",
          "last_delivered_seq": 9,
        ]
      ),
      (
        .rowOwn,
        [
          "type": "read_state.changed", "user": Self.bob, "last_read": Self.text,
          "last_read_message_id": "m5",
          "last_read_seq": 5, "last_delivered_at": Self.text, "last_delivered_message_id": "m9",
          "last_delivered_seq": 9, "unread_messages": 4, "first_unread_message_id": "m6", "unread_epoch": 2,
          "marked_unread": true, "unread_mentions": 3,
        ]
      ),
      (
        .rowServer,
        [
          "type": "read_state.changed", "user": Self.bob, "last_read": Self.text,
          "last_read_message_id": "m8",
          "last_read_seq": 8, "last_delivered_at": Self.text, "last_delivered_message_id": "m9",
          "last_delivered_seq": 9, "unread_messages": 4, "first_unread_message_id": "m6", "unread_epoch": 2,
        ]
      ),
      (
        .markRead,
        [
          "type": "notification.mark_read", "user": Self.bob, "last_read_message_id": "m5",
          "unread_messages": 4, "unread_epoch": 2, "marked_unread": true,
        ]
      ),
      (
        .markUnread,
        [
          "type": "notification.mark_unread", "user": Self.bob, "first_unread_message_id": "m6",
          "last_read_message_id": "m5", "last_read_at": Self.text, "unread_messages": 4, "unread_epoch": 2,
          "marked_unread": true,
        ]
      ),
    ]
    for (form, expected) in table { #expect(try json(form, event) == expected, "\(form)") }
    let reply = Self.row(shown: .read, thread: "m2")
    #expect(try json(.read, reply)["thread_id"] as? String == "m2")
    // The unread count is the channel's, also after a mark in a thread.
    let read = try json(.markRead, Self.row(own: .read, thread: "m2", unreadInChannel: 9))
    #expect(read["unread_messages"] as? Int == 9 && read["thread_id"] as? String == "m2")
  }

  @Test func otherEventsAreWritten() throws {
    let message = EventFields.messageNew(
      MessageEventFields(
        thread: "m1",
        sequence: SequenceNumber(2),
        message: "m2",
        sender: "bob",
        registered: Self.time,
        created: Self.time,
        flags: [.requestsAcknowledgement, .read, .delivered, .deliveredShown]
      )
    )
    let table: [(EventForm, EventFields, NSDictionary)] = [
      (
        .messageNew, message,
        [
          "type": "message.new", "user": Self.bob, "thread_id": "m1",
          "message": [
            "id": "m2", "seq": 2, "created_at": Self.text, "silent": false, "receipt": true,
            "parent_id": "m1",
          ] as NSDictionary,
          "moves_position": ["read": false, "delivered": true] as NSDictionary,
        ]
      ),
      (
        .messageDeleted, .messageDeleted(thread: "", SequenceNumber(3), message: "m3", at: Self.time),
        ["type": "message.deleted", "message_id": "m3", "seq": 3]
      ),
      (
        .truncated, .truncated(through: SequenceNumber(9), at: Self.time),
        ["type": "channel.truncated", "seq": 9]
      ),
      (.channelDeleted, .channelDeleted(at: Self.time), ["type": "channel.deleted"]),
      (
        .memberAdded, .memberAdded(Self.added),
        [
          "type": "member.added", "user": Self.bob, "role": "admin", "member_count": 3,
          "joined_seq": 9,
          "last_read_message_id": "m9", "last_read_seq": 9,
        ]
      ),
      (
        .memberRemoved, .memberRemoved(user: "bob", at: Self.time, memberCount: 2),
        ["type": "member.removed", "user": Self.bob, "member_count": 2]
      ),
      (
        .status, Self.status,
        [
          "type": "message.status", "user": ["id": "alice"] as NSDictionary, "from_seq": 3, "to_seq": 7,
          "last_message_id": "m7", "status": "delivered",
        ]
      ),
      (
        .status, Self.status(of: ""),
        [
          "type": "message.status", "from_seq": 3, "to_seq": 7, "last_message_id": "m7",
          "status": "delivered",
        ]
      ),
      (
        .receipt, Self.receipt,
        [
          "type": "message.receipt", "user": Self.bob, "message_id": "m7", "seq": 7,
          "receipt_status": "processing",
          "read_count": 1, "unread_count": 2, "acknowledged_count": 1,
          "acknowledged_at": Self.text, "note": "on \"my\" way",
        ]
      ),
    ]
    for (form, event, expected) in table { #expect(try json(form, event) == expected, "\(form)") }
    let channel = ChannelFields(
      cid: "messaging:general",
      created: Self.time,
      options: ChannelTypeOptions(),
      memberCount: 3,
      newest: .zero,
      newestMessage: "",
      newestRegistered: .none
    )
    let updated = try json(.updated, .channelUpdated(at: Self.time, channel))
    let shown = try #require(updated["channel"] as? NSDictionary)
    #expect(shown["member_count"] as? Int == 3 && shown["cid"] as? String == "messaging:general")
    #expect((shown["options"] as? NSDictionary)?["mark_unread"] as? String == "private")
  }

  @Test func lineBreaksInNotesAreEscaped() {
    var event = Self.receipt
    if case .receipt(var fields) = event {
      fields.note = "one\n\nevent: stream.reset\ndata: {}\r\n\u{2028}"
      event = .receipt(fields)
    }
    let block = String(buffer: EventJSON.block(.receipt, of: event, cid: "messaging:general"))
    #expect(block.utf8.count { $0 == UInt8(ascii: "\n") } == 2 && !block.utf8.contains(UInt8(ascii: "\r")))
  }
}

/// The part of an event that a member who joined under hidden history receives (R6).
@Suite struct HistoryLimitTests {
  private let joinedAt = Timestamp(milliseconds: 5_000)

  private func limit(_ hidden: HistoryLimit.Hidden, joined: UInt32 = 0) -> HistoryLimit {
    HistoryLimit(from: joinedAt, through: joinedAt, hidden: hidden, joined: SequenceNumber(joined))
  }

  private func row(_ read: UInt32, _ delivered: UInt32, shown: RowEventFields.Shown) -> EventFields {
    let row = RowEventRow(
      user: "bob",
      lastRead: Timestamp(milliseconds: 9_000),
      lastReadMessage: "m\(read)",
      lastReadSequence: SequenceNumber(read),
      lastDelivered: Timestamp(milliseconds: 9_000),
      lastDeliveredMessage: "m\(delivered)",
      lastDeliveredSequence: SequenceNumber(delivered)
    )
    return .row(
      RowEventFields(thread: "", own: [], shown: shown, at: joinedAt, ownRow: row, shownRow: row)
    )
  }

  private func visiblePart(_ event: EventFields, _ limit: HistoryLimit) -> (
    event: EventFields, forms: EventForm.Forms
  )? {
    event.limited(by: limit, event.forms(for: .user(isSubject: false)), joinedAt: joinedAt)
  }

  @Test func rowEventHasOnlyPositionsAfterJoin() throws {
    let both: RowEventFields.Shown = [.read, .delivered]
    #expect(visiblePart(row(3, 4, shown: both), limit([.position, .delivered])) == nil)
    let delivered = try #require(visiblePart(row(3, 7, shown: both), limit(.position)))
    #expect(delivered.forms == EventForm.Forms(.delivered))
    #expect(visiblePart(row(7, 7, shown: both), limit(.event)) == nil)
  }

  @Test func hiddenPositionIsShownAsJoin() throws {
    let left = try #require(visiblePart(row(3, 7, shown: .row), limit(.position, joined: 5)))
    guard case .row(let event) = left.event, let shown = event.shownRow else {
      Issue.record("no row")
      return
    }
    #expect(left.forms == EventForm.Forms(.rowShown))
    #expect(shown.lastReadSequence == SequenceNumber(5) && shown.lastReadMessage.isEmpty)
    #expect(shown.lastRead == joinedAt)
    #expect(shown.lastDeliveredSequence == SequenceNumber(7) && shown.lastDeliveredMessage == "m7")
    // If every part is hidden, there is no event. The row's own member still receives it.
    let hidden = limit([.position, .delivered, .row], joined: 9)
    #expect(visiblePart(row(3, 7, shown: .row), hidden) == nil)
    let own = row(3, 7, shown: .row)
    #expect(own.limited(by: hidden, own.forms(for: .user(isSubject: true)), joinedAt: joinedAt) != nil)
  }

  @Test func messagesBeforeJoinAreOmitted() {
    let message = MessageEventFields(
      thread: "",
      sequence: SequenceNumber(3),
      message: "m3",
      sender: "bob",
      registered: Timestamp(milliseconds: 1),
      created: Timestamp(milliseconds: 1),
      flags: []
    )
    for event in [
      EventFields.messageNew(message), .truncated(through: SequenceNumber(3), at: joinedAt),
      .messageDeleted(thread: "", SequenceNumber(3), message: "m3", at: joinedAt),
    ] { #expect(visiblePart(event, limit(.position)) == nil) }
    let member = MemberEventFields(
      user: "erin",
      role: "",
      at: joinedAt,
      memberCount: 3,
      readSequence: SequenceNumber(4),
      readMessage: "m4"
    )
    guard
      case .memberAdded(let added)? = visiblePart(.memberAdded(member), limit(.position, joined: 5))?.event
    else {
      Issue.record("no member.added event")
      return
    }
    #expect(added.readMessage.isEmpty && added.readSequence == SequenceNumber(5))
  }
}
