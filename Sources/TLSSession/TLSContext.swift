internal import COpenSSL
internal import Glibc
internal import Synchronization

/// Application protocol that a connection must negotiate (ALPN, RFC 7301).
package enum TLSApplicationProtocol: Int, Sendable {
  /// HTTP/2, "h2". A handshake without it fails.
  case h2
  /// Server only: HTTP/2 if the client offers it. A client that offers HTTP/1, or nothing, completes its handshake too,
  /// so that it can get an error response. Any other offer fails.
  case h2OrHTTP1
  /// Tidemark's own frames between gateway and store, "tidemark/1". A handshake without it fails.
  case frames
  /// None is offered or required.
  case none

  /// Names that a server accepts, in order of preference.
  var names: [StaticString] {
    switch self {
    case .h2: ["h2"]
    case .h2OrHTTP1: ["h2", "http/1.1", "http/1.0"]
    case .frames: ["tidemark/1"]
    case .none: []
    }
  }

  /// Name that must be negotiated; nil if none is required.
  var required: String? { self == .h2OrHTTP1 ? nil : names.first.map { "\($0)" } }
}

/// TLS version. Older versions are not supported.
package enum TLSVersion: Sendable, Comparable {
  /// TLS 1.2, RFC 5246.
  case v1_2
  /// TLS 1.3, RFC 8446.
  case v1_3

  var number: Int32 { self == .v1_2 ? TLS1_2_VERSION : TLS1_3_VERSION }
}

/// Certificate files and settings of a server.
package struct TLSServerConfiguration: Sendable {
  /// PEM file: the server's certificate first, then the chain.
  package var certificateChainFile: String
  /// PEM file of the key, without a password.
  package var privateKeyFile: String
  /// PEM file of authorities; if set, clients must present a certificate issued by one of them.
  package var clientAuthorityFile: String?
  /// Application protocol that clients must speak.
  package var applicationProtocol: TLSApplicationProtocol
  /// Supported versions.
  package var versions: ClosedRange<TLSVersion> = .v1_2 ... .v1_3
  /// Whether clients may resume sessions; their certificates are then not verified again.
  package var issuesTickets = true

  /// Create the configuration of a server with that certificate.
  package init(
    certificateChainFile: String,
    privateKeyFile: String,
    clientAuthorityFile: String? = nil,
    applicationProtocol: TLSApplicationProtocol = .h2
  ) {
    self.certificateChainFile = certificateChainFile
    self.privateKeyFile = privateKeyFile
    self.clientAuthorityFile = clientAuthorityFile
    self.applicationProtocol = applicationProtocol
  }
}

/// Certificate files and settings of a client. The server's certificate and name are verified.
package struct TLSClientConfiguration: Sendable {
  /// PEM file of the authorities to trust; nil: the system's.
  package var authorityFile: String?
  /// PEM file of the client's own certificate and chain, for mutual TLS.
  package var certificateChainFile: String?
  /// PEM file of its key.
  package var privateKeyFile: String?
  /// Application protocol that the server must speak.
  package var applicationProtocol: TLSApplicationProtocol
  /// Supported versions.
  package var versions: ClosedRange<TLSVersion> = .v1_2 ... .v1_3
  /// Whether the server's certificate is verified. Disable it only for manual inspection of a server, never for a
  /// service.
  package var verifiesServer = true

  /// Create the configuration of a client that trusts those authorities.
  package init(
    authorityFile: String? = nil,
    certificateChainFile: String? = nil,
    privateKeyFile: String? = nil,
    applicationProtocol: TLSApplicationProtocol = .h2
  ) {
    self.authorityFile = authorityFile
    self.certificateChainFile = certificateChainFile
    self.privateKeyFile = privateKeyFile
    self.applicationProtocol = applicationProtocol
  }
}

/// Settings that connections are created from: TLS 1.2 and 1.3, forward-secret AEAD ciphers (RFC 9113 section 9.2.2),
/// session tickets, no renegotiation, no compression. Usable from any thread.
package final class TLSContext: Sendable {
  /// Side of a connection, with its configuration.
  enum Role: Sendable {
    case server(TLSServerConfiguration)
    case client(TLSClientConfiguration)

    var applicationProtocol: TLSApplicationProtocol {
      switch self {
      case .server(let configuration): configuration.applicationProtocol
      case .client(let configuration): configuration.applicationProtocol
      }
    }

    var versions: ClosedRange<TLSVersion> {
      switch self {
      case .server(let configuration): configuration.versions
      case .client(let configuration): configuration.versions
      }
    }

    var isServer: Bool {
      if case .server = self { true } else { false }
    }
  }

  let role: Role
  private let current: Mutex<ContextPointer>
  private let ticketKeys: SessionTicketKeys

  /// Create a server's context. Throws ``TLSError/file(path:reason:)`` or ``TLSError/configuration(reason:)``.
  package convenience init(server configuration: TLSServerConfiguration) throws(TLSError) {
    try self.init(.server(configuration), SessionTicketKeys())
  }

  /// Create a client's context. Throws ``TLSError/file(path:reason:)`` or ``TLSError/configuration(reason:)``.
  package convenience init(client configuration: TLSClientConfiguration) throws(TLSError) {
    try self.init(.client(configuration), SessionTicketKeys())
  }

  init(_ role: Role, _ ticketKeys: SessionTicketKeys) throws(TLSError) {
    self.role = role
    self.ticketKeys = ticketKeys
    current = Mutex(try TLSContext.load(role, ticketKeys))
  }

  /// Files that were read and checked, for ``apply(_:)``.
  package struct Loaded: Sendable {
    fileprivate let pointer: ContextPointer
  }

  /// Read and check a server's files, the same or others, without using them yet. Throws like `init`.
  package func load(server configuration: TLSServerConfiguration) throws(TLSError) -> Loaded {
    precondition(role.isServer, "a server's files for a client")
    return Loaded(pointer: try TLSContext.load(.server(configuration), ticketKeys))
  }

  /// Read and check a client's files without using them yet. Throws like `init`.
  package func load(client configuration: TLSClientConfiguration) throws(TLSError) -> Loaded {
    precondition(!role.isServer, "a client's files for a server")
    return Loaded(pointer: try TLSContext.load(.client(configuration), ticketKeys))
  }

  /// Use loaded files for new connections; existing connections are unchanged, and existing sessions can still be
  /// resumed.
  package func apply(_ loaded: Loaded) {
    current.withLock { $0 = loaded.pointer }
  }

  /// Expiry time of this side's certificate (RFC 5280 section 4.1.2.5), in seconds since 1970; nil without a
  /// certificate.
  package var certificateEnd: Int64? {
    current.withLock { context in
      guard let certificate = SSL_CTX_get0_certificate(context.pointer) else { return nil }
      var end = tm()
      guard ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) == 1 else { return nil }
      return Int64(timegm(&end))
    }
  }

  /// Create an `SSL`, owned by the caller; it retains the `SSL_CTX` that it was created from.
  func makeSSL() throws(TLSError) -> OpaquePointer {
    let made = current.withLock { context in SSL_new(context.pointer).map { NewSSL(pointer: $0) } }
    guard let made else { throw .configuration(reason: OpenSSLErrors.drain().reason) }
    return made.pointer
  }

  /// A pointer that leaves the lock. @unchecked: only the one caller has the pointer.
  private struct NewSSL: @unchecked Sendable {
    let pointer: OpaquePointer
  }

  /// Owner of an `SSL_CTX`. @unchecked: it is not changed after `load`, and OpenSSL locks its internal state.
  final class ContextPointer: @unchecked Sendable {
    let pointer: OpaquePointer
    init(owned pointer: OpaquePointer) { self.pointer = pointer }
    deinit { SSL_CTX_free(pointer) }
  }

  // MARK: Loading

  private static func load(_ role: Role, _ ticketKeys: SessionTicketKeys) throws(TLSError) -> ContextPointer {
    OpenSSLErrors.clear()
    guard let made = SSL_CTX_new(role.isServer ? TLS_server_method() : TLS_client_method()) else {
      throw .configuration(reason: OpenSSLErrors.drain().reason)
    }
    let owner = ContextPointer(owned: made)
    COpenSSL_CTX_set_common_options(made)
    let versions = role.versions
    guard COpenSSL_CTX_set_versions(made, versions.lowerBound.number, versions.upperBound.number) == 1,
      SSL_CTX_set_cipher_list(made, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1, SSL_CTX_set_num_tickets(made, 1) == 1
    else { throw .configuration(reason: OpenSSLErrors.drain().reason) }
    // A key with a password must be a named error, not a prompt on the terminal.
    SSL_CTX_set_default_passwd_cb(made) { _, _, _, _ in -1 }
    switch role {
    case .server(let configuration):
      try setUp(made, configuration)
      if configuration.issuesTickets { try ticketKeys.install(in: made) }
    case .client(let configuration): try setUp(made, configuration)
    }
    return owner
  }

  private static func setUp(_ context: OpaquePointer, _ configuration: TLSServerConfiguration) throws(TLSError) {
    try loadIdentity(context, configuration.certificateChainFile, configuration.privateKeyFile)
    if let file = configuration.clientAuthorityFile {
      try loadAuthorities(context, file)
      SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(file))
      SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nil)
    }
    // Without it, sessions of verified clients cannot be resumed.
    var sessionContext = Array("tidemark".utf8)
    guard SSL_CTX_set_session_id_context(context, &sessionContext, UInt32(sessionContext.count)) == 1 else {
      throw .configuration(reason: OpenSSLErrors.drain().reason)
    }
    if configuration.applicationProtocol != .none {
      let number = UnsafeMutableRawPointer(bitPattern: configuration.applicationProtocol.rawValue)
      SSL_CTX_set_alpn_select_cb(context, selectProtocol, number)
    }
    if !configuration.issuesTickets {
      COpenSSL_CTX_set_no_ticket(context)
      SSL_CTX_set_num_tickets(context, 0)
    }
  }

  private static func setUp(_ context: OpaquePointer, _ configuration: TLSClientConfiguration) throws(TLSError) {
    if let file = configuration.authorityFile {
      try loadAuthorities(context, file)
    } else if SSL_CTX_set_default_verify_paths(context) != 1 {
      throw .configuration(reason: OpenSSLErrors.drain().reason)
    }
    if let chain = configuration.certificateChainFile {
      try loadIdentity(context, chain, configuration.privateKeyFile ?? chain)
    }
    SSL_CTX_set_verify(context, configuration.verifiesServer ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nil)
    if let name = configuration.applicationProtocol.required {
      let offer = [UInt8(name.utf8.count)] + Array(name.utf8)
      // Unlike related functions, this one returns 0 for success.
      guard SSL_CTX_set_alpn_protos(context, offer, UInt32(offer.count)) == 0 else {
        throw .configuration(reason: OpenSSLErrors.drain().reason)
      }
    }
  }

  private static func loadIdentity(_ context: OpaquePointer, _ chain: String, _ key: String) throws(TLSError) {
    try requireNoSpecialFile(chain)
    try requireNoSpecialFile(key)
    OpenSSLErrors.clear()
    guard SSL_CTX_use_certificate_chain_file(context, chain) == 1 else {
      throw .file(path: chain, reason: OpenSSLErrors.drain().reason)
    }
    guard SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1, SSL_CTX_check_private_key(context) == 1
    else {
      var reason = OpenSSLErrors.drain().reason
      if reason == "key values mismatch" { reason = "is not the private key of the certificate \(chain)" }
      throw .file(path: key, reason: reason)
    }
  }

  /// Refuse FIFOs, terminals and the like: OpenSSL would wait for them. It reports other faults itself.
  private static func requireNoSpecialFile(_ path: String) throws(TLSError) {
    var information = stat()
    guard stat(path, &information) == 0 else { return }
    let kind = information.st_mode & S_IFMT
    if kind != S_IFREG && kind != S_IFDIR { throw .file(path: path, reason: "it is not a regular file") }
  }

  private static func loadAuthorities(_ context: OpaquePointer, _ file: String) throws(TLSError) {
    try requireNoSpecialFile(file)
    OpenSSLErrors.clear()
    guard SSL_CTX_load_verify_locations(context, file, nil) == 1 else {
      throw .file(path: file, reason: OpenSSLErrors.drain().reason)
    }
  }
}

/// Choose, in OpenSSL's ALPN callback, the server's first name that is in the client's list of length-prefixed names.
/// Without a match the handshake ends with no_application_protocol. The argument is the protocol's number.
private func selectProtocol(
  _: OpaquePointer?,
  _ out: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
  _ outCount: UnsafeMutablePointer<UInt8>?,
  _ offered: UnsafePointer<UInt8>?,
  _ count: UInt32,
  _ argument: UnsafeMutableRawPointer?
) -> Int32 {
  let names = TLSApplicationProtocol(rawValue: Int(bitPattern: argument))?.names ?? []
  let isChosen = names.contains { select($0, out, outCount, offered, count) }
  return isChosen ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL
}

/// Select a name if the client offers it; returns whether it does.
private func select(
  _ name: StaticString,
  _ out: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
  _ outCount: UnsafeMutablePointer<UInt8>?,
  _ offered: UnsafePointer<UInt8>?,
  _ count: UInt32
) -> Bool {
  guard let offered else { return false }
  var at = 0
  while at < Int(count) {
    let length = Int(offered[at])
    guard at + 1 + length <= Int(count) else { break }
    if length == name.utf8CodeUnitCount, (0..<length).allSatisfy({ offered[at + 1 + $0] == name.utf8Start[$0] }) {
      out?.pointee = offered + at + 1
      outCount?.pointee = UInt8(length)
      return true
    }
    at += 1 + length
  }
  return false
}
