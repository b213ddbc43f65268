package import HTTP2Session
package import LinkSecurity
package import Logging
internal import NIOCore
package import Operations
package import TLSSession

/// The configuration of a gateway process.
package struct GatewayConfiguration: Sendable {
  /// The address to serve HTTP/2 at.
  package var listen: Endpoint
  /// TLS files for the listener; nil: HTTP/2 without TLS, by prior knowledge.
  package var tls: TLSServerConfiguration?
  package var stores: [Endpoint]
  /// TLS files for the connections to the store; nil: plaintext.
  package var storeTLS: LinkTLSFiles?
  /// Shared secrets with which store and gateway authenticate each other; empty: no authentication.
  package var storeSecrets: [[UInt8]]
  package var tokenKeys: TokenKeys
  /// Webhook senders whose deliveries are accepted.
  package var hooks: [PushHook] = []
  /// Nil: tickets are neither issued nor accepted.
  package var ticketKeys: TicketKeys?
  package var admin: Endpoint?
  /// Web origins allowed to call the API (CORS).
  package var origins = CrossOrigins()
  /// The console (`--console`).
  package struct Console: Sendable, Hashable {
    /// Whether its sessions may change anything (`--console-writes`).
    package var allowsWrites = false
    /// The stores' `/metrics`, whose figures it draws (`--console-store-metrics`).
    package var storeMetrics: [HTTPURL] = []

    package init(allowsWrites: Bool = false, storeMetrics: [HTTPURL] = []) {
      self.allowsWrites = allowsWrites
      self.storeMetrics = storeMetrics
    }

    /// Nil: the gateway has no console.
    init?(_ settings: Settings) throws(SettingsError) {
      let urls = try settings.list("console-store-metrics")
      guard try settings.flag("console") else {
        for key in ["console-writes", "console-store-metrics"] where try settings.string(key) != nil {
          throw SettingsError(key, "needs --console, which serves the console")
        }
        return nil
      }
      allowsWrites = try settings.flag("console-writes")
      for text in urls {
        guard let url = HTTPURL(text), !url.usesTLS else {
          throw SettingsError(
            "console-store-metrics",
            "\(text): give the http://HOST:PORT/metrics of a store's --admin"
          )
        }
        storeMetrics.append(url)
      }
    }
  }

  /// Nil: there is no console.
  package var console: Console?
  /// What the demo page may use; nil: there is no demo page.
  package var demo: DemoSession?
  /// Number of event loops. Each has a thread, its own client connections and its own connection to the store.
  package var loopCount: Int
  package var logLevel: Logger.Level
  package var limits = GatewayLimits()
  package var connections: ConnectionLimits
  package var rates = RateLimits()
  /// Whether trusted proxies begin each connection with a PROXY header.
  package var takesProxyHeaders = false
  package var http2 = HTTP2Limits()
  /// Memory limit for requests and answers, in bytes, over all event loops.
  private var memoryByteCount = HTTP2Limits().memoryBytesMax

  package init(listen: Endpoint, stores: [Endpoint], tokenKeys: TokenKeys) {
    self.listen = listen
    self.stores = stores
    self.storeSecrets = []
    self.tokenKeys = tokenKeys
    self.loopCount = 1
    self.logLevel = .info
    self.connections = Self.connectionLimits(total: Self.connectionsDefault, memoryByteCount: memoryByteCount)
    // Request headers that routes read by name.
    http2.retainedHeaders = [
      "if-none-match", "accept-encoding", "access-control-request-method", "webhook-id", "webhook-timestamp",
      "webhook-signature",
    ]
  }

  /// Give each event loop its share of the memory for requests and answers.
  mutating func divideMemory(among loops: Int) {
    let defaults = HTTP2Limits()
    http2.memoryBytesMax = memoryByteCount / loops
    http2.connectionMemoryBytesMax = min(defaults.connectionMemoryBytesMax, http2.memoryBytesMax / 4)
    http2.unauthenticatedMemoryBytesMax = min(defaults.unauthenticatedMemoryBytesMax, http2.memoryBytesMax / 16)
  }

  /// Half of the processors; the other half is left to the store, the kernel and other processes.
  package static var defaultLoopCount: Int { max(1, System.coreCount / 2) }

  private static let connectionsDefault = 100_000

  /// Memory in bytes that one connection costs at most beside what it holds of the budget: 56 KiB were measured, of
  /// which 36 KiB are a full HPACK table of HTTP/2's 4,096 bytes. A smaller table would bind only peers that
  /// acknowledge the setting, and breaks some clients (RFC 9113 section 4.3.1).
  private static let connectionByteCount = 64 * 1024

  /// Return the limits that follow from the total and the memory for requests and answers. One address gets at most a
  /// tenth of the connections, enough for a large office behind one address. Connections that have shown no valid token
  /// get at most a quarter, and at most as many as fit into a quarter of the memory. At least 1,024 of them are
  /// allowed, so that clients that all come back at once do not end each other's handshakes.
  package static func connectionLimits(total: Int, memoryByteCount: Int) -> ConnectionLimits {
    let fitting = max(1_024, memoryByteCount / 4 / connectionByteCount)
    return ConnectionLimits(
      total: total,
      perAddress: max(1, total / 10),
      unauthenticated: max(1, min(total / 4, fitting))
    )
  }

  private static func connectionLimits(
    _ settings: Settings,
    memoryByteCount: Int
  ) throws(SettingsError) -> ConnectionLimits {
    let descriptors = DescriptorLimit.forConnections(of: DescriptorLimit.raise())
    let range = 1...1_000_000
    var limits = connectionLimits(
      total: min(try settings.integer("connections", in: range) ?? connectionsDefault, descriptors),
      memoryByteCount: memoryByteCount
    )
    let texts = try settings.list("trusted-proxies")
    limits.trusted = try texts.map { text throws(SettingsError) in
      guard let range = AddressRange(text) else {
        throw SettingsError("trusted-proxies", "\"\(text)\": give an address, or a range such as 10.0.0.0/8")
      }
      return range
    }
    if let perAddress = try settings.integer("connections-per-address", in: range) {
      limits.perAddress = perAddress
    } else {
      // A peer on this machine is usually a reverse proxy, or an operator testing.
      limits.countsLoopback = false
    }
    return limits
  }

  private static func rates(_ settings: Settings) throws(SettingsError) -> RateLimits {
    let range = 1...1_000_000
    return RateLimits(
      user: try settings.integer("rate-user", in: range),
      server: try settings.integer("rate-server", in: range),
      address: try settings.integer("rate-address", in: range)
    )
  }

  /// All settings. A key names the flag, the environment variable and the file key alike.
  package static let keys: Set<String> = [
    "listen", "tls-cert", "tls-key", "h2c", "store", "tls-ca", "store-tls-cert", "store-tls-key",
    "secret-file", "jwt-secret-file", "jwks-file",
    "jwt-issuer", "jwt-audience", "jwt-max-age", "jwt-require-exp",
    "ticket-secret-file", "hooks-file", "demo-file", "console", "console-writes", "console-store-metrics", "admin",
    "proxy-protocol",
    "cors-origin", "loops", "config",
    "connections", "connections-per-address", "trusted-proxies", "gateway-memory", "rate-user", "rate-server",
    "rate-address",
    "log-level",
  ]

  /// Settings that restrict what callers may do: empty, they would lift the restriction.
  package static let restrictions: Set<String> = [
    "secret-file", "tls-ca", "tls-cert", "tls-key", "store-tls-cert", "store-tls-key", "ticket-secret-file",
    "hooks-file", "jwks-file", "jwt-issuer", "jwt-audience", "jwt-max-age", "jwt-require-exp",
    "trusted-proxies", "proxy-protocol", "connections", "connections-per-address", "gateway-memory",
    "rate-user", "rate-server", "rate-address",
  ]

  /// Settings that a running gateway can reload (``GatewayServer/reload(_:)``): secrets, certificates and limits. A
  /// change of any other setting needs a restart.
  package static let reloadedKeys: Set<String> = [
    "tls-cert", "tls-key", "tls-ca", "store-tls-cert", "store-tls-key", "secret-file", "jwt-secret-file",
    "jwks-file", "jwt-issuer", "jwt-audience", "jwt-max-age", "jwt-require-exp", "ticket-secret-file",
    "hooks-file", "connections", "connections-per-address", "trusted-proxies", "gateway-memory", "log-level",
    "rate-user", "rate-server", "rate-address",
  ]

  /// Settings whose value is a file's path.
  private static let fileKeys = [
    "config", "tls-cert", "tls-key", "tls-ca", "store-tls-cert", "store-tls-key", "secret-file",
    "jwt-secret-file", "jwks-file", "ticket-secret-file", "hooks-file", "demo-file",
  ]

  /// Return the files that settings name. Files that the hooks file names in turn are in ``PushHook/secretFiles``.
  package static func files(_ settings: Settings) -> [String] { settings.files(fileKeys) }

  /// Read and check the settings and the files that they name.
  ///
  /// - Parameter warn: called with each warning to log.
  package init(_ settings: Settings, warn: (String) -> Void) throws(SettingsError) {
    guard let listen = try settings.endpoint("listen") else {
      throw SettingsError("listen", "is missing: give the HOST:PORT to serve HTTP/2 at")
    }
    let stores = try settings.endpoints("store")
    guard !stores.isEmpty else {
      throw SettingsError("store", "is missing: give the HOST:PORT of the store, or several with commas")
    }
    self.init(listen: listen, stores: stores, tokenKeys: try Self.tokenKeys(settings, warn))
    storeTLS = try Self.storeTLS(settings)
    tls = try Self.tls(settings, isAlsoForStore: storeTLS?.certificate.key == "tls-cert")
    if let path = try settings.string("secret-file") {
      storeSecrets = try SecretFile.load(path, key: "secret-file", byteCountMin: 16, warn: warn).all
    } else {
      let addresses = stores.map(\.description).joined(separator: ", ")
      warn("no --secret-file: any process at this address is trusted as the store: \(addresses)")
    }
    admin = try settings.endpoint("admin")
    loopCount = try settings.integer("loops", in: 1...256) ?? Self.defaultLoopCount
    logLevel = try ProcessRunner.logLevel(settings)
    memoryByteCount =
      try settings.byteCount("gateway-memory", in: 16 << 20...1 << 50) ?? min(AvailableMemory.byteCount / 4, 2 << 30)
    divideMemory(among: loopCount)
    connections = try Self.connectionLimits(settings, memoryByteCount: memoryByteCount)
    rates = try Self.rates(settings)
    takesProxyHeaders = try settings.flag("proxy-protocol")
    guard !takesProxyHeaders || !connections.trusted.isEmpty else {
      throw SettingsError(
        "proxy-protocol",
        "needs --trusted-proxies with the addresses whose connections begin with a PROXY header"
      )
    }
    origins = try CrossOrigins(try settings.list("cors-origin"))
    if let path = try settings.string("demo-file") { demo = try DemoSession(path: path, warn: warn) }
    console = try Console(settings)
    if console != nil { http2.retainedHeaders?.append(contentsOf: ["cookie", "sec-fetch-site"]) }
    if let path = try settings.string("hooks-file") { hooks = try HookConfiguration.load(path, warn: warn) }
    if let path = try settings.string("ticket-secret-file") {
      let byteCountMin = TicketKeys.secretByteCountMin
      let secrets = try SecretFile.load(path, key: "ticket-secret-file", byteCountMin: byteCountMin, warn: warn)
      ticketKeys = TicketKeys(secrets: secrets.all)
    } else if hooks.contains(where: { $0.mapping.ticket != nil }) {
      warn("--hooks-file without --ticket-secret-file: deliveries by ticket are answered 501")
    }
  }

  /// Return the TLS configuration for the store, enabled by `--tls-ca`. The gateway identifies itself with
  /// `--store-tls-cert`, or else with its server certificate.
  private static func storeTLS(_ settings: Settings) throws(SettingsError) -> LinkTLSFiles? {
    let own = (certificate: try settings.string("store-tls-cert"), key: try settings.string("store-tls-key"))
    guard let authority = try settings.string("tls-ca") else {
      for (key, value) in [("store-tls-cert", own.certificate), ("store-tls-key", own.key)] where value != nil {
        throw SettingsError(key, "is for TLS with the store: give --tls-ca, the authority of its certificate")
      }
      return nil
    }
    let prefix = own.certificate == nil && own.key == nil ? "" : "store-"
    let (certificateKey, privateKeyKey) = ("\(prefix)tls-cert", "\(prefix)tls-key")
    let purpose = "is missing: with --tls-ca the store asks for this gateway's certificate"
    guard let certificate = try settings.string(certificateKey) else {
      throw SettingsError(certificateKey, "\(purpose); give --\(certificateKey) and --\(privateKeyKey)")
    }
    guard let key = try settings.string(privateKeyKey) else {
      throw SettingsError(privateKeyKey, "is missing: --\(certificateKey) needs its private key")
    }
    return LinkTLSFiles(
      certificate: LinkTLSFiles.File(certificate, key: certificateKey),
      privateKey: LinkTLSFiles.File(key, key: privateKeyKey),
      authority: LinkTLSFiles.File(authority, key: "tls-ca")
    )
  }

  /// - Parameter isAlsoForStore: whether the gateway also shows this certificate to the store. It may then be given
  ///   together with `--h2c`.
  private static func tls(_ settings: Settings, isAlsoForStore: Bool) throws(SettingsError) -> TLSServerConfiguration? {
    let certificate = try settings.string("tls-cert")
    let key = try settings.string("tls-key")
    let isPlain = try settings.flag("h2c")
    switch (certificate, key) {
    case (nil, nil):
      guard isPlain else {
        throw SettingsError("tls-cert", "and --tls-key are missing: give both, or --h2c to serve without TLS")
      }
      return nil
    case (_?, _?) where isPlain && isAlsoForStore: return nil
    case (let certificate?, let key?):
      guard !isPlain else {
        throw SettingsError("h2c", "serves without TLS and --tls-cert with it: give one of them")
      }
      return TLSServerConfiguration(
        certificateChainFile: certificate,
        privateKeyFile: key,
        applicationProtocol: .h2OrHTTP1
      )
    case (nil, _): throw SettingsError("tls-cert", "is missing: --tls-key needs the certificate that it belongs to")
    case (_, nil): throw SettingsError("tls-key", "is missing: --tls-cert needs its private key")
    }
  }

  private static func tokenKeys(_ settings: Settings, _ warn: (String) -> Void) throws(SettingsError) -> TokenKeys {
    var keys = TokenKeys()
    if let path = try settings.string("jwt-secret-file") {
      keys.secrets = try SecretFile.load(path, key: "jwt-secret-file", byteCountMin: 32, warn: warn).all
    }
    if let path = try settings.string("jwks-file") {
      // A key set holds public keys only, so its file may be world-readable.
      let bytes = try SecretFile.bytes(path, key: "jwks-file") { _ in }
      keys.keySet = String(decoding: bytes, as: UTF8.self)
    }
    guard !keys.secrets.isEmpty || keys.keySet != nil else {
      throw SettingsError(
        "jwt-secret-file",
        "is missing: give the file with the secret of HS256 tokens, or --jwks-file with public keys"
      )
    }
    keys.policy.issuers = try settings.list("jwt-issuer")
    keys.policy.audiences = try settings.list("jwt-audience")
    // From one second to ten years of 365 days.
    keys.policy.secondsMax = try settings.milliseconds("jwt-max-age", in: 1_000...315_360_000_000)
      .map { Double($0) / 1_000 }
    keys.policy.requiresExpiry = try settings.flag("jwt-require-exp")
    return keys
  }
}
