import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// Whole frames against Proto/vectors, in both directions.
struct FrameVectorTests {
  @Test func everyKindHasAVector() {
    let kinds = Set(Vectors.frames.map(\.kindNumber))
    for type in FrameType.allCases { #expect(kinds.contains(type.byte), "\(type)") }
    #expect(kinds.count == FrameType.allCases.count)
  }

  @Test(arguments: Vectors.frames)
  func frameVectorsAreDecoded(_ vector: Vectors.Frame) throws {
    let bytes = [UInt8](hex: vector.hex)
    let header = FrameHeader(vector)
    let next = try FrameDecoder().next(bytes.span.bytes, at: 0)
    #expect(next == .frame(header, payloadCount: bytes.count - FrameHeader.byteCount), "\(vector.name)")
    let payload = bytes.span.bytes.extracting(FrameHeader.byteCount..<bytes.count)
    var reader = FieldReader(payload)
    let fields = try read(vector.fields, from: &reader)
    try reader.end()
    #expect("\(fields)" == "\(vector.fields)", "\(vector.name)")
    try parse(FrameType(header), header.flags, payload)
  }

  /// Every error and option occurs in some vector.
  @Test func everyErrorAndOptionHasAVector() {
    let errors = Vectors.frames.filter { $0.kind == "error" }.map { $0.fields.number("code") }
    for code in ErrorCode.allCases { #expect(errors.contains(UInt64(code.rawValue)), "\(code)") }
    let options = Vectors.frames.filter {
      $0.kind == "get_channel_type_reply" || $0.kind == "patch_channel_type"
    }
    .flatMap { $0.fields.list($0.kind == "patch_channel_type" ? "patch" : "options") }
    #expect(Set(options.map { $0.number("option") }) == Set(1...13))
    #expect(Set(Vectors.frames.map(\.flags)) == [0, 1, 2, 3, 4, 5, 6, 7])
    // Each kind that allows a thread has one in some vector.
    let threads = Vectors.frames.filter { $0.flags & FrameHeader.Flags.thread.rawValue != 0 }
    let kinds: Set = [
      "register_message", "mark_read", "mark_unread", "mark_unread_since", "mark_delivered",
    ]
    #expect(Set(threads.map(\.kind)) == kinds)
  }

  @Test(arguments: Vectors.frames)
  func frameVectorsAreEncoded(_ vector: Vectors.Frame) {
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(vector)) { $0.write(vector.fields) }
    #expect(Array(buffer.readableBytesView).hex == vector.hex, "\(vector.name)")
  }

  @Test(arguments: Vectors.badFrames)
  func badFrameVectorsAreRefused(_ vector: Vectors.Bad) {
    let bytes = [UInt8](hex: vector.hex)
    let refusal = refusal(bytes.span.bytes, limit: vector.lengthLimit)
    #expect(refusal == vector.refusal, "\(vector.name)")
  }

  /// An invalid header is refused before any byte of the payload arrives.
  @Test func headersAreRefusedEarly() {
    for vector in Vectors.badFrames where ["lengthTooSmall", "lengthTooLarge"].contains(vector.refusal) {
      let bytes = [UInt8](hex: String(vector.hex.prefix(8)))
      #expect(refusal(bytes.span.bytes, limit: vector.lengthLimit) == vector.refusal, "\(vector.name)")
    }
    for vector in Vectors.badFrames where ["unknownKind", "badFlags"].contains(vector.refusal) {
      let bytes = [UInt8](hex: String(vector.hex.prefix(12)))
      #expect(refusal(bytes.span.bytes, limit: vector.lengthLimit) == vector.refusal, "\(vector.name)")
    }
  }

  private func refusal(_ bytes: RawSpan, limit: UInt32?) -> String {
    do throws(WireError) {
      let decoder = FrameDecoder(lengthLimit: limit ?? FrameHeader.lengthLimitDefault)
      guard case .frame(let header, let payloadCount) = try decoder.next(bytes, at: 0) else {
        return "incomplete"
      }
      let start = FrameHeader.byteCount
      try parse(FrameType(header), header.flags, bytes.extracting(start..<(start + payloadCount)))
      return "accepted"
    } catch {
      return error.name
    }
  }
}
