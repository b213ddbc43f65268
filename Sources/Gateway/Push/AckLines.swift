/// Splitter of a streamed body into lines (newline-delimited JSON). Pure; the bytes are not copied.
package struct AckLines {
  /// Maximum size of a line in bytes, without its line feed.
  package static let byteCountMax = 4_096

  /// The next item of the body.
  package enum Next: Equatable {
    /// A line, without its line feed; the rest starts at `end`.
    case line(Range<Int>, end: Int)
    /// A line exceeds ``byteCountMax`` bytes; reported once. The rest starts at `end`.
    case tooLong(end: Int)
    /// No complete line. Bytes up to `end` may be dropped; a partial line may follow.
    case needsMore(end: Int)
  }

  /// Whether the rest of an oversized line is being skipped.
  private var isSkipping = false

  package init() {}

  /// Read the next item from `start` on. Blank lines are skipped.
  ///
  /// - Parameter isEnd: whether the body ends with these bytes; its last line then needs no line feed.
  package mutating func next(_ bytes: RawSpan, from start: Int, isEnd: Bool) -> Next {
    let lineFeed = UInt8(ascii: "\n")
    var at = start
    if isSkipping {
      guard let end = bytes.firstOffset(of: lineFeed, from: at) else {
        return .needsMore(end: bytes.byteCount)
      }
      isSkipping = false
      at = end + 1
    }
    while true {
      let searched = bytes.extracting(0..<min(bytes.byteCount, at + Self.byteCountMax + 1))
      if let end = searched.firstOffset(of: lineFeed, from: at) {
        if !Self.isBlank(bytes.extracting(at..<end)) { return .line(at..<end, end: end + 1) }
        at = end + 1
      } else if bytes.byteCount - at > Self.byteCountMax {
        isSkipping = true
        return .tooLong(end: at)
      } else if isEnd && !Self.isBlank(bytes.extracting(at..<bytes.byteCount)) {
        return .line(at..<bytes.byteCount, end: bytes.byteCount)
      } else {
        return .needsMore(end: isEnd ? bytes.byteCount : at)
      }
    }
  }

  /// Return whether the line has only JSON whitespace.
  private static func isBlank(_ line: RawSpan) -> Bool {
    for at in 0..<line.byteCount {
      switch line.unsafeLoad(fromByteOffset: at, as: UInt8.self) {
      case UInt8(ascii: " "), UInt8(ascii: "\t"), UInt8(ascii: "\r"): continue
      default: return false
      }
    }
    return true
  }
}
