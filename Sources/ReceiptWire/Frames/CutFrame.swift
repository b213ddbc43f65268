package import NIOCore

/// The start of a frame that a connection's reads have cut. The next read completes it; the frames after it are handled
/// in place.
package struct CutFrame: Sendable {
  private var bytes = ByteBuffer()

  package init() {}

  package var isEmpty: Bool { bytes.readableBytes == 0 }

  /// Capacity of the buffer in bytes.
  package var capacity: Int { bytes.capacity }

  /// Keep the end of a read: less than a frame.
  package mutating func keep(_ rest: RawSpan) { bytes.writeRaw(rest) }

  /// Append what the frame lacks from the start of the next read.
  ///
  /// The frame leaves: whoever handles it may change the connection, and with it this value.
  ///
  /// - Returns: the whole frame, and how many bytes of `read` it took; nil where it lacks more than `read` has, which
  ///   is then kept.
  /// - Throws: ``WireError`` if the frame's header is refused.
  package mutating func complete(
    with read: RawSpan,
    _ decoder: FrameDecoder
  ) throws(WireError) -> (frame: ByteBuffer, used: Int)? {
    var used = 0
    while case .needs(let count) = try decoder.next(bytes.readableBytesSpan, at: 0) {
      guard used < read.byteCount else { return nil }
      // First the header says how long the frame is.
      let end = min(read.byteCount, used + count - bytes.readableBytes)
      bytes.writeRaw(read.extracting(used..<end))
      used = end
    }
    var frame = ByteBuffer()
    swap(&frame, &bytes)
    return (frame, used)
  }
}
