internal import ReceiptModel

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
