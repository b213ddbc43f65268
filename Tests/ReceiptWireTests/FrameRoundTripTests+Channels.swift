import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

extension FrameRoundTripTests {
  /// Subscriptions and their events.
  static let events: [RoundTrip] = [
    .payload(.events) { payload, vector, buffer in
      let events = try EventsFields(payload)
      #expect(UInt64(events.through.milliseconds) == vector.fields.number("through"))
      #expect(events.isLost == (vector.fields.number("lost") == 1))
      #expect(events.channels.map(\.cid) == vector.fields.list("channels").map { $0.text("cid") })
      #expect(events.users.map(\.user) == vector.fields.list("users").map { $0.text("user") })
      events.write(into: &buffer)
    },
    .reply(.subscribe) { payload, vector, buffer in
      let subscribed = try SubscribedFields(payload)
      #expect(UInt64(subscribed.through.milliseconds) == vector.fields.number("through"))
      #expect(subscribed.isComplete == (vector.fields.number("complete") == 1))
      #expect(subscribed.channels.map(\.cid) == vector.fields.list("channels").map { $0.text("cid") })
      subscribed.write(into: &buffer)
    },
    .request(.subscribe) { reader, vector, buffer in
      let request = try SubscribeRequest(&reader)
      #expect(request.flags == vector.fields.number("flags"))
      #expect(UInt64(request.since.milliseconds) == vector.fields.number("since"))
      let cids = strings(request.channels)
      #expect(cids == vector.fields.list("channels").map { $0.text("cid") })
      buffer.writeSubscribe(changesSince: request.flags == 1 ? request.since : nil, cids)
    },
    .request(.unsubscribe, .announceRow) { reader, vector, buffer in
      let list = try StringListFields(&reader)
      let cids = strings(list)
      #expect(cids == vector.fields.list("channels").map { $0.text("cid") })
      buffer.writeStrings(cids)
    },
    .request(.subscribeUser) { reader, vector, buffer in
      let request = try SubscribeUserRequest(&reader)
      #expect(UInt64(request.on) == vector.fields.number("on"))
      buffer.writeSubscribeUser(on: request.on == 1)
    },
  ]

  /// Channels and members.
  static let channels: [RoundTrip] = [
    .reply(.getChannel, .changeMembers, .truncateChannel) { payload, vector, buffer in
      let channel = try ChannelFields(payload)
      #expect(channel.cid == vector.fields.text("cid"))
      #expect(UInt64(channel.memberCount) == vector.fields.number("member_count"))
      #expect(UInt64(channel.newest.rawValue) == vector.fields.number("newest_sequence"))
      #expect(channel.newestMessage == vector.fields.text("newest_message"))
      #expect(UInt64(channel.newestRegistered.milliseconds) == vector.fields.number("newest_registered"))
      channel.write(into: &buffer)
    },
    .reply(.putChannel) { payload, vector, buffer in
      let reply = try PutChannelReply(payload)
      #expect(reply.isNew == (vector.fields.number("was_created") == 1))
      #expect(reply.channel.cid == vector.fields.text("cid"))
      buffer.writePutChannelReply(isNew: reply.isNew) { reply.channel.write(into: &$0) }
    },
    .reply(.setMember) { payload, vector, buffer in
      let member = try SetMemberReply(payload)
      #expect(member.hasJoined == (vector.fields.number("joined") == 1))
      #expect(member.role == vector.fields.text("role"))
      #expect(UInt64(member.joinedAt.milliseconds) == vector.fields.number("joined_at"))
      #expect(member.isMuted == (vector.fields.number("muted") == 1))
      member.write(into: &buffer)
    },
    .reply(.deleteChannel, .eraseMember, .settle, .webhookKnown, .noteWebhook, .putConsumer, .importChannel) {
      payload,
      _,
      buffer in
      buffer.writeFlag(try FlagReply(payload).isSet)
    },
    .request(.setMember) { reader, vector, buffer in
      let request = try SetMemberRequest(&reader)
      #expect(request.member.user == vector.fields.text("user"))
      #expect(request.member.role == vector.fields.text("role"))
      #expect(request.flags == vector.fields.number("flags"))
      let (user, role) = (Array(request.member.user.utf8), Array(request.member.role.utf8))
      buffer.writeSetMember(user: user.span.bytes, role: role.span.bytes, flags: request.flags)
    },
  ]

  /// Messages and acknowledgements.
  static let messages: [RoundTrip] = [
    .reply(.registerMessage) { payload, vector, buffer in
      let reply = try RegistrationReply(payload)
      #expect(reply.isNew == (vector.fields.number("was_created") == 1))
      #expect(UInt64(reply.sequence.rawValue) == vector.fields.number("sequence"))
      #expect(UInt64(reply.status.rawValue) == vector.fields.number("status"))
      #expect(UInt64(reply.acknowledgementRequestRefusal.rawValue) == vector.fields.number("receipt_refusal"))
      reply.write(into: &buffer)
    },
    .reply(.deleteMessage) { payload, vector, buffer in
      let reply = try DeleteMessageReply(payload)
      #expect(UInt64(reply.sequence.rawValue) == vector.fields.number("sequence"))
      reply.write(into: &buffer)
    },
    .reply(.acknowledge) { payload, vector, buffer in
      let reply = try AcknowledgeReply(payload)
      #expect(reply.codes.map { UInt64($0?.rawValue ?? 0) } == vector.fields.list("codes").map { $0.number("code") })
      reply.write(into: &buffer)
    },
    .request(.deleteMessage, .truncateChannel) { reader, vector, buffer in
      let request = try MessageRequest(&reader)
      #expect(text(request.message) == vector.fields.text("message"))
      buffer.writeMessageRequest(request.message)
    },
    .request(.registerMessage) { reader, vector, buffer in
      let request = try RegisterMessageRequest(&reader)
      #expect(text(request.message) == vector.fields.text("message"))
      #expect(text(request.sender) == vector.fields.text("user"))
      #expect(UInt64(request.created.milliseconds) == vector.fields.number("created"))
      #expect(request.flags == vector.fields.number("flags"))
      buffer.writeRegisterMessage(
        request.message,
        sender: request.sender,
        created: request.created,
        flags: request.flags
      )
      if case .users(let users) = request.mentions {
        #expect(users == vector.fields.list("mentions").map { $0.text("user") })
        buffer.writeStrings(users)
      }
      if let reminders = request.reminders {
        let expected = vector.fields.list("reminders")
        #expect(reminders.map { UInt64($0.after) } == expected.map { $0.number("after") })
        #expect(reminders.map { UInt64($0.condition.rawValue) } == expected.map { $0.number("when") })
        #expect(reminders.map { UInt64($0.membersMax) } == expected.map { $0.number("limit") })
        buffer.writeReminderRules(reminders)
      }
    },
    .request(.acknowledge) { reader, vector, buffer in
      let request = try AcknowledgeRequest(&reader)
      #expect(text(request.user) == vector.fields.text("user"))
      #expect(text(request.note) == vector.fields.text("note"))
      let messages = strings(request.messages)
      #expect(messages == vector.fields.list("messages").map { $0.text("message") })
      buffer.writeAcknowledge(user: request.user, note: request.note, messageCount: messages.count)
      for message in messages { buffer.writeField(message) }
    },
  ]
}
