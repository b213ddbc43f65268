internal import ReceiptModel

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
