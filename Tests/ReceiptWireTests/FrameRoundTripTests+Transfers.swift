import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

extension FrameRoundTripTests {
  /// Import and export.
  static let transfers: [RoundTrip] = [
    .request(.importChannel) { reader, vector, buffer in
      let fields = try ImportChannelRequest(&reader)
      #expect(UInt64(fields.created.milliseconds) == vector.fields.number("created"))
      buffer.writeImportChannel(created: fields.created, fields.options)
    },
    .request(.importMessages) { reader, vector, buffer in
      let records = try reader.records(TransferredMessage.self)
      for (record, fields) in zip(records, vector.fields.list("messages")) {
        #expect([record.id, record.sender, record.parent] == ["message", "user", "parent"].map { fields.text($0) })
        let times = [record.registeredAt, record.createdAt, record.expiresAt, record.deletedAt]
        let names = ["registered_at", "created_at", "expires_at", "deleted_at"]
        #expect(times.map { UInt64($0.milliseconds) } == names.map { fields.number($0) })
        #expect(record.mentions == fields.list("mentions").map { $0.text("user") })
      }
      buffer.writeRecords(records)
    },
    .request(.importMembers) { reader, vector, buffer in
      let records = try reader.records(TransferredMember.self)
      for (record, fields) in zip(records, vector.fields.list("members")) {
        let texts = [record.user, record.role, record.thread, record.read, record.delivered, record.unreadFrom]
        let names = ["user", "role", "parent", "last_read_message", "last_delivered_message", "first_unread_message"]
        #expect(texts == names.map { fields.text($0) })
        let times = [record.joinedAt, record.leftAt, record.readAt, record.deliveredAt]
        let timeNames = ["joined_at", "left_at", "last_read_at", "last_delivered_at"]
        #expect(times.map { UInt64($0.milliseconds) } == timeNames.map { fields.number($0) })
        let numbers = [record.unreadEpoch, record.readMoves, record.deliveredMoves]
        #expect(
          numbers.map(UInt64.init) == ["unread_epoch", "read_moves", "delivered_moves"].map { fields.number($0) }
        )
        #expect(record.joined.map { UInt64($0.rawValue) } == fields.optional("joined"))
        #expect(record.countedAfter.map { UInt64($0.rawValue) } == fields.optional("counted_after"))
        #expect(record.unreadAfter.map { UInt64($0.rawValue) } == fields.optional("unread_after"))
        #expect(record.moves.map { UInt64($0.sequence.rawValue) } == fields.list("moves").map { $0.number("sequence") })
      }
      buffer.writeRecords(records)
    },
    .request(.importAcknowledgements) { reader, vector, buffer in
      let records = try reader.records(TransferredAcknowledgement.self)
      for (record, fields) in zip(records, vector.fields.list("acknowledgements")) {
        #expect([record.message, record.user, record.note] == ["message", "user", "note"].map { fields.text($0) })
        #expect(record.isHidden == (fields.number("flags") == 1))
      }
      buffer.writeRecords(records)
    },
    .request(.listStoredChannels, .listUsers) { reader, vector, buffer in
      let fields = try ListStoredRequest(&reader)
      #expect([fields.after, fields.limit] == ["after", "limit"].map { vector.fields.number($0) })
      buffer.writeListStored(after: fields.after, limit: Int(fields.limit))
    },
    .request(.exportChannel) { reader, vector, buffer in
      let fields = try ExportChannelRequest(&reader)
      #expect(fields.user == vector.fields.text("user"))
      buffer.writeExportChannel(user: fields.user, snapshot: fields.snapshot, part: fields.part)
    },
    .reply(.importMessages, .importMembers, .importAcknowledgements) { payload, vector, buffer in
      let codes = try ImportReply(payload).codes
      #expect(codes.map(UInt64.init) == vector.fields.list("codes").map { $0.number("code") })
      let areKnown = codes.allSatisfy { $0 == 0 || ErrorCode(rawValue: $0) != nil }
      if areKnown {
        buffer.writeImportReply(codes.map { ErrorCode(rawValue: $0) })
      } else {
        // Codes of later versions are read, but not written.
        buffer.writeVarint(codes.count)
        for code in codes { buffer.writeVarint(UInt64(code)) }
      }
    },
    .reply(.listUsers) { payload, vector, buffer in
      let reply = try ListUsersReply(payload)
      let expected = vector.fields.list("users")
      #expect(reply.users.count == expected.count)
      for (settings, fields) in zip(reply.users, expected) { expect(settings, fields) }
      #expect(reply.next == vector.fields.optional("next"))
      buffer.writeVarint(reply.users.count)
      for settings in reply.users { buffer.writeUserSettings(settings) }
      buffer.writeOptional(reply.next)
    },
    .reply(.exportChannel) { payload, vector, buffer in
      let reply = try ExportChannelReply(payload)
      #expect([reply.snapshot, reply.parts] == ["snapshot", "parts"].map { vector.fields.number($0) })
      buffer.writeVarint(reply.snapshot)
      buffer.writeVarint(reply.parts)
      buffer.writeRecords(reply.channels)
      buffer.writeRecords(reply.messages)
      buffer.writeRecords(reply.members)
      buffer.writeRecords(reply.acknowledgements)
    },
  ]

  /// Backups.
  static let backups: [RoundTrip] = [
    .reply(.backupBegin) { payload, vector, buffer in
      let contents = try BackupContents(payload)
      #expect(UInt64(contents.time.milliseconds) == vector.fields.number("time"))
      #expect(contents.indexes.map(\.rawValue) == vector.fields.list("indexes").map { $0.number("index") })
      #expect(contents.files.map(\.name) == vector.fields.list("files").map { $0.text("name") })
      #expect(contents.files.map(\.size) == vector.fields.list("files").map { $0.number("size") })
      contents.write(into: &buffer)
    },
    .payload(.backupRead, .backupDigest) { payload, vector, buffer in
      let part = try BackupPart(payload)
      #expect(UInt64(part.file) == vector.fields.number("file"))
      #expect(part.offset == vector.fields.number("offset"))
      #expect(part.count == vector.fields.number("count"))
      part.write(into: &buffer)
    },
  ]
}
