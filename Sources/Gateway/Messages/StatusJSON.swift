package import NIOCore
package import ReceiptModel

/// JSON of message statuses and the results of batch entries (Proto/openapi.yaml).
package enum StatusJSON {
  /// Upper bound for the size of a status without its variable-length strings.
  private static let fixedByteMax = 512

  /// Write a status.
  package static func write(_ status: ShownStatus, message: RawSpan, cid: RawSpan, into buffer: inout ByteBuffer) {
    let byteMax = fixedByteMax + 6 * (message.byteCount + cid.byteCount)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"message_id\":")
      out.jsonString(message)
      out.literal(",\"cid\":")
      out.jsonString(cid)
      out.literal(",\"seq\":")
      out.decimal(UInt64(status.sequence.rawValue))
      out.literal(",\"status\":")
      out.status(status.status)
      out.literal(",\"receipt_status\":")
      out.acknowledgementStatus(status.acknowledgement)
      out.literal(",\"read_count\":")
      out.decimal(UInt64(status.readCount))
      out.literal(",\"delivered_count\":")
      out.decimal(UInt64(status.deliveredCount))
      out.literal(",\"unread_count\":")
      out.decimal(UInt64(status.unreadCount))
      out.literal(",\"member_count\":")
      out.decimal(UInt64(status.memberCount))
      if let acknowledged = status.acknowledgedCount {
        out.literal(",\"acknowledged_count\":")
        out.decimal(UInt64(acknowledged))
      }
      out.literal(",\"read_events\":")
      out.bool(status.readEvents)
      out.literal(",\"delivery_events\":")
      out.bool(status.deliveryEvents)
      out.literal(",\"created_at\":")
      out.timestamp(milliseconds: status.createdAt.milliseconds)
      out.literal("}")
    }
  }

  /// Write `{"message_id", "code"}` in a status's place, without the id if the entry was no string.
  package static func write(_ code: ProblemCode, message: RawSpan?, into buffer: inout ByteBuffer) {
    let code = Array(code.rawValue.utf8)
    let byteMax = 64 + code.count + 6 * (message?.byteCount ?? 0)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{")
      if let message {
        out.literal("\"message_id\":")
        out.jsonString(message)
        out.literal(",")
      }
      out.literal("\"code\":\"")
      out.bytes(code.span.bytes)
      out.literal("\"}")
    }
  }

  /// Write `{"cid","id"?,"ok":true}`, with `"counted": false` and the reason where it does not count, or
  /// `{"cid","id"?,"ok":false,"code"}`. An empty id is omitted, as are values that were no strings.
  package static func writeEntry(
    cid: RawSpan?,
    id: RawSpan?,
    code: ProblemCode?,
    uncounted: ShardState.Uncounted? = nil,
    into buffer: inout ByteBuffer
  ) {
    let codeBytes = code.map { Array($0.rawValue.utf8) } ?? []
    let byteMax = 128 + codeBytes.count + 6 * ((cid?.byteCount ?? 0) + (id?.byteCount ?? 0))
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{")
      if let cid {
        out.literal("\"cid\":")
        out.jsonString(cid)
        out.literal(",")
      }
      if let id, !id.isEmpty {
        out.literal("\"id\":")
        out.jsonString(id)
        out.literal(",")
      }
      if codeBytes.isEmpty {
        out.literal("\"ok\":true")
        out.uncounted(uncounted)
        out.literal("}")
      } else {
        out.literal("\"ok\":false,\"code\":\"")
        out.bytes(codeBytes.span.bytes)
        out.literal("\"}")
      }
    }
  }

  /// Write `{"message": …}` of a registered message or, without status, of a deleted one.
  static func writeMessageResponse(
    id: RawSpan,
    cid: RawSpan,
    sequence: UInt32,
    status: MessageStatus?,
    refusal: AcknowledgementRequestRefusal = .none,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeStaticString("{\"message\":")
    writeMessage(id: id, cid: cid, sequence: sequence, status: status, refusal: refusal, into: &buffer)
    buffer.writeStaticString("}")
  }

  /// Write `{"id","cid","seq","status"?,"receipt_refused"?}`: a registered message or, without status, a deleted one.
  package static func writeMessage(
    id: RawSpan,
    cid: RawSpan,
    sequence: UInt32,
    status: MessageStatus?,
    refusal: AcknowledgementRequestRefusal = .none,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeWithOutputRawSpan(minimumWritableBytes: 160 + 6 * (cid.byteCount + id.byteCount)) { out in
      out.literal("{\"id\":")
      out.jsonString(id)
      out.literal(",\"cid\":")
      out.jsonString(cid)
      if sequence > 0 {
        out.literal(",\"seq\":")
        out.decimal(UInt64(sequence))
      }
      if let status {
        out.literal(",\"status\":")
        out.status(status)
      }
      switch refusal {
      case .none: break
      case .limitReached: out.literal(",\"receipt_refused\":\"receipt_limit_reached\"")
      case .notAllowed: out.literal(",\"receipt_refused\":\"receipt_not_allowed\"")
      }
      out.literal("}")
    }
  }
}

extension OutputRawSpan {
  @_lifetime(self: copy self)
  mutating func acknowledgementStatus(_ status: AcknowledgementStatus) {
    switch status {
    case .none: literal("\"none\"")
    case .processing: literal("\"processing\"")
    case .done: literal("\"done\"")
    case .expired: literal("\"expired\"")
    }
  }

  @_lifetime(self: copy self)
  mutating func status(_ status: MessageStatus) {
    switch status {
    case .sent: literal("\"sent\"")
    case .delivered: literal("\"delivered\"")
    case .read: literal("\"read\"")
    }
  }
}
