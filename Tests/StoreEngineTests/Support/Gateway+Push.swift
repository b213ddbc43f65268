import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Push acknowledgements and tickets.
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
