internal import Crypto
internal import Foundation

/// The secrets that tickets are signed with (Proto/tickets.md): the first signs, all are accepted.
package struct TicketKeys: Sendable {
  /// Bytes of the code that ends a ticket: HMAC-SHA-256, cut.
  package static let codeByteCount = 16
  /// Bytes that a secret has at least.
  package static let secretByteCountMin = 32

  private static let purpose = "tidemark ticket 1"

  private struct Key {
    var id: UInt8
    /// Has taken up the purpose: what is left to hash of each ticket is the ticket.
    var code: HMAC<SHA256>
  }

  private let keys: [Key]

  /// - Parameter secrets: at least one, the current one first.
  package init(secrets: [[UInt8]]) {
    precondition(!secrets.isEmpty, "tickets need a secret")
    keys = secrets.map { secret in
      var code = HMAC<SHA256>(key: SymmetricKey(data: secret))
      code.update(data: Array(Self.purpose.utf8))
      return Key(id: Array(SHA256.hash(data: secret))[0], code: code)
    }
  }

  /// Names the secret that signs: a ticket says which one it was, so that others need not be tried.
  var currentID: UInt8 { keys[0].id }

  /// Gives the code of a ticket's bytes, by the current secret.
  func sign<Result>(_ bytes: RawSpan, _ take: (UnsafeRawBufferPointer) -> Result) -> Result {
    Self.code(keys[0], of: bytes, take)
  }

  /// Whether a code is that of these bytes, by one of the secrets of that id. Takes the same time wherever the bytes differ.
  func isValid(_ code: RawSpan, of bytes: RawSpan, id: UInt8) -> Bool {
    guard code.byteCount == Self.codeByteCount else { return false }
    let (high, low) = (
      code.unsafeLoadUnaligned(fromByteOffset: 0, as: UInt64.self),
      code.unsafeLoadUnaligned(fromByteOffset: 8, as: UInt64.self)
    )
    // Ids are public, and two secrets may share one.
    for at in keys.indices where keys[at].id == id {
      let isEqual = Self.code(keys[at], of: bytes) { own in
        (own.loadUnaligned(fromByteOffset: 0, as: UInt64.self) ^ high)
          | (own.loadUnaligned(fromByteOffset: 8, as: UInt64.self) ^ low) == 0
      }
      if isEqual { return true }
    }
    return false
  }

  private static func code<Result>(
    _ key: Key,
    of bytes: RawSpan,
    _ take: (UnsafeRawBufferPointer) -> Result
  ) -> Result {
    var code = key.code
    bytes.withUnsafeBytes { code.update(data: $0) }
    return code.finalize().withUnsafeBytes {
      take(UnsafeRawBufferPointer(rebasing: $0.prefix(codeByteCount)))
    }
  }
}
