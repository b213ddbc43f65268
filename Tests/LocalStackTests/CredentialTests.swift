import Foundation
import HTTP2Session
import JWTKit
import NIOCore
import NIOPosix
import Operations
import TLSSession
import Testing

@testable import GatewayClient
@testable import LocalStack

private struct Claims: JWTPayload {
  // swift-format-ignore: AlwaysUseLowerCamelCase
  var user_id: String?
  var server: Bool?
  var iat: Double
  var exp: Double
  func verify(using algorithm: some JWTAlgorithm) throws {}
}

private final class Hello: HTTP2ServerDelegate {
  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Hello>) {
    let body = connection.withRequest(stream) { request in
      request.path.withUnsafeBytes { ByteBuffer(bytes: $0) }
    }
    connection.respond(stream, status: 200, contentType: .text, body: body ?? ByteBuffer())
  }
}

@Suite struct CredentialTests {
  private func withDirectory(_ body: (String) async throws -> Void) async throws {
    let directory = NSTemporaryDirectory() + "/tidemark-files-" + UUID().uuidString
    defer { try? FileManager.default.removeItem(atPath: directory) }
    try await body(directory)
  }

  @Test func tokensContainUserAndExpiry() async throws {
    let secret = Array("0123456789abcdef0123456789abcdef".utf8)
    let tokenIssuer = await TokenIssuer(secret: secret)
    let keys = JWTKeyCollection()
    await keys.add(hmac: HMACKey(from: secret), digestAlgorithm: .sha256)
    let before = Date().timeIntervalSince1970.rounded(.down)
    let user = try await keys.verify(try await tokenIssuer.user("bob", lifetime: .seconds(60)), as: Claims.self)
    #expect(user.user_id == "bob" && user.server == nil && user.exp == user.iat + 60)
    #expect(user.iat >= before && user.iat <= Date().timeIntervalSince1970)
    let server = try await keys.verify(try await tokenIssuer.server(lifetime: .seconds(5)), as: Claims.self)
    #expect(server.user_id == nil && server.server == true)
  }

  @Test func shortSecretIsRefused() async throws {
    try await withDirectory { directory in
      let files = StackFiles(directory: directory)
      try files.prepare()
      try files.write("short\n", to: files.jwtSecret)
      await #expect(throws: SettingsError.self) { _ = try await TokenIssuer(secretFile: files.jwtSecret) }
      await #expect(throws: SettingsError.self) { _ = try await TokenIssuer(secretFile: directory + "/none") }
    }
  }

  @Test func filesAreCreatedOnceWithOwnerOnlyAccess() async throws {
    try await withDirectory { directory in
      let files = StackFiles(directory: directory)
      try files.prepare()
      let paths = [files.frameSecret, files.jwtSecret, files.ticketSecret, files.certificate, files.key]
      let before = paths.map { FileManager.default.contents(atPath: $0) }
      #expect(Set(before).count == paths.count)
      for path in paths {
        let attributes = try FileManager.default.attributesOfItem(atPath: path)
        #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == 0o600)
      }
      try files.prepare()
      #expect(paths.map { FileManager.default.contents(atPath: $0) } == before)
      // A year later the certificate is renewed; secrets stay.
      try files.prepare(now: Date().addingTimeInterval(LoopbackCertificate.lifetime + 1))
      let after = paths.map { FileManager.default.contents(atPath: $0) }
      #expect(after[0..<3] == before[0..<3])
      #expect(after[3] != before[3] && after[4] != before[4])
    }
  }

  @Test func certificateIsValidForAYear() throws {
    let now = Date()
    let made = try LoopbackCertificate.makeSelfSigned(now: now)
    #expect(LoopbackCertificate.isValid(made.certificate, now: now))
    #expect(LoopbackCertificate.isValid(made.certificate, now: now.addingTimeInterval(363 * 24 * 3600)))
    #expect(!LoopbackCertificate.isValid(made.certificate, now: now.addingTimeInterval(366 * 24 * 3600)))
    #expect(!LoopbackCertificate.isValid("no certificate", now: now))
  }

  @Test(arguments: ["127.0.0.1", "localhost"])
  func clientThatTrustsTheCertificateConnects(host: String) async throws {
    try await withDirectory { directory in
      let files = StackFiles(directory: directory)
      try files.prepare()
      let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
      let serverTLS = try TLSContext(
        server: TLSServerConfiguration(certificateChainFile: files.certificate, privateKeyFile: files.key)
      )
      let server = try await ServerBootstrap(group: group)
        .childChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.addHandler(TLSHandler(context: serverTLS))
            try channel.pipeline.syncOperations.addHandler(
              HTTP2ServerConnection(delegate: Hello(), resources: HTTP2ServerResources())
            )
          }
        }
        .bind(host: "127.0.0.1", port: 0).get()
      let endpoint = Endpoint(host: host, port: server.localAddress?.port ?? 0)
      let tls = try TLSContext(client: TLSClientConfiguration(authorityFile: files.certificate))
      let caller = try await AsyncHTTP2Client.connect(to: endpoint, tls: tls)
      // Concurrent calls, each with its own answer.
      try await withThrowingTaskGroup(of: Bool.self) { group in
        for number in 0..<50 {
          group.addTask {
            let response = try await caller.call(.get, "/\(number)", token: "t")
            return response.status == 200 && response.text == "/\(number)"
          }
        }
        for try await isRight in group { #expect(isRight) }
      }
      await caller.close()
      await #expect(throws: CallError.closed) { _ = try await caller.call(.get, "/") }
      // A client that does not trust the certificate fails to connect.
      let stranger = try TLSContext(client: TLSClientConfiguration())
      await #expect(throws: (any Error).self) {
        _ = try await AsyncHTTP2Client.connect(to: endpoint, tls: stranger)
      }
      try await server.close()
      try await group.shutdownGracefully()
    }
  }
}
