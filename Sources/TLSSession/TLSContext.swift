internal import COpenSSL
internal import Synchronization

/// What application protocol a connection has to agree on (ALPN, RFC 7301).
package enum TLSApplicationProtocol: Sendable {
  /// HTTP/2, "h2". A handshake without it fails.
  case h2
  /// Of a server: HTTP/2 where the client offers it. A client that offers HTTP/1, or nothing, gets its handshake, so
  /// that it can be told; any other offer fails.
  case h2OrHTTP1
  /// Tidemark's own frames between gateway and store, "tidemark/1". A handshake without it fails.
  case frames
  /// None is offered or asked for.
  case none

  /// The name that has to be agreed on; nil where a handshake may do without.
  var required: String? {
    switch self {
    case .h2: "h2"
    case .frames: "tidemark/1"
    case .h2OrHTTP1, .none: nil
    }
  }
}

/// A version of TLS. Older ones are not spoken at all.
package enum TLSVersion: Sendable, Comparable {
  /// TLS 1.2, RFC 5246.
  case v1_2
  /// TLS 1.3, RFC 8446.
  case v1_3

  var number: Int32 { self == .v1_2 ? TLS1_2_VERSION : TLS1_3_VERSION }
}

/// A server's files and rules.
package struct TLSServerConfiguration: Sendable {
  /// PEM file: the server's certificate first, then the chain.
  package var certificateChainFile: String
  /// PEM file of the key, without a password.
  package var privateKeyFile: String
  /// PEM file of authorities; if set, clients must show a certificate by one of them.
  package var clientAuthorityFile: String?
  /// What clients have to speak.
  package var applicationProtocol: TLSApplicationProtocol
  /// Versions that are spoken.
  package var versions: ClosedRange<TLSVersion> = .v1_2 ... .v1_3
  /// Whether clients may resume sessions; then their certificates are not verified again.
  package var issuesTickets = true

  /// A server with that certificate.
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

/// A client's files and rules. The server's certificate and name are verified.
package struct TLSClientConfiguration: Sendable {
  /// PEM file of the authorities to trust; nil for the system's.
  package var authorityFile: String?
  /// PEM file of the client's own certificate and chain, for mutual TLS.
  package var certificateChainFile: String?
  /// PEM file of its key.
  package var privateKeyFile: String?
  /// What the server has to speak.
  package var applicationProtocol: TLSApplicationProtocol
  /// Versions that are spoken.
  package var versions: ClosedRange<TLSVersion> = .v1_2 ... .v1_3
  /// False: whoever answers is spoken to. For a person who looks at a server by hand, never for a service.
  package var verifiesServer = true

  /// A client that trusts those authorities.
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

/// Settings that connections are made from: TLS 1.2 and 1.3, forward-secret AEAD ciphers (RFC 9113 section
/// 9.2.2), session tickets, no renegotiation, no compression. Usable from any thread.
package final class TLSContext: Sendable {
  /// Which side of a connection this is, with its configuration.
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

  /// A server's context. Throws ``TLSError/file(path:reason:)`` or ``TLSError/configuration(reason:)``.
  package convenience init(server configuration: TLSServerConfiguration) throws(TLSError) {
    try self.init(.server(configuration), SessionTicketKeys())
  }

  /// A client's context. Throws ``TLSError/file(path:reason:)`` or ``TLSError/configuration(reason:)``.
  package convenience init(client configuration: TLSClientConfiguration) throws(TLSError) {
    try self.init(.client(configuration), SessionTicketKeys())
  }

  init(_ role: Role, _ ticketKeys: SessionTicketKeys) throws(TLSError) {
    self.role = role
    self.ticketKeys = ticketKeys
    current = Mutex(try TLSContext.load(role, ticketKeys))
  }

  /// Files that were read and checked, for ``take(_:)``.
  package struct Loaded: Sendable {
    fileprivate let pointer: ContextPointer
  }

  /// Reads a server's files, the same ones anew or others, and takes none of them. Throws as `init` does.
  package func load(server configuration: TLSServerConfiguration) throws(TLSError) -> Loaded {
    precondition(role.isServer, "a server's files for a client")
    return Loaded(pointer: try TLSContext.load(.server(configuration), ticketKeys))
  }

  /// The same for a client.
  package func load(client configuration: TLSClientConfiguration) throws(TLSError) -> Loaded {
    precondition(!role.isServer, "a client's files for a server")
    return Loaded(pointer: try TLSContext.load(.client(configuration), ticketKeys))
  }

  /// Has new connections use what was loaded; existing ones stay as they are. Sessions from before are resumed.
  package func take(_ loaded: Loaded) {
    current.withLock { $0 = loaded.pointer }
  }

  /// A new `SSL`, owned by the caller; it keeps the `SSL_CTX` that it was made from.
  func makeSSL() throws(TLSError) -> OpaquePointer {
    let made = current.withLock { context in SSL_new(context.pointer).map { NewSSL(pointer: $0) } }
    guard let made else { throw .configuration(reason: OpenSSLErrors.take().reason) }
    return made.pointer
  }

  /// Carries a pointer out of the lock; it belongs to the one caller. @unchecked: nothing else has it.
  private struct NewSSL: @unchecked Sendable {
    let pointer: OpaquePointer
  }

  /// Owns an `SSL_CTX`. @unchecked: it is not changed after `load`, and OpenSSL locks what it does inside.
  final class ContextPointer: @unchecked Sendable {
    let pointer: OpaquePointer
    init(owned pointer: OpaquePointer) { self.pointer = pointer }
    deinit { SSL_CTX_free(pointer) }
  }

  // MARK: Loading

  private static func load(_ role: Role, _ ticketKeys: SessionTicketKeys) throws(TLSError) -> ContextPointer {
    OpenSSLErrors.clear()
    guard let made = SSL_CTX_new(role.isServer ? TLS_server_method() : TLS_client_method()) else {
      throw .configuration(reason: OpenSSLErrors.take().reason)
    }
    let owner = ContextPointer(owned: made)
    COpenSSL_CTX_set_common_options(made)
    let versions = role.versions
    guard COpenSSL_CTX_set_versions(made, versions.lowerBound.number, versions.upperBound.number) == 1,
      SSL_CTX_set_cipher_list(made, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1,
      SSL_CTX_set_num_tickets(made, 1) == 1
    else { throw .configuration(reason: OpenSSLErrors.take().reason) }
    // A key with a password is an error to be named, not a question on the terminal.
    SSL_CTX_set_default_passwd_cb(made) { _, _, _, _ in -1 }
    switch role {
    case .server(let configuration):
      try setUp(made, configuration)
      if configuration.issuesTickets { try ticketKeys.install(in: made) }
    case .client(let configuration): try setUp(made, configuration)
    }
    return owner
  }

  private static func setUp(_ context: OpaquePointer, _ configuration: TLSServerConfiguration)
    throws(TLSError)
  {
    try loadIdentity(context, configuration.certificateChainFile, configuration.privateKeyFile)
    if let file = configuration.clientAuthorityFile {
      try loadAuthorities(context, file)
      SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(file))
      SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nil)
    }
    // Without it sessions of verified clients cannot be resumed.
    var sessionContext = Array("tidemark".utf8)
    guard SSL_CTX_set_session_id_context(context, &sessionContext, UInt32(sessionContext.count)) == 1 else {
      throw .configuration(reason: OpenSSLErrors.take().reason)
    }
    switch configuration.applicationProtocol {
    case .h2: SSL_CTX_set_alpn_select_cb(context, selectH2, nil)
    case .h2OrHTTP1: SSL_CTX_set_alpn_select_cb(context, selectH2OrHTTP1, nil)
    case .frames: SSL_CTX_set_alpn_select_cb(context, selectFrames, nil)
    case .none: break
    }
    if !configuration.issuesTickets {
      COpenSSL_CTX_set_no_ticket(context)
      SSL_CTX_set_num_tickets(context, 0)
    }
  }

  private static func setUp(_ context: OpaquePointer, _ configuration: TLSClientConfiguration)
    throws(TLSError)
  {
    if let file = configuration.authorityFile {
      try loadAuthorities(context, file)
    } else if SSL_CTX_set_default_verify_paths(context) != 1 {
      throw .configuration(reason: OpenSSLErrors.take().reason)
    }
    if let chain = configuration.certificateChainFile {
      try loadIdentity(context, chain, configuration.privateKeyFile ?? chain)
    }
    SSL_CTX_set_verify(context, configuration.verifiesServer ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nil)
    if let name = configuration.applicationProtocol.required {
      let offer = [UInt8(name.utf8.count)] + Array(name.utf8)
      // Unlike its relatives, 0 is success.
      guard SSL_CTX_set_alpn_protos(context, offer, UInt32(offer.count)) == 0 else {
        throw .configuration(reason: OpenSSLErrors.take().reason)
      }
    }
  }

  private static func loadIdentity(_ context: OpaquePointer, _ chain: String, _ key: String) throws(TLSError)
  {
    OpenSSLErrors.clear()
    guard SSL_CTX_use_certificate_chain_file(context, chain) == 1 else {
      throw .file(path: chain, reason: OpenSSLErrors.take().reason)
    }
    guard SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1 else {
      throw .file(path: key, reason: OpenSSLErrors.take().reason)
    }
    guard SSL_CTX_check_private_key(context) == 1 else {
      throw .file(path: key, reason: OpenSSLErrors.take().reason)
    }
  }

  private static func loadAuthorities(_ context: OpaquePointer, _ file: String) throws(TLSError) {
    OpenSSLErrors.clear()
    guard SSL_CTX_load_verify_locations(context, file, nil) == 1 else {
      throw .file(path: file, reason: OpenSSLErrors.take().reason)
    }
  }
}

/// Chooses "h2" from the client's list of length-prefixed names, or ends the handshake with
/// no_application_protocol.
private func selectH2(
  _: OpaquePointer?,
  _ out: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
  _ outCount: UnsafeMutablePointer<UInt8>?,
  _ offered: UnsafePointer<UInt8>?,
  _ count: UInt32,
  _: UnsafeMutableRawPointer?
) -> Int32 {
  select("h2", out, outCount, offered, count) ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL
}

/// The same for the frames between gateway and store.
private func selectFrames(
  _: OpaquePointer?,
  _ out: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
  _ outCount: UnsafeMutablePointer<UInt8>?,
  _ offered: UnsafePointer<UInt8>?,
  _ count: UInt32,
  _: UnsafeMutableRawPointer?
) -> Int32 {
  select("tidemark/1", out, outCount, offered, count) ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL
}

/// The same as ``selectH2``, or a version of HTTP/1.
private func selectH2OrHTTP1(
  _: OpaquePointer?,
  _ out: UnsafeMutablePointer<UnsafePointer<UInt8>?>?,
  _ outCount: UnsafeMutablePointer<UInt8>?,
  _ offered: UnsafePointer<UInt8>?,
  _ count: UInt32,
  _: UnsafeMutableRawPointer?
) -> Int32 {
  select("h2", out, outCount, offered, count) || select("http/1.1", out, outCount, offered, count)
    || select("http/1.0", out, outCount, offered, count) ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL
}

/// Whether a name is among those that the client offers; it is chosen then.
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
    if length == name.utf8CodeUnitCount,
      (0..<length).allSatisfy({ offered[at + 1 + $0] == name.utf8Start[$0] })
    {
      out?.pointee = offered + at + 1
      outCount?.pointee = UInt8(length)
      return true
    }
    at += 1 + length
  }
  return false
}
