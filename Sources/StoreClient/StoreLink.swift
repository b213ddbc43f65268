internal import Crypto
internal import Foundation
internal import NIOCore
internal import ReceiptModel
package import ReceiptWire

/// State machine of the link to the store: addresses to try, the handshake, the session, pings and the end. Events go
/// in, actions come out. It does no I/O, and gets the time and random numbers as parameters.
///
/// ```
/// idle ──▶ connecting ──▶ awaitingChallenge ──▶ awaitingReady ──▶ open
///              ▲                  │                   │            │
///              └── waiting ◀──────┴───────────────────┴────────────┘     (every state ──▶ closed)
/// ```
struct StoreLink {
  private enum State {
    /// Not started. Becomes `connecting` or `closed`.
    case idle
    /// Between two attempts. Becomes `connecting` or `closed`.
    case waiting
    /// A socket is being opened. Becomes `awaitingChallenge`, `waiting` or `closed`.
    case connecting
    /// Hello is sent, waiting for the challenge. Becomes `awaitingReady`, `waiting` or `closed`.
    case awaitingChallenge(AwaitingChallenge)
    /// The proof is sent, waiting for ready. Becomes `open`, `waiting` or `closed`.
    case awaitingReady(AwaitingReady)
    /// Requests are sent and answered. Becomes `waiting` or `closed`.
    case open(Open)
    /// Closed for good.
    case closed
  }

  private struct AwaitingChallenge {
    var hello: Hello
    var deadline: NIODeadline
  }

  private struct AwaitingReady {
    var hello: Hello
    var challenge: Challenge
    var deadline: NIODeadline
  }

  private struct Open {
    /// Whether the store is shutting down: replies are still accepted, no new requests are sent.
    var isDraining = false
    /// Time at which an unanswered ping was sent; nil if bytes have arrived since.
    var pingSentAt: NIODeadline?
  }

  private var state = State.idle
  /// When the last byte arrived on the open connection, or on the one before.
  private(set) var lastReceivedAt: NIODeadline?
  typealias Address = StoreClientConfiguration.Address
  /// The addresses that this link tries in turn, and the position of the next one.
  private var addresses: [Address]
  private var addressPosition = 0
  /// The address of the newest attempt.
  private var attempted: Address?
  /// Attempts since a store last answered a request or ping.
  private var failures = 0
  private var pingsSent: UInt64 = 0
  private let name: String
  private var authenticator: StoreAuthenticator
  private let backoffMin: TimeAmount
  private var backoffMax: TimeAmount
  private let pingInterval: TimeAmount

  /// - Parameter addresses: tried in turn; at least one.
  init(_ configuration: StoreClientConfiguration, addresses: [Address]) {
    self.addresses = addresses
    authenticator = StoreAuthenticator(secrets: configuration.secrets)
    backoffMin = configuration.backoffMin
    backoffMax = configuration.backoffMax
    pingInterval = configuration.pingInterval
    var name = configuration.name
    while name.utf8.count > Hello.nameLengthMax { name.removeLast() }
    self.name = name
  }

  /// Try other addresses from the next attempt on. An open connection stays.
  ///
  /// - Parameters:
  ///   - addresses: at least one.
  ///   - next: the address to try next; nil: the current one if it is among them.
  mutating func replaceAddresses(_ addresses: [Address], next: Address?) {
    addressPosition = addresses.firstIndex(of: next ?? self.addresses[addressPosition]) ?? 0
    self.addresses = addresses
  }

  /// Shorten the longest delay between attempts.
  mutating func limitBackoff(to longest: TimeAmount) { backoffMax = min(backoffMax, longest) }

  /// Use these secrets for future handshakes.
  mutating func replaceSecrets(_ secrets: [[UInt8]]) { authenticator = StoreAuthenticator(secrets: secrets) }

  /// Whether new requests may be written to the connection.
  var acceptsRequests: Bool {
    if case .open(let open) = state { !open.isDraining } else { false }
  }

  /// Whether replies may arrive.
  var acceptsReplies: Bool {
    if case .open = state { true } else { false }
  }

  // MARK: - Connecting

  enum ConnectAction: Equatable {
    /// Open a socket to this address.
    case connect(Address)
    case nothing
  }

  /// Start connecting.
  mutating func start() -> ConnectAction {
    guard case .idle = state else { return .nothing }
    return connect()
  }

  /// End the delay between two attempts.
  mutating func retryDelayElapsed() -> ConnectAction {
    guard case .waiting = state else { return .nothing }
    return connect()
  }

  private mutating func connect() -> ConnectAction {
    let address = addresses[addressPosition]
    state = .connecting
    attempted = address
    return .connect(address)
  }

  /// Start the handshake on a connected socket. Returns the hello to send, or nil if the link has been closed
  /// meanwhile.
  ///
  /// - Parameter nonce: a fresh nonce.
  mutating func connected(nonce: Nonce, session: StoreSession, now: NIODeadline) -> Hello? {
    guard case .connecting = state else { return nil }
    let hello = Hello(
      session: session.id,
      sessionAgeMilliseconds: session.ageMilliseconds(at: now),
      nonce: nonce,
      name: name
    )
    state = .awaitingChallenge(AwaitingChallenge(hello: hello, deadline: now + StoreClientLimits.handshakeTimeout))
    return hello
  }

  // MARK: - Frames

  enum FrameAction: Equatable {
    case nothing
    case prove(Proof)
    /// The handshake is done, with the values that the challenge announced. `isNode`: the store is a node of a cluster,
    /// and a map of its shards follows.
    case ready(window: Int, shardCount: Int, frameLengthMax: UInt32, isNode: Bool)
    /// The shards that this node owns now.
    case shardMap(ShardMap)
    case drain
    /// Answer the ping with the same bytes and correlation id.
    case pong([UInt8], correlation: UInt32)
    /// Drop this connection, then call `lost`.
    case fail(LinkFailure)
  }

  /// Handle a frame that is not a reply (see ``acceptsReplies``): a frame about the connection, or an unexpected one.
  mutating func frameReceived(
    _ header: FrameHeader,
    _ payload: RawSpan,
    session: inout StoreSession,
    now: NIODeadline
  ) -> FrameAction {
    do throws(WireError) {
      if header.kind == .error { return .fail(.refused(try ErrorFrame(payload))) }
      switch state {
      case .awaitingChallenge(let handshake):
        guard header.kind == .challenge else { return .fail(.unexpected(header.kind)) }
        return challengeReceived(try Challenge(payload), handshake, session)
      case .awaitingReady(let handshake):
        guard header.kind == .ready else { return .fail(.unexpected(header.kind)) }
        return readyReceived(try Ready(payload), handshake, &session, now: now)
      case .open(let open):
        return try openReceived(header, payload, open)
      case .idle, .waiting, .connecting, .closed:
        return .nothing
      }
    } catch {
      return .fail(.malformed(error))
    }
  }

  private mutating func challengeReceived(
    _ challenge: Challenge,
    _ handshake: AwaitingChallenge,
    _ session: StoreSession
  ) -> FrameAction {
    guard challenge.version == Hello.version else { return .fail(.version(challenge.version)) }
    // The limits must allow at least one request that fits; otherwise the peer is not a usable store.
    guard challenge.window >= 1, challenge.frameLengthMax >= 1024 else { return .fail(.limits) }
    guard case .prove(let proof) = authenticator.verify(challenge, hello: handshake.hello) else {
      return .fail(.unauthenticated)
    }
    guard session.fits(StoreSession.Identity(store: challenge.store, shardCount: challenge.shardCount)) else {
      return .fail(.otherStore)
    }
    state = .awaitingReady(AwaitingReady(hello: handshake.hello, challenge: challenge, deadline: handshake.deadline))
    return .prove(proof)
  }

  private mutating func readyReceived(
    _ ready: Ready,
    _ handshake: AwaitingReady,
    _ session: inout StoreSession,
    now: NIODeadline
  ) -> FrameAction {
    let challenge = handshake.challenge
    // Another link may have begun a session since the hello, or found another store.
    guard session.id == handshake.hello.session else { return .fail(.connectionLost) }
    let identity = StoreSession.Identity(store: challenge.store, shardCount: challenge.shardCount)
    guard session.fits(identity) else { return .fail(.otherStore) }
    session.opened(by: identity, at: now)
    lastReceivedAt = now
    state = .open(Open())
    return .ready(
      window: Int(challenge.window),
      shardCount: Int(challenge.shardCount),
      frameLengthMax: challenge.frameLengthMax,
      isNode: ready.shards.isEmpty
    )
  }

  private mutating func openReceived(
    _ header: FrameHeader,
    _ payload: RawSpan,
    _ open: Open
  ) throws(WireError) -> FrameAction {
    switch header.kind {
    case .ping:
      var reader = FieldReader(payload)
      let bytes = try reader.raw(8).withUnsafeBytes { Array($0) }
      try reader.end()
      return .pong(bytes, correlation: header.correlation)
    case .pong:
      var reader = FieldReader(payload)
      _ = try reader.raw(8)
      try reader.end()
      failures = 0
      return .nothing
    case .shardMap: return .shardMap(try ShardMap(payload))
    case .drain:
      let reader = FieldReader(payload)
      try reader.end()
      state = .open(Open(isDraining: true, pingSentAt: open.pingSentAt))
      return .drain
    default: return .fail(.unexpected(header.kind))
    }
  }

  /// Record that bytes arrived on the open connection. `isReply`: at least one request was answered, so this store
  /// works.
  mutating func bytesReceived(isReply: Bool, session: inout StoreSession, now: NIODeadline) {
    guard case .open(var open) = state else { return }
    open.pingSentAt = nil
    state = .open(open)
    lastReceivedAt = now
    session.received(at: now)
    if isReply { failures = 0 }
  }

  // MARK: - Timeouts

  enum TickAction: Equatable {
    case nothing
    /// Send a ping with this number as its 8 bytes.
    case ping(UInt64)
    /// Drop this connection, then call `lost`.
    case fail(LinkFailure)
  }

  mutating func tick(now: NIODeadline) -> TickAction {
    switch state {
    case .awaitingChallenge(let handshake):
      return now >= handshake.deadline ? .fail(.handshakeTimeout) : .nothing
    case .awaitingReady(let handshake):
      return now >= handshake.deadline ? .fail(.handshakeTimeout) : .nothing
    case .open(var open):
      let action = ping(&open, now: now)
      state = .open(open)
      return action
    case .idle, .waiting, .connecting, .closed: return .nothing
    }
  }

  private mutating func ping(_ open: inout Open, now: NIODeadline) -> TickAction {
    if let sentAt = open.pingSentAt {
      return now - sentAt >= pingInterval ? .fail(.silent) : .nothing
    }
    guard let lastReceivedAt, now - lastReceivedAt >= pingInterval else { return .nothing }
    open.pingSentAt = now
    pingsSent += 1
    return .ping(pingsSent)
  }

  // MARK: - The end of a connection

  enum LossAction: Equatable {
    /// Call ``retryDelayElapsed()`` after this delay.
    case retry(after: TimeAmount)
    case nothing
  }

  /// Handle a connection that ended, was dropped, or could not be opened.
  ///
  /// - Parameter jitter: 0 up to 1, newly drawn.
  mutating func lost(_ failure: LinkFailure, jitter: Double) -> LossAction {
    let wasOpen = acceptsReplies
    switch state {
    case .idle, .waiting, .closed: return .nothing
    case .connecting, .awaitingChallenge, .awaitingReady, .open: state = .waiting
    }
    // A store that worked and went away is likely to return, so the same address is tried first. Any other failure
    // moves to the next address. An address that was chosen meanwhile has not been tried.
    if !wasOpen || failure.isReportedByStore, addresses[addressPosition] == attempted {
      addressPosition = (addressPosition + 1) % addresses.count
    }
    // The delay grows with each full round of addresses, so that a failing first address does not delay the second.
    let round = min(failures / addresses.count, 16)
    failures += 1
    let longest = min(backoffMax.nanoseconds, backoffMin.nanoseconds << Int64(round))
    let wait = longest - Int64(Double(longest) / 2 * min(max(jitter, 0), 1))
    return .retry(after: .nanoseconds(wait))
  }

  /// Stop all attempts.
  mutating func close() { state = .closed }
}

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

/// Reason why a connection or an attempt ended.
package enum LinkFailure: Error, Equatable {
  case connectFailed
  case connectionLost
  /// The layer between socket and frames (the TLS handshake) failed before the store was ready.
  case transportFailed
  case handshakeTimeout
  /// No bytes arrived, not even a reply to a ping.
  case silent
  /// The store announced its shutdown, and has answered everything.
  case drained
  /// A secret is configured, and the store did not prove that it knows it.
  case unauthenticated
  case version(UInt32)
  /// The challenge announces limits too small for any request.
  case limits
  /// The data directory that answers is not the one that knows the session.
  case otherStore
  case malformed(WireError)
  case unexpected(FrameKind)
  /// A reply that matches no request, or has the wrong kind for it.
  case unmatchedReply(UInt32)
  /// An error frame that ends the connection.
  case refused(ErrorFrame)

  /// Whether the session has expired, or must not be used with the current store.
  var endsSession: Bool {
    switch self {
    case .refused(let error): error.code == .sessionExpired
    case .otherStore: true
    case .connectFailed, .connectionLost, .transportFailed, .handshakeTimeout, .silent, .drained, .unauthenticated,
      .version, .limits, .malformed, .unexpected, .unmatchedReply:
      false
    }
  }

  /// Whether the two sides have different secrets, as found by this side or the store.
  package var isSecretMismatch: Bool {
    switch self {
    case .unauthenticated: true
    case .refused(let error): error.code == .authenticationFailed
    case .connectFailed, .connectionLost, .transportFailed, .handshakeTimeout, .silent, .drained, .version,
      .limits, .otherStore, .malformed, .unexpected, .unmatchedReply:
      false
    }
  }

  /// Whether the store has ended the connection because the session has another one.
  var isSuperseded: Bool { if case .refused(let error) = self { error.code == .superseded } else { false } }

  /// Whether the store itself reported or caused the failure.
  var isReportedByStore: Bool {
    switch self {
    case .connectFailed, .connectionLost, .transportFailed, .handshakeTimeout, .silent: false
    case .drained, .unauthenticated, .version, .limits, .otherStore, .malformed, .unexpected, .unmatchedReply, .refused:
      true
    }
  }

  /// Constant name for logs.
  package var name: String {
    switch self {
    case .connectFailed: "connect_failed"
    case .connectionLost: "connection_lost"
    case .transportFailed: "transport_failed"
    case .handshakeTimeout: "handshake_timeout"
    case .silent: "silent"
    case .drained: "drained"
    case .unauthenticated: "unauthenticated"
    case .version: "version"
    case .limits: "limits"
    case .otherStore: "other_store"
    case .malformed: "malformed"
    case .unexpected: "unexpected_frame"
    case .unmatchedReply: "unmatched_reply"
    case .refused: "refused"
    }
  }
}
