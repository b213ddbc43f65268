/// Iterates over the parameters of a query string: `while let parameter = try query.next()`.
package struct QueryReader: ~Escapable {
  private let text: RawSpan
  private let scratch: PathScratch
  private var at = 0

  /// Read `text`, the part after the `?`. Escapes are decoded into `scratch`.
  @_lifetime(copy text)
  package init(_ text: RawSpan, _ scratch: PathScratch) {
    self.text = text
    self.scratch = scratch
  }

  /// Return the next `name=value`, both decoded; a name without `=` has an empty value.
  ///
  /// - Throws: `invalid_query` for an invalid escape.
  @_lifetime(copy self)
  @_lifetime(self: copy self)
  package mutating func next() throws(Problem) -> QueryParameter? {
    while at < text.byteCount {
      let start = at
      let end = text.firstOffset(of: UInt8(ascii: "&"), from: at) ?? text.byteCount
      at = end + 1
      if end == start { continue }
      let pair = text.extracting(start..<end)
      let equals = pair.firstOffset(of: UInt8(ascii: "="), from: 0) ?? pair.byteCount
      let raw = pair.extracting(Swift.min(equals + 1, pair.byteCount)..<pair.byteCount)
      guard let name = scratch.decoded(pair.extracting(0..<equals)), let value = scratch.decoded(raw) else {
        throw Problem(.invalidQuery, "the query has an invalid percent-escape")
      }
      return _overrideLifetime(QueryParameter(name: name, value: value, raw: raw), copying: self)
    }
    return nil
  }
}

/// One parameter of a query.
package struct QueryParameter: ~Escapable {
  package let name: RawSpan
  package let value: RawSpan
  /// The undecoded value.
  private let raw: RawSpan

  @_lifetime(copy name)
  init(name: RawSpan, value: RawSpan, raw: RawSpan) {
    self.name = name
    self.value = _overrideLifetime(value, copying: name)
    self.raw = _overrideLifetime(raw, copying: name)
  }

  /// Return the entries of a comma-separated list. Commas split the value before percent-escapes are decoded, so `%2C`
  /// is a comma within an entry. An empty value has one empty entry.
  @_lifetime(copy self)
  package func list(_ scratch: PathScratch) -> QueryList { QueryList(raw, scratch) }
}

/// Iterates over the entries of a list: `while let entry = list.next()`.
package struct QueryList: ~Escapable {
  private let text: RawSpan
  private let scratch: PathScratch
  private var at = 0

  @_lifetime(copy text)
  fileprivate init(_ text: RawSpan, _ scratch: PathScratch) {
    self.text = text
    self.scratch = scratch
  }

  /// Return the next entry, decoded; nil after the last.
  @_lifetime(copy self)
  @_lifetime(self: copy self)
  package mutating func next() -> RawSpan? {
    guard at <= text.byteCount else { return nil }
    let end = text.firstOffset(of: UInt8(ascii: ","), from: at) ?? text.byteCount
    let part = text.extracting(at..<end)
    at = end + 1
    // The escapes are valid: the whole value was decoded before.
    guard let entry = scratch.decoded(part) else { return nil }
    return _overrideLifetime(entry, copying: self)
  }
}

extension RawSpan {
  /// Parses a whole number in decimal digits; nil where the bytes are not one, or it overflows.
  var decimal: UInt64? {
    guard (1...20).contains(byteCount) else { return nil }
    var number: UInt64 = 0
    for at in 0..<byteCount {
      let byte = unsafeLoad(fromByteOffset: at, as: UInt8.self)
      guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
      let (tens, tooMany) = number.multipliedReportingOverflow(by: 10)
      let (sum, tooMuch) = tens.addingReportingOverflow(UInt64(byte - UInt8(ascii: "0")))
      if tooMany || tooMuch { return nil }
      number = sum
    }
    return number
  }
}
