internal import Crypto
internal import ReceiptModel
internal import ReceiptWire

/// The store's side of a handshake (Proto/frames.md, "Handshake"): frames go in, actions come out.
///
/// awaitingHello → awaitingProof → open; any refusal → refused.
struct ServerHandshake {
  /// The store's terms for a handshake.
  struct Terms {
    /// The shared secret, then the previous one, which is still accepted. Empty: gateways are not authenticated.
    var secrets: [[UInt8]]
    var window: UInt32
    var frameLengthMax: UInt32
    var shardCount: Int
    /// Whether the store is a node of a cluster, which sends maps of its shards.
    var isNode = false
    var store: SessionID
    var sessionLifetimeMilliseconds: Int64
  }

  private struct AwaitingProof {
    var hello: Hello
    var nonce: Nonce
  }

  private enum State {
    case awaitingHello
    case awaitingProof(AwaitingProof)
    case open
    case refused
  }

  enum Action {
    case send(Challenge)
    /// Open the connection for this session: send the ready frame, then accept requests.
    case open(Ready, session: SessionID, name: String)
    /// Send an error frame, then close.
    case refuse(ErrorCode, detail: String)
  }

  private var state = State.awaitingHello
  private let terms: Terms

  init(terms: Terms) { self.terms = terms }

  /// - Parameter nonce: supplies random bytes for the challenge.
  mutating func frameReceived(_ kind: FrameKind, _ payload: RawSpan, nonce: () -> Nonce) throws(WireError) -> Action {
    switch (state, kind) {
    case (.awaitingHello, .hello):
      return helloReceived(try Hello(payload), nonce: nonce())
    case (.awaitingProof(let awaiting), .proof):
      return proofReceived(try Proof(payload), awaiting)
    case (.awaitingHello, _), (.awaitingProof, _):
      state = .refused
      return .refuse(.handshakeRequired, detail: "expected hello, then proof")
    case (.open, _), (.refused, _):
      state = .refused
      return .refuse(.handshakeRequired, detail: "the handshake is done")
    }
  }

  private mutating func helloReceived(_ hello: Hello, nonce: Nonce) -> Action {
    guard hello.versionLowest <= Hello.version, hello.versionHighest >= Hello.version else {
      state = .refused
      return .refuse(.unsupportedVersion, detail: "this store speaks version \(Hello.version)")
    }
    if let age = hello.sessionAgeMilliseconds, age > UInt64(terms.sessionLifetimeMilliseconds) {
      state = .refused
      return .refuse(.sessionExpired, detail: "sessions live \(terms.sessionLifetimeMilliseconds) ms")
    }
    state = .awaitingProof(AwaitingProof(hello: hello, nonce: nonce))
    let proof = terms.secrets.first.map { secret in
      let material = Proof.material(.store, gateway: hello.nonce, store: nonce, session: hello.session)
      return Array(HMAC<SHA256>.authenticationCode(for: material, using: SymmetricKey(data: secret)))
    }
    var challenge = Challenge(
      nonce: nonce,
      proof: proof ?? [],
      window: terms.window,
      shardCount: UInt32(terms.shardCount),
      store: terms.store
    )
    challenge.frameLengthMax = terms.frameLengthMax
    return .send(challenge)
  }

  private mutating func proofReceived(_ proof: Proof, _ awaiting: AwaitingProof) -> Action {
    let hello = awaiting.hello
    let material = Proof.material(.gateway, gateway: hello.nonce, store: awaiting.nonce, session: hello.session)
    let isAuthenticated =
      terms.secrets.isEmpty
      || terms.secrets.contains { secret in
        HMAC<SHA256>.isValidAuthenticationCode(proof.bytes, authenticating: material, using: SymmetricKey(data: secret))
      }
    guard isAuthenticated else {
      state = .refused
      return .refuse(.authenticationFailed, detail: "the secret is not the store's: give both the same --secret-file")
    }
    state = .open
    let ready = Ready(
      isResumed: hello.sessionAgeMilliseconds != nil,
      sessionLifetimeMilliseconds: UInt64(terms.sessionLifetimeMilliseconds),
      shards: terms.isNode ? [] : [Ready.ShardRange(first: 0, count: UInt32(terms.shardCount), address: "")]
    )
    return .open(ready, session: hello.session, name: hello.name)
  }
}
