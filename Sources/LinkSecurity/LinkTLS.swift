package import Logging
package import NIOCore
package import Operations
package import TLSSession

/// One end of the encrypted link between gateways and store: TLS 1.3, a certificate on both sides, ALPN `tidemark/1`
/// (Proto/frames.md, "Encryption").
package final class LinkTLS: Sendable {
  /// Which end of the link.
  package enum End: Sendable {
    /// Accepts connections.
    case store
    /// Opens connections; also the commands of `tidemark` that speak to a store.
    case gateway
  }

  /// Both ends are of this project, so nothing older has to be spoken; and in TLS 1.3 certificates are encrypted too.
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

  /// Reads files for new connections, and takes none of them yet.
  ///
  /// - Throws: as `init` does.
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

  /// Has new connections use what was loaded.
  package func take(_ loaded: TLSContext.Loaded) { context.take(loaded) }

  /// The handler of one connection that was opened.
  ///
  /// - Parameter store: the host as it was configured, a name or an address: the store's certificate has to name it.
  package func clientHandler(store: String) throws(TLSError) -> TLSHandler {
    try TLSHandler(context: context, serverName: store)
  }

  /// The handler of one connection that was accepted.
  ///
  /// - Parameter plaintextRefusal: what a peer is told that sends frames in the clear.
  package func serverHandler(plaintextRefusal: ByteBuffer) throws(TLSError) -> TLSHandler {
    try TLSHandler(context: context, plaintextRefusal: plaintextRefusal)
  }
}
