import NIOCore
import ReceiptModel
import ReceiptWire

/// The part of tickets and push acks that the gateway's tests need. Message n was sent n seconds after ``sentBase``.
extension FakeModel {
  static let sentBase: Int64 = 1_000_000_000_000

  /// The number of the channel's incarnation.
  private func number(of cid: String) -> UInt64 {
    if let number = channelNumbers[cid] { return number }
    nextChannelNumber += 1
    channelNumbers[cid] = nextChannelNumber
    return nextChannelNumber
  }

  private static func check(_ cid: String, _ user: String, _ message: String) -> UInt64 {
    let bytes = Array("\(cid)\0\(user)\0\(message)".utf8)
    return StableHash.hash(bytes.span.bytes)
  }

  /// The sequence number of a message. Deleted messages keep theirs.
  private func sequence(of message: String, _ channel: Channel) throws -> Int {
    guard let index = channel.messages.firstIndex(of: message) else { throw Refused(code: .messageNotFound) }
    return index + 1
  }

  func ticketPlace(
    _ cid: String,
    _ channel: Channel,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    let (user, message) = (try reader.text(), try reader.text())
    guard let row = channel.members.firstIndex(where: { $0.user == user }) else {
      throw Refused(code: .notAMember)
    }
    if channel.deleted.contains(message) { throw Refused(code: .messageDeleted) }
    fields.writeTicketPlace(
      TicketPlace(
        channel: ChannelNumber(UInt64(number(of: cid))),
        row: MemberOrdinal(UInt32(row)),
        parent: nil,
        sequence: SequenceNumber(UInt32(try sequence(of: message, channel))),
        check: Self.check(cid, user, message)
      )
    )
  }

  func acknowledgePush(
    _ cid: String,
    _ channel: inout Channel,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    let (user, message) = (try reader.text(), try reader.text())
    let acked = try reader.time()
    let wantsNames = try reader.varint() == 1
    guard let row = channel.members.firstIndex(where: { $0.user == user }) else {
      throw Refused(code: .notAMember)
    }
    let sequence = try sequence(of: message, channel)
    deliver(cid, &channel, row: row, sequence, acked, wantsNames: wantsNames, fields: &fields)
  }

  func redeemTicket(_ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    _ = try reader.varint()
    let number = try reader.varint()
    let row = Int(try reader.varint32())
    _ = try reader.optional32()
    let sequence = Int(try reader.varint32())
    let check = try reader.raw(8).unsafeLoadUnaligned(fromByteOffset: 0, as: UInt64.self).bigEndian
    let acked = try reader.time()
    let wantsNames = try reader.varint() == 1
    try reader.end()
    guard let cid = channelNumbers.first(where: { $0.value == number })?.key, var channel = channels[cid]
    else {
      throw Refused(code: .channelNotFound)
    }
    guard row < channel.members.count else { throw Refused(code: .notAMember) }
    guard sequence <= channel.messages.count,
      check == Self.check(cid, channel.members[row].user, channel.messages[sequence - 1])
    else { throw Refused(code: .ticketInvalid) }
    deliver(cid, &channel, row: row, sequence, acked, wantsNames: wantsNames, fields: &fields)
    channels[cid] = channel
  }

  private func deliver(
    _ cid: String,
    _ channel: inout Channel,
    row: Int,
    _ sequence: Int,
    _ acked: Timestamp,
    wantsNames: Bool,
    fields: inout ByteBuffer
  ) {
    let hasMoved = channel.members[row].row.delivered < sequence
    channel.members[row].row.delivered = max(channel.members[row].row.delivered, UInt32(sequence))
    let sent = Self.sentBase + Int64(sequence) * 1_000
    DeliveryReply.write(
      moved: hasMoved,
      nil,
      sent: Timestamp(milliseconds: sent),
      delivered: acked == .none ? Timestamp(milliseconds: sent + 2_000) : acked,
      hasNames: wantsNames,
      names: { fields in
        for name in [cid, channel.members[row].user, channel.messages[sequence - 1]] {
          fields.string(Array(name.utf8).span.bytes)
        }
      },
      into: &fields
    )
  }
}

/// Recorded webhooks.
extension FakeModel {
  func webhook(
    _ kind: FrameKind,
    _ key: String,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    let isKnown = webhooks[key] != nil
    if kind == .noteWebhook {
      let until = try reader.time()
      if !isKnown { webhooks[key] = until.milliseconds }
    }
    try reader.end()
    fields.writeFlag(isKnown == (kind == .webhookKnown))
  }
}
