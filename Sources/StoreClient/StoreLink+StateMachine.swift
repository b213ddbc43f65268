internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The life of the link to the store: which address is tried when, the opening, the session, pings, the end.
/// Events go in, actions come out; it does no I/O, reads no clock and draws no random number but those it is
/// handed.
///
/// ```
/// idle ──▶ connecting ──▶ challenged ──▶ proving ──▶ ready ──▶ draining
///              ▲              │             │          │          │
///              └── waiting ◀──┴─────────────┴──────────┴──────────┘        (every state ──▶ closed)
/// ```
struct StoreLink {
  private enum State {
    /// Not started. Becomes `connecting` or `closed`.
    case idle
    /// Between two attempts. Becomes `connecting` or `closed`.
    case waiting
    /// A socket is being opened. Becomes `challenged`, `waiting` or `closed`.
    case connecting
    /// Hello is sent, the challenge awaited. Becomes `proving`, `waiting` or `closed`.
    case challenged(Opening)
    /// The proof is sent, ready awaited. Becomes `ready`, `waiting` or `closed`.
    case proving(Proving)
    /// Requests flow. Becomes `draining`, `waiting` or `closed`.
    case ready(Open)
    /// The store is going away: answers are still awaited, nothing new is sent. Becomes `waiting` or
    /// `closed`.
    case draining(Open)
    /// For good.
    case closed
  }

  private struct Opening {
    var hello: Hello
    var deadline: NIODeadline
  }

  private struct Proving {
    var hello: Hello
    var challenge: Challenge
    var deadline: NIODeadline
  }

  private struct Open {
    var lastHeard: NIODeadline
    /// When the ping was sent that nothing was heard since.
    var pinged: NIODeadline?
  }

  /// What survives connections: the store's memory of this client.
  private struct Session {
    var id: SessionID
    var lastHeard: NIODeadline
    /// The data directory that knows it.
    var store: SessionID
    var shardCount: UInt32
  }

  private var state = State.idle
  private var session: Session?
  /// The store that answered last, or that does; nil before the first opening is done.
  var store: SessionID? { session?.store }
  /// When the last byte of the session's store came; nil without a session.
  var lastHeard: NIODeadline? { session?.lastHeard }
  private var addressIndex = 0
  /// Attempts since a store last answered something.
  private var failures = 0
  private var pingsSent: UInt64 = 0
  private let addressCount: Int
  private let name: String
  private var authenticator: StoreAuthenticator
  private let backoffMin: TimeAmount
  private let backoffMax: TimeAmount
  private let pingInterval: TimeAmount

  init(_ configuration: StoreClientConfiguration) {
    addressCount = configuration.addresses.count
    authenticator = StoreAuthenticator(secrets: configuration.secrets)
    backoffMin = configuration.backoffMin
    backoffMax = configuration.backoffMax
    pingInterval = configuration.pingInterval
    var name = configuration.name
    while name.utf8.count > Hello.nameLengthMax { name.removeLast() }
    self.name = name
  }

  /// Has openings from now on prove these secrets.
  mutating func replaceSecrets(_ secrets: [[UInt8]]) { authenticator = StoreAuthenticator(secrets: secrets) }

  /// New requests may be written to the connection.
  var takesRequests: Bool {
    if case .ready = state { true } else { false }
  }

  /// Replies may come.
  var takesReplies: Bool {
    switch state {
    case .ready, .draining: true
    case .idle, .waiting, .connecting, .challenged, .proving, .closed: false
    }
  }

  var isClosed: Bool {
    if case .closed = state { true } else { false }
  }

  // MARK: - Connecting

  enum OnConnect: Equatable {
    /// Open a socket to this address.
    case connect(addressIndex: Int)
    case nothing
  }

  /// `start` was called.
  mutating func start() -> OnConnect {
    guard case .idle = state else { return .nothing }
    state = .connecting
    return .connect(addressIndex: addressIndex)
  }

  /// The wait between two attempts is over.
  mutating func waited() -> OnConnect {
    guard case .waiting = state else { return .nothing }
    state = .connecting
    return .connect(addressIndex: addressIndex)
  }

  /// A socket is open. Gives the hello to send, or nil where the link was closed meanwhile.
  ///
  /// - Parameters:
  ///   - nonce: fresh.
  ///   - newSession: fresh; used where no session is known to the store.
  mutating func connected(nonce: Nonce, newSession: SessionID, now: NIODeadline) -> Hello? {
    guard case .connecting = state else { return nil }
    let hello = Hello(
      session: session?.id ?? newSession,
      sessionAgeMilliseconds: session.map { UInt64(max(0, (now - $0.lastHeard).nanoseconds / 1_000_000)) },
      nonce: nonce,
      name: name
    )
    state = .challenged(Opening(hello: hello, deadline: now + StoreClientLimits.openingTimeout))
    return hello
  }

  // MARK: - Frames

  enum OnFrame: Equatable {
    case nothing
    case prove(Proof)
    /// The opening is done; what the challenge announced.
    case ready(window: Int, shardCount: Int, frameLengthMax: UInt32)
    case drain
    /// Answer the ping with the same bytes and correlation.
    case pong([UInt8], correlation: UInt32)
    /// Give this connection up, then call `lost`.
    case fail(LinkFailure)
  }

  /// Anything but a reply (see ``takesReplies``): frames of the connection, or what does not belong.
  mutating func frameReceived(_ header: FrameHeader, _ payload: RawSpan, now: NIODeadline) -> OnFrame {
    do throws(WireError) {
      if header.kind == .error { return .fail(.refused(try ErrorFrame(payload))) }
      switch state {
      case .challenged(let opening):
        guard header.kind == .challenge else { return .fail(.unexpected(header.kind)) }
        return challengeReceived(try Challenge(payload), opening)
      case .proving(let proving):
        guard header.kind == .ready else { return .fail(.unexpected(header.kind)) }
        return readyReceived(try Ready(payload), proving, now: now)
      case .ready(let open):
        return try openReceived(header, payload, open)
      case .draining(let open):
        return try openReceived(header, payload, open)
      case .idle, .waiting, .connecting, .closed:
        return .nothing
      }
    } catch {
      return .fail(.malformed(error))
    }
  }

  private mutating func challengeReceived(_ challenge: Challenge, _ opening: Opening) -> OnFrame {
    guard challenge.version == Hello.version else { return .fail(.version(challenge.version)) }
    // A request has to fit, and at least one has to be allowed; a store that says otherwise is not one.
    guard challenge.window >= 1, challenge.frameLengthMax >= 1024 else { return .fail(.limits) }
    guard case .prove(let proof) = authenticator.judge(challenge, hello: opening.hello) else {
      return .fail(.unproven)
    }
    if let session, session.store != challenge.store || session.shardCount != challenge.shardCount {
      return .fail(.otherStore)
    }
    state = .proving(Proving(hello: opening.hello, challenge: challenge, deadline: opening.deadline))
    return .prove(proof)
  }

  private mutating func readyReceived(_ ready: Ready, _ proving: Proving, now: NIODeadline) -> OnFrame {
    let challenge = proving.challenge
    // Not resumed although it was known: the store has seen no command of it yet, so the same name goes on.
    session = Session(
      id: proving.hello.session,
      lastHeard: now,
      store: challenge.store,
      shardCount: challenge.shardCount
    )
    state = .ready(Open(lastHeard: now))
    return .ready(
      window: Int(challenge.window),
      shardCount: Int(challenge.shardCount),
      frameLengthMax: challenge.frameLengthMax
    )
  }

  private mutating func openReceived(
    _ header: FrameHeader,
    _ payload: RawSpan,
    _ open: Open
  ) throws(WireError) -> OnFrame {
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
    case .drain:
      let reader = FieldReader(payload)
      try reader.end()
      state = .draining(open)
      return .drain
    default:
      return .fail(.unexpected(header.kind))
    }
  }

  /// Bytes came over the open connection; `isReply`: at least one request was answered, so this store serves.
  mutating func heard(isReply: Bool, now: NIODeadline) {
    switch state {
    case .ready(var open):
      open.lastHeard = now
      open.pinged = nil
      state = .ready(open)
    case .draining(var open):
      open.lastHeard = now
      open.pinged = nil
      state = .draining(open)
    case .idle, .waiting, .connecting, .challenged, .proving, .closed:
      return
    }
    session?.lastHeard = now
    if isReply { failures = 0 }
  }

  // MARK: - Time

  enum OnTick: Equatable {
    case nothing
    /// Send a ping with this number as its 8 bytes.
    case ping(UInt64)
    /// Give this connection up, then call `lost`.
    case fail(LinkFailure)
  }

  mutating func tick(now: NIODeadline) -> OnTick {
    switch state {
    case .challenged(let opening):
      return now >= opening.deadline ? .fail(.openingTimeout) : .nothing
    case .proving(let proving):
      return now >= proving.deadline ? .fail(.openingTimeout) : .nothing
    case .ready(var open):
      let action = ping(&open, now: now)
      state = .ready(open)
      return action
    case .draining(var open):
      let action = ping(&open, now: now)
      state = .draining(open)
      return action
    case .idle, .waiting, .connecting, .closed:
      return .nothing
    }
  }

  private mutating func ping(_ open: inout Open, now: NIODeadline) -> OnTick {
    if let pinged = open.pinged {
      return now - pinged >= pingInterval ? .fail(.silent) : .nothing
    }
    guard now - open.lastHeard >= pingInterval else { return .nothing }
    open.pinged = now
    pingsSent += 1
    return .ping(pingsSent)
  }

  // MARK: - The end of a connection

  enum OnLost: Equatable {
    /// Call ``waited()`` after this long. `sessionEnded`: what was sent in the session has no known outcome.
    case retry(after: TimeAmount, sessionEnded: Bool)
    case nothing
  }

  /// The connection ended, or could not be opened, or was given up.
  ///
  /// - Parameter jitter: 0 up to 1, drawn anew.
  mutating func lost(_ failure: LinkFailure, jitter: Double) -> OnLost {
    let wasOpen = takesReplies
    switch state {
    case .idle, .waiting, .closed: return .nothing
    case .connecting, .challenged, .proving, .ready, .draining: state = .waiting
    }
    let sessionEnded = failure.endsSession
    if sessionEnded { session = nil }
    // A store that served and went is likely to be back: the same address is tried first. Any other failure
    // moves on.
    if !wasOpen || failure.isFromStore { addressIndex = (addressIndex + 1) % addressCount }
    // The wait grows with each whole round of addresses, so that a second one is not kept waiting by the
    // first.
    let round = min(failures / addressCount, 16)
    failures += 1
    let longest = min(backoffMax.nanoseconds, backoffMin.nanoseconds << Int64(round))
    let wait = longest - Int64(Double(longest) / 2 * min(max(jitter, 0), 1))
    return .retry(after: .nanoseconds(wait), sessionEnded: sessionEnded)
  }

  /// No more attempts. False where that was so already.
  mutating func close() -> Bool {
    if case .closed = state { return false }
    state = .closed
    return true
  }
}

/// Why a connection or an attempt ended.
enum LinkFailure: Error, Equatable {
  case connectFailed
  case connectionLost
  /// What is between socket and frames failed before the store was ready: the TLS handshake.
  case transportFailed
  case openingTimeout
  /// Nothing heard, not even an answer to a ping.
  case silent
  /// The store announced that it goes away, and has answered everything.
  case drained
  /// A secret is configured and the store did not prove that it holds it.
  case unproven
  case version(UInt32)
  /// The challenge announces limits that no request fits.
  case limits
  /// Another data directory answers than the one that knows the session.
  case otherStore
  case malformed(WireError)
  case unexpected(FrameKind)
  /// A reply that no request waits for, or of another kind than the request's.
  case strayReply(UInt32)
  /// An error frame that ends the connection.
  case refused(ErrorFrame)

  /// The session is gone, or may not be used with the store that answers now.
  var endsSession: Bool {
    switch self {
    case .refused(let error): error.code == .sessionExpired
    case .otherStore: true
    case .connectFailed, .connectionLost, .transportFailed, .openingTimeout, .silent, .drained, .unproven,
      .version, .limits, .malformed, .unexpected, .strayReply:
      false
    }
  }

  /// The two sides do not have the same secret, as this side or the store has found.
  var isSecretMismatch: Bool {
    switch self {
    case .unproven: true
    case .refused(let error): error.code == .authenticationFailed
    case .connectFailed, .connectionLost, .transportFailed, .openingTimeout, .silent, .drained, .version,
      .limits, .otherStore, .malformed, .unexpected, .strayReply:
      false
    }
  }

  /// The store itself said or showed that this connection will not do.
  var isFromStore: Bool {
    switch self {
    case .connectFailed, .connectionLost, .transportFailed, .openingTimeout, .silent: false
    case .drained, .unproven, .version, .limits, .otherStore, .malformed, .unexpected, .strayReply, .refused:
      true
    }
  }

  /// A constant name for logs.
  var name: String {
    switch self {
    case .connectFailed: "connect_failed"
    case .connectionLost: "connection_lost"
    case .transportFailed: "tls_handshake_failed"
    case .openingTimeout: "opening_timeout"
    case .silent: "silent"
    case .drained: "drained"
    case .unproven: "unproven"
    case .version: "version"
    case .limits: "limits"
    case .otherStore: "other_store"
    case .malformed: "malformed"
    case .unexpected: "unexpected_frame"
    case .strayReply: "stray_reply"
    case .refused: "refused"
    }
  }
}
