import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// Responses of marks, read back by Foundation.
@Suite struct RowJSONTests {
  private func row(
    joined: UInt32 = 0,
    lastRead: Int64 = 1_700_000_000_123,
    readSequence: UInt32 = 5,
    delivered: Timestamp = .none,
    deliveredSequence: UInt32 = 0,
    own: ShownRow.OwnDetails? = nil
  ) -> ShownRow {
    ShownRow(
      row: MemberOrdinal(0),
      joined: SequenceNumber(joined),
      lastRead: Timestamp(milliseconds: lastRead),
      lastReadSequence: SequenceNumber(readSequence),
      lastDelivered: delivered,
      lastDeliveredSequence: SequenceNumber(deliveredSequence),
      own: own
    )
  }

  /// Return a store's reply to a mark.
  private func reply(
    _ row: ShownRow,
    user: String = "alice",
    readMessage: String = "m5",
    deliveredMessage: String = "",
    firstUnread: String = "",
    includesJoin: Bool = false,
    uncounted: ShardState.Uncounted? = nil
  ) -> ByteBuffer {
    let (user, readMessage) = (Array(user.utf8), Array(readMessage.utf8))
    let (deliveredMessage, firstUnread) = (Array(deliveredMessage.utf8), Array(firstUnread.utf8))
    var buffer = ByteBuffer()
    buffer.writeMarkReply(uncounted) {
      RowFields.write(
        row,
        user: user.span.bytes,
        lastReadMessage: readMessage.span.bytes,
        lastDeliveredMessage: deliveredMessage.span.bytes,
        firstUnreadMessage: firstUnread.span.bytes,
        includesJoin: includesJoin,
        into: &$0
      )
    }
    return buffer
  }

  private func answer(_ reply: ByteBuffer) throws -> NSDictionary {
    let reply = try MarkReply(reply.readableBytesSpan)
    return try jsonObject { RowJSON.writeResponse(reply, into: &$0) }
  }

  @Test func ownRowHasAllFields() throws {
    let own = ShownRow.OwnDetails(
      unreadMessages: 3,
      firstUnread: SequenceNumber(6),
      unreadEpoch: 2,
      isOwn: true,
      isFlaggedUnread: true,
      unreadMentions: 1
    )
    let delivered = Timestamp(milliseconds: 1_700_000_000_000)
    let found = try answer(
      reply(
        row(joined: 4, delivered: delivered, deliveredSequence: 6, own: own),
        deliveredMessage: "m6",
        firstUnread: "m6",
        includesJoin: true
      )
    )
    #expect(
      found == [
        "read": [
          "user": ["id": "alice"], "joined_seq": 4, "last_read": "2023-11-14T22:13:20.123Z",
          "last_read_message_id": "m5", "last_read_seq": 5, "unread_messages": 3,
          "last_delivered_at": "2023-11-14T22:13:20.000Z", "last_delivered_message_id": "m6",
          "last_delivered_seq": 6, "first_unread_message_id": "m6", "unread_epoch": 2, "marked_unread": true,
          "unread_mentions": 1,
        ]
      ]
    )
  }

  @Test func absentRowFieldsAreOmitted() throws {
    #expect(
      try answer(reply(row(readSequence: 0), readMessage: "")) == [
        "read": [
          "user": ["id": "alice"], "last_read": "2023-11-14T22:13:20.123Z", "last_read_seq": 0,
          "last_delivered_seq": 0,
        ]
      ]
    )
    // A server sees the details of another's row, without the flag and the mentions.
    let own = ShownRow.OwnDetails(unreadMessages: 0, firstUnread: .zero, unreadEpoch: 0)
    #expect(
      try answer(reply(row(own: own))) == [
        "read": [
          "user": ["id": "alice"], "last_read": "2023-11-14T22:13:20.123Z", "last_read_message_id": "m5",
          "last_read_seq": 5, "unread_messages": 0, "last_delivered_seq": 0, "unread_epoch": 0,
        ]
      ]
    )
  }

  @Test(arguments: ShardState.Uncounted.allCases)
  func markThatDoesNotCountNamesReason(_ uncounted: ShardState.Uncounted) throws {
    let reasons: [ShardState.Uncounted: String] = [
      .notInThread: "not_in_thread", .noReplies: "no_replies", .registeredBefore: "registered_before",
    ]
    let found = try answer(reply(row(), uncounted: uncounted))
    #expect(found["counted"] as? Bool == false)
    #expect(found["reason"] as? String == reasons[uncounted])
  }

  /// The largest response has all fields, each number with all its digits, and strings whose bytes take six each.
  @Test(arguments: [nil] + ShardState.Uncounted.allCases, [false, true])
  func largestResponseFitsItsBuffer(_ uncounted: ShardState.Uncounted?, isFlaggedUnread: Bool) throws {
    let text = String(repeating: "\u{1}", count: 255)
    let own = ShownRow.OwnDetails(
      unreadMessages: .max,
      firstUnread: SequenceNumber(.max),
      unreadEpoch: .max,
      isOwn: true,
      isFlaggedUnread: isFlaggedUnread,
      unreadMentions: .max
    )
    let payload = reply(
      row(
        joined: .max,
        lastRead: .max,
        readSequence: .max,
        delivered: Timestamp(milliseconds: .max),
        deliveredSequence: .max,
        own: own
      ),
      user: text,
      readMessage: text,
      deliveredMessage: text,
      firstUnread: text,
      includesJoin: true,
      uncounted: uncounted
    )
    let found = try answer(payload)
    let read = try #require(found["read"] as? NSDictionary)
    #expect(read.count == 13)
    #expect(read["first_unread_message_id"] as? String == text)
    #expect(read["last_read"] as? String == "9999-12-31T23:59:59.999Z")
    #expect(read["unread_mentions"] as? UInt32 == .max)

    let reply = try MarkReply(payload.readableBytesSpan)
    let byteMax = RowJSON.byteMax(reply.row)
    var response = ByteBuffer()
    RowJSON.writeResponse(reply, into: &response)
    #expect(response.readableBytes > 4 * 6 * 255 && response.readableBytes <= byteMax)
  }
}
