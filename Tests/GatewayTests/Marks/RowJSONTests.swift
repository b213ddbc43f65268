import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// Responses of marks, read back by Foundation.
@Suite struct RowJSONTests {
  private func row(
    user: String = "alice",
    lastRead: Int64 = 1_700_000_000_123,
    readMessage: String = "m5",
    readSequence: UInt32 = 5,
    delivered: Int64 = 0,
    deliveredMessage: String = "",
    deliveredSequence: UInt32 = 0,
    own: (unread: UInt32, first: String, epoch: UInt32)? = nil
  ) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeField(user)
    buffer.writeTime(Timestamp(milliseconds: lastRead))
    buffer.writeField(readMessage)
    buffer.writeVarint(readSequence)
    buffer.writeTime(Timestamp(milliseconds: delivered))
    buffer.writeField(deliveredMessage)
    buffer.writeVarint(deliveredSequence)
    buffer.writeVarint(own == nil ? 0 : 1)
    if let own {
      buffer.writeVarint(own.unread)
      buffer.writeField(own.first)
      buffer.writeVarint(own.epoch)
    }
    return buffer
  }

  private func answer(_ row: ByteBuffer) throws -> NSDictionary {
    let reply = try MarkReply(row.readableBytesSpan)
    return try jsonObject { RowJSON.writeResponse(reply, into: &$0) }
  }

  @Test func ownRowHasAllFields() throws {
    let found = try answer(
      row(delivered: 1_700_000_000_000, deliveredMessage: "m6", deliveredSequence: 6, own: (3, "m6", 2))
    )
    #expect(
      found == [
        "read": [
          "user": ["id": "alice"], "last_read": "2023-11-14T22:13:20.123Z", "last_read_message_id": "m5",
          "last_read_seq": 5, "unread_messages": 3, "last_delivered_at": "2023-11-14T22:13:20.000Z",
          "last_delivered_message_id": "m6", "last_delivered_seq": 6, "first_unread_message_id": "m6",
          "unread_epoch": 2,
        ]
      ]
    )
  }

  @Test func absentRowFieldsAreOmitted() throws {
    #expect(
      try answer(row(readMessage: "", readSequence: 0)) == [
        "read": [
          "user": ["id": "alice"], "last_read": "2023-11-14T22:13:20.123Z", "last_read_seq": 0,
          "last_delivered_seq": 0,
        ]
      ]
    )
    #expect(
      try answer(row(own: (0, "", 0))) == [
        "read": [
          "user": ["id": "alice"], "last_read": "2023-11-14T22:13:20.123Z", "last_read_message_id": "m5",
          "last_read_seq": 5, "unread_messages": 0, "last_delivered_seq": 0, "unread_epoch": 0,
        ]
      ]
    )
  }

  @Test func largestRowFitsItsBuffer() throws {
    let quotes = String(repeating: "\"", count: 255)
    let found = try answer(
      row(
        user: quotes,
        lastRead: .max,
        readMessage: quotes,
        readSequence: .max,
        delivered: .max,
        deliveredMessage: quotes,
        deliveredSequence: .max,
        own: (.max, quotes, .max - 1)
      )
    )
    let read = try #require(found["read"] as? NSDictionary)
    #expect(read["first_unread_message_id"] as? String == quotes)
    #expect(read["last_read"] as? String == "9999-12-31T23:59:59.999Z")
  }
}
