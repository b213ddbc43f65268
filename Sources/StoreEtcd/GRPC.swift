internal import NIOCore
internal import ReceiptWire

// gRPC over HTTP/2 (grpc.io, "gRPC over HTTP2"), as far as etcd's client needs it.

/// Layout of a message on a stream: a byte that says whether it is compressed, its length, its bytes.
enum GRPCMessage {
  static let prefixBytes = 5
  /// Offset of the length, 4 bytes in network order.
  private static let lengthOffset = 1

  /// Make a message whose content `body` writes.
  static func framed(_ body: (inout ByteBuffer) -> Void) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeRepeatingByte(0, count: prefixBytes)
    body(&buffer)
    buffer.setInteger(UInt32(buffer.readableBytes - prefixBytes), at: lengthOffset)
    return buffer
  }

  /// Return the length in the prefix at the buffer's reader index; nil: more bytes are needed.
  fileprivate static func length(in buffer: ByteBuffer, max: Int) throws(EtcdWireError) -> Int? {
    let start = buffer.readerIndex
    guard let compressed = buffer.getInteger(at: start, as: UInt8.self) else { return nil }
    guard compressed == 0 else { throw .compressed }
    guard let length = buffer.getInteger(at: start + lengthOffset, as: UInt32.self) else { return nil }
    guard length <= max else { throw .messageTooLarge(length) }
    return Int(length)
  }

  /// Return the content of the only message of a unary call's response.
  static func only(in response: ByteBuffer) throws(EtcdWireError) -> ByteBuffer {
    guard let length = try length(in: response, max: .max), response.readableBytes == prefixBytes + length,
      let content = response.getSlice(at: response.readerIndex + prefixBytes, length: length)
    else { throw .notOneMessage }
    return content
  }
}

/// Splits a stream's bytes into messages. A message's length is checked as soon as its prefix is there.
struct GRPCMessageDecoder {
  private let messageBytesMax: Int
  private var buffer = ByteBuffer()

  init(messageBytesMax: Int) { self.messageBytesMax = messageBytesMax }

  /// Add bytes. The caller takes all messages with ``next()`` before it adds more.
  mutating func append(_ bytes: RawSpan) {
    buffer.discardReadBytes()
    buffer.writeRaw(bytes)
  }

  /// Return the next complete message; nil: more bytes are needed.
  mutating func next() throws(EtcdWireError) -> ByteBuffer? {
    guard let length = try GRPCMessage.length(in: buffer, max: messageBytesMax),
      buffer.readableBytes >= GRPCMessage.prefixBytes + length
    else { return nil }
    buffer.moveReaderIndex(forwardBy: GRPCMessage.prefixBytes)
    return buffer.readSlice(length: length)
  }
}

/// `grpc-status` and `grpc-message` of a call.
package struct GRPCStatus: Hashable, Sendable, CustomStringConvertible {
  static let ok: UInt32 = 0
  /// etcd: the revision is compacted.
  static let outOfRange: UInt32 = 11

  /// The code; 0 is success.
  package var code: UInt32
  /// The server's text.
  package var message: String

  package init(code: UInt32, message: String = "") {
    self.code = code
    self.message = message
  }

  /// Parse the values of the two fields.
  init(code: [UInt8]?, message: [UInt8]?) throws(EtcdWireError) {
    guard let code, let number = UInt32(String(decoding: code, as: UTF8.self)) else { throw .noStatus }
    self.init(code: number, message: Self.percentDecoded(message ?? []))
  }

  package var description: String { message.isEmpty ? "gRPC status \(code)" : message }

  /// Decode percent escapes. An invalid one stays as it is.
  private static func percentDecoded(_ bytes: [UInt8]) -> String {
    var decoded: [UInt8] = []
    var index = 0
    while index < bytes.count {
      if bytes[index] == UInt8(ascii: "%"), index + 2 < bytes.count,
        let byte = UInt8(String(decoding: bytes[index + 1...index + 2], as: UTF8.self), radix: 16)
      {
        decoded.append(byte)
        index += 3
      } else {
        decoded.append(bytes[index])
        index += 1
      }
    }
    return String(decoding: decoded, as: UTF8.self)
  }
}
