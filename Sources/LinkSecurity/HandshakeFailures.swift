internal import NIOConcurrencyHelpers
internal import NIOCore
package import Logging
internal import Operations
package import TLSSession

/// Counter of failed TLS handshakes at one end of the link. It logs them with a remedy, at most once a second.
package final class HandshakeFailures: Sendable {
  /// Cause of a failure and its remedy.
  package struct Explanation: Equatable, Sendable {
    package let reason: String
    package let remedy: String
  }

  private struct State {
    var count: Int64 = 0
    var logLimiter = LogRateLimiter()
  }

  private let end: LinkTLS.End
  private let logger: Logger
  private let state = NIOLockedValueBox(State())

  package init(end: LinkTLS.End, logger: Logger) {
    self.end = end
    self.logger = logger
  }

  /// Failed handshakes since the start.
  package var count: Int64 { state.withLockedValue { $0.count } }

  /// Count and log an error that occurred before a connection was established.
  ///
  /// - Returns: whether it is a failed handshake; a peer that closes silently does not count.
  @discardableResult
  package func record(_ error: TLSError, peer: String) -> Bool {
    guard let explanation = Self.explanation(of: error, at: end) else { return false }
    let occurrences = state.withLockedValue { state in
      state.count += 1
      return state.logLimiter.occurrence(at: .now())
    }
    guard let occurrences else { return true }
    logger.error(
      "The TLS handshake between gateway and store failed",
      metadata: [
        "reason": "\(explanation.reason)", "remedy": "\(explanation.remedy)", "peer": "\(peer)",
        "count": "\(occurrences)",
      ]
    )
    return true
  }

  /// Explain an error at one end of the link; nil if it is not a handshake error.
  package static func explanation(of error: TLSError, at end: LinkTLS.End) -> Explanation? {
    guard let (reason, remedy) = end == .store ? atStore(error) : atGateway(error) else { return nil }
    return Explanation(reason: reason, remedy: remedy)
  }

  private static func atStore(_ error: TLSError) -> (String, String)? {
    switch error {
    case .notTLS:
      (
        "the peer does not speak TLS",
        "give the gateway --tls-ca, --store-tls-cert and --store-tls-key (a command: --tls-ca, --tls-cert, --tls-key)"
      )
    case .noPeerCertificate:
      (
        "the peer presented no certificate",
        "give the gateway --store-tls-cert and --store-tls-key (a command: --tls-cert and --tls-key)"
      )
    case .certificate(let reason):
      (
        "the gateway's certificate is not accepted: \(reason)",
        "it must be valid, issued by an authority in this store's --tls-ca, and allow clientAuth"
      )
    case .alert(let reason):
      (
        "the gateway refuses this store's certificate: \(reason)",
        "--tls-cert must be valid, issued by an authority in the gateway's --tls-ca, and name the host of its --store"
      )
    case .noApplicationProtocol:
      ("the peer speaks another protocol over TLS", "only gateways and tidemark's commands connect here")
    case .handshake(let reason): (reason, "compare the TLS flags of gateway and store")
    case .handshakeTimeout: ("the handshake timed out", "look at the network between gateway and store")
    case .file, .configuration, .record, .tooManyKeyUpdates, .truncated, .closed: nil
    }
  }

  private static func atGateway(_ error: TLSError) -> (String, String)? {
    switch error {
    case .notTLS:
      ("the store does not speak TLS", "give the store --tls-cert, --tls-key and --tls-ca, or leave --tls-ca out here")
    case .certificate(let reason):
      (
        "the store's certificate is not accepted: \(reason)",
        "it must be valid, issued by an authority in this side's --tls-ca, and name the host of --store"
      )
    case .alert(let reason):
      (
        "the store refuses this side's certificate: \(reason)",
        "it must be valid, issued by an authority in the store's --tls-ca, and allow clientAuth"
      )
    case .noApplicationProtocol:
      ("the server speaks TLS but is not a store", "--store has to be the address of a store's --listen")
    case .noPeerCertificate: ("the store presented no certificate", "give the store --tls-cert and --tls-key")
    case .handshake(let reason): (reason, "compare the TLS flags of gateway and store")
    case .handshakeTimeout: ("the handshake timed out", "look at the store, and the network between")
    case .file, .configuration, .record, .tooManyKeyUpdates, .truncated, .closed: nil
    }
  }
}
