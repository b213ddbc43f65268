internal import Foundation
internal import JWTKit

/// The keys of a JSON Web Key Set (RFC 7517) that verify tokens, by algorithm.
///
/// Identity providers also publish keys for other uses, and add new key types; those are skipped.
struct KeySet: Sendable {
  /// One collection per algorithm, so that a key verifies with its own algorithm only, whatever a token's header says.
  private(set) var collections: [JWK.Algorithm.RawValue: JWTKeyCollection] = [:]
  /// Skipped keys.
  private(set) var skippedKeys: [SkippedKey] = []

  /// - Throws: where the text is no key set, or has no usable key.
  init(_ text: String) async throws {
    let entries = try JSONDecoder().decode(Entries.self, from: Data(text.utf8)).keys
    for entry in entries {
      do throws(Refusal) {
        for algorithm in try entry.algorithms() { try await add(entry, algorithm) }
      } catch {
        skippedKeys.append(SkippedKey(entry, error.reason))
      }
    }
    guard !collections.isEmpty else { throw NoUsableKey(count: entries.count) }
  }

  private mutating func add(_ entry: Entry, _ algorithm: JWK.Algorithm) async throws(Refusal) {
    guard let kid = entry.kid else { throw Refusal("has no kid") }
    let collection = collections[algorithm.rawValue] ?? JWTKeyCollection()
    do {
      try await collection.add(jwk: try entry.key(algorithm, JWKIdentifier(string: kid)))
    } catch {
      throw Refusal("is not well-formed: \(error)")
    }
    collections[algorithm.rawValue] = collection
  }

  private struct Entries: Decodable {
    var keys: [Entry]
  }

  /// The members of a key; a member of an unexpected type counts as absent.
  fileprivate struct Entry: Decodable {
    private enum Member: String, CodingKey {
      case kty, alg, use, crv, kid, n, e, x, y, operations = "key_ops"
    }

    let kty, alg, use, crv, kid, n, e, x, y: String?
    let operations: [String]?

    init(from decoder: any Decoder) throws {
      let members = try decoder.container(keyedBy: Member.self)
      func string(_ member: Member) -> String? { try? members.decode(String.self, forKey: member) }
      kty = string(.kty)
      alg = string(.alg)
      use = string(.use)
      crv = string(.crv)
      kid = string(.kid)
      n = string(.n)
      e = string(.e)
      x = string(.x)
      y = string(.y)
      operations = try? members.decode([String].self, forKey: .operations)
    }

    /// Return the algorithms that the key verifies: the declared one, or those that its type allows.
    fileprivate func algorithms() throws(Refusal) -> [JWK.Algorithm] {
      guard use == nil || use == "sig" else { throw Refusal("is not for signatures") }
      guard operations?.contains("verify") ?? true else { throw Refusal("is not for signatures") }
      switch (kty, crv, alg) {
      case ("RSA", _, "RS256"): return [.rs256]
      case ("RSA", _, "PS256"): return [.ps256]
      case ("RSA", _, nil): return [.rs256, .ps256]
      case ("EC", "P-256", "ES256"), ("EC", "P-256", nil): return [.es256]
      // RFC 9864 uses the curve's name as the algorithm.
      case ("OKP", "Ed25519", "EdDSA"), ("OKP", "Ed25519", "Ed25519"), ("OKP", "Ed25519", nil): return [.eddsa]
      default: throw Refusal("is not for RS256, PS256, ES256 or EdDSA")
      }
    }

    /// Return the public key only, even if the file also has private members.
    func key(_ algorithm: JWK.Algorithm, _ kid: JWKIdentifier) throws -> JWK {
      switch algorithm {
      case .es256: .ecdsa(.es256, identifier: kid, x: x, y: y, curve: .p256)
      case .eddsa: .octetKeyPair(.eddsa, identifier: kid, x: x, y: nil, curve: .ed25519)
      default: .rsa(algorithm, identifier: kid, modulus: n, exponent: e)
      }
    }
  }

  fileprivate struct Refusal: Error {
    let reason: String
    init(_ reason: String) { self.reason = reason }
  }
}

/// A skipped key of a set, as it is logged.
package struct SkippedKey: Equatable, Sendable {
  package let kid: String?
  package let kty: String?
  package let alg: String?
  package let use: String?
  /// For example `is not for signatures`.
  package let reason: String

  fileprivate init(_ entry: KeySet.Entry, _ reason: String) {
    kid = entry.kid
    kty = entry.kty
    alg = entry.alg
    use = entry.use
    self.reason = reason
  }
}

private struct NoUsableKey: Error, CustomStringConvertible {
  let count: Int

  var description: String {
    "none of its \(count) keys is a signature key for RS256, PS256, ES256 or EdDSA with a kid"
  }
}
