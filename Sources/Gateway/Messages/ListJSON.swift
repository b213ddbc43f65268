internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// JSON of lists of a message's members (Proto/openapi.yaml; R11).
enum ListJSON {
  /// Upper bound for the size of an entry without its variable-length strings.
  private static let fixedByteMax = 192

  /// Write a reply to list_members as `{"members": […], "next"?}`. An entry is:
  ///
  /// - for readers `{"user", "read_at", "exact", "note"?}`,
  /// - for members with delivery only `{"user", "delivered_at", "exact"}`,
  /// - for acknowledgements `{"user", "acknowledged_at", "exact", "note"?}`,
  /// - for the others `{"user"}`.
  ///
  /// The first page has the `total`.
  static func write(_ list: MemberList, _ reader: inout FieldReader, into buffer: inout ByteBuffer) throws(WireError) {
    buffer.writeStaticString("{\"members\":[")
    for index in 0..<(try reader.count(elementBytesMin: 4)) {
      if index > 0 { buffer.writeStaticString(",") }
      write(try ListEntryFields(&reader), list, into: &buffer)
    }
    buffer.writeStaticString("]")
    let next = try reader.string()
    if reader.remaining > 0 {
      buffer.writeString(",\"total\":\(try reader.varint32())")
      try reader.end()
    }
    writeNext(next, into: &buffer)
  }

  /// Write the cursor of the next page, if there is one, and end the object.
  static func writeNext(_ next: RawSpan, into buffer: inout ByteBuffer) {
    if !next.isEmpty {
      buffer.writeStaticString(",\"next\":")
      buffer.writeJSONString(next)
    }
    buffer.writeStaticString("}")
  }

  private static func write(_ entry: borrowing ListEntryFields, _ list: MemberList, into buffer: inout ByteBuffer) {
    let byteMax = fixedByteMax + 6 * (entry.user.byteCount + entry.note.byteCount)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.user(entry.user)
      switch list {
      case .readers:
        out.literal(",\"read_at\":")
        out.timestamp(milliseconds: entry.at.milliseconds)
        out.literal(",\"exact\":")
        out.bool(entry.isExact)
        if !entry.note.isEmpty {
          out.literal(",\"note\":")
          out.jsonString(entry.note)
        }
      case .delivered:
        out.literal(",\"delivered_at\":")
        out.timestamp(milliseconds: entry.at.milliseconds)
        out.literal(",\"exact\":")
        out.bool(entry.isExact)
      case .acknowledged:
        out.literal(",\"acknowledged_at\":")
        out.timestamp(milliseconds: entry.at.milliseconds)
        out.literal(",\"exact\":")
        out.bool(entry.isExact)
        if !entry.note.isEmpty {
          out.literal(",\"note\":")
          out.jsonString(entry.note)
        }
      case .unread, .unacknowledged: break
      }
      out.literal("}")
    }
  }

  /// Write a reply to member_statuses as `{"members": […]}`:
  /// `{"user", "status", "read_at"?, "read_exact"?, "delivered_at"?, "delivered_exact"?}`, or `{"user", "code"}`.
  static func writeMemberStatuses(_ reader: inout FieldReader, into buffer: inout ByteBuffer) throws(WireError) {
    buffer.writeStaticString("{\"members\":[")
    for index in 0..<(try reader.count(elementBytesMin: 2)) {
      if index > 0 { buffer.writeStaticString(",") }
      let member = try MemberStatusFields(&reader)
      if let status = member.status {
        write(status, member.user, into: &buffer)
      } else {
        write(try code(member.code), member.user, into: &buffer)
      }
    }
    try reader.end()
    buffer.writeStaticString("]}")
  }

  private static func write(_ status: MemberStatus, _ user: RawSpan, into buffer: inout ByteBuffer) {
    buffer.writeWithOutputRawSpan(minimumWritableBytes: fixedByteMax + 6 * user.byteCount) { out in
      out.user(user)
      out.literal(",\"status\":")
      out.status(status.status)
      if status.readAt != .none {
        out.literal(",\"read_at\":")
        out.timestamp(milliseconds: status.readAt.milliseconds)
        out.literal(",\"read_exact\":")
        out.bool(status.readIsExact)
      }
      if status.deliveredAt != .none {
        out.literal(",\"delivered_at\":")
        out.timestamp(milliseconds: status.deliveredAt.milliseconds)
        out.literal(",\"delivered_exact\":")
        out.bool(status.deliveredIsExact)
      }
      if status.acknowledgedAt != .none {
        out.literal(",\"acknowledged_at\":")
        out.timestamp(milliseconds: status.acknowledgedAt.milliseconds)
      }
      out.literal("}")
    }
  }

  private static func write(_ code: ProblemCode, _ user: RawSpan, into buffer: inout ByteBuffer) {
    let code = Array(code.rawValue.utf8)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: fixedByteMax + 6 * user.byteCount) { out in
      out.user(user)
      out.literal(",\"code\":\"")
      out.bytes(code.span.bytes)
      out.literal("\"}")
    }
  }

  /// Map a member's code. The caller has named the user, so "not a member" is about that user, not the caller.
  private static func code(_ code: UInt32) throws(WireError) -> ProblemCode {
    switch UInt16(exactly: code).flatMap(ErrorCode.init) {
    case .notAMember: .memberNotFound
    case .notExpected: .notExpected
    case .countsNotVisible: .countsNotVisible
    default: throw .badValue(.code)
    }
  }
}

extension OutputRawSpan {
  /// Start an object with its user.
  @_lifetime(self: copy self)
  fileprivate mutating func user(_ id: RawSpan) {
    literal("{\"user\":{\"id\":")
    jsonString(id)
    literal("}")
  }
}
