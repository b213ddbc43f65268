import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// The requests that several suites send.
extension Gateway {
  func put(_ cid: String, _ users: [String] = [], counter: UInt64? = nil, shard: UInt16 = 0) {
    send(.putChannel, cid, counter: counter, shard: shard) { payload in
      payload.writeOptionPatch(OptionPatch())
      Self.write(users, into: &payload)
    }
  }

  func change(
    _ cid: String,
    add: [String] = [],
    remove: [String] = [],
    counter: UInt64? = nil,
    shard: UInt16 = 0
  ) {
    send(.changeMembers, cid, counter: counter, shard: shard) { payload in
      Self.write(add, into: &payload)
      payload.writeVarint(remove.count)
      for user in remove { payload.writeField(user) }
    }
  }

  private static func write(_ users: [String], into payload: inout ByteBuffer) {
    payload.writeVarint(users.count)
    for user in users {
      payload.writeField(user)
      payload.writeEmptyField()
    }
  }

  func post(
    _ cid: String,
    _ id: String,
    by sender: String = "",
    flags: UInt64 = 0,
    mentions: [String] = [],
    reminders: [ReminderRule]? = nil,
    to parent: String? = nil,
    counter: UInt64? = nil,
    shard: UInt16 = 0
  ) {
    send(.registerMessage, cid, counter: counter, shard: shard, thread: parent) { payload in
      payload.writeField(id)
      payload.writeField(sender)
      payload.writeTime(.none)
      payload.writeVarint(flags | (reminders == nil ? 0 : RegisterMessageRequest.hasReminders))
      if flags & 24 == 16 {
        payload.writeVarint(mentions.count)
        for user in mentions { payload.writeField(user) }
      }
      if let reminders { payload.writeReminderRules(reminders) }
    }
  }

  func read(_ cid: String, _ user: String, _ message: String = "", counter: UInt64? = nil) {
    send(.markRead, cid, counter: counter) { payload in
      payload.writeField(user)
      payload.writeField(message)
      payload.writeVarint(0)
    }
  }

  func list(
    _ user: String,
    flags: UInt64 = 1,
    limit: UInt64 = 1_000,
    from cursor: UInt64? = nil,
    since: Int64? = nil,
    shard: UInt16 = 0
  ) {
    send(.listChannels, user, shard: shard) { payload in
      payload.writeVarint(flags)
      payload.writeVarint(limit)
      payload.writeOptional(cursor)
      if let since { payload.writeTime(Timestamp(milliseconds: since)) }
    }
  }

  func rebuild(_ phase: UInt8, epoch: UInt64, shard: UInt16 = 0) {
    send(.rebuildIndex, nil, shard: shard) { payload in
      payload.writeInteger(phase)
      payload.writeVarint(epoch)
    }
  }

  func getChannel(_ cid: String) { send(.getChannel, cid) }

  func deleteMessage(_ cid: String, _ id: String) { send(.deleteMessage, cid) { $0.writeField(id) } }
  func deleteChannel(_ cid: String, counter: UInt64? = nil, shard: UInt16 = 0) {
    send(.deleteChannel, cid, counter: counter, shard: shard)
  }
  func truncate(_ cid: String, before message: String = "", counter: UInt64? = nil) {
    send(.truncateChannel, cid, counter: counter) { $0.writeField(message) }
  }
  func erase(_ cid: String, _ user: String, counter: UInt64? = nil, shard: UInt16 = 0) {
    send(.eraseMember, cid, counter: counter, shard: shard) { $0.writeField(user) }
  }
  func purge(_ round: UInt64 = 0, shard: UInt16 = 0) {
    send(.purge, nil, shard: shard) { $0.writeVarint(round) }
  }

  /// Begin erasing a user.
  func patchErasing(_ user: String, counter: UInt64? = nil) {
    send(.patchUser, user, counter: counter) { payload in
      payload.writeVarint(UInt64(8))
      payload.writeVarint(UInt64(0))
      payload.writeTime(.none)
    }
  }

  /// Assign settings. In `flags` 4 means that the user is being erased, 8 that they are erased.
  func assign(user: String, version: UInt64, flags: UInt64, shard: UInt16 = 0) {
    send(.assignUser, user, shard: shard) { payload in
      payload.writeVarint(version)
      payload.writeVarint(flags)
      for _ in 0..<3 { payload.writeTime(.none) }
    }
  }

  func patch(_ type: String, readEvents: Bool, counter: UInt64? = nil) {
    patch(type, counter: counter) { $0.readEvents = readEvents }
  }

  func patch(_ type: String, counter: UInt64? = nil, _ change: (inout OptionPatch) -> Void) {
    var patch = OptionPatch()
    change(&patch)
    send(.patchChannelType, type, counter: counter) { $0.writeOptionPatch(patch) }
  }

  func assign(_ type: String, version: UInt64, readEvents: Bool) {
    send(.assignChannelType, type) { payload in
      payload.writeVarint(version)
      var options = ChannelTypeOptions()
      options.readEvents = readEvents
      payload.writeOptions(options)
    }
  }
}

/// Push acks and tickets.
extension Gateway {
  func place(_ cid: String, _ user: String, _ message: String) {
    send(.ticketPlace, cid) { payload in
      payload.writeField(user)
      payload.writeField(message)
    }
  }

  /// The ticket's place in the newest reply.
  func ticket() throws -> TicketPlace {
    let payload = lastPayload
    var reader = FieldReader(payload.readableBytesSpan)
    return try reader.ticketPlace()
  }

  /// A ticket for an existing message. The request leaves no trace in the replies.
  func ticket(_ cid: String, _ user: String, _ message: String, _ harness: EngineHarness) throws
    -> TicketPlace
  {
    place(cid, user, message)
    harness.loop.endTurn()
    try harness.persistAll()
    _ = take()
    return try ticket()
  }

  func push(
    _ cid: String,
    _ user: String,
    _ message: String,
    acked: Int64 = 0,
    flags: UInt64 = 0,
    counter: UInt64? = nil,
    issued: UInt32? = nil
  ) {
    send(.acknowledgePush, cid, counter: counter, issued: issued) { payload in
      payload.writeField(user)
      payload.writeField(message)
      payload.writeTime(Timestamp(milliseconds: acked))
      payload.writeVarint(flags)
    }
  }

  func redeem(
    _ ticket: TicketPlace,
    acked: Int64 = 0,
    flags: UInt64 = 1,
    counter: UInt64? = nil,
    issued: UInt32? = nil
  ) {
    send(.redeemTicket, nil, counter: counter, issued: issued) { payload in
      payload.writeTicketPlace(ticket)
      payload.writeTime(Timestamp(milliseconds: acked))
      payload.writeVarint(flags)
    }
  }

  /// Request the members who received a message and have not read it.
  func delivered(_ cid: String, _ message: String) {
    send(.listMembers, cid) { payload in
      payload.writeVarint(1)
      payload.writeEmptyField()
      payload.writeField(message)
      payload.writeInteger(UInt8(1))
      payload.writeInteger(UInt8(1))
      payload.writeVarint(100)
      payload.writeEmptyField()
    }
  }

  func reply(_ cid: String, _ id: String, by sender: String, to parent: String) {
    send(.registerMessage, cid, thread: parent) { payload in
      payload.writeField(id)
      payload.writeField(sender)
      payload.writeTime(.none)
      payload.writeVarint(0)
    }
  }

  func revoke(_ user: String, before time: Int64) {
    send(.patchUser, user) { payload in
      payload.writeVarint(4)
      payload.writeVarint(0)
      payload.writeTime(Timestamp(milliseconds: time))
    }
  }
}
