internal import Crypto
internal import Foundation
internal import ReceiptModel
package import ReceiptWire

/// Authentication in a handshake: both proofs are HMAC-SHA-256 over a side's name, both nonces and the session
/// (Proto/frames.md, "Handshake").
package struct StoreAuthenticator: Sendable {
  private let keys: [SymmetricKey]

  /// - Parameter secrets: the current one first.
  package init(secrets: [[UInt8]]) { keys = secrets.map { SymmetricKey(data: $0) } }

  /// Result of checking a store's challenge.
  package enum Verdict: Equatable {
    /// Answer with this proof. It uses the same secret as the store's proof, or is empty if there is no secret.
    case prove(Proof)
    /// A secret is configured, and the store did not prove that it knows it.
    case refuse
  }

  package func verify(_ challenge: Challenge, hello: Hello) -> Verdict {
    if keys.isEmpty { return .prove(Proof(bytes: [])) }
    let theirs = Proof.material(.store, gateway: hello.nonce, store: challenge.nonce, session: hello.session)
    // The comparison runs in constant time.
    let matching = keys.first {
      HMAC<SHA256>.isValidAuthenticationCode(challenge.proof, authenticating: theirs, using: $0)
    }
    guard let matching else { return .refuse }
    let ours = Proof.material(.gateway, gateway: hello.nonce, store: challenge.nonce, session: hello.session)
    return .prove(Proof(bytes: Array(HMAC<SHA256>.authenticationCode(for: ours, using: matching))))
  }
}
