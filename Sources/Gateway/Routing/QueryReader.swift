internal import ReceiptModel

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

extension RouteMatch {
  /// Parameters that Stream's clients send with every request; ignored.
  private static let ignoredParameters: [StaticString] = ["api_key", "connection_id"]

  /// Parameters whose absence means everything, the newest, or another view. An empty value is refused, as `null` is in
  /// a body, so that a missing variable cannot widen a request.
  private static let ids: [StaticString] = ["message_id", "thread_id", "user_id"]

  /// Parameters that may be repeated.
  private static let lists: [StaticString] = ["channels", "user_ids"]

  /// - Parameters:
  ///   - name: the parameter's name in the route's list, at this index.
  ///   - seen: bit set of the parameters seen so far.
  private static func check(
    _ parameter: borrowing QueryParameter,
    _ name: StaticString,
    at index: Int,
    _ seen: inout UInt64
  ) throws(Problem) {
    if parameter.value.isEmpty, ids.contains(where: { parameter.name.equals($0) }) {
      throw Problem(.invalidQuery, "\(name) is empty: leave it out, or give an id")
    }
    guard seen & 1 << UInt64(index) == 0 || lists.contains(where: { parameter.name.equals($0) }) else {
      throw Problem(.invalidQuery, "\(name) is given twice")
    }
    seen |= 1 << UInt64(index)
  }

  /// Check the names of a query's parameters. Every user route accepts the user's own id, which Stream's clients send
  /// with each request.
  ///
  /// - Throws: `invalid_query`, `unknown_field`, `user_id_mismatch`.
  func checkQuery(_ caller: Caller, _ scratch: PathScratch) throws(Problem) {
    guard !query.isEmpty, let known = route.spec.queryParameters else { return }
    // The route decodes the values again.
    let mark = scratch.mark
    defer { scratch.forget(to: mark) }
    var seen: UInt64 = 0
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      if let index = known.firstIndex(where: { parameter.name.equals($0) }) {
        try Self.check(parameter, known[index], at: index, &seen)
        continue
      }
      if Self.ignoredParameters.contains(where: { parameter.name.equals($0) }) { continue }
      if parameter.name.equals("user_id"), route.callers == .user, !caller.isServer {
        guard parameter.value.isEmpty || parameter.value.equals(caller.user) else {
          throw Problem(.userIDMismatch)
        }
      } else {
        let name = parameter.name.withUnsafeBytes { String(decoding: $0.prefix(64), as: UTF8.self) }
        throw Problem(unknown: "query parameter", name, NearestName.of(parameter.name, among: known))
      }
    }
  }
}

/// Cursors of rows and of a user's channels. Opaque to callers.
enum PageCursor {
  /// Parse a row number.
  static func row(_ text: RawSpan) -> UInt32? { number(text, behind: UInt8(ascii: "r")) }

  /// Parse a position in a user's index of channels.
  static func channel(_ text: RawSpan) -> UInt32? { number(text, behind: UInt8(ascii: "c")) }

  /// Parse a row of a channel's members.
  static func joined(_ text: RawSpan) -> UInt32? { number(text, behind: UInt8(ascii: "j")) }

  /// Parse a message, or a reply to it: `m7`, `m7-2`.
  static func message(_ text: RawSpan) -> MessageListCursor? {
    guard let dash = text.firstOffset(of: UInt8(ascii: "-"), from: 0) else {
      return number(text, behind: UInt8(ascii: "m")).map { MessageListCursor(message: SequenceNumber($0)) }
    }
    guard let message = number(text.extracting(0..<dash), behind: UInt8(ascii: "m")),
      let reply = text.extracting((dash + 1)..<text.byteCount).decimal.flatMap({ UInt32(exactly: $0) })
    else { return nil }
    return MessageListCursor(message: SequenceNumber(message), reply: SequenceNumber(reply))
  }

  static func text(_ cursor: MessageListCursor) -> String {
    "m\(cursor.message.rawValue)" + (cursor.reply.map { "-\($0.rawValue)" } ?? "")
  }

  private static func number(_ text: RawSpan, behind letter: UInt8) -> UInt32? {
    guard text.byteCount > 1, text.unsafeLoad(fromByteOffset: 0, as: UInt8.self) == letter else {
      return nil
    }
    return text.extracting(1..<text.byteCount).decimal.flatMap { UInt32(exactly: $0) }
  }
}

/// The cursors of lists, which the store makes and the gateway only passes on.
enum ListCursorText {
  /// The longest cursor: a letter, milliseconds, `-` and a user id in hexadecimal.
  static let byteCountMax = 1 + 20 + 1 + 2 * Identifier.userLengthMax

  /// Return whether the text has a cursor's length and characters, which need no JSON escapes.
  static func isOne(_ text: RawSpan) -> Bool {
    guard (1...byteCountMax).contains(text.byteCount) else { return false }
    return text.withUnsafeBytes { bytes in
      bytes.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "@"), UInt8(ascii: "_"), UInt8(ascii: "."),
          UInt8(ascii: "-"):
          true
        default: false
        }
      }
    }
  }
}
