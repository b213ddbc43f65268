internal import Crypto
internal import HTTP2Session
package import Operations
internal import Synchronization

/// Sessions of the console (`--console`), kept by this gateway: a browser has only a random name in a cookie, which no
/// script can read. All event loops share them. They end with the process.
package final class ConsoleSessions: Sendable {
  /// Validity of a one-time code, in milliseconds.
  package static let codeMilliseconds: Int64 = 60_000
  /// Longest validity of a session, in milliseconds.
  package static let sessionMilliseconds: Int64 = 8 * 3_600_000
  /// The most codes that are valid at a time. A further one replaces the oldest.
  package static let codesMax = 64
  /// The most sessions at a time. A further one ends the oldest.
  package static let sessionsMax = 256
  /// Name of the cookie. The prefix says that it was set over TLS (RFC 6265bis section 4.1.3.1).
  static let cookie: StaticString = "__Secure-tidemark-console"

  /// A code that is valid once.
  private struct Code {
    var expiresAt: Int64
    /// Id of the token that has asked for the code: revoked, it ends the session.
    var tokenID: TokenID?
  }

  private struct State {
    var codes: [SHA256Digest: Code] = [:]
    var sessions: [SHA256Digest: Caller] = [:]
  }

  /// Whether sessions may change anything (`--console-writes`).
  package let allowsWrites: Bool
  /// For the console's charts.
  let metrics: MetricsRegistry
  private let state = Mutex(State())

  package init(allowsWrites: Bool, metrics: MetricsRegistry) {
    self.allowsWrites = allowsWrites
    self.metrics = metrics
  }

  /// Number of sessions that were opened and have not been replaced or closed.
  package var count: Int { state.withLock { $0.sessions.count } }

  // MARK: Codes

  /// Return a new code, for a caller whose token allows everything.
  package func issueCode(to caller: Caller, now: Int64) -> String {
    let name = Self.randomName()
    state.withLock { state in
      state.codes = state.codes.filter { $0.value.expiresAt > now }
      if state.codes.count >= Self.codesMax,
        let oldest = state.codes.min(by: { $0.value.expiresAt < $1.value.expiresAt })
      {
        state.codes[oldest.key] = nil
      }
      state.codes[Self.digest(name.utf8.span.bytes)] = Code(
        expiresAt: now + Self.codeMilliseconds,
        tokenID: caller.tokenID
      )
    }
    return name
  }

  /// Open a session for a code, which becomes invalid.
  ///
  /// - Returns: the name for the cookie; nil: the code is unknown, expired or used.
  package func open(code: RawSpan, now: Int64) -> (name: String, caller: Caller)? {
    let digest = Self.digest(code)
    let found = state.withLock { $0.codes.removeValue(forKey: digest) }
    guard let found, found.expiresAt > now else { return nil }
    return open(until: now + Self.sessionMilliseconds, tokenID: found.tokenID, now: now)
  }

  // MARK: Sessions

  /// Open a session for a server token, which it does not outlive.
  package func open(for caller: Caller, now: Int64) -> (name: String, caller: Caller) {
    open(until: min(caller.expiresAt, now + Self.sessionMilliseconds), tokenID: caller.tokenID, now: now)
  }

  private func open(until expiresAt: Int64, tokenID: TokenID?, now: Int64) -> (name: String, caller: Caller) {
    let name = Self.randomName()
    let caller = Caller(
      userID: [],
      isServer: true,
      isReadOnly: !allowsWrites,
      expiresAt: expiresAt,
      token: Array(name.utf8),
      tokenID: tokenID
    )
    state.withLock { state in
      state.sessions = state.sessions.filter { $0.value.expiresAt > now }
      if state.sessions.count >= Self.sessionsMax,
        let oldest = state.sessions.min(by: { $0.value.expiresAt < $1.value.expiresAt })
      {
        state.sessions[oldest.key] = nil
      }
      state.sessions[Self.digest(name.utf8.span.bytes)] = caller
    }
    return (name, caller)
  }

  /// Return the caller of a session; nil: there is none of that name. It may have expired.
  package func caller(_ name: RawSpan) -> Caller? {
    let digest = Self.digest(name)
    return state.withLock { $0.sessions[digest] }
  }

  /// End a session.
  package func close(_ name: RawSpan) {
    let digest = Self.digest(name)
    state.withLock { $0.sessions[digest] = nil }
  }

  /// Return the session's caller of a request to the console; nil: it has none. Another site's page may not use a
  /// session: its browser says so in `sec-fetch-site`.
  func caller(of request: borrowing HTTP2Request) -> Caller? {
    if let site = request.header("sec-fetch-site"), !site.equals("same-origin") { return nil }
    guard let name = request.cookie(Self.cookie) else { return nil }
    return caller(name)
  }

  // MARK: Names

  /// 256 random bits as hexadecimal text.
  private static func randomName() -> String {
    SymmetricKey(size: .bits256).withUnsafeBytes { bytes in
      bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
  }

  /// A name is found by its hash, so that the time of a search tells nothing about the names that exist.
  private static func digest(_ name: RawSpan) -> SHA256Digest { name.withUnsafeBytes { SHA256.hash(data: $0) } }
}
