internal import Crypto
internal import Foundation
internal import ReceiptModel

/// The secrets that tickets are signed with (Proto/tickets.md): the first signs, all are accepted.
package struct TicketKeys: Sendable {
  /// Bytes of the code that ends a ticket: HMAC-SHA-256, cut.
  package static let codeByteCount = 16
  /// Bytes that a secret has at least.
  package static let secretByteCountMin = 32

  private struct Key {
    var id: UInt8
    let secret: SymmetricKey
    /// Has taken up the purpose of version 1: what is left to hash of each ticket is the ticket.
    var codeOfAnyStore: HMAC<SHA256>
    /// The same of version 2, and the store; nil before the store is known.
    var code: HMAC<SHA256>?
  }

  private var keys: [Key]
  /// The store whose tickets are written and taken.
  private(set) var store: SessionID?

  /// - Parameter secrets: at least one, the current one first.
  package init(secrets: [[UInt8]]) {
    precondition(!secrets.isEmpty, "tickets need a secret")
    keys = secrets.map { secret in
      let key = SymmetricKey(data: secret)
      var code = HMAC<SHA256>(key: key)
      code.update(data: Array("tidemark ticket 1".utf8))
      return Key(id: Array(SHA256.hash(data: secret))[0], secret: key, codeOfAnyStore: code)
    }
  }

  /// Has tickets say that they are of this store: the numbers in one of another store lead elsewhere.
  mutating func bind(to store: SessionID) {
    self.store = store
    for at in keys.indices {
      var code = HMAC<SHA256>(key: keys[at].secret)
      code.update(data: Array("tidemark ticket 2".utf8))
      for half in [store.high, store.low] {
        withUnsafeBytes(of: half.bigEndian) { code.update(data: $0) }
      }
      keys[at].code = code
    }
  }

  /// Names the secret that signs: a ticket says which one it was, so that others need not be tried.
  var currentID: UInt8 { keys[0].id }

  /// Gives the code of a ticket's bytes, by the current secret and for the store that they are bound to.
  func sign<Result>(_ bytes: RawSpan, _ take: (UnsafeRawBufferPointer) -> Result) -> Result {
    guard let code = keys[0].code else { preconditionFailure("a ticket of no store") }
    return Self.code(code, of: bytes, take)
  }

  /// Whether a code is that of these bytes, by one of the secrets of that id. Takes the same time wherever the bytes
  /// differ.
  ///
  /// - Parameter isBound: for the store that they are bound to; else for any, as in version 1.
  func isValid(_ code: RawSpan, of bytes: RawSpan, id: UInt8, isBound: Bool) -> Bool {
    guard code.byteCount == Self.codeByteCount else { return false }
    let (high, low) = (
      code.unsafeLoadUnaligned(fromByteOffset: 0, as: UInt64.self),
      code.unsafeLoadUnaligned(fromByteOffset: 8, as: UInt64.self)
    )
    // Ids are public, and two secrets may share one.
    for at in keys.indices where keys[at].id == id {
      guard let begun = isBound ? keys[at].code : keys[at].codeOfAnyStore else { return false }
      let isEqual = Self.code(begun, of: bytes) { own in
        (own.loadUnaligned(fromByteOffset: 0, as: UInt64.self) ^ high)
          | (own.loadUnaligned(fromByteOffset: 8, as: UInt64.self) ^ low) == 0
      }
      if isEqual { return true }
    }
    return false
  }

  private static func code<Result>(
    _ begun: HMAC<SHA256>,
    of bytes: RawSpan,
    _ take: (UnsafeRawBufferPointer) -> Result
  ) -> Result {
    var code = begun
    bytes.withUnsafeBytes { code.update(data: $0) }
    return code.finalize().withUnsafeBytes {
      take(UnsafeRawBufferPointer(rebasing: $0.prefix(codeByteCount)))
    }
  }
}
