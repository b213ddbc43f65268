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
      let raw = pair.extracting(Swift.min(equals + 1, pair.byteCount)..<pair.byteCount)
      guard let name = scratch.decoded(pair.extracting(0..<equals)), let value = scratch.decoded(raw) else {
        throw Problem(.invalidQuery, "a percent-escape in the query is broken")
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
  /// The value as it was sent.
  private let raw: RawSpan

  @_lifetime(copy name)
  init(name: RawSpan, value: RawSpan, raw: RawSpan) {
    self.name = name
    self.value = _overrideLifetime(value, copying: name)
    self.raw = _overrideLifetime(raw, copying: name)
  }

  /// The entries of a list. Commas part them before percent-escapes are resolved, so that `%2C` is a comma within an
  /// entry. An empty value has one empty entry.
  @_lifetime(copy self)
  package func list(_ scratch: PathScratch) -> QueryList { QueryList(raw, scratch) }
}

/// Walks the entries of a list in a query: `while let entry = list.next()`.
package struct QueryList: ~Escapable {
  private let text: RawSpan
  private let scratch: PathScratch
  private var at = 0

  @_lifetime(copy text)
  fileprivate init(_ text: RawSpan, _ scratch: PathScratch) {
    self.text = text
    self.scratch = scratch
  }

  /// The next entry, decoded; nil behind the last.
  @_lifetime(copy self)
  @_lifetime(self: copy self)
  package mutating func next() -> RawSpan? {
    guard at <= text.byteCount else { return nil }
    let end = text.firstOffset(of: UInt8(ascii: ","), from: at) ?? text.byteCount
    let part = text.extracting(at..<end)
    at = end + 1
    // Its escapes are whole: the value that it is a part of was decoded before.
    guard let entry = scratch.decoded(part) else { return nil }
    return _overrideLifetime(entry, copying: self)
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
