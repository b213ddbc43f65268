import Crypto
import Foundation

/// Valid and invalid tokens for tests.
enum TestTokens {
  static let secret = "0123456789abcdef0123456789abcdef"
  static let previousSecret = "fedcba9876543210fedcba9876543210"

  static func base64URL(_ bytes: some Sequence<UInt8>) -> String {
    Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing(
      "=",
      with: ""
    )
  }

  /// A token made without a library, so that it may be invalid.
  static func make(
    _ claims: String,
    header: String = #"{"alg":"HS256","typ":"JWT"}"#,
    secret: String = TestTokens.secret
  ) -> String {
    make(bytes: Array(claims.utf8), header: header, secret: secret)
  }

  /// A token whose claims are arbitrary bytes.
  static func make(
    bytes claims: [UInt8],
    header: String = #"{"alg":"HS256","typ":"JWT"}"#,
    secret: String = TestTokens.secret
  ) -> String {
    let signed = base64URL(header.utf8) + "." + base64URL(claims)
    return signed + "." + base64URL(hmacSHA256(signed, secret))
  }

  static func user(_ id: String) -> String { make(#"{"user_id":"\#(id)"}"#) }
  static var server: String { make(#"{"server":true}"#) }

  private static func hmacSHA256(_ text: String, _ secret: String) -> [UInt8] {
    Array(
      HMAC<SHA256>.authenticationCode(for: Array(text.utf8), using: SymmetricKey(data: Array(secret.utf8)))
    )
  }
}
