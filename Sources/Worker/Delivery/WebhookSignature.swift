internal import Crypto
internal import Foundation

/// Signer of webhooks as in Standard Webhooks, <https://www.standardwebhooks.com>: HMAC-SHA256 over the id, a dot, the
/// time in seconds, a dot, and the body.
package struct WebhookSignature: Sendable {
  private let keys: [SymmetricKey]

  /// - Parameter secrets: each gives a signature, in this order.
  package init(secrets: [[UInt8]]) { keys = secrets.map { SymmetricKey(data: $0) } }

  /// Decode a secret, `whsec_` and base64 of 24 to 64 bytes; nil where it is malformed.
  package static func secret(_ text: String) -> [UInt8]? {
    let prefix = "whsec_"
    guard text.hasPrefix(prefix), let data = Data(base64Encoded: String(text.dropFirst(prefix.count))),
      (24...64).contains(data.count)
    else { return nil }
    return Array(data)
  }

  /// Return the value of `webhook-signature`.
  ///
  /// - Parameter seconds: the value of `webhook-timestamp`, since 1970.
  package func header(id: String, seconds: Int64, body: [UInt8]) -> String {
    keys.map { key in
      var code = HMAC<SHA256>(key: key)
      code.update(data: Array("\(id).\(seconds).".utf8))
      code.update(data: body)
      return "v1," + Data(code.finalize()).base64EncodedString()
    }.joined(separator: " ")
  }
}
