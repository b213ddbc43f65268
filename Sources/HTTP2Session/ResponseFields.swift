/// Headers that a response has besides its status, date, type and length. Their values are written into one buffer that
/// is used again for each response, so adding a header allocates nothing.
package struct ResponseFields {
  private(set) var bytes: [UInt8] = []
  private(set) var names: [StaticString] = []
  /// Where the value of each header begins in `bytes`.
  private(set) var valueOffsets: [Int] = []

  package init() {}

  package var isEmpty: Bool { names.isEmpty }
  var count: Int { names.count }

  /// Return the bytes of a header's value.
  func range(_ index: Int) -> Range<Int> {
    valueOffsets[index]..<(index + 1 < valueOffsets.count ? valueOffsets[index + 1] : bytes.count)
  }

  /// The headers as values of their own.
  package var list: [HTTP2Header] {
    names.indices.map { HTTP2Header(names[$0], String(decoding: bytes[range($0)], as: UTF8.self)) }
  }

  mutating func removeAll() {
    bytes.removeAll(keepingCapacity: true)
    names.removeAll(keepingCapacity: true)
    valueOffsets.removeAll(keepingCapacity: true)
  }

  package mutating func add(_ header: HTTP2Header) {
    add(header.name)
    bytes.append(contentsOf: header.value.utf8)
  }

  /// Add a header with an empty value, to which `append` adds.
  ///
  /// - Parameter name: in lower case (RFC 9113 section 8.2.1).
  package mutating func add(_ name: StaticString) {
    names.append(name)
    valueOffsets.append(bytes.count)
  }

  /// Append to the value of the last header.
  package mutating func append(_ text: StaticString) {
    bytes.append(contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }

  /// Append to the value of the last header.
  package mutating func append(_ text: RawSpan) {
    text.withUnsafeBytes { bytes.append(contentsOf: $0) }
  }

  /// Append the decimal digits of a number that is not negative to the value of the last header.
  package mutating func append(decimal value: Int) {
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
      let end = digits.baseAddress! + digits.count
      let start = writeDecimal(value, endingAt: end)
      bytes.append(contentsOf: UnsafeBufferPointer(start: start, count: end - start))
    }
  }
}
