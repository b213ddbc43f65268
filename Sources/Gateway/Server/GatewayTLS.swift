internal import LinkSecurity
internal import Logging
internal import NIOCore
internal import Operations
internal import TLSSession

/// TLS of a gateway: of its listener, and of its connections to the store. Which of them is on does not change; the
/// certificates can be reloaded.
struct GatewayTLS: Sendable {
  /// Certificates that were read and checked, but are not used yet.
  struct Loaded {
    fileprivate var listener: TLSContext.Loaded?
    fileprivate var store: TLSContext.Loaded?
  }

  /// Nil: h2c.
  let listener: TLSContext?
  /// Nil: plaintext.
  let store: LinkTLS?

  /// - Throws: the setting whose files cannot be used.
  init(_ configuration: GatewayConfiguration, logger: Logger) throws(SettingsError) {
    listener = try configuration.tls.map { files throws(SettingsError) in try Self.context(files) }
    store = try configuration.storeTLS.map { files throws(SettingsError) in
      try LinkTLS(files, end: .gateway, logger: logger)
    }
    guard store == nil else { return }
    logger.log(
      level: configuration.stores.allSatisfy(\.isLoopback) ? .notice : .warning,
      """
      no --tls-ca: traffic to the store is not encrypted; \
      anyone on the network path can read and change it
      """,
      metadata: ["store": "\(configuration.stores.map(\.description).joined(separator: ", "))"]
    )
  }

  /// Read and check the files of a reloaded configuration.
  ///
  /// - Throws: the setting whose files cannot be used.
  func load(_ configuration: GatewayConfiguration) throws(SettingsError) -> Loaded {
    var loaded = Loaded()
    if let listener, let files = configuration.tls {
      do { loaded.listener = try listener.load(server: files) } catch { throw Self.listenerError(error) }
    }
    if let store, let files = configuration.storeTLS { loaded.store = try store.load(files) }
    return loaded
  }

  /// Use loaded certificates for new connections.
  func apply(_ loaded: Loaded) {
    if let listener, let loaded = loaded.listener { listener.apply(loaded) }
    if let store, let loaded = loaded.store { store.apply(loaded) }
  }

  private static func context(_ files: TLSServerConfiguration) throws(SettingsError) -> TLSContext {
    do { return try TLSContext(server: files) } catch { throw listenerError(error) }
  }

  private static func listenerError(_ error: TLSError) -> SettingsError {
    SettingsError("tls-cert", "and --tls-key cannot be used: \(error)")
  }

  func collect(into samples: inout MetricSamples) {
    store?.collect(into: &samples, prefix: "tidemark_gateway_store_tls")
    if let end = listener?.certificateEnd {
      samples.gauge(
        "tidemark_gateway_tls_certificate_expires_timestamp_seconds",
        help: "Expiry of the server certificate, in seconds since 1970.",
        Double(end)
      )
    }
  }
}
