import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

extension FrameRoundTripTests {
  /// Marks.
  static let marks: [RoundTrip] = [
    .reply(.markRead, .markUnread, .markUnreadSince, .markDelivered) { payload, vector, buffer in
      let reply = try MarkReply(payload)
      expect(reply.row, vector.fields)
      buffer.writeMarkReply(reply.uncounted) { write(reply.row, into: &$0) }
    },
    .request(.markRead, .markUnread) { reader, vector, buffer in
      let mark = try MarkRequest(&reader, hasEpoch: true)
      #expect(text(mark.user) == vector.fields.text("user"))
      #expect(text(mark.message) == vector.fields.text("message"))
      #expect(mark.epoch.map { UInt64($0) } == vector.fields.optional("unread_epoch"))
      buffer.writeMark(user: mark.user, message: mark.message, epoch: mark.epoch.map { UInt64($0) })
    },
    .request(.markDelivered) { reader, vector, buffer in
      let mark = try MarkRequest(&reader, hasEpoch: false)
      #expect(text(mark.user) == vector.fields.text("user"))
      #expect(text(mark.message) == vector.fields.text("message"))
      buffer.writeMarkDelivered(user: mark.user, message: mark.message)
    },
    .request(.markUnreadSince) { reader, vector, buffer in
      let mark = try MarkUnreadSinceRequest(&reader)
      #expect(text(mark.user) == vector.fields.text("user"))
      #expect(UInt64(mark.since.milliseconds) == vector.fields.number("since"))
      #expect(mark.epoch.map { UInt64($0) } == vector.fields.optional("unread_epoch"))
      buffer.writeMarkUnreadSince(user: mark.user, since: mark.since, epoch: mark.epoch.map { UInt64($0) })
    },
  ]

  /// Read states.
  static let readStates: [RoundTrip] = [
    .request(.threadReadState) { reader, vector, buffer in
      let request = try ThreadReadStateRequest(&reader)
      expect(request.viewer, vector.fields)
      #expect(text(request.parent) == vector.fields.text("parent"))
      #expect(request.limit == vector.fields.number("limit"))
      #expect(text(request.cursor) == vector.fields.text("cursor"))
      buffer.writeThreadReadState(
        viewer: request.viewer.user,
        isServer: request.viewer.isServer,
        parent: request.parent,
        limit: Int(request.limit),
        cursor: request.cursor
      )
    },
    .reply(.readState) { payload, vector, buffer in
      var reader = FieldReader(payload)
      try copyRows(&reader, vector.fields.list("rows"), into: &buffer)
      let next = try reader.optional32().map { UInt64($0) }
      #expect(next == vector.fields.optional("next_cursor"))
      buffer.writeOptional(next)
    },
    .reply(.threadReadState) { payload, vector, buffer in
      var reader = FieldReader(payload)
      try copyRows(&reader, vector.fields.list("rows"), into: &buffer)
      let next = try reader.text()
      #expect(next == vector.fields.text("next_cursor"))
      buffer.writeField(next)
    },
  ]

  /// Read a list of rows, check them, and write them.
  private static func copyRows(
    _ reader: inout FieldReader,
    _ expected: [[Vectors.Field]],
    into buffer: inout ByteBuffer
  ) throws {
    let count = try reader.count()
    #expect(count == expected.count)
    buffer.writeVarint(count)
    for fields in expected {
      let row = try RowFields(&reader)
      expect(row, fields)
      write(row, into: &buffer)
    }
  }

  /// Check a row's fields.
  private static func expect(_ row: RowFields, _ fields: [Vectors.Field]) {
    #expect(text(row.user) == fields.text("user"))
    #expect(UInt64(row.lastRead.milliseconds) == fields.number("last_read"))
    #expect(text(row.lastReadMessage) == fields.text("last_read_message"))
    #expect(UInt64(row.lastReadSequence.rawValue) == fields.number("last_read_sequence"))
    #expect(UInt64(row.lastDelivered.milliseconds) == fields.number("last_delivered"))
    #expect(text(row.lastDeliveredMessage) == fields.text("last_delivered_message"))
    #expect(UInt64(row.lastDeliveredSequence.rawValue) == fields.number("last_delivered_sequence"))
    let flags = fields.number("flags")
    #expect(row.hasOwnDetails == (flags & 1 != 0))
    #expect(row.isOwn == (flags & 2 != 0))
    #expect(row.isFlaggedUnread == (flags & 4 != 0))
    if row.isOwn { #expect(UInt64(row.unreadMentions) == fields.number("unread_mentions")) }
    #expect((row.joined != nil) == (flags & 64 == 64))
    if let joined = row.joined { #expect(UInt64(joined.rawValue) == fields.number("joined_sequence")) }
    if row.hasOwnDetails {
      #expect(text(row.firstUnreadMessage) == fields.text("first_unread_message"))
      #expect(UInt64(row.unreadMessages) == fields.number("unread_messages"))
      #expect(UInt64(row.unreadEpoch) == fields.number("unread_epoch"))
    }
  }

  /// Write a row as the store does.
  private static func write(_ row: RowFields, into buffer: inout ByteBuffer) {
    let own = ShownRow.OwnDetails(
      unreadMessages: row.unreadMessages,
      firstUnread: .zero,
      unreadEpoch: row.unreadEpoch,
      isOwn: row.isOwn,
      isFlaggedUnread: row.isFlaggedUnread,
      unreadMentions: row.unreadMentions
    )
    let shown = ShownRow(
      row: MemberOrdinal(0),
      joined: row.joined ?? .zero,
      lastRead: row.lastRead,
      lastReadSequence: row.lastReadSequence,
      lastDelivered: row.lastDelivered,
      lastDeliveredSequence: row.lastDeliveredSequence,
      own: row.hasOwnDetails ? own : nil
    )
    RowFields.write(
      shown,
      user: row.user,
      lastReadMessage: row.lastReadMessage,
      lastDeliveredMessage: row.lastDeliveredMessage,
      firstUnreadMessage: row.firstUnreadMessage,
      includesJoin: row.joined != nil,
      into: &buffer
    )
  }
}
