internal import Crypto
internal import Foundation
internal import ReceiptModel
package import ReceiptWire

/// The two proofs of an opening: HMAC-SHA-256 over a side's name, both nonces and the session
/// (Proto/frames.md, "Opening").
package struct StoreAuthenticator: Sendable {
  private let keys: [SymmetricKey]

  /// - Parameter secrets: the current one first.
  package init(secrets: [[UInt8]]) { keys = secrets.map { SymmetricKey(data: $0) } }

  /// What a store's challenge says about it.
  package enum Verdict: Equatable {
    /// Answer with this proof; it is made with the secret that the store's was made with, or empty where
    /// there is none.
    case prove(Proof)
    /// A secret is held and the store did not show that it holds it too.
    case refuse
  }

  package func judge(_ challenge: Challenge, hello: Hello) -> Verdict {
    if keys.isEmpty { return .prove(Proof(bytes: [])) }
    let theirs = Proof.material(.store, gateway: hello.nonce, store: challenge.nonce, session: hello.session)
    // The comparison takes the same time wherever the bytes differ.
    let matching = keys.first {
      HMAC<SHA256>.isValidAuthenticationCode(challenge.proof, authenticating: theirs, using: $0)
    }
    guard let matching else { return .refuse }
    let ours = Proof.material(.gateway, gateway: hello.nonce, store: challenge.nonce, session: hello.session)
    return .prove(Proof(bytes: Array(HMAC<SHA256>.authenticationCode(for: ours, using: matching))))
  }
}
