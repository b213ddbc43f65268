import NIOCore
import Testing

@testable import StoreEtcd

@Suite struct GRPCTests {
  private static func message(_ text: String) -> [UInt8] {
    Array(GRPCMessage.framed { $0.writeString(text) }.readableBytesView)
  }

  /// All messages of these bytes, which arrive in pieces.
  private static func messages(_ bytes: [UInt8], pieceBytes: Int, max: Int = 100) throws -> [String] {
    var decoder = GRPCMessageDecoder(messageBytesMax: max)
    var texts: [String] = []
    var rest = bytes[...]
    while !rest.isEmpty {
      let piece = Array(rest.prefix(pieceBytes))
      decoder.append(piece.span.bytes)
      while let message = try decoder.next() { texts.append(String(buffer: message)) }
      rest = rest.dropFirst(pieceBytes)
    }
    return texts
  }

  @Test func messagesHaveALengthPrefix() {
    #expect(Hex.text(Self.message("abc")) == "0000000003616263")
    #expect(Hex.text(Self.message("")) == "0000000000")
  }

  @Test(arguments: [1, 2, 3, 5, 7, 1_000])
  func messagesArriveWholeAndInPieces(pieceBytes: Int) throws {
    let texts = ["abc", "", String(repeating: "x", count: 100), "d"]
    let bytes = texts.flatMap { Self.message($0) }
    #expect(try Self.messages(bytes, pieceBytes: pieceBytes) == texts)
    // What is incomplete waits.
    #expect(try Self.messages(bytes.dropLast(), pieceBytes: pieceBytes) == texts.dropLast())
  }

  /// Bytes of a stream, and why they are refused; the length as soon as it is there.
  @Test(
    arguments: [
      ("01", .compressed), ("ff00000000", .compressed), ("0000000065", .messageTooLarge(101)),
      ("00ffffffff", .messageTooLarge(.max)), ("0000000000" + "02", .compressed),
    ] as [(String, EtcdWireError)]
  )
  func malformedMessagesAreRefused(hex: String, error: EtcdWireError) throws {
    let bytes = try #require(Hex.bytes(hex))
    #expect(throws: error) { try Self.messages(bytes, pieceBytes: 1) }
    #expect(throws: error) { try Self.messages(bytes, pieceBytes: .max) }
  }

  @Test func unaryResponsesHaveOneMessage() throws {
    #expect(try GRPCMessage.only(in: ByteBuffer(bytes: Self.message("abc"))) == ByteBuffer(string: "abc"))
    let message = Self.message("abc")
    let others: [[UInt8]] = [[], [0, 0], message.dropLast(), message + [0], message + message]
    for bytes in others {
      #expect(throws: EtcdWireError.notOneMessage) { try GRPCMessage.only(in: ByteBuffer(bytes: bytes)) }
    }
    #expect(throws: EtcdWireError.compressed) {
      try GRPCMessage.only(in: ByteBuffer(bytes: [1, 0, 0, 0, 0]))
    }
  }

  /// Values of `grpc-status` and `grpc-message`, the code and the text.
  @Test(
    arguments: [
      ("0", nil, 0, ""), ("14", "etcdserver: no leader", 14, "etcdserver: no leader"),
      ("8", "a%20b%25%e4%bd%a0", 8, "a b%你"), ("2", "100%", 2, "100%"), ("2", "%zz%4", 2, "%zz%4"),
    ] as [(String, String?, UInt32, String)]
  )
  func statusesAreDecoded(code: String, message: String?, number: UInt32, text: String) throws {
    let status = try GRPCStatus(code: Array(code.utf8), message: message.map { Array($0.utf8) })
    #expect(status == GRPCStatus(code: number, message: text))
  }

  @Test(arguments: [nil, "", "-1", "x", "99999999999"] as [String?])
  func missingOrUnreadableStatusesAreRefused(code: String?) {
    #expect(throws: EtcdWireError.noStatus) {
      try GRPCStatus(code: code.map { Array($0.utf8) }, message: nil)
    }
  }
}
