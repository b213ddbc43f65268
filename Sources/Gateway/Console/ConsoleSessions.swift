internal import Crypto
internal import HTTP2Session
package import Operations
internal import Synchronization

/// Sessions of the console (`--console`), kept by this gateway: a browser has only a random secret in a cookie, which
/// no script can read. All event loops share them. They end with the process. Times are in milliseconds since 1970.
package final class ConsoleSessions: Sendable {
  /// Validity of a one-time code, in milliseconds.
  package static let codeMilliseconds: Int64 = 60_000
  /// Longest validity of a session, in milliseconds.
  package static let sessionMilliseconds: Int64 = 8 * 3_600_000
  /// The most codes that are valid at a time. A further one replaces the one that expires first.
  package static let codesMax = 64
  /// The most sessions at a time. A further one ends the one that expires first.
  package static let sessionsMax = 256
  /// Name of the cookie. The prefix says that it was set over TLS (RFC 6265bis section 4.1.3.1).
  static let cookie: StaticString = "__Secure-tidemark-console"

  /// A code that is valid once.
  private struct Code {
    var expiresAt: Int64
    /// Whose token has asked for it.
    var caller: Caller
  }

  private struct State {
    var codes: [SHA256Digest: Code] = [:]
    var sessions: [SHA256Digest: Caller] = [:]
    var observers: [ObjectIdentifier: @Sendable ([Caller]) -> Void] = [:]
  }

  let configuration: GatewayConfiguration.Console
  /// For the console's charts.
  let metrics: MetricsRegistry
  private let state = Mutex(State())

  package init(_ configuration: GatewayConfiguration.Console, metrics: MetricsRegistry) {
    self.configuration = configuration
    self.metrics = metrics
  }

  /// Number of sessions that were not ended, expired ones included.
  package var count: Int { state.withLock { $0.sessions.count } }

  // MARK: Codes

  /// Return a new code: 64 hexadecimal digits, valid once.
  ///
  /// - Parameter caller: a server, which the route has checked.
  package func issueCode(to caller: Caller, now: Int64) -> String {
    let secret = Self.randomSecret()
    state.withLock { state in
      state.codes = state.codes.filter { $0.value.expiresAt > now }
      if state.codes.count >= Self.codesMax {
        let first = state.codes.min { $0.value.expiresAt < $1.value.expiresAt }
        if let first { state.codes[first.key] = nil }
      }
      let code = Code(expiresAt: now + Self.codeMilliseconds, caller: caller)
      state.codes[Self.digest(secret.utf8.span.bytes)] = code
    }
    return secret
  }

  /// Open a session for a code, which becomes invalid.
  ///
  /// - Returns: the secret for the cookie; nil: the code is unknown, expired or used.
  package func open(code: RawSpan, now: Int64) -> (secret: String, caller: Caller)? {
    let digest = Self.digest(code)
    let found = state.withLock { $0.codes.removeValue(forKey: digest) }
    guard let found, found.expiresAt > now else { return nil }
    return open(for: found.caller, until: now + Self.sessionMilliseconds, now: now)
  }

  // MARK: Sessions

  /// Open a session for a server token, which it does not outlive.
  package func open(for caller: Caller, now: Int64) -> (secret: String, caller: Caller) {
    open(for: caller, until: min(caller.expiresAt, now + Self.sessionMilliseconds), now: now)
  }

  private func open(for opener: Caller, until expiresAt: Int64, now: Int64) -> (secret: String, caller: Caller) {
    let secret = Self.randomSecret()
    let caller = Caller(
      userID: [],
      isServer: true,
      isReadOnly: !configuration.allowsWrites,
      expiresAt: expiresAt,
      tokenID: opener.tokenID,
      key: opener.key
    )
    change { state in
      state.sessions = state.sessions.filter { $0.value.expiresAt > now }
      var ended: Caller?
      if state.sessions.count >= Self.sessionsMax {
        let first = state.sessions.min { $0.value.expiresAt < $1.value.expiresAt }
        if let first { ended = state.sessions.removeValue(forKey: first.key) }
      }
      state.sessions[Self.digest(secret.utf8.span.bytes)] = caller
      return ended.map { [$0] } ?? []
    }
    return (secret, caller)
  }

  /// Return the caller of a session; nil: there is none. It may have expired: that is checked like a token's expiry.
  package func caller(_ secret: RawSpan) -> Caller? {
    let digest = Self.digest(secret)
    return state.withLock { $0.sessions[digest] }
  }

  /// End a session.
  package func close(_ secret: RawSpan) {
    let digest = Self.digest(secret)
    change { $0.sessions.removeValue(forKey: digest).map { [$0] } ?? [] }
  }

  /// Invalidate all sessions and codes whose caller satisfies `isEnded`, such as one whose token was revoked.
  package func end(where isEnded: (Caller) -> Bool) {
    change { state in
      let ended = state.sessions.values.filter(isEnded)
      state.sessions = state.sessions.filter { !isEnded($0.value) }
      state.codes = state.codes.filter { !isEnded($0.value.caller) }
      return ended
    }
  }

  // MARK: Observers

  /// Call `ended` with the callers of sessions that end before they expire: their streams have to end too.
  func observe(_ observer: AnyObject, _ ended: @escaping @Sendable ([Caller]) -> Void) {
    let key = ObjectIdentifier(observer)
    state.withLock { $0.observers[key] = ended }
  }

  func stopObserving(_ observer: AnyObject) {
    let key = ObjectIdentifier(observer)
    state.withLock { _ = $0.observers.removeValue(forKey: key) }
  }

  /// - Parameter body: returns the callers of the sessions that it has ended.
  private func change(_ body: (inout State) -> [Caller]) {
    let (ended, observers) = state.withLock { (body(&$0), Array($0.observers.values)) }
    guard !ended.isEmpty else { return }
    for observer in observers { observer(ended) }
  }

  // MARK: Requests

  /// Why a request has no session although it may have its cookie.
  static let otherSite = "another site's page has made this request (sec-fetch-site): open /console itself"

  /// Return whether another site's page may have made a request: its browser says so in `sec-fetch-site`.
  static func isOfOtherSite(_ request: borrowing HTTP2Request) -> Bool {
    guard let site = request.header("sec-fetch-site") else { return false }
    return !site.equals("same-origin")
  }

  /// Return the session's caller of a request to the console; nil: it has none, or another site's page has made it.
  func caller(of request: borrowing HTTP2Request) -> Caller? {
    guard !Self.isOfOtherSite(request), let secret = request.cookie(Self.cookie) else { return nil }
    return caller(secret)
  }

  // MARK: Secrets

  /// 256 random bits as hexadecimal text.
  private static func randomSecret() -> String {
    SymmetricKey(size: .bits256).withUnsafeBytes { bytes in
      bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
  }

  /// A secret is found by its hash, so that the time of a search tells nothing about the secrets that exist.
  private static func digest(_ secret: RawSpan) -> SHA256Digest { secret.withUnsafeBytes { SHA256.hash(data: $0) } }
}
