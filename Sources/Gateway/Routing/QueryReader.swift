/// Walks the parameters of a query string: `while let parameter = try query.next()`.
package struct QueryReader: ~Escapable {
  private let text: RawSpan
  private let scratch: PathScratch
  private var at = 0

  /// `text` is what follows the `?`. Escapes are resolved into `scratch`.
  @_lifetime(copy text)
  package init(_ text: RawSpan, _ scratch: PathScratch) {
    self.text = text
    self.scratch = scratch
  }

  /// The next `name=value`, both decoded; a name without `=` has an empty value.
  ///
  /// - Throws: `invalid_query` for a broken escape.
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
      guard let name = scratch.decoded(pair.extracting(0..<equals)),
        let value = scratch.decoded(
          pair.extracting(Swift.min(equals + 1, pair.byteCount)..<pair.byteCount)
        )
      else { throw Problem(.invalidQuery, "a percent-escape in the query is broken") }
      return _overrideLifetime(QueryParameter(name: name, value: value), copying: self)
    }
    return nil
  }
}

/// One parameter of a query.
package struct QueryParameter: ~Escapable {
  package let name: RawSpan
  package let value: RawSpan

  @_lifetime(copy name)
  init(name: RawSpan, value: RawSpan) {
    self.name = name
    self.value = _overrideLifetime(value, copying: name)
  }
}

extension RawSpan {
  /// A whole number in decimal digits, nil where these bytes are none or it does not fit.
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
