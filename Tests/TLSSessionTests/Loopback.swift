import NIOCore

@testable import TLSSession

/// A client's and a server's connection, connected in memory.
final class Loopback {
  let client: TLSConnection
  let server: TLSConnection
  var clientError: TLSError?
  var serverError: TLSError?
  private(set) var clientRead = ByteBuffer()
  private(set) var serverRead = ByteBuffer()
  /// The maximum number of bytes delivered at once.
  private let pieceBytes: Int

  init(client: TLSContext, server: TLSContext, serverName: String = "localhost", pieceBytes: Int = .max)
    throws
  {
    self.client = try TLSConnection(context: client, serverName: serverName)
    self.server = try TLSConnection(context: server)
    self.pieceBytes = pieceBytes
  }

  var isEstablished: Bool { client.isEstablished && server.isEstablished }

  /// Deliver bytes in both directions until none are left.
  func run() {
    work(client, &clientRead, &clientError)
    while true {
      let toServer = client.takeOutput()
      if let toServer { deliver(toServer, server, &serverRead, &serverError) }
      let toClient = server.takeOutput()
      if let toClient { deliver(toClient, client, &clientRead, &clientError) }
      if toServer == nil && toClient == nil { return }
    }
  }

  private func deliver(
    _ bytes: ByteBuffer,
    _ to: TLSConnection,
    _ plaintext: inout ByteBuffer,
    _ failure: inout TLSError?
  ) {
    var bytes = bytes
    while let piece = bytes.readSlice(length: min(pieceBytes, bytes.readableBytes)), piece.readableBytes > 0 {
      to.consume(piece)
      work(to, &plaintext, &failure)
    }
  }

  private func work(_ connection: TLSConnection, _ plaintext: inout ByteBuffer, _ failure: inout TLSError?) {
    guard failure == nil else { return }
    do throws(TLSError) {
      if try connection.handshake() { _ = try connection.read(into: &plaintext) }
    } catch {
      failure = error
    }
  }
}

enum Contexts {
  static func server(
    _ name: String = "server",
    clientAuthority: String? = nil,
    versions: ClosedRange<TLSVersion> = .v1_2 ... .v1_3,
    applicationProtocol: TLSApplicationProtocol = .h2
  ) throws -> TLSContext {
    let files = Certificates.shared
    var configuration = TLSServerConfiguration(
      certificateChainFile: files.path("\(name).pem"),
      privateKeyFile: files.path("\(name).key"),
      clientAuthorityFile: clientAuthority.map { files.path("\($0).pem") },
      applicationProtocol: applicationProtocol
    )
    configuration.versions = versions
    return try TLSContext(server: configuration)
  }

  static func client(
    authority: String = "ca",
    certificate: String? = nil,
    versions: ClosedRange<TLSVersion> = .v1_2 ... .v1_3,
    applicationProtocol: TLSApplicationProtocol = .h2
  ) throws -> TLSContext {
    let files = Certificates.shared
    var configuration = TLSClientConfiguration(
      authorityFile: files.path("\(authority).pem"),
      certificateChainFile: certificate.map { files.path("\($0).pem") },
      privateKeyFile: certificate.map { files.path("\($0).key") },
      applicationProtocol: applicationProtocol
    )
    configuration.versions = versions
    return try TLSContext(client: configuration)
  }
}
