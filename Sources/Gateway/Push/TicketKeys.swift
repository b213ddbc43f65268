internal import Crypto
internal import Foundation
internal import ReceiptModel

/// The secrets for signing tickets (Proto/tickets.md): the first signs, all are accepted.
package struct TicketKeys: Sendable {
  /// Size of the code that ends a ticket: truncated HMAC-SHA-256.
  package static let codeByteCount = 16
  /// Minimum size of a secret in bytes.
  package static let secretByteCountMin = 32

  private struct Key {
    var id: UInt8
    let secret: SymmetricKey
    /// HMAC state after the purpose string of version 1; only the ticket's bytes remain to be hashed.
    var codeOfAnyStore: HMAC<SHA256>
    /// The same for version 2 and the store; nil before the store is known.
    var code: HMAC<SHA256>?
  }

  private var keys: [Key]
  /// The store whose tickets are issued and accepted.
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

  /// Bind tickets to this store: their numbers would point elsewhere in another store.
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

  /// The id of the signing secret. A ticket carries it, so that other secrets need not be tried.
  var currentID: UInt8 { keys[0].id }

  /// Compute the code of a ticket's bytes, with the current secret and bound to the store.
  func sign<Result>(_ bytes: RawSpan, _ use: (UnsafeRawBufferPointer) -> Result) -> Result {
    guard let code = keys[0].code else { preconditionFailure("a ticket of no store") }
    return Self.code(code, of: bytes, use)
  }

  /// Return whether a code matches these bytes, by a secret of that id. Runs in constant time.
  ///
  /// - Parameter isBound: whether the ticket is bound to a store; false for version 1.
  func isValid(_ code: RawSpan, of bytes: RawSpan, id: UInt8, isBound: Bool) -> Bool {
    guard code.byteCount == Self.codeByteCount else { return false }
    let (high, low) = (
      code.unsafeLoadUnaligned(fromByteOffset: 0, as: UInt64.self),
      code.unsafeLoadUnaligned(fromByteOffset: 8, as: UInt64.self)
    )
    // Ids are public, and two secrets may have the same one.
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
    _ use: (UnsafeRawBufferPointer) -> Result
  ) -> Result {
    var code = begun
    bytes.withUnsafeBytes { code.update(data: $0) }
    return code.finalize().withUnsafeBytes {
      use(UnsafeRawBufferPointer(rebasing: $0.prefix(codeByteCount)))
    }
  }
}
