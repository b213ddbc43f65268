package import NIOCore
package import ReceiptModel

/// *entry* of Proto/frames.md, one member in a list, with its strings read in place.
package struct ListEntryFields: ~Escapable {
  package let user: RawSpan
  /// When the member read it, had it delivered, or acknowledged it; none in the lists of members who have not.
  package let at: Timestamp
  package let isExact: Bool
  /// Empty: none.
  package let note: RawSpan

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    at = try reader.time()
    isExact = try reader.flag()
    note = try reader.string()
  }
}

/// One member in the reply to *member_statuses*: the user, and their status for the message or the reason for its
/// absence.
package struct MemberStatusFields: ~Escapable {
  package let user: RawSpan
  /// 0, or an ``ErrorCode``: `not_a_member`, `not_expected`, `counts_not_visible`.
  package let code: UInt32
  /// Set if the code is 0.
  package let status: MemberStatus?

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    code = try reader.varint32()
    status = code == 0 ? try reader.memberStatus() : nil
  }
}

extension FieldReader {
  /// Read *member status* of Proto/frames.md.
  @_lifetime(self: copy self)
  package mutating func memberStatus() throws(WireError) -> MemberStatus {
    guard let status = MessageStatus(rawValue: try byte()) else { throw .badValue(.status) }
    let readAt = try time()
    let deliveredAt = try time()
    let flags = try byte()
    guard flags <= 7 else { throw .badValue(.flags) }
    return MemberStatus(
      status: status,
      readAt: readAt,
      deliveredAt: deliveredAt,
      readIsExact: flags & 1 != 0,
      deliveredIsExact: flags & 2 != 0,
      acknowledgedAt: flags & 4 != 0 ? try time() : .none
    )
  }
}

extension ByteBuffer {
  /// Write *entry* of Proto/frames.md.
  package mutating func writeListEntry(user: RawSpan, _ entry: ListEntry) {
    writeField(user)
    writeTime(entry.at)
    writeInteger(UInt8(entry.isExact ? 1 : 0))
    writeField(entry.note)
  }

  /// Write one member with a status in the reply to *member_statuses*.
  package mutating func writeMemberStatus(user: RawSpan, _ status: MemberStatus) {
    writeField(user)
    writeVarint(UInt64(0))
    writeInteger(status.status.rawValue)
    writeTime(status.readAt)
    writeTime(status.deliveredAt)
    let isAcknowledged = status.acknowledgedAt != .none
    let flags =
      (status.readIsExact ? 1 : 0) | (status.deliveredIsExact ? 2 : 0) | (isAcknowledged ? 4 : 0) as UInt8
    writeInteger(flags)
    if isAcknowledged { writeTime(status.acknowledgedAt) }
  }

  /// Write one member without a status in the reply to *member_statuses*, with the reason.
  package mutating func writeMemberStatus(user: RawSpan, refused code: ErrorCode) {
    writeField(user)
    writeVarint(UInt64(code.rawValue))
  }
}
