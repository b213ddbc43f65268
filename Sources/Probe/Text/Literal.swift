/// Value in a line, before its field is known.
///
/// ```
/// cid=messaging:general  name="two words"  cursor=none  code=busy  code=21  nonce=00ff…
/// members=[{user=alice role=admin} {user=bob}]  messages=[m-1 m-2]  anything=*  events=[... {event=row}]
/// json='{"as":"it stands"}'
/// ```
package indirect enum Literal: Equatable, Sendable {
  /// Word, with or without quotes.
  case word([UInt8], isQuoted: Bool)
  case list([Entry])

  package enum Entry: Equatable, Sendable {
    /// `{name=value …}`
    case fields([NamedLiteral])
    /// Single value, for lists of one field.
    case value(Literal)

    /// `...`: the list may have other entries too.
    var isEllipsis: Bool { self == .value(.word(Array("...".utf8), isQuoted: false)) }
  }

  /// `*`: any value.
  package var isWildcard: Bool { self == .word([UInt8(ascii: "*")], isQuoted: false) }
}

/// Pair `name=value`.
package struct NamedLiteral: Equatable, Sendable {
  package var name: String
  package var value: Literal
}
