package import NIOCore

/// *viewer* of Proto/frames.md: for whom a query is answered.
package struct ViewerFields: ~Escapable {
  /// 1: a server; 0: a user. Others are invalid.
  package let flags: UInt64
  /// Empty: none.
  package let user: RawSpan

  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    flags = try reader.varint()
    user = try reader.string()
  }

  package var isServer: Bool { flags == 1 }
  package var isValid: Bool { flags <= 1 }
}

/// A list of strings in a request. Its form is checked when it is read; its strings are then read in place.
package struct StringListFields: ~Escapable {
  package let count: Int
  private var rest: FieldReader
  private var remaining: Int

  /// Read the count, and pass over the strings.
  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    count = try reader.count()
    remaining = count
    rest = reader
    for _ in 0..<count { _ = try reader.string() }
  }

  /// Read the next string; nil at the end.
  @_lifetime(copy self)
  @_lifetime(self: copy self)
  package mutating func next() -> RawSpan? {
    guard remaining > 0 else { return nil }
    remaining -= 1
    // The form was checked.
    return try? rest.string()
  }

  /// Call `body` with each string in order.
  package func forEach(_ body: (RawSpan) -> Void) {
    var list = self
    while let string = list.next() { body(string) }
  }
}

extension ByteBuffer {
  /// Write what ``ViewerFields`` reads; an empty user: none.
  package mutating func writeViewer(_ user: RawSpan, isServer: Bool) {
    writeVarint(UInt64(isServer ? 1 : 0))
    writeField(user)
  }

  /// Write what ``StringListFields`` reads.
  package mutating func writeStrings(_ strings: some Collection<String>) {
    writeVarint(strings.count)
    for string in strings { writeField(string) }
  }
}
