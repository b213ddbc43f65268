internal import NIOCore
internal import ReceiptWire

/// JSON of the results of push acks (Proto/openapi.yaml).
enum PushJSON {
  /// Write `{"ok":true,"cid","message_id","user_id"}` and the separator; with `"counted": false` and the reason where
  /// the delivery does not count.
  static func write(_ delivery: borrowing DeliveryReply, separator: UInt8, into buffer: inout ByteBuffer) {
    let (cid, message, user) = (delivery.cid, delivery.message, delivery.user)
    let byteMax = 128 + 6 * (cid.byteCount + message.byteCount + user.byteCount)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"ok\":true,\"cid\":")
      out.jsonString(cid)
      out.literal(",\"message_id\":")
      out.jsonString(message)
      out.literal(",\"user_id\":")
      out.jsonString(user)
      out.uncounted(delivery.uncounted)
      out.literal("}")
      out.append(separator)
    }
  }

  /// Write `{"ok":false,"code"}` and the separator.
  static func write(_ code: ProblemCode, separator: UInt8, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"ok\":false,\"code\":\"")
    buffer.writeString(code.rawValue)
    buffer.writeStaticString("\"}")
    buffer.writeInteger(separator)
  }

  /// Write `{"results":[{"ok":true} | {"ok":false,"code"}…],"ignored"}` of a webhook.
  ///
  /// - Parameters:
  ///   - codes: the result of each delivery; nil: it succeeded.
  ///   - ignored: number of events that are no deliveries.
  static func writeResults(_ codes: [ProblemCode?], ignored: Int, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"results\":[")
    for (index, code) in codes.enumerated() {
      if index > 0 { buffer.writeStaticString(",") }
      if let code {
        buffer.writeString("{\"ok\":false,\"code\":\"\(code.rawValue)\"}")
      } else {
        buffer.writeStaticString("{\"ok\":true}")
      }
    }
    buffer.writeString("],\"ignored\":\(ignored)}")
  }

  /// Write `{"results":[…]}`.
  ///
  /// - Parameter entries: the results, each followed by a comma.
  static func writeResults(_ entries: ByteBuffer, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"results\":[")
    buffer.writeImmutableBuffer(entries)
    if entries.readableBytes > 0 { buffer.moveWriterIndex(to: buffer.writerIndex - 1) }
    buffer.writeStaticString("]}")
  }
}
