package import ReceiptWire

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
    case .connectFailed, .connectionLost, .transportFailed, .handshakeTimeout, .silent, .drained,
      .unauthenticated,
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

  /// Whether the store itself reported or caused the failure.
  var isReportedByStore: Bool {
    switch self {
    case .connectFailed, .connectionLost, .transportFailed, .handshakeTimeout, .silent: false
    case .drained, .unauthenticated, .version, .limits, .otherStore, .malformed, .unexpected, .unmatchedReply,
      .refused:
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
