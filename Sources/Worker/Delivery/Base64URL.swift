internal import Foundation

/// Base64 with the alphabet for URLs, without padding (RFC 4648 section 5).
package enum Base64URL {
  /// Encode bytes.
  package static func text(_ bytes: some Sequence<UInt8>) -> String {
    Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
  }

  /// Decode a text, with or without padding; nil if it is malformed.
  package static func bytes(_ text: String) -> [UInt8]? {
    guard text.utf8.allSatisfy({ $0 != UInt8(ascii: "+") && $0 != UInt8(ascii: "/") }) else { return nil }
    let plain = text.replacing("-", with: "+").replacing("_", with: "/").replacing("=", with: "")
    return Data(base64Encoded: plain + String(repeating: "=", count: (4 - plain.utf8.count % 4) % 4)).map { Array($0) }
  }
}
