package import Logging
package import NIOCore
package import Operations
package import TLSSession

/// TLS of one end of the link between gateways and store: TLS 1.3, a certificate on both sides, ALPN `tidemark/1`
/// (Proto/frames.md, "Encryption").
package final class LinkTLS: Sendable {
  /// End of the link.
  package enum End: Sendable {
    /// Accepts connections.
    case store
    /// Opens connections; also used by the commands of `tidemark` that connect to a store.
    case gateway
  }

  /// Both ends belong to this project, so no older version is needed. TLS 1.3 also encrypts certificates.
  static let versions: ClosedRange<TLSVersion> = .v1_3 ... .v1_3

  private let end: End
  private let context: TLSContext
  package let failures: HandshakeFailures

  /// - Throws: an error that names the setting whose file cannot be used.
  package init(_ files: LinkTLSFiles, end: End, logger: Logger) throws(SettingsError) {
    self.end = end
    context = try files.context(of: end)
    failures = HandshakeFailures(end: end, logger: logger)
  }

  /// Read and check files for new connections without using them yet.
  ///
  /// - Throws: like `init`.
  package func load(_ files: LinkTLSFiles) throws(SettingsError) -> TLSContext.Loaded {
    do throws(TLSError) {
      switch end {
      case .store: return try context.load(server: files.serverConfiguration)
      case .gateway: return try context.load(client: files.clientConfiguration)
      }
    } catch {
      throw files.settingsError(error)
    }
  }

  /// Add the number of failed handshakes, and the expiry time of this end's certificate.
  package func collect(into samples: inout MetricSamples, prefix: String) {
    samples.counter(
      "\(prefix)_handshakes_failed_total",
      help: "TLS handshakes between gateway and store that failed.",
      failures.count
    )
    guard let end = context.certificateEnd else { return }
    samples.gauge(
      "\(prefix)_certificate_expires_timestamp_seconds",
      help:
        "Expiry of this side's certificate for the link between gateway and store, in seconds since 1970.",
      Double(end)
    )
  }

  /// Use loaded files for new connections.
  package func apply(_ loaded: TLSContext.Loaded) { context.apply(loaded) }

  /// Create the handler of an outgoing connection.
  ///
  /// - Parameter store: the host as configured, a name or an address, which the store's certificate must contain.
  package func clientHandler(store: String) throws(TLSError) -> TLSHandler {
    try TLSHandler(context: context, serverName: store)
  }

  /// Create the handler of an accepted connection.
  ///
  /// - Parameter plaintextRefusal: reply to a peer that sends unencrypted frames.
  package func serverHandler(plaintextRefusal: ByteBuffer) throws(TLSError) -> TLSHandler {
    try TLSHandler(context: context, plaintextRefusal: plaintextRefusal)
  }
}
