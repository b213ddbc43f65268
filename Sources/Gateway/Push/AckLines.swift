/// Cuts a streamed body into lines (newline-delimited JSON). Pure; the bytes stay where they are.
package struct AckLines {
  /// Bytes of a line at most, without its end.
  package static let byteCountMax = 4_096

  /// What the body has next.
  package enum Next: Equatable {
    /// A line, without its end; what follows starts at `end`.
    case line(Range<Int>, end: Int)
    /// A line of more than ``byteCountMax`` bytes has begun: told once. What follows starts at `end`.
    case tooLong(end: Int)
    /// Nothing up to `end`, which may be dropped; a part of a line may follow.
    case needsMore(end: Int)
  }

  /// In the rest of a line that was too long.
  private var isSkipping = false

  package init() {}

  /// Looks at what starts at `start`. Blank lines are passed over.
  ///
  /// - Parameter isEnd: the body ends with these bytes: its last line needs no line feed.
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

  /// Nothing but what JSON takes for space.
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
