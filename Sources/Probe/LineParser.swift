/// Parser of a line.
struct LineParser {
  private let bytes: [UInt8]
  private let words: Set<String>
  private var offset = 0

  init(_ line: String, words: Set<String> = []) {
    bytes = Array(line.utf8)
    self.words = words
  }

  /// Parse the first word of a line and its `name=value` pairs. One of `words` alone means `word=1`.
  static func command(_ line: String, words: Set<String> = []) throws -> (word: String, pairs: [NamedLiteral]) {
    var parser = LineParser(line, words: words)
    let word = parser.bare()
    guard !word.isEmpty else { throw ProbeError("a frame begins with its kind: \(line)") }
    return (String(decoding: word, as: UTF8.self), try parser.pairs(until: nil))
  }

  private mutating func pairs(until end: UInt8?) throws -> [NamedLiteral] {
    var pairs: [NamedLiteral] = []
    while true {
      skipBlanks()
      if offset == bytes.count {
        guard end == nil else { throw ProbeError("'}' is missing") }
        return pairs
      }
      if bytes[offset] == end {
        offset += 1
        return pairs
      }
      let start = offset
      while offset < bytes.count, bytes[offset] != UInt8(ascii: "="), !isBreak(bytes[offset]) { offset += 1 }
      let name = String(decoding: bytes[start..<offset], as: UTF8.self)
      if words.contains(name), offset == bytes.count || bytes[offset] != UInt8(ascii: "=") {
        pairs.append(NamedLiteral(name: name, value: .word([UInt8(ascii: "1")], isQuoted: false)))
        continue
      }
      guard offset < bytes.count, bytes[offset] == UInt8(ascii: "="), !name.isEmpty else {
        throw ProbeError("name=value expected at '\(String(decoding: bytes[start...], as: UTF8.self))'")
      }
      offset += 1
      pairs.append(NamedLiteral(name: name, value: try value()))
    }
  }

  private mutating func value() throws -> Literal {
    guard offset < bytes.count else { return .word([], isQuoted: false) }
    switch bytes[offset] {
    case UInt8(ascii: "["):
      offset += 1
      return .list(try entries())
    case UInt8(ascii: "\""):
      offset += 1
      return .word(try quoted(), isQuoted: true)
    case UInt8(ascii: "'"):
      offset += 1
      return .word(try verbatim(), isQuoted: true)
    default: return .word(bare(), isQuoted: false)
    }
  }

  private mutating func entries() throws -> [Literal.Entry] {
    var entries: [Literal.Entry] = []
    while true {
      skipBlanks()
      guard offset < bytes.count else { throw ProbeError("']' is missing") }
      switch bytes[offset] {
      case UInt8(ascii: "]"):
        offset += 1
        return entries
      case UInt8(ascii: "{"):
        offset += 1
        entries.append(.fields(try pairs(until: UInt8(ascii: "}"))))
      case UInt8(ascii: "}"):
        throw ProbeError("'}' without '{'")
      default:
        entries.append(.value(try value()))
      }
    }
  }

  private mutating func bare() -> [UInt8] {
    let start = offset
    while offset < bytes.count, !isBreak(bytes[offset]) { offset += 1 }
    return Array(bytes[start..<offset])
  }

  /// Parse text in single quotes, without escapes, for JSON.
  private mutating func verbatim() throws -> [UInt8] {
    guard let end = bytes[offset...].firstIndex(of: UInt8(ascii: "'")) else { throw ProbeError("\"'\" is missing") }
    defer { offset = end + 1 }
    return Array(bytes[offset..<end])
  }

  /// Parse text in double quotes with the escapes `\"`, `\\` and `\x` with two digits.
  private mutating func quoted() throws -> [UInt8] {
    var result: [UInt8] = []
    while offset < bytes.count {
      let byte = bytes[offset]
      offset += 1
      if byte == UInt8(ascii: "\"") { return result }
      guard byte == UInt8(ascii: "\\") else {
        result.append(byte)
        continue
      }
      guard offset < bytes.count else { break }
      let escape = bytes[offset]
      offset += 1
      if escape == UInt8(ascii: "x"), offset + 2 <= bytes.count,
        let value = UInt8(String(decoding: bytes[offset..<(offset + 2)], as: UTF8.self), radix: 16)
      {
        result.append(value)
        offset += 2
      } else if escape == UInt8(ascii: "\"") || escape == UInt8(ascii: "\\") {
        result.append(escape)
      } else {
        throw ProbeError("an escape is \\\", \\\\ or \\x with two digits")
      }
    }
    throw ProbeError("'\"' is missing")
  }

  private mutating func skipBlanks() {
    while offset < bytes.count, bytes[offset] == UInt8(ascii: " ") || bytes[offset] == UInt8(ascii: "\t") {
      offset += 1
    }
  }

  private func isBreak(_ byte: UInt8) -> Bool { Hex.breaks.contains(byte) }
}

/// Value in a line, before its field is known.
///
/// ```
/// cid=messaging:general  name="two words"  cursor=none  code=busy  code=21  nonce=00ff…
/// members=[{user=alice role=admin} {user=bob}]  messages=[m-1 m-2]  anything=*  events=[... {event=row}]
/// json='{"as":"it stands"}'
/// ```
indirect enum Literal: Equatable, Sendable {
  /// Word, with or without quotes.
  case word([UInt8], isQuoted: Bool)
  case list([Entry])

  enum Entry: Equatable, Sendable {
    /// `{name=value …}`
    case fields([NamedLiteral])
    /// Single value, for lists of one field.
    case value(Literal)

    /// `...`: the list may have other entries too.
    var isEllipsis: Bool { self == .value(.word(Array("...".utf8), isQuoted: false)) }
  }

  /// `*`: any value.
  var isWildcard: Bool { self == .word([UInt8(ascii: "*")], isQuoted: false) }
}

/// Pair `name=value`.
struct NamedLiteral: Equatable, Sendable {
  var name: String
  var value: Literal
}

/// Hexadecimal text.
enum Hex {
  /// Bytes that end a word without quotes.
  static let breaks = Set(" \t[]{}\"".utf8)

  static func text(_ bytes: some Sequence<UInt8>) -> String {
    let digits = Array("0123456789abcdef".utf8)
    var text: [UInt8] = []
    for byte in bytes { text += [digits[Int(byte >> 4)], digits[Int(byte & 15)]] }
    return String(decoding: text, as: UTF8.self)
  }

  /// Parse digits and blanks; nil for other characters or an odd number of digits.
  static func bytes(_ text: some StringProtocol) -> [UInt8]? {
    var bytes: [UInt8] = []
    var high: UInt8?
    for character in text.utf8 {
      let digit: UInt8
      switch character {
      case UInt8(ascii: " "), UInt8(ascii: "\t"), UInt8(ascii: "\n"), UInt8(ascii: "\r"): continue
      case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = character - UInt8(ascii: "0")
      case UInt8(ascii: "a")...UInt8(ascii: "f"): digit = character - UInt8(ascii: "a") + 10
      case UInt8(ascii: "A")...UInt8(ascii: "F"): digit = character - UInt8(ascii: "A") + 10
      default: return nil
      }
      if let first = high {
        bytes.append(first << 4 | digit)
        high = nil
      } else {
        high = digit
      }
    }
    return high == nil ? bytes : nil
  }

  /// Format a word of a line, with quotes if it needs them.
  static func word(_ bytes: [UInt8]) -> String {
    let isPlain = bytes.allSatisfy {
      $0 > 0x20 && $0 != 0x7F && !breaks.contains($0) && $0 != UInt8(ascii: "\\")
    }
    let isQuote = bytes.first == UInt8(ascii: "'")
    if isPlain, !isQuote, bytes != [UInt8(ascii: "*")], let text = String(validating: bytes, as: UTF8.self) {
      return text
    }
    // JSON reads better without escapes.
    let isVerbatim = bytes.allSatisfy { 0x20..<0x7F ~= $0 && $0 != UInt8(ascii: "'") }
    if isVerbatim, bytes.contains(UInt8(ascii: "\"")) { return "'\(String(decoding: bytes, as: UTF8.self))'" }
    var text = "\""
    for byte in bytes {
      switch byte {
      case UInt8(ascii: "\""): text += "\\\""
      case UInt8(ascii: "\\"): text += "\\\\"
      case 0x20..<0x7F: text += String(UnicodeScalar(byte))
      default: text += "\\x" + Hex.text([byte])
      }
    }
    return text + "\""
  }
}
