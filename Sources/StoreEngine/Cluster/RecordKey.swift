internal import Crypto
internal import Foundation

/// A key that seals the records of one group (AES-256-GCM), so that the shared log has no plain text (C12). It is
/// never logged: its description is its number.
package struct RecordKey: Hashable, Sendable, CustomStringConvertible {
  /// Size of the secret.
  package static let byteCount = 32

  package let number: RecordKeyNumber
  package let secret: [UInt8]

  /// - Precondition: the secret has ``byteCount`` bytes.
  package init(number: RecordKeyNumber, secret: [UInt8]) {
    precondition(secret.count == Self.byteCount, "a record key has \(Self.byteCount) bytes")
    self.number = number
    self.secret = secret
  }

  /// Make a random key.
  package static func random(_ number: RecordKeyNumber) -> RecordKey {
    let secret = SymmetricKey(size: .bits256).withUnsafeBytes { Array($0) }
    return RecordKey(number: number, secret: secret)
  }

  package var description: String { "record key \(number.rawValue)" }

  /// Seal the payload of a commit: nonce (12 bytes), encrypted payload, tag (16).
  ///
  /// The nonce is random, which is safe for 2^32 commits with one key (NIST SP 800-38D, 8.3): 50 days of 1,000 a
  /// second. An owner makes a key each hour, and uses it once other members have it: a member that is alone for longer
  /// goes on with the old one.
  func seal(_ payload: [UInt8]) -> [UInt8] {
    do {
      guard let sealed = try AES.GCM.seal(payload, using: symmetric).combined else {
        preconditionFailure("a nonce of the default size")
      }
      return Array(sealed)
    } catch {
      preconditionFailure("\(error)")
    }
  }

  /// Return what was sealed; nil: not with this key, or changed since.
  package func open(_ sealed: [UInt8]) -> [UInt8]? {
    guard let box = try? AES.GCM.SealedBox(combined: sealed), let payload = try? AES.GCM.open(box, using: symmetric)
    else { return nil }
    return Array(payload)
  }

  private var symmetric: SymmetricKey { SymmetricKey(data: secret) }
}
