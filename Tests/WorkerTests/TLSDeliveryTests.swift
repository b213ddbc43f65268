import Foundation
import HTTP2Session
import NIOCore
import NIOPosix
import Operations
import TLSSession
import TestPrograms
import TestSupport
import Testing

@testable import FeedClient
@testable import Worker

/// Endpoints and gateways with TLS, over HTTP/2.
@Suite struct TLSDeliveryTests {
  /// Counts requests, and answers 204.
  private final class Counter: HTTP2ServerDelegate {
    private(set) var count = 0

    func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Counter>) {
      count += 1
      connection.respond(stream, status: 204)
    }
  }

  /// Run an endpoint with a certificate for localhost. The file of its CA is passed to `body`.
  private static func withEndpoint(
    _ body: (_ port: Int, _ authority: String, _ count: () async throws -> Int) async throws -> Void
  ) async throws {
    try await TestCertificate.with("DNS:localhost") { folder in try await Self.withEndpoint(folder, body) }
  }

  private static func withEndpoint(
    _ folder: String,
    _ body: (_ port: Int, _ authority: String, _ count: () async throws -> Int) async throws -> Void
  ) async throws {
    let context = try TLSContext(
      server: TLSServerConfiguration(certificateChainFile: folder + "/cert.pem", privateKeyFile: folder + "/key.pem")
    )
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let loop = group.next()
    let shared = try await loop.submit {
      NIOLoopBound((Counter(), HTTP2ServerResources(streamedContentTypes: [])), eventLoop: loop)
    }.get()
    let server = try await ServerBootstrap(group: group)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(TLSHandler(context: context, serverName: nil))
          try channel.pipeline.syncOperations.addHandler(
            HTTP2ServerConnection(delegate: shared.value.0, resources: shared.value.1)
          )
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    let result: Result<Void, any Error>
    do {
      result = .success(
        try await body(server.localAddress?.port ?? 0, folder + "/ca.pem") {
          try await loop.submit { shared.value.0.count }.get()
        }
      )
    } catch {
      result = .failure(error)
    }
    try await server.close()
    try await group.shutdownGracefully()
    try result.get()
  }

  private static let loopback: HostResolver.Lookup = { _, port in
    [try SocketAddress(ipAddress: "127.0.0.1", port: port)]
  }

  @Test func certificateIsVerifiedForTheHost() async throws {
    try await Feed.with { feed in
      try await Self.withEndpoint { port, authority, count in
        for partition in 0..<FakeFeed.count { try await feed.append(partition, count: 10) }
        // Neither another name nor an unknown issuer is accepted.
        for (host, file) in [("other.test", authority), ("localhost", nil)] {
          var task = try WebhookTask.test("https://\(host):\(port)/hook", records: 1)
          task.authorityFile = file
          try await Workers.with(feed, task, name: host, lookup: Self.loopback) { workers in
            try await eventually("a failure") {
              try await workers.scrape(feed.loop).contains(#"outcome="connection""#)
            }
          }
          #expect(try await count() == 0)
        }
        var task = try WebhookTask.test("https://localhost:\(port)/hook", records: 1)
        task.authorityFile = authority
        try await Workers.with(feed, task, lookup: Self.loopback) { _ in
          try await eventually("every record committed") { try await feed.committed() == [10, 10, 10, 10] }
        }
        #expect(try await count() == 40)
      }
    }
  }

  @Test func gatewayIsReachedOverTLS() async throws {
    try await TestCertificate.with("IP:127.0.0.1") { folder in
      let (certificate, authority) = (folder + "/cert.pem", folder + "/ca.pem")
      let server = try TLSContext(
        server: TLSServerConfiguration(certificateChainFile: certificate, privateKeyFile: folder + "/key.pem")
      )
      let client = try TLSContext(client: TLSClientConfiguration(authorityFile: authority))
      try await Feed.with(tls: (server, client)) { feed in
        try await FakeEndpoint.with { endpoint in
          for partition in 0..<FakeFeed.count { try await feed.append(partition, count: 10) }
          try await Workers.with(feed, .test(endpoint.url)) { _ in
            try await eventually("every record committed") { try await feed.committed() == [10, 10, 10, 10] }
          }
        }
      }
    }
  }

  /// A token that replaces another in its file is sent without a restart.
  @Test func replacedTokenIsRead() async throws {
    let file = NSTemporaryDirectory() + "tidemark-worker-token-\(UUID().uuidString)"
    try "first.token\n".write(toFile: file, atomically: true, encoding: .utf8)
    defer { try? FileManager.default.removeItem(atPath: file) }
    let credential = try ServerCredential.tokenFile(file) { _ in }
    #expect(try await credential.token() == "first.token")
    try "second.token\n".write(toFile: file, atomically: true, encoding: .utf8)
    try await eventually("the second token") { try await credential.token() == "second.token" }
    try "two words\n".write(toFile: file, atomically: true, encoding: .utf8)
    #expect(throws: SettingsError.self) { try ServerCredential.tokenFile(file) { _ in } }
  }

  @Test func systemResolvesHosts() async throws {
    let addresses = try await HostResolver.system("localhost", 443)
    #expect(!addresses.isEmpty && addresses.allSatisfy { $0.port == 443 && AddressRules.refusal(of: $0) != nil })
    await #expect(throws: (any Error).self) { try await HostResolver.system("no-such-host.invalid", 443) }
  }
}
