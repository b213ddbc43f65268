internal import ReceiptModel

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// A matched route with the path's parameters, percent-decoded and validated. Valid as long as the path is, and until
/// the same ``PathScratch`` serves the next path.
package struct RouteMatch: ~Escapable {
  package let route: Route
  /// The cid, channel type, user or hook in the path; empty if there is none. A hook's name is not decoded.
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

extension RawSpan {
  func contains(_ byte: UInt8) -> Bool { firstOffset(of: byte, from: 0) != nil }

  /// Return the offset of the first `byte` at or after `start`.
  func firstOffset(of byte: UInt8, from start: Int) -> Int? {
    guard start < byteCount else { return nil }
    return withUnsafeBytes { bytes in
      let base = bytes.baseAddress.unsafelyUnwrapped
      guard let found = memchr(base + start, Int32(byte), bytes.count - start) else { return nil }
      return UnsafeRawPointer(found) - base
    }
  }

  /// Return whether the bytes equal `text`.
  @inline(__always)
  func equals(_ text: StaticString) -> Bool {
    equals(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }

  /// Return whether the bytes equal `other`.
  @inline(__always)
  func equals(_ other: UnsafeRawBufferPointer) -> Bool {
    guard byteCount == other.count, let theirs = other.baseAddress else { return byteCount == other.count }
    return withUnsafeBytes { memcmp($0.baseAddress ?? theirs, theirs, $0.count) == 0 }
  }

  /// Return whether both have the same bytes.
  func equals(_ other: RawSpan) -> Bool { other.withUnsafeBytes { equals($0) } }
}
