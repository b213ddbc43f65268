import COpenSSL
import NIOCore
import Testing

@testable import TLSSession

@Suite("TLS connections in memory")
struct TLSConnectionTests {
  private static let large = ByteBuffer(
    bytes: (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }
  )

  @Test(
    "handshake, data and close_notify in both directions",
    arguments: [TLSVersion.v1_2, .v1_3],
    [Int.max, 1_000, 1]
  )
  func bothSidesExchangeDataAndClose(_ version: TLSVersion, _ pieceBytes: Int) throws {
    let pair = try Loopback(
      client: Contexts.client(versions: version...version),
      server: Contexts.server(),
      pieceBytes: pieceBytes
    )
    pair.run()
    try #require(pair.isEstablished, "\(pair.clientError as Any) \(pair.serverError as Any)")
    #expect(pair.server.negotiatedProtocol == "h2" && pair.client.negotiatedProtocol == "h2")
    #expect(pair.server.version == (version == .v1_2 ? "TLSv1.2" : "TLSv1.3"))
    #expect(pair.client.cipher.contains("GCM") || pair.client.cipher.contains("CHACHA20"))

    let text = pieceBytes == 1 ? ByteBuffer(repeating: 7, count: 20_000) : TLSConnectionTests.large
    try pair.client.write(ByteBuffer(string: "hello "))
    try pair.client.write(text)
    try pair.server.write(text)
    pair.run()
    #expect(pair.serverRead == ByteBuffer(string: "hello ") + text)
    #expect(pair.clientRead == text)

    pair.server.close()
    pair.server.close()
    pair.run()
    #expect(pair.client.peerHasClosed && !pair.server.peerHasClosed)
    // A half-closed connection still carries the other direction.
    try pair.client.write(ByteBuffer(string: "bye"))
    pair.client.close()
    pair.run()
    #expect(pair.server.peerHasClosed)
    #expect(throws: TLSError.closed) { try pair.server.write(text) }
    #expect(pair.clientError == nil && pair.serverError == nil)
  }

  @Test("without a common version the handshake fails")
  func withoutCommonVersionHandshakeFails() throws {
    let pair = try Loopback(
      client: Contexts.client(versions: .v1_2 ... .v1_2),
      server: Contexts.server(versions: .v1_3 ... .v1_3)
    )
    pair.run()
    #expect(pair.serverError == .handshake(reason: "unsupported protocol"))
    #expect(pair.clientError == .alert(reason: "tlsv1 alert protocol version"))
  }

  @Test("ALPN: a missing offer or match fails the handshake, unless ALPN is optional")
  func missingApplicationProtocolFailsHandshake() throws {
    let clientWithoutALPN = try Loopback(
      client: Contexts.client(applicationProtocol: .none),
      server: Contexts.server()
    )
    clientWithoutALPN.run()
    #expect(clientWithoutALPN.serverError == .noApplicationProtocol)
    let serverWithoutALPN = try Loopback(
      client: Contexts.client(),
      server: Contexts.server(applicationProtocol: .none)
    )
    serverWithoutALPN.run()
    #expect(serverWithoutALPN.clientError == .noApplicationProtocol)
    let both = try Loopback(
      client: Contexts.client(applicationProtocol: .none),
      server: Contexts.server(applicationProtocol: .none)
    )
    both.run()
    #expect(both.isEstablished && both.server.negotiatedProtocol == nil)
    // A server that also accepts HTTP/1 clients, to answer them: h2 where it is offered, otherwise no ALPN.
    let modern = try Loopback(
      client: Contexts.client(),
      server: Contexts.server(applicationProtocol: .h2OrHTTP1)
    )
    modern.run()
    #expect(modern.isEstablished && modern.server.negotiatedProtocol == "h2")
    let old = try Loopback(
      client: Contexts.client(applicationProtocol: .none),
      server: Contexts.server(applicationProtocol: .h2OrHTTP1)
    )
    old.run()
    #expect(old.isEstablished && old.server.negotiatedProtocol == nil)
  }

  @Test(
    "a client refuses invalid certificates",
    arguments: [
      ("server", "other-ca", "localhost", "unable to get local issuer certificate"),
      ("expired", "ca", "localhost", "certificate has expired"),
      ("server", "ca", "example.org", "hostname mismatch"),
      ("server", "ca", "127.0.0.2", "IP address mismatch"),
    ]
  )
  func clientRefusesInvalidCertificates(
    _ server: String,
    _ authority: String,
    _ name: String,
    _ reason: String
  ) throws {
    let pair = try Loopback(
      client: Contexts.client(authority: authority),
      server: Contexts.server(server),
      serverName: name
    )
    pair.run()
    #expect(pair.clientError == .certificate(reason: reason))
    #expect(!pair.client.isEstablished)
    guard case .alert = pair.serverError else {
      Issue.record("the server got no alert: \(pair.serverError as Any)")
      return
    }
  }

  @Test("a client accepts the certificate's names", arguments: ["localhost", "127.0.0.1"])
  func clientAcceptsCertificateNames(_ name: String) throws {
    let pair = try Loopback(client: Contexts.client(), server: Contexts.server(), serverName: name)
    pair.run()
    #expect(pair.isEstablished, "\(pair.clientError as Any)")
  }

  @Test("the frame protocol's ALPN: server and client refuse any other")
  func frameProtocolRefusesOtherALPN() throws {
    for (client, server, works) in [
      (TLSApplicationProtocol.frames, TLSApplicationProtocol.frames, true), (.h2, .frames, false),
      (.frames, .h2, false), (.none, .frames, false), (.frames, .none, false),
    ] {
      let pair = try Loopback(
        client: Contexts.client(applicationProtocol: client),
        server: Contexts.server(applicationProtocol: server)
      )
      pair.run()
      #expect(pair.isEstablished == works, "\(client) \(server)")
      if works { continue }
      #expect([pair.clientError, pair.serverError].contains(.noApplicationProtocol), "\(client) \(server)")
    }
  }

  @Test("mutual TLS: with, without and with a foreign certificate", arguments: [TLSVersion.v1_2, .v1_3])
  func mutualTLSRefusesMissingAndForeignCertificates(_ version: TLSVersion) throws {
    for (certificate, works) in [("client", true), (nil, false), ("other", false)] {
      let pair = try Loopback(
        client: Contexts.client(certificate: certificate, versions: version...version),
        server: Contexts.server(clientAuthority: "ca")
      )
      pair.run()
      #expect(pair.server.isEstablished == works, "\(certificate ?? "none")")
      if works { continue }
      switch pair.serverError {
      case .noPeerCertificate: #expect(certificate == nil)
      case .certificate("unable to get local issuer certificate"): #expect(certificate == "other")
      default: Issue.record("\(pair.serverError as Any)")
      }
      #expect(pair.clientError != nil)
    }
  }

  @Test(
    "bytes that are not TLS fail the handshake",
    arguments: [
      "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\u{16}\u{3}\u{1}garbage beyond help",
    ]
  )
  func bytesThatAreNotTLSFailHandshake(_ text: String) throws {
    let server = try TLSConnection(context: Contexts.server())
    server.consume(ByteBuffer(string: text + String(repeating: "x", count: 30_000)))
    #expect { try server.handshake() } throws: { error in
      switch error as? TLSError {
      case .notTLS: !text.hasPrefix("\u{16}")
      case .handshake(let reason): text.hasPrefix("\u{16}") && !reason.isEmpty
      default: false
      }
    }
    #expect(throws: TLSError.closed) { try server.handshake() }
  }

  @Test("a damaged record fails the connection")
  func damagedRecordFailsConnection() throws {
    let pair = try Loopback(client: Contexts.client(), server: Contexts.server())
    pair.run()
    try pair.client.write(ByteBuffer(string: "secret"))
    var bytes = try #require(pair.client.takeOutput())
    bytes.setInteger(
      bytes.getInteger(at: bytes.writerIndex - 1, as: UInt8.self)! ^ 1,
      at: bytes.writerIndex - 1
    )
    pair.server.consume(bytes)
    var plaintext = ByteBuffer()
    #expect(throws: TLSError.record(reason: "decryption failed or bad record mac")) {
      try pair.server.read(into: &plaintext)
    }
    #expect(plaintext.readableBytes == 0)
    #expect(pair.server.takeOutput() != nil)  // The alert.
  }

  @Test("key updates: some are accepted, more with more data, a flood ends the connection")
  func floodOfKeyUpdatesEndsConnection() throws {
    let pair = try Loopback(
      client: Contexts.client(versions: .v1_3 ... .v1_3),
      server: Contexts.server()
    )
    pair.run()
    func update(_ count: Int) throws {
      for _ in 0..<count {
        #expect(SSL_key_update(pair.client.ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
        try pair.client.write(ByteBuffer(string: "x"))
        pair.run()
      }
    }
    try update(30)
    #expect(pair.serverRead.readableBytes == 30)
    #expect(pair.serverError == nil)
    for _ in 0..<5 { try pair.client.write(TLSConnectionTests.large) }
    pair.run()
    try update(6)
    #expect(pair.serverError == nil)
    try? update(10)
    #expect(pair.serverError == .tooManyKeyUpdates)
  }

  @Test("an end without close_notify is an error, during the handshake and after")
  func endWithoutCloseNotifyIsError() throws {
    let early = try TLSConnection(context: Contexts.server())
    early.consumeEnd()
    #expect(throws: TLSError.truncated) { try early.handshake() }
    let pair = try Loopback(client: Contexts.client(), server: Contexts.server())
    pair.run()
    try pair.client.write(ByteBuffer(string: "half"))
    pair.run()
    pair.server.consumeEnd()
    var plaintext = ByteBuffer()
    #expect(throws: TLSError.truncated) { try pair.server.read(into: &plaintext) }
    #expect(pair.serverRead == ByteBuffer(string: "half"))
  }
}

@Suite("TLS files")
struct TLSFileTests {
  @Test(
    "an unusable file is named with the reason",
    arguments: [
      ("missing.pem", "server.key", "missing.pem", "No such file or directory"),
      ("server.pem", "missing.key", "missing.key", "No such file or directory"),
      ("garbage.pem", "server.key", "garbage.pem", "no start line"),
      ("server.pem", "garbage.pem", "garbage.pem", "unsupported"),
      ("server.pem", "other.key", "other.key", "is not the private key of the certificate"),
      ("server.pem", "locked.key", "locked.key", ""),
    ]
  )
  func unusableFileIsNamedWithReason(_ chain: String, _ key: String, _ named: String, _ reason: String) throws {
    let files = Certificates.shared
    #expect {
      try TLSContext(
        server: TLSServerConfiguration(
          certificateChainFile: files.path(chain),
          privateKeyFile: files.path(key)
        )
      )
    } throws: { error in
      guard case .file(let path, let text) = error as? TLSError else { return false }
      return path == files.path(named) && (reason.isEmpty ? !text.isEmpty : text.hasPrefix(reason))
    }
  }

  @Test("unreadable authorities are named")
  func unreadableAuthoritiesAreNamed() throws {
    let path = Certificates.shared.path("nowhere.pem")
    #expect(throws: TLSError.file(path: path, reason: "No such file or directory")) {
      try TLSContext(client: TLSClientConfiguration(authorityFile: path))
    }
  }

  @Test("reload: new connections get the new certificate, a failed reload keeps the old one")
  func newConnectionsGetNewCertificate() throws {
    let files = Certificates.shared
    try files.copy("server.pem", "live.pem")
    try files.copy("server.key", "live.key")
    let server = try Contexts.server("live")
    let trusting = try Contexts.client()
    let trustingOther = try Contexts.client(authority: "other-ca")

    let old = try Loopback(client: trusting, server: server)
    old.run()
    #expect(old.isEstablished)

    try files.copy("other.pem", "live.pem")
    let configuration = TLSServerConfiguration(
      certificateChainFile: files.path("live.pem"),
      privateKeyFile: files.path("live.key")
    )
    // The key does not match the certificate yet.
    #expect(throws: TLSError.self) { try server.load(server: configuration) }
    let still = try Loopback(client: trusting, server: server)
    still.run()
    #expect(still.isEstablished)

    try files.copy("other.key", "live.key")
    let loaded = try server.load(server: configuration)
    let before = try Loopback(client: trusting, server: server)
    before.run()
    #expect(before.isEstablished, "loaded files are not applied yet")
    server.apply(loaded)
    let new = try Loopback(client: trustingOther, server: server)
    new.run()
    #expect(new.isEstablished)
    try old.client.write(ByteBuffer(string: "still there"))
    old.run()
    #expect(old.serverRead == ByteBuffer(string: "still there"))
  }
}

extension ByteBuffer {
  fileprivate static func + (first: ByteBuffer, second: ByteBuffer) -> ByteBuffer {
    var both = first
    both.writeImmutableBuffer(second)
    return both
  }
}
