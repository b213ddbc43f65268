package import NIOCore
package import ReceiptModel

/// The 12-byte header before a payload.
package struct FrameHeader: Hashable, Sendable {
  @inlinable package static var byteCount: Int { 12 }
  /// Size of the length field, which the length does not count.
  @inlinable package static var lengthFieldByteCount: Int { 4 }
  /// Offsets of the fields after the length, which is at offset 0.
  package static let kindOffset = 4
  package static let flagsOffset = 5
  package static let shardOffset = 6
  package static let correlationOffset = 8
  /// Size of the suffix of a frame with the flag `issued`.
  @inlinable package static var issuedByteCount: Int { 4 }
  /// Number of bytes besides the payload that the length field counts.
  static let lengthOverhead = 8
  /// The longest frame that this build accepts and sends, as counted by the length field.
  package static let lengthLimitDefault: UInt32 = 1 << 20

  @usableFromInline
  package struct Flags: FlagSet {
    @usableFromInline package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    /// The frame was sent before, on a connection that was lost.
    @inlinable package static var resend: Flags { Flags(rawValue: 1) }
    /// Requests only: the payload ends with ``issuedByteCount`` more bytes, the issue time of the user's token in
    /// seconds since 1970, in network order.
    @inlinable package static var issued: Flags { Flags(rawValue: 2) }
    /// Requests only: after the kind's fields comes the thread's parent message, a string that is not empty.
    @inlinable package static var thread: Flags { Flags(rawValue: 4) }
    /// The flags that only requests may have.
    package static let ofRequests: Flags = [.issued, .thread]
    static let known: Flags = [.resend, .issued, .thread]
  }

  /// The bit of the kind's byte that a reply has besides its request's kind.
  package static let replyBit: UInt8 = 0x80

  /// A reply has the kind of its request.
  package var kind: FrameKind
  package var isReply = false
  package var flags: Flags
  package var shard: ShardID
  package var correlation: UInt32

  package init(_ kind: FrameKind, flags: Flags = Flags(), shard: ShardID = ShardID(0), correlation: UInt32 = 0) {
    self.kind = kind
    self.flags = flags
    self.shard = shard
    self.correlation = correlation
  }

  /// Create the header of a reply to a request of `kind`.
  @inline(__always)
  package init(replyTo kind: FrameKind, shard: ShardID = ShardID(0), correlation: UInt32) {
    self.init(kind, shard: shard, correlation: correlation)
    isReply = true
  }

  /// The header of the reply to this request.
  @inline(__always)
  package var reply: FrameHeader { FrameHeader(replyTo: kind, shard: shard, correlation: correlation) }

  /// Whether this is a request of a session: with a counter, or idempotent.
  @inline(__always)
  package var isRequest: Bool { !isReply && kind.isRequest }

  /// The byte that says what the frame is.
  @inline(__always)
  package var kindByte: UInt8 { isReply ? kind.rawValue | Self.replyBit : kind.rawValue }

  /// Store the header in the first ``byteCount`` bytes of `target`, with a length of 0. Inlined: most of a request's
  /// cost is writing it.
  @inline(__always)
  package func store(in target: UnsafeMutableRawBufferPointer) {
    target.storeBytes(of: 0, as: UInt32.self)
    target[Self.kindOffset] = kindByte
    target[Self.flagsOffset] = flags.rawValue
    target.storeBytes(of: shard.rawValue.bigEndian, toByteOffset: Self.shardOffset, as: UInt16.self)
    target.storeBytes(of: correlation.bigEndian, toByteOffset: Self.correlationOffset, as: UInt32.self)
  }
}

extension ByteBuffer {
  /// Write a frame: the header, then the output of `fields`, then fill in the length.
  package mutating func writeFrame(_ header: FrameHeader, _ fields: (inout ByteBuffer) -> Void) {
    let start = beginFrame(header)
    fields(&self)
    endFrame(start)
  }

  /// Write a header whose length is not known yet; return the frame's start, for `endFrame`.
  package mutating func beginFrame(_ header: FrameHeader) -> Int {
    let start = writerIndex
    writeWithUnsafeMutableBytes(minimumWritableBytes: FrameHeader.byteCount) { target in
      header.store(in: target)
      return FrameHeader.byteCount
    }
    return start
  }

  /// Fill in the length of the frame that began at `start`.
  package mutating func endFrame(_ start: Int) {
    overwrite(UInt32(writerIndex - start - FrameHeader.lengthFieldByteCount), at: start)
  }
}

/// Splits a byte stream into frames. Lengths, kinds and flags are checked at the header, before any payload is awaited.
package struct FrameDecoder: Sendable {
  /// The largest length field accepted.
  package var lengthLimit: UInt32

  package init(lengthLimit: UInt32 = FrameHeader.lengthLimitDefault) { self.lengthLimit = lengthLimit }

  /// The result of looking at the start of a buffer.
  package enum Next: Equatable {
    /// A whole frame: its header, and the number of payload bytes after the 12 header bytes.
    case frame(FrameHeader, payloadCount: Int)
    /// The buffer must have at least this many bytes to continue.
    case needs(Int)
  }

  /// Decode the frame that starts at `offset` in `bytes`.
  ///
  /// - Throws: ``WireError`` if the header is refused; the stream cannot be read further.
  package func next(_ bytes: RawSpan, at offset: Int) throws(WireError) -> Next {
    let available = bytes.byteCount - offset
    guard available >= FrameHeader.lengthFieldByteCount else { return .needs(FrameHeader.byteCount) }
    let length = UInt32(bigEndian: bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt32.self))
    guard length >= FrameHeader.lengthOverhead else { throw .lengthTooSmall }
    guard length <= lengthLimit else { throw .lengthTooLarge(length) }
    guard available >= FrameHeader.shardOffset else { return .needs(FrameHeader.byteCount) }
    let kindByte = bytes.unsafeLoad(fromByteOffset: offset + FrameHeader.kindOffset, as: UInt8.self)
    let isReply = kindByte & FrameHeader.replyBit != 0
    guard let kind = FrameKind(rawValue: kindByte & ~FrameHeader.replyBit), !isReply || kind.hasReply else {
      throw .unknownKind(kindByte)
    }
    let rawFlags = bytes.unsafeLoad(fromByteOffset: offset + FrameHeader.flagsOffset, as: UInt8.self)
    let flags = FrameHeader.Flags(rawValue: rawFlags)
    guard FrameHeader.Flags.known.contains(flags),
      !isReply && kind.isRequest || flags.isDisjoint(with: FrameHeader.Flags.ofRequests)
    else {
      throw .badFlags(rawFlags)
    }
    let byteCount = FrameHeader.lengthFieldByteCount + Int(length)
    guard available >= byteCount else { return .needs(byteCount) }
    let shard = UInt16(
      bigEndian: bytes.unsafeLoadUnaligned(fromByteOffset: offset + FrameHeader.shardOffset, as: UInt16.self)
    )
    let correlation = UInt32(
      bigEndian: bytes.unsafeLoadUnaligned(fromByteOffset: offset + FrameHeader.correlationOffset, as: UInt32.self)
    )
    var header = FrameHeader(kind, flags: flags, shard: ShardID(shard), correlation: correlation)
    header.isReply = isReply
    return .frame(header, payloadCount: Int(length) - FrameHeader.lengthOverhead)
  }
}
