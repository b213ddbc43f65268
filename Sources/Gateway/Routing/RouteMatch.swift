internal import ReceiptModel

/// A matched route with the path's parameters, percent-decoded and validated. Valid as long as the path is, and until
/// the same ``PathScratch`` serves the next path.
package struct RouteMatch: ~Escapable {
  package let route: Route
  /// The cid, channel type, user, token id or name (of a hook, consumer or file) in the path; empty if there is none. A
  /// name is not decoded.
  package let subject: RawSpan
  /// The message id in the path; empty if there is none.
  package let message: RawSpan
  /// The user in the path of a channel's member; empty if there is none.
  package let member: RawSpan
  /// The part after the `?`, undecoded; empty for none.
  package let query: RawSpan

  @_lifetime(copy query)
  init(_ route: Route, subject: RawSpan, message: RawSpan, member: RawSpan, query: RawSpan) {
    self.route = route
    self.subject = _overrideLifetime(subject, copying: query)
    self.message = _overrideLifetime(message, copying: query)
    self.member = _overrideLifetime(member, copying: query)
    self.query = query
  }
}

/// Reusable buffer for the percent-decoded pieces of one path and its query.
package final class PathScratch {
  /// Capacity in bytes; HTTP2Limits bounds paths far below.
  static let byteCount = 64 * 1024

  private let bytes: UnsafeMutableRawPointer
  private var used = 0

  package init() {
    bytes = .allocate(byteCount: Self.byteCount, alignment: 1)
  }

  deinit { bytes.deallocate() }

  /// Discard the decoded text. In debug builds it becomes invalid UTF-8, so that a later use fails.
  func clear() {
    #if DEBUG
      bytes.initializeMemory(as: UInt8.self, repeating: 0xFF, count: used)
    #endif
    used = 0
  }

  /// How many bytes are in use.
  var mark: Int { used }

  /// Discard the text decoded since a ``mark``.
  func forget(to mark: Int) { used = mark }

  /// Return `text` with its percent-escapes decoded, or unchanged if it has none; nil where an escape is invalid (RFC
  /// 3986 section 2.1). A plus sign is literal, as in paths; a space is `%20`.
  @_lifetime(copy text)
  func decoded(_ text: RawSpan) -> RawSpan? {
    guard text.contains(UInt8(ascii: "%")) else { return text }
    guard text.byteCount <= Self.byteCount - used else { return nil }
    let start = bytes + used
    var count = 0
    var at = 0
    while at < text.byteCount {
      var byte = text.unsafeLoad(fromByteOffset: at, as: UInt8.self)
      at += 1
      if byte == UInt8(ascii: "%") {
        guard at + 2 <= text.byteCount, let high = Self.hexDigit(text.unsafeLoad(fromByteOffset: at, as: UInt8.self)),
          let low = Self.hexDigit(text.unsafeLoad(fromByteOffset: at + 1, as: UInt8.self))
        else { return nil }
        byte = high << 4 | low
        at += 2
      }
      start.storeBytes(of: byte, toByteOffset: count, as: UInt8.self)
      count += 1
    }
    used += count
    return _overrideLifetime(RawSpan(_unsafeStart: UnsafeRawPointer(start), byteCount: count), copying: text)
  }

  private static func hexDigit(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
    default: nil
    }
  }
}
