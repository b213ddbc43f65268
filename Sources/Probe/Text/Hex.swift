/// Hexadecimal text.
package enum Hex {
  /// Bytes that end a word without quotes.
  static let breaks = Set(" \t[]{}\"".utf8)

  package static func text(_ bytes: some Sequence<UInt8>) -> String {
    let digits = Array("0123456789abcdef".utf8)
    var text: [UInt8] = []
    for byte in bytes { text += [digits[Int(byte >> 4)], digits[Int(byte & 15)]] }
    return String(decoding: text, as: UTF8.self)
  }

  /// Parse digits and blanks; nil for other characters or an odd number of digits.
  package static func bytes(_ text: some StringProtocol) -> [UInt8]? {
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
