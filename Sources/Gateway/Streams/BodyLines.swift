/// Splitter of a streamed body into lines (newline-delimited JSON). Pure; the bytes are not copied.
package struct BodyLines {
  /// Maximum size of a line in bytes, without its line feed. Below HTTP/2's first window of a stream.
  private let byteCountMax: Int

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

  /// The number of the last line that was returned, from 1. Blank lines count.
  package private(set) var number = 0

  package init(byteCountMax: Int) { self.byteCountMax = byteCountMax }

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
      let searched = bytes.extracting(0..<min(bytes.byteCount, at + byteCountMax + 1))
      if let end = searched.firstOffset(of: lineFeed, from: at) {
        number += 1
        if !Self.isBlank(bytes.extracting(at..<end)) { return .line(at..<end, end: end + 1) }
        at = end + 1
      } else if bytes.byteCount - at > byteCountMax {
        isSkipping = true
        number += 1
        return .tooLong(end: at)
      } else if isEnd && !Self.isBlank(bytes.extracting(at..<bytes.byteCount)) {
        number += 1
        return .line(at..<bytes.byteCount, end: bytes.byteCount)
      } else {
        return .needsMore(end: isEnd ? bytes.byteCount : at)
      }
    }
  }

  /// Take back the line that was returned last: it is read again, from its start.
  package mutating func takeBack() { number -= 1 }

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
