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
      help: "Expiry of this side's certificate for the link between gateway and store, in seconds since 1970.",
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

/// Files with which one end of the link between gateways and store authenticates itself and verifies the other end.
package struct LinkTLSFiles: Sendable, Equatable {
  /// PEM file and the setting that names it.
  package struct File: Sendable, Equatable {
    package var path: String
    /// Key of the setting, such as `tls-cert`.
    package var key: String

    package init(_ path: String, key: String) {
      self.path = path
      self.key = key
    }
  }

  /// This end's certificate first, then the chain.
  package var certificate: File
  /// Private key of that certificate, without a password.
  package var privateKey: File
  /// Authorities that must have issued the other end's certificate.
  package var authority: File

  package init(certificate: File, privateKey: File, authority: File) {
    self.certificate = certificate
    self.privateKey = privateKey
    self.authority = authority
  }

  /// Create the files from `--tls-cert`, `--tls-key` and `--tls-ca`: all three, or none.
  ///
  /// - Returns: nil for none.
  package init?(certificate: String?, privateKey: String?, authority: String?) throws(SettingsError) {
    if certificate == nil, privateKey == nil, authority == nil { return nil }
    let purpose = "--tls-cert, --tls-key and --tls-ca go together, or none of them"
    guard let certificate else { throw SettingsError("tls-cert", "is missing: \(purpose)") }
    guard let privateKey else { throw SettingsError("tls-key", "is missing: \(purpose)") }
    guard let authority else { throw SettingsError("tls-ca", "is missing: \(purpose)") }
    self.init(
      certificate: File(certificate, key: "tls-cert"),
      privateKey: File(privateKey, key: "tls-key"),
      authority: File(authority, key: "tls-ca")
    )
  }

  /// Read and check the files for an end.
  ///
  /// - Throws: an error that names the setting whose file cannot be used.
  package func context(of end: LinkTLS.End) throws(SettingsError) -> TLSContext {
    do throws(TLSError) {
      switch end {
      case .store: return try TLSContext(server: serverConfiguration)
      case .gateway: return try TLSContext(client: clientConfiguration)
      }
    } catch {
      throw settingsError(error)
    }
  }

  var serverConfiguration: TLSServerConfiguration {
    var configuration = TLSServerConfiguration(
      certificateChainFile: certificate.path,
      privateKeyFile: privateKey.path,
      clientAuthorityFile: authority.path,
      applicationProtocol: .frames
    )
    configuration.versions = LinkTLS.versions
    // A gateway's certificate is verified on every connection, without session resumption.
    configuration.issuesTickets = false
    return configuration
  }

  var clientConfiguration: TLSClientConfiguration {
    var configuration = TLSClientConfiguration(
      authorityFile: authority.path,
      certificateChainFile: certificate.path,
      privateKeyFile: privateKey.path,
      applicationProtocol: .frames
    )
    configuration.versions = LinkTLS.versions
    return configuration
  }

  /// Paths of the files.
  package var paths: [String] { [certificate.path, privateKey.path, authority.path] }

  /// Convert an error to one that names the setting.
  func settingsError(_ error: TLSError) -> SettingsError {
    guard case .file(let path, let reason) = error,
      let file = [certificate, privateKey, authority].first(where: { $0.path == path })
    else { return SettingsError(certificate.key, "cannot be used: \(error)") }
    return SettingsError(file.key, "\(path): \(reason)")
  }
}
