import Foundation
import HTTP2Session
import NIOCore
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Queries and batches that wait for room in the store's window.
@Suite struct WaitingRequestsTests {
  private let path = "/v1/channels/messaging:c/read"
  private static let query = "/v1/channels/messaging:c/read-state"

  /// Send queries with these tokens, without waiting.
  private func query(_ tokens: [String], _ gateway: TestGateway) async throws -> [EventLoopFuture<
    TestResponse
  >] {
    var responses: [EventLoopFuture<TestResponse>] = []
    for token in tokens {
      responses.append(try await gateway.client.submit(.get, Self.query, nil, token: token))
    }
    return responses
  }

  private func waitingQueries(_ gateway: TestGateway) async throws -> Int {
    try await gateway.eventLoop.submit { gateway.loop.value.waitingRequests.pageQueryCount }.get()
  }

  /// Reconnect a silent store. The gateway resends its requests, and the store answers them.
  private func reconnectAnsweringStore(_ gateway: TestGateway) async throws {
    try await gateway.store.set(.normal)
    try await gateway.store.dropConnections()
  }

  /// When too many queries are in flight, further ones wait. Marks do not.
  @Test func queriesBeyondLimitWait() async throws {
    var limits = GatewayLimits()
    limits.pageQueriesInFlight = 2
    try await TestGateway.run(limits: limits, deadline: .seconds(20)) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      let alice = TestTokens.user("alice")
      try await gateway.store.set(.silent)
      _ = try await gateway.store.takeLog()
      var responses = try await query(Array(repeating: TestTokens.server, count: 6) + [alice], gateway)
      responses.append(try await gateway.client.submit(.post, path, nil, token: alice))
      var log: [FrameKind] = []
      try await eventually("two queries and the mark are sent") {
        log += try await gateway.store.takeLog()
        return log.count >= 3
      }
      #expect(log == [.readState, .readState, .markRead])
      #expect(try await waitingQueries(gateway) == 5)
      try await reconnectAnsweringStore(gateway)
      for response in responses { #expect(try await response.value("the answer").verdict == "200") }
    }
  }

  /// Waiting queries have been admitted: they are answered although memory runs short meanwhile.
  @Test func waitingQueriesAreNotAdmittedTwice() async throws {
    var limits = GatewayLimits()
    limits.pageQueriesInFlight = 1
    var http2 = HTTP2Limits()
    // Each query is charged some 14 KB. Above three quarters of the memory, callers with more than 32 KiB are refused.
    http2.memoryBytesMax = 400_000
    try await TestGateway.run(limits: limits, http2: http2, deadline: .seconds(20)) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      try await gateway.store.set(.silent)
      let responses = try await query(Array(repeating: TestTokens.server, count: 10), gateway)
      let loop = gateway.loop
      try await eventually("nine queries wait, and others fill the memory") {
        try await waitingQueries(gateway) == 9
      }
      try await gateway.eventLoop.submit {
        var smaller = HTTP2Limits()
        smaller.memoryBytesMax = 150_000
        loop.value.resources.setMemoryLimits(smaller)
      }.get()
      try await reconnectAnsweringStore(gateway)
      for response in responses { #expect(try await response.value("the answer").verdict == "200") }
    }
  }

  /// The number of waiting queries is limited. Closing a connection removes its queries, and tokens that expired while
  /// waiting are refused.
  @Test func waitingQueriesAreLimited() async throws {
    var limits = GatewayLimits()
    limits.pageQueriesInFlight = 1
    limits.waiting.pageQueries = 2
    limits.pageQueryWait = .seconds(60)
    try await TestGateway.run(limits: limits, deadline: .seconds(20)) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      try await gateway.store.set(.silent)
      let first = try await gateway.client.submit(.get, Self.query, nil, token: TestTokens.server)
      let other = try await TestClient.connect(port: gateway.port, on: gateway.eventLoop)
      _ = try await other.submit(.get, Self.query, nil, token: TestTokens.server)
      let now = Int(Date().timeIntervalSince1970)
      let expiring = TestTokens.make(#"{"user_id":"alice","exp":\#(now + 3_600)}"#)
      let expired = try await gateway.client.submit(.get, Self.query, nil, token: expiring)
      try await eventually("two queries wait") {
        try await waitingQueries(gateway) == 2
      }
      #expect(try await gateway.client.get(Self.query).verdict == "503 store_busy")
      try await other.close()
      try await eventually("the query of the closed connection is removed") {
        try await waitingQueries(gateway) == 1
      }
      gateway.clock.advance(by: .hours(2))
      try await reconnectAnsweringStore(gateway)
      #expect(try await first.value("the answer").verdict == "200")
      #expect(try await expired.value("the answer").verdict == "401 token_expired")
    }
  }

  /// A batch that may not wait either is refused as a whole, and overtakes none that waits.
  @Test func waitingBatchesAreLimited() async throws {
    var limits = GatewayLimits()
    // More than the store's window has room for, beside a request in flight.
    limits.entriesPerRequest = 33_000
    limits.waiting.batches = 1
    let batch =
      #"{"user_id":"alice","latest_delivered_messages":["#
      + Array(repeating: "0", count: limits.entriesPerRequest).joined(separator: ",") + "]}"
    try await TestGateway.run(limits: limits, deadline: .seconds(20)) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      try await gateway.store.set(.silent)
      let mark = try await gateway.client.submit(.post, path, nil, token: TestTokens.user("alice"))
      try await eventually("the mark is sent") { try await gateway.store.takeLog().contains(.markRead) }
      let (client, route, token) = (gateway.client, "/v1/channels/delivered", TestTokens.server)
      _ = try await client.submit(.post, route, batch, token: token)
      let refused = try await client.post(route, batch)
      #expect(refused.verdict == "503 store_busy" && refused.headers["retry-after"] == "1")
      try await reconnectAnsweringStore(gateway)
      #expect(try await mark.value("the answer").verdict == "200")
    }
  }

  /// Queries wait for at most `pageQueryWait`.
  @Test func overdueQueriesAreRefused() async throws {
    var limits = GatewayLimits()
    limits.pageQueriesInFlight = 1
    limits.pageQueryWait = .milliseconds(100)
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      try await gateway.store.set(.silent)
      let responses = try await query(Array(repeating: TestTokens.server, count: 3), gateway)
      for response in responses.dropFirst() {
        let response = try await response.value("the answer")
        #expect(response.verdict == "503 store_busy" && response.headers["retry-after"] == "1")
      }
      #expect(try await waitingQueries(gateway) == 0)
    }
  }
}
