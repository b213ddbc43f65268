import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// Responses about messages, read back by Foundation.
@Suite struct MessageJSONTests {
  @Test func statusHasAllFields() throws {
    let status = ShownStatus(
      sequence: SequenceNumber(7),
      status: .delivered,
      readCount: 1,
      deliveredCount: 4,
      memberCount: 9,
      readEvents: true,
      deliveryEvents: false,
      createdAt: Timestamp(milliseconds: 0)
    )
    let (message, cid) = (Array("m\"7".utf8), Array("messaging:c".utf8))
    #expect(
      try jsonObject { StatusJSON.write(status, message: message.span.bytes, cid: cid.span.bytes, into: &$0) }
        == [
          "message_id": "m\"7", "cid": "messaging:c", "seq": 7, "status": "delivered",
          "receipt_status": "none",
          "read_count": 1, "delivered_count": 4, "unread_count": 8, "member_count": 9, "read_events": true,
          "delivery_events": false, "created_at": "1970-01-01T00:00:00.000Z",
        ]
    )
    #expect(
      try jsonObject { StatusJSON.write(.messageDeleted, message: message.span.bytes, into: &$0) }
        == ["message_id": "m\"7", "code": "message_deleted"]
    )
  }

  @Test(arguments: [
    (AcknowledgementStatus.none, "none"), (.processing, "processing"), (.done, "done"), (.expired, "expired"),
  ])
  func receiptStatusHasItsName(_ acknowledgement: AcknowledgementStatus, _ expected: String) throws {
    let status = ShownStatus(
      sequence: SequenceNumber(7),
      status: .sent,
      acknowledgement: acknowledgement,
      readCount: 0,
      deliveredCount: 0,
      memberCount: 1,
      readEvents: true,
      deliveryEvents: true,
      createdAt: Timestamp(milliseconds: 0)
    )
    let (message, cid) = (Array("m".utf8), Array("a:b".utf8))
    let found = try jsonObject {
      StatusJSON.write(status, message: message.span.bytes, cid: cid.span.bytes, into: &$0)
    }
    #expect(found["receipt_status"] as? String == expected)
  }

  @Test func batchEntriesAndMessagesAreWritten() throws {
    let (id, cid, none) = (Array("m".utf8), Array("a:b".utf8), [UInt8]())
    #expect(
      try jsonObject { StatusJSON.writeEntry(cid: cid.span.bytes, id: id.span.bytes, code: nil, into: &$0) }
        == ["cid": "a:b", "id": "m", "ok": true]
    )
    #expect(
      try jsonObject {
        StatusJSON.writeEntry(cid: cid.span.bytes, id: none.span.bytes, code: .notAMember, into: &$0)
      }
        == ["cid": "a:b", "ok": false, "code": "not_a_member"]
    )
    #expect(
      try jsonObject {
        StatusJSON.writeMessage(id: id.span.bytes, cid: cid.span.bytes, sequence: 9, status: .sent, into: &$0)
      } == ["id": "m", "cid": "a:b", "seq": 9, "status": "sent"]
    )
    let longest = Array(String(repeating: "\"", count: 255).utf8)
    for (refusal, expected) in [
      (AcknowledgementRequestRefusal.none, nil), (.limitReached, "receipt_limit_reached"),
      (.notAllowed, "receipt_not_allowed"),
    ] as [(AcknowledgementRequestRefusal, String?)] {
      let found = try jsonObject {
        StatusJSON.writeMessage(
          id: longest.span.bytes,
          cid: longest.span.bytes,
          sequence: .max,
          status: .delivered,
          refusal: refusal,
          into: &$0
        )
      }
      #expect(found["receipt_refused"] as? String == expected)
    }
  }

  @Test func largestListFitsItsBuffer() throws {
    var buffer = ByteBuffer()
    buffer.writeVarint(100)
    let entry = ListEntry(
      row: MemberOrdinal(0),
      at: Timestamp(milliseconds: .max),
      isExact: false,
      note: String(repeating: "\u{1}", count: 1_024)
    )
    let user = Array(String(repeating: "\"", count: 255).utf8)
    for _ in 0..<100 { buffer.writeListEntry(user: user.span.bytes, entry) }
    buffer.writeField(String(repeating: "\"", count: 150))
    buffer.writeVarint(100)
    for list in MemberList.allCases {
      let found = try jsonObject { out in
        var reader = FieldReader(buffer.readableBytesSpan)
        do { try ListJSON.write(list, &reader, into: &out) } catch { Issue.record(error) }
      }
      let members = try #require(found["members"] as? [NSDictionary])
      #expect(members.count == 100 && (found["next"] as? String)?.count == 150)
      let notes = list == .readers || list == .acknowledged ? 1_024 : nil
      #expect((members[99]["note"] as? String)?.count == notes)
    }
  }
}
