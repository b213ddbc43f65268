import GatewayClient
import HTTP2Session
import NIOCore
import TestPrograms
import TestSupport
import Testing

@testable import LoadGenerator

/// Closes its first connection with the last of a number of requests, none of which it answers, and answers all later
/// requests.
private final class ClosingServer: HTTP2ServerDelegate {
  private let requestCount: Int
  private var received = 0
  private var open: Set<ObjectIdentifier> = []
  private(set) var connectionCount = 0
  private(set) var closedCount = 0

  init(requestCount: Int) { self.requestCount = requestCount }

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<ClosingServer>) {
    if open.insert(ObjectIdentifier(connection)).inserted { connectionCount += 1 }
    received += 1
    if received == requestCount { connection.fail(.internalError) }
    if received > requestCount { connection.respond(stream, status: 200) { $0.writeString("{}") } }
  }

  func http2ConnectionClosed(_ connection: HTTP2ServerConnection<ClosingServer>) {
    if open.remove(ObjectIdentifier(connection)) != nil { closedCount += 1 }
  }
}

@Suite struct BenchClientTests {
  @Test func overlappingCallsShareOneReconnect() async throws {
    let callCount = 10
    try await withServer({ ClosingServer(requestCount: callCount) }) { endpoint, server in
      let tokenIssuer = await TokenIssuer(secret: Array(repeating: 7, count: 32))
      try await BenchClient.with(endpoint, tokenIssuer: tokenIssuer) { client in
        try await inParallel(callCount, atOnce: callCount) { _ in
          let response = try await client.call(.get, "/")
          #expect(response.status == 200)
        }
      }
      let connectionCount = try await server.eventLoop.submit { server.value.connectionCount }.get()
      #expect(connectionCount == 2)
      try await eventually("every connection is closed") {
        try await server.eventLoop.submit { server.value.closedCount }.get() == connectionCount
      }
    }
  }
}
