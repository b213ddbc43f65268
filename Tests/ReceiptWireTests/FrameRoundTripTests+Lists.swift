import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

extension FrameRoundTripTests {
  /// Lists of a user's channels, and the index.
  static let lists: [RoundTrip] = [
    .request(.listChannels) { reader, vector, buffer in
      let request = try ListChannelsRequest(&reader)
      #expect(request.flags == vector.fields.number("flags"))
      #expect(request.limit == vector.fields.number("limit"))
      #expect(request.cursor.map { UInt64($0) } == vector.fields.optional("cursor"))
      let withDeleted = request.flags & ListChannelsRequest.withDeleted != 0
      if withDeleted { #expect(UInt64(request.since.milliseconds) == vector.fields.number("since")) }
      buffer.writeListChannels(
        withAll: request.flags & ListChannelsRequest.withAll != 0,
        limit: Int(request.limit),
        cursor: request.cursor.map { UInt64($0) },
        deletedSince: withDeleted ? request.since : nil
      )
    },
    .reply(.listChannels) { payload, vector, buffer in
      var reader = FieldReader(payload)
      var entries: [ChannelEntryFields] = []
      let next = try reader.channelList { channel throws(WireError) in
        entries.append(try ChannelEntryFields(channel))
      }
      let expected = vector.fields.list("entries")
      #expect(entries.count == expected.count)
      for (entry, fields) in zip(entries, expected) {
        #expect(entry.cid == fields.text("cid"))
        #expect(entry.row.map { UInt64($0) } == fields.optional("row"))
        let member = fields.number("member")
        #expect(entry.isMember == (member & 1 == 1) && (entry.deletedAt != .none) == (member & 2 == 2))
        if member & 2 == 2 {
          #expect(UInt64(entry.deletedAt.milliseconds) == fields.number("deleted"))
        }
        #expect(UInt64(entry.joinedAt.milliseconds) == fields.number("joined"))
      }
      #expect(next == vector.fields.optional("next_cursor"))
      let written = entries
      buffer.writeChannelList(count: written.count, next: next) { list in
        for entry in written { entry.write(into: &list) }
      }
    },
    .request(.unreadCounts) { reader, vector, buffer in
      let expected = vector.fields.list("channels")
      let count = try reader.count()
      #expect(count == expected.count)
      buffer.writeVarint(count)
      for fields in expected {
        let entry = try UnreadCountEntry(&reader)
        #expect(text(entry.cid) == fields.text("cid"))
        #expect(text(entry.user) == fields.text("user"))
        #expect(UInt64(entry.row) == fields.number("row"))
        buffer.writeUnreadCountEntry(cid: entry.cid, user: entry.user, row: entry.row)
      }
    },
    .reply(.unreadCounts) { payload, vector, buffer in
      var reader = FieldReader(payload)
      buffer.writeVarint(try reader.count())
      for expected in vector.fields.list("counts") {
        let count = try UnreadCountFields(&reader)
        switch count {
        case .found(let counts):
          #expect(expected.number("found") == 0)
          #expect(UInt64(counts.messages) == expected.number("unread_messages"))
          #expect(UInt64(counts.threads) == expected.number("unread_threads"))
          #expect(UInt64(counts.mentions) == expected.number("unread_mentions"))
          #expect((counts.isFlagged ? 1 : 0) | (counts.isMuted ? 2 : 0) == expected.number("unread_flags"))
        case .refused(let code):
          #expect(UInt64(code.rawValue) == expected.number("found"))
        }
        count.write(into: &buffer)
      }
    },
    .reply(.rebuildIndex) { payload, vector, buffer in
      let rebuild = try RebuildIndexReply(payload)
      #expect(UInt64(rebuild.phase.rawValue) == vector.fields.number("phase"))
      #expect(rebuild.epoch == vector.fields.number("epoch"))
      #expect(rebuild.channelsDone == vector.fields.number("channels_done"))
      #expect(rebuild.channels == vector.fields.number("channels"))
      #expect(rebuild.entries == vector.fields.number("entries"))
      rebuild.write(into: &buffer)
    },
    .request(.rebuildIndex) { reader, vector, buffer in
      let request = try RebuildIndexRequest(&reader)
      #expect(UInt64(request.phase) == vector.fields.number("phase"))
      #expect(request.epoch == vector.fields.number("epoch"))
      buffer.writeRebuildIndex(phase: request.phase, epoch: request.epoch)
    },
  ]

  /// Statuses of messages, and the members behind them.
  static let statuses: [RoundTrip] = [
    .request(.statuses) { reader, vector, buffer in
      let request = try StatusesRequest(&reader)
      expect(request.viewer, vector.fields)
      let messages = strings(request.messages)
      #expect(messages == vector.fields.list("messages").map { $0.text("message") })
      buffer.writeStatuses(
        viewer: request.viewer.user,
        isServer: request.viewer.isServer,
        messageCount: messages.count
      )
      for message in messages { buffer.writeField(message) }
    },
    .reply(.statuses) { payload, vector, buffer in
      let results = try StatusResultFields.all(payload)
      #expect(results.count == vector.fields.list("statuses").count)
      buffer.writeVarint(results.count)
      for (result, entry) in zip(results, vector.fields.list("statuses")) {
        switch result {
        case .found(let status):
          #expect(entry.number("found") == 0)
          #expect(UInt64(status.unreadCount) == entry.number("unread_count"))
          buffer.writeStatusResult(status)
        case .refused(let code):
          let code = try #require(code)
          #expect(UInt64(code.rawValue) == entry.number("found"))
          buffer.writeStatusResult(refused: code)
        }
      }
    },
    .request(.listMembers) { reader, vector, buffer in
      let request = try ListMembersRequest(&reader)
      expect(request.viewer, vector.fields)
      #expect(text(request.message) == vector.fields.text("message"))
      #expect(UInt64(request.list) == vector.fields.number("list"))
      #expect(UInt64(request.order) == vector.fields.number("order"))
      #expect(request.limit == vector.fields.number("limit"))
      #expect(text(request.cursor) == vector.fields.text("cursor"))
      let (listByte, orderByte) = (request.list, request.order)
      let list = try #require(MemberList(rawValue: listByte))
      let order = try #require(ListOrder(rawValue: orderByte))
      buffer.writeListMembers(
        viewer: request.viewer.user,
        isServer: request.viewer.isServer,
        message: request.message,
        list: list,
        order: order,
        limit: Int(request.limit),
        cursor: request.cursor
      )
    },
    .reply(.listMembers) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let expected = vector.fields.list("entries")
      let count = try reader.count()
      #expect(count == expected.count)
      buffer.writeVarint(count)
      for fields in expected {
        let entry = try ListEntryFields(&reader)
        let note = text(entry.note)
        #expect(text(entry.user) == fields.text("user"))
        #expect(UInt64(entry.at.milliseconds) == fields.number("time"))
        #expect(entry.isExact == (fields.number("exact") == 1))
        #expect(note == fields.text("note"))
        let listed = ListEntry(row: MemberOrdinal(0), at: entry.at, isExact: entry.isExact, note: note)
        buffer.writeListEntry(user: entry.user, listed)
      }
      let next = try reader.text()
      #expect(next == vector.fields.text("next_cursor"))
      buffer.writeField(next)
      // Only the first page has a total.
      guard reader.remaining > 0 else { return }
      let total = try reader.varint32()
      #expect(UInt64(total) == vector.fields.number("total"))
      buffer.writeVarint(total)
    },
    .request(.memberStatuses) { reader, vector, buffer in
      let request = try MemberStatusesRequest(&reader)
      expect(request.viewer, vector.fields)
      #expect(text(request.message) == vector.fields.text("message"))
      let users = strings(request.users)
      #expect(users == vector.fields.list("users").map { $0.text("user") })
      buffer.writeMemberStatuses(
        viewer: request.viewer.user,
        isServer: request.viewer.isServer,
        message: request.message,
        userCount: users.count
      )
      for user in users { buffer.writeField(user) }
    },
    .reply(.memberStatuses) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let expected = vector.fields.list("statuses")
      let count = try reader.count()
      #expect(count == expected.count)
      buffer.writeVarint(count)
      for fields in expected {
        let entry = try MemberStatusFields(&reader)
        #expect(text(entry.user) == fields.text("user"))
        #expect(UInt64(entry.code) == fields.number("found"))
        if let status = entry.status {
          #expect(UInt64(status.status.rawValue) == fields.number("status"))
          #expect(UInt64(status.readAt.milliseconds) == fields.number("read"))
          #expect(UInt64(status.deliveredAt.milliseconds) == fields.number("delivered"))
          buffer.writeMemberStatus(user: entry.user, status)
        } else {
          let number = UInt16(entry.code)
          let code = try #require(ErrorCode(rawValue: number))
          buffer.writeMemberStatus(user: entry.user, refused: code)
        }
      }
    },
  ]

  /// Pages of a channel's rows and messages, and of a member's own lists.
  static let pages: [RoundTrip] = [
    .request(.readState, .listRoster) { reader, vector, buffer in
      let request = try RowPageRequest(&reader)
      expect(request.viewer, vector.fields)
      #expect(request.limit == vector.fields.number("limit"))
      #expect(request.cursor.map { UInt64($0) } == vector.fields.optional("cursor"))
      buffer.writeRowPage(
        viewer: request.viewer.user,
        isServer: request.viewer.isServer,
        limit: Int(request.limit),
        cursor: request.cursor
      )
    },
    .reply(.listRoster) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let expected = vector.fields.list("members")
      let count = try reader.count()
      #expect(count == expected.count)
      buffer.writeVarint(count)
      for fields in expected {
        let entry = try RosterEntryFields(&reader)
        let role = text(entry.role)
        #expect(text(entry.user) == fields.text("user"))
        #expect(role == fields.text("role"))
        #expect(UInt64(entry.joinedAt.milliseconds) == fields.number("joined_at"))
        #expect(entry.isMuted == (fields.number("muted") == 1))
        RosterEntryFields.write(
          user: entry.user,
          role: role,
          joinedAt: entry.joinedAt,
          isMuted: entry.isMuted,
          into: &buffer
        )
      }
      let next = try reader.optional32().map { UInt64($0) }
      #expect(next == vector.fields.optional("next_cursor"))
      buffer.writeOptional(next)
    },
    .request(.listMessages) { reader, vector, buffer in
      let request = try ListMessagesRequest(&reader)
      #expect(request.limit == vector.fields.number("limit"))
      expect(request.cursor, vector.fields.optional("cursor"), vector.fields.optional("reply"))
      buffer.writeListMessages(limit: Int(request.limit), cursor: request.cursor)
    },
    .reply(.listMessages) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let expected = vector.fields.list("messages")
      let count = try reader.count()
      #expect(count == expected.count)
      buffer.writeVarint(count)
      for fields in expected {
        let entry = try MessageEntryFields(&reader)
        #expect(UInt64(entry.sequence.rawValue) == fields.number("sequence"))
        #expect(text(entry.message) == fields.text("message"))
        #expect(text(entry.parent) == fields.text("parent"))
        #expect(text(entry.sender) == fields.text("sender"))
        #expect(UInt64(entry.createdAt.milliseconds) == fields.number("created"))
        #expect(UInt64(entry.flags.rawValue) == fields.number("flags"))
        MessageEntryFields.write(
          entry.sequence,
          message: entry.message,
          parent: entry.parent,
          sender: entry.sender,
          createdAt: entry.createdAt,
          flags: entry.flags,
          into: &buffer
        )
      }
      let next = try reader.messageListCursor()
      expect(next, vector.fields.optional("next_cursor"), vector.fields.optional("next_reply"))
      buffer.writeMessageListCursor(next)
    },
    .request(.userReceipts, .userThreads) { reader, vector, buffer in
      let request = try OwnListRequest(&reader)
      let selection = vector.kind == "user_threads" ? "threads" : "state"
      #expect(text(request.user) == vector.fields.text("user"))
      #expect(UInt64(request.selection) == vector.fields.number(selection))
      #expect(request.limit == vector.fields.number("limit"))
      #expect(request.below.map { UInt64($0.rawValue) } == vector.fields.optional("cursor"))
      buffer.writeOwnList(
        user: request.user,
        selection: request.selection,
        limit: Int(request.limit),
        below: request.below
      )
    },
    .reply(.userReceipts) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let expected = vector.fields.list("receipts")
      let count = try reader.count()
      #expect(count == expected.count)
      buffer.writeVarint(count)
      for fields in expected {
        let receipt = try OwnReceiptFields(&reader)
        let note = text(receipt.note)
        #expect(UInt64(receipt.sequence.rawValue) == fields.number("sequence"))
        #expect(text(receipt.message) == fields.text("message"))
        #expect(text(receipt.sender) == fields.text("sender"))
        #expect(UInt64(receipt.createdAt.milliseconds) == fields.number("created"))
        #expect(UInt64(receipt.status.rawValue) == fields.number("receipt_status"))
        #expect(UInt64(receipt.expiresAt.milliseconds) == fields.number("expires"))
        #expect(UInt64(receipt.acknowledgedAt.milliseconds) == fields.number("acknowledged"))
        #expect(receipt.isExact == (fields.number("exact") == 1))
        #expect(note == fields.text("note"))
        let own = ShardState.OwnAcknowledgement(
          sequence: receipt.sequence,
          status: receipt.status,
          expiresAt: receipt.expiresAt,
          acknowledgedAt: receipt.acknowledgedAt,
          isExact: receipt.isExact,
          note: note
        )
        OwnReceiptFields.write(
          own,
          message: receipt.message,
          sender: receipt.sender,
          createdAt: receipt.createdAt,
          into: &buffer
        )
      }
      let next = try reader.optional32().map { UInt64($0) }
      #expect(next == vector.fields.optional("next_cursor"))
      buffer.writeOptional(next)
    },
    .reply(.userThreads) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let expected = vector.fields.list("threads")
      let count = try reader.count()
      #expect(count == expected.count)
      buffer.writeVarint(count)
      for fields in expected {
        let thread = try OwnThreadFields(&reader)
        #expect(UInt64(thread.parent.rawValue) == fields.number("parent_sequence"))
        #expect(text(thread.message) == fields.text("parent"))
        #expect(UInt64(thread.unreadReplies) == fields.number("unread_messages"))
        #expect(text(thread.lastRead) == fields.text("last_read_message"))
        #expect(text(thread.firstUnread) == fields.text("first_unread_message"))
        #expect(text(thread.newest) == fields.text("newest_message"))
        OwnThreadFields.write(
          parent: thread.parent,
          message: thread.message,
          unreadReplies: thread.unreadReplies,
          lastRead: thread.lastRead,
          firstUnread: thread.firstUnread,
          newest: thread.newest,
          into: &buffer
        )
      }
      let next = try reader.optional32().map { UInt64($0) }
      #expect(next == vector.fields.optional("next_cursor"))
      buffer.writeOptional(next)
    },
  ]

  /// Check the two fields of a message list's cursor.
  private static func expect(_ cursor: MessageListCursor?, _ message: UInt64?, _ reply: UInt64?) {
    let cursorMessage = cursor.map { UInt64($0.message.rawValue) }
    #expect(cursorMessage == message)
    let cursorReply = cursor?.reply.map { UInt64($0.rawValue) }
    #expect(cursorReply == reply)
  }
}
