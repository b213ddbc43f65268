import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

/// The frame decoder, with frames that are cut, on a stream delivered whole, byte by byte, and in random pieces.
struct DecoderTests {
  static let stream = Vectors.frames.flatMap { [UInt8](hex: $0.hex) }

  @Test func wholeFramesAreDecoded() throws {
    let frames = try feed([Self.stream])
    #expect(frames.count == Vectors.frames.count)
    for (frame, vector) in zip(frames, Vectors.frames) {
      #expect(frame.header.kindByte == vector.kindNumber)
      #expect(frame.header.correlation == vector.correlation)
      #expect(frame.payload.hex == String(vector.hex.dropFirst(24)))
    }
  }

  @Test func framesAreDecodedByteByByte() throws {
    #expect(try feed(Self.stream.map { [$0] }) == feed([Self.stream]))
  }

  @Test(arguments: TestRun.seeds(50, long: 1_000))
  func framesAreDecodedInRandomPieces(_ seed: UInt64) throws {
    var generator = SplitMix64(printing: seed, of: "frames in random pieces")
    var pieces: [[UInt8]] = []
    var rest = Self.stream[...]
    while !rest.isEmpty {
      let count = min(rest.count, generator.number(in: 1...300))
      pieces.append(Array(rest.prefix(count)))
      rest = rest.dropFirst(count)
    }
    #expect(try feed(pieces) == feed([Self.stream]), "seed \(seed)")
  }

  /// The requested length never exceeds the frame, and more bytes do not change the result for fewer.
  @Test func everyPrefixIsIncomplete() throws {
    for vector in Vectors.frames {
      let bytes = [UInt8](hex: vector.hex)
      for count in 0..<bytes.count {
        guard case .needs(let needed) = try FrameDecoder().next(bytes.span.bytes.extracting(0..<count), at: 0)
        else {
          Issue.record("\(vector.name): complete at \(count) of \(bytes.count)")
          return
        }
        #expect(needed > count && needed <= bytes.count, "\(vector.name) at \(count)")
      }
    }
  }

  @Test func lengthLimitIsInclusive() throws {
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(.drain)) { $0.writeRepeatingByte(0, count: 992) }
    let bytes = Array(buffer.readableBytesView)
    #expect(throws: Never.self) { try FrameDecoder(lengthLimit: 1000).next(bytes.span.bytes, at: 0) }
    #expect(throws: WireError.lengthTooLarge(1000)) {
      try FrameDecoder(lengthLimit: 999).next(bytes.span.bytes, at: 0)
    }
  }

  /// Only requests may have `issued` and `thread`, with or without `resend`. The readers of the fields decide which
  /// requests allow `thread`.
  @Test func onlyRequestsMayHaveIssuedAndThreadFlags() throws {
    for kind in FrameKind.allCases {
      let sets: [FrameHeader.Flags] = [
        .issued, [.issued, .resend], .thread, [.thread, .resend], [.thread, .issued],
        [.thread, .issued, .resend],
      ]
      for flags in sets {
        var buffer = ByteBuffer()
        let header = FrameHeader(kind, flags: flags, correlation: 7)
        buffer.writeFrame(header) { $0.writeInteger(UInt32(1_700_000_000)) }
        if kind.isRequest {
          let next = try FrameDecoder().next(buffer.readableBytesSpan, at: 0)
          #expect(next == .frame(header, payloadCount: FrameHeader.issuedByteCount), "\(kind)")
        } else {
          #expect(throws: WireError.badFlags(flags.rawValue), "\(kind)") {
            try FrameDecoder().next(buffer.readableBytesSpan, at: 0)
          }
        }
      }
    }
  }

  struct Frame: Equatable {
    var header: FrameHeader
    var payload: [UInt8]
  }

  private func feed(_ pieces: [[UInt8]]) throws -> [Frame] {
    var frames: [Frame] = []
    var cut = CutFrame()
    let decoder = FrameDecoder()
    for piece in pieces {
      var used = 0
      if !cut.isEmpty {
        guard let completed = try cut.complete(with: piece.span.bytes, decoder) else { continue }
        let whole = Array(completed.frame.readableBytesView)
        let before = frames.count
        let end = try append(whole, decoder, to: &frames)
        #expect(end == whole.count && frames.count == before + 1)
        used = completed.used
      }
      let rest = Array(piece[used...])
      let end = try append(rest, decoder, to: &frames)
      cut.keep(rest.span.bytes.extracting(end..<rest.count))
    }
    #expect(cut.isEmpty)
    return frames
  }

  /// Append the whole frames at the start of `bytes`; return their total length.
  private func append(_ bytes: [UInt8], _ decoder: FrameDecoder, to frames: inout [Frame]) throws -> Int {
    var offset = 0
    while case .frame(let header, let count) = try decoder.next(bytes.span.bytes, at: offset) {
      let start = offset + FrameHeader.byteCount
      offset = start + count
      frames.append(Frame(header: header, payload: Array(bytes[start..<offset])))
    }
    return offset
  }
}
