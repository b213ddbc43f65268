internal import NIOConcurrencyHelpers
internal import NIOCore
package import Logging
package import Operations
package import TLSSession

/// Counts the failed TLS handshakes of one end of the link, and logs them with what helps, at most once a second.
package final class HandshakeFailures: Sendable {
  /// What went wrong, and what to do about it.
  package struct Explanation: Equatable, Sendable {
    package let reason: String
    package let remedy: String
  }

  private struct State {
    var count: Int64 = 0
    var note = RefusalNote()
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

  /// Takes note of an error of a connection whose opening was not done.
  ///
  /// - Returns: whether it is a failed handshake; a peer that closes without a word is none.
  @discardableResult
  package func note(_ error: TLSError, peer: String) -> Bool {
    guard let explanation = Self.explanation(of: error, at: end) else { return false }
    let since = state.withLockedValue { state in
      state.count += 1
      return state.note.refused(at: .now())
    }
    guard let since else { return true }
    logger.error(
      "The TLS handshake between gateway and store failed",
      metadata: [
        "reason": "\(explanation.reason)", "remedy": "\(explanation.remedy)", "peer": "\(peer)",
        "count": "\(since)",
      ]
    )
    return true
  }

  /// Adds the counter.
  ///
  /// - Parameter name: of the metric.
  package func collect(into samples: inout MetricSamples, name: String) {
    samples.counter(name, help: "TLS handshakes between gateway and store that failed.", count)
  }

  /// What an error means at an end of the link; nil where it is not the handshake's.
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
        "the peer shows no certificate",
        "give the gateway --store-tls-cert and --store-tls-key (a command: --tls-cert and --tls-key)"
      )
    case .certificate(let reason):
      (
        "the gateway's certificate is not accepted: \(reason)",
        "it has to be valid, by an authority in this store's --tls-ca, and for clientAuth"
      )
    case .alert(let reason):
      (
        "the gateway refuses this store's certificate: \(reason)",
        "--tls-cert has to be valid, by an authority in the gateway's --tls-ca, and name the host of its --store"
      )
    case .noApplicationProtocol:
      ("the peer speaks another protocol over TLS", "only gateways and tidemark's commands connect here")
    case .handshake(let reason): (reason, "compare the TLS flags of gateway and store")
    case .handshakeTimeout: ("the handshake took too long", "look at the network between gateway and store")
    case .file, .configuration, .record, .truncated, .closed: nil
    }
  }

  private static func atGateway(_ error: TLSError) -> (String, String)? {
    switch error {
    case .notTLS:
      (
        "the store does not speak TLS",
        "give the store --tls-cert, --tls-key and --tls-ca, or leave --tls-ca out here"
      )
    case .certificate(let reason):
      (
        "the store's certificate is not accepted: \(reason)",
        "it has to be valid, by an authority in this side's --tls-ca, and name the host of --store"
      )
    case .alert(let reason):
      (
        "the store refuses this side's certificate: \(reason)",
        "it has to be valid, by an authority in the store's --tls-ca, and for clientAuth"
      )
    case .noApplicationProtocol:
      ("what answers speaks TLS and is no store", "--store has to be the address of a store's --listen")
    case .noPeerCertificate: ("the store shows no certificate", "give the store --tls-cert and --tls-key")
    case .handshake(let reason): (reason, "compare the TLS flags of gateway and store")
    case .handshakeTimeout: ("the handshake took too long", "look at the store, and the network between")
    case .file, .configuration, .record, .truncated, .closed: nil
    }
  }
}
