import Foundation
import HTTP2Session
import NIOCore
import Operations
import ReceiptWire
import StoreClient
import StoreTestSupport
import Synchronization
import TestSupport
import Testing

@testable import Gateway

/// Behaviour that all routes share: credentials, limits, unknown routes, store failures, draining.
@Suite struct GatewayLoopTests {
  private let path = "/v1/channels/messaging:c/read"

  @Test func invalidTokensAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      let now = Int(Date().timeIntervalSince1970)
      let none =
        TestTokens.base64URL(#"{"alg":"none"}"#.utf8) + "." + TestTokens.base64URL(#"{"server":true}"#.utf8)
        + "."
      let table: [(String?, String)] = [
        (nil, "401 token_missing"), ("nonsense", "401 token_malformed"),
        (none, "401 token_algorithm_not_allowed"),
        (
          TestTokens.make(#"{"user_id":"alice"}"#, secret: "some other secret of 32 bytes ..."),
          "401 token_signature_invalid"
        ),
        (TestTokens.make(#"{"user_id":"alice","exp":\#(now - 1)}"#), "401 token_expired"),
        (TestTokens.make(#"{"user_id":"alice","nbf":\#(now + 60)}"#), "401 token_not_yet_valid"),
        (TestTokens.make("{}"), "401 token_without_user"),
        (TestTokens.make(#"{"user_id":"a\u007Fb"}"#), "401 token_user_invalid"),
        (String(repeating: "a", count: 5_000), "401 token_too_long"),
        (TestTokens.make(#"{"user_id":"alice","exp":\#(now + 60),"nbf":\#(now - 1)}"#), "200"),
      ]
      // Each token twice: the second request may use cached results of the first.
      for round in 0..<2 {
        for (token, expected) in table {
          let response = try await gateway.client.post(path, nil, token: token)
          #expect(response.verdict == expected, "round \(round) \(token?.prefix(20) ?? "nil")")
          if response.status == 401 {
            let challenge = try #require(response.headers["www-authenticate"])
            #expect(
              challenge.hasPrefix("Bearer")
                && challenge.contains("error=") == (expected != "401 token_missing")
            )
          }
        }
      }
      // The same invalid token several times on one connection, then a valid one.
      for _ in 0..<3 { #expect(try await gateway.client.post(path, nil, token: "bad").status == 401) }
      #expect(try await gateway.client.post(path, nil, token: TestTokens.user("alice")).status == 200)
    }
  }

  @Test func expiredCachedTokenIsRefused() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      let end = Date().timeIntervalSince1970 + 600
      let token = TestTokens.make(#"{"user_id":"alice","exp":\#(end)}"#)
      for _ in 0..<2 { #expect(try await gateway.client.post(path, nil, token: token).status == 200) }
      gateway.clock.advance(by: .minutes(9))
      #expect(try await gateway.client.post(path, nil, token: token).status == 200)
      gateway.clock.advance(by: .seconds(61))
      #expect(try await gateway.client.post(path, nil, token: token).verdict == "401 token_expired")
    }
  }

  @Test func burstWithOneNewTokenIsAnswered() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      let token = TestTokens.make(#"{"user_id":"alice","jti":"burst"}"#)
      var responses: [EventLoopFuture<TestResponse>] = []
      for number in 0..<200 {
        let body = number % 2 == 0 ? nil : #"{"message_id":"m1"}"#
        responses.append(try await gateway.client.submit(.post, path, body, token: token))
      }
      for response in responses { #expect(try await response.value("the answer").status == 200) }
    }
  }

  @Test func fullVerificationQueueAnswersBusy() async throws {
    var limits = GatewayLimits()
    limits.waiting.verifications = 0
    try await TestGateway.run(limits: limits) { gateway in
      let response = try await gateway.client.post(path, nil, token: TestTokens.server)
      #expect(response.verdict == "503 authentication_busy" && response.headers["retry-after"] == "1")
      // Tokens that no key can verify do not enter the queue.
      let unsigned = TestTokens.make(#"{"server":true}"#, header: #"{"alg":"none"}"#)
      for (token, expected) in [
        ("nonsense", "401 token_malformed"), ("a.b.c", "401 token_malformed"),
        ("AAAA.AAAA.!!!!", "401 token_malformed"), ("AAAA.AAAA.AAAA", "401 token_malformed"),
        (unsigned, "401 token_algorithm_not_allowed"),
      ] {
        for _ in 0..<2 {
          #expect(try await gateway.client.post(path, nil, token: token).verdict == expected)
        }
      }
      #expect(
        try await gateway.client.post(path, nil, token: TestTokens.server).verdict
          == "503 authentication_busy"
      )
    }
  }

  @Test func unknownRoutesAreAnsweredWithoutStore() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      #expect(try await client.get("/nothing", token: nil).verdict == "404 route_not_found")
      let wrong = try await client.get(path, token: nil)
      #expect(wrong.verdict == "405 method_not_allowed" && wrong.headers["allow"] == "POST")
      #expect(
        try await client.post("/v1/channels/nocolon/read", nil, token: nil).verdict == "400 invalid_cid"
      )
      #expect(try await gateway.store.takeLog().isEmpty)
    }
  }

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
    try await gateway.eventLoop.submit { gateway.loop.value.waitingRequests.queryCount }.get()
  }

  /// Reconnect a silent store. The gateway resends its requests, and the store answers them.
  private func reconnectAnsweringStore(_ gateway: TestGateway) async throws {
    try await gateway.store.set(.normal)
    try await gateway.store.dropConnections()
  }

  /// When too many queries are in flight, further ones wait. Marks do not.
  @Test func queriesBeyondLimitWait() async throws {
    var limits = GatewayLimits()
    limits.queriesInFlight = 2
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
    limits.queriesInFlight = 1
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
    limits.queriesInFlight = 1
    limits.waiting.queries = 2
    limits.queryWait = .seconds(60)
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

  /// Queries wait for at most `queryWait`.
  @Test func overdueQueriesAreRefused() async throws {
    var limits = GatewayLimits()
    limits.queriesInFlight = 1
    limits.queryWait = .milliseconds(100)
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

  /// The memory of a connection suffices for small requests, but not for the response to a large one.
  @Test func answerBeyondConnectionMemoryIsRefused() async throws {
    var http2 = HTTP2Limits()
    http2.connectionMemoryBytesMax = 8_000
    try await TestGateway.run(http2: http2) { gateway in
      let client = gateway.client
      for (number, token) in [TestTokens.server, TestTokens.user("alice"), TestTokens.server].enumerated() {
        #expect(try await client.post("/v1/channels/messaging:c/read", "{}", token: token).status < 500)
        let list = try await client.get("/v1/channels/messaging:c/read-state?limit=100", token: token)
        #expect(list.verdict == "503 overloaded" && list.headers["retry-after"] == "1", "\(number): \(list)")
      }
      let log = try await gateway.store.takeLog()
      #expect(log.allSatisfy { $0 == .markRead }, "a refused request reached the store")
      try await eventually("refused requests hold nothing") {
        try await gateway.eventLoop.submit { gateway.loop.value.resources.heldBytes == 0 }.get()
      }
    }
  }

  @Test func oversizeRequestsAndWrongTypesAreRefused() async throws {
    var http2 = HTTP2Limits()
    http2.bodyBytesMax = 2_000
    http2.headerListBytesMax = 2_000
    try await TestGateway.run(http2: http2) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      let alice = TestTokens.user("alice")
      let large = "{\"x\":\"\(String(repeating: "y", count: 3_000))\"}"
      let tooLarge = try await gateway.client.post(path, large, token: alice)
      #expect(tooLarge.verdict == "413 body_too_large")
      let headers = [(name: "x-filler", value: String(repeating: "z", count: 3_000))]
      let tooLong = try await gateway.client.request(.post, path, nil, token: alice, headers: headers)
      #expect(tooLong.verdict == "431 headers_too_large")
      for (type, expected) in [
        ("application/json", "200"), ("application/json; charset=utf-8", "200"), ("Application/JSON", "200"),
        ("text/plain", "415 content_type_not_supported"),
        ("application/jsonx", "415 content_type_not_supported"),
        ("application/x-www-form-urlencoded", "415 content_type_not_supported"), ("", "200"),
      ] {
        let response = try await gateway.client.request(.post, path, "{}", token: alice, contentType: type)
        #expect(response.verdict == expected, "\(type)")
      }
      // The content type is ignored if there is no body.
      let bare = try await gateway.client.request(
        .post,
        path,
        nil,
        token: alice,
        headers: [(name: "content-type", value: "text/plain")]
      )
      #expect(bare.status == 200)
      let deep = String(repeating: "[", count: 40) + String(repeating: "]", count: 40)
      #expect(
        try await gateway.client.post(path, "{\"x\":\(deep)}", token: alice).verdict == "400 invalid_json"
      )
    }
  }

  @Test func requestIDIsAdoptedOrGenerated() async throws {
    try await TestGateway.run { gateway in
      let named = try await gateway.client.request(
        .get,
        "/nothing",
        nil,
        token: nil,
        headers: [(name: "x-request-id", value: "mine-7")]
      )
      #expect(named.headers["x-request-id"] == "mine-7" && named.json["request_id"] as? String == "mine-7")
      var seen: Set<String> = []
      for _ in 0..<10 {
        let response = try await gateway.client.request(
          .get,
          "/nothing",
          nil,
          token: nil,
          headers: [(name: "x-request-id", value: String(repeating: "x", count: 65))]
        )
        let id = try #require(response.headers["x-request-id"])
        #expect(id.utf8.count < 24)
        seen.insert(id)
      }
      #expect(seen.count == 10)
    }
  }

  @Test func storeFailureIsAnswered() async throws {
    try await TestGateway.run(deadline: .seconds(2)) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      let alice = TestTokens.user("alice")
      let batch = #"{"latest_delivered_messages":[{"cid":"messaging:c","id":"m1"}]}"#
      let modes: [(StoreInMemory.Mode, String, String)] = [
        (.refusing(.busy), "503 store_busy", "store_busy"),
        (.refusing(.unavailable), "503 store_unavailable", "store_unavailable"),
        (.refusing(.wrongShard), "503 store_unavailable", "store_unavailable"),
        (.refusing(.outcomeUnknown), "503 outcome_unknown", "outcome_unknown"),
        (.refusing(.limitReached), "409 limit_reached", "limit_reached"),
        (.garbled, "500 internal_error", "internal_error"),
        (.silent, "503 outcome_unknown", "outcome_unknown"), (.normal, "200", "ok"),
      ]
      for (mode, expected, entry) in modes {
        try await gateway.store.set(mode)
        let response = try await gateway.client.post(path, nil, token: alice)
        #expect(response.verdict == expected)
        if response.status == 503 {
          let after = Int(response.headers["retry-after"] ?? "") ?? 0
          #expect((1...2).contains(after))
        }
        let delivered = try await gateway.client.post("/v1/channels/delivered", batch, token: alice)
        #expect(delivered.status == 201)
        let result = try #require((delivered.json["results"] as? [NSDictionary])?.first)
        #expect((result["code"] as? String ?? "ok") == entry)
      }
      // An unanswered query has changed nothing.
      try await gateway.store.set(.silent)
      let query = try await gateway.client.get("/v1/channels/messaging:c/read-state", token: alice)
      #expect(query.verdict == "503 store_unavailable")
      // A channel type whose home shard does not answer may have changed.
      let type = try await gateway.client.put("/v1/channel-types/t", "{}")
      #expect(type.verdict == "503 outcome_unknown")
    }
  }

  @Test func concurrentRequestsGetTheirOwnAnswers() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: (1...50).map { "m\($0)" })
      let alice = TestTokens.user("alice")
      var responses: [(Int, EventLoopFuture<TestResponse>)] = []
      for number in 0..<500 {
        switch number % 5 {
        case 0:
          responses.append(
            (
              201,
              try await gateway.client.submit(
                .post,
                "/v1/channels/delivered",
                #"{"latest_delivered_messages":[{"cid":"messaging:c","id":"m1"}]}"#,
                token: alice
              )
            )
          )
        case 1:
          responses.append(
            (404, try await gateway.client.submit(.post, path + "?message_id=x", nil, token: alice))
          )
        case 2: responses.append((400, try await gateway.client.submit(.post, path, "{", token: alice)))
        case 3:
          responses.append(
            (
              200,
              try await gateway.client.submit(
                .get,
                "/v1/channels/messaging:c/messages/m\(number % 50 + 1)/status",
                nil,
                token: alice
              )
            )
          )
        default:
          responses.append(
            (
              200,
              try await gateway.client.submit(
                .post,
                path + "?message_id=m\(number % 50 + 1)",
                nil,
                token: alice
              )
            )
          )
        }
      }
      for (expected, response) in responses {
        #expect(try await response.value("the answer").status == expected)
      }
      let waiting = try await gateway.eventLoop.submit { gateway.loop.value.pendingCount }.get()
      #expect(waiting == 0)
    }
  }

  @Test func closedConnectionLeavesNoState() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      let other = try await TestClient.connect(port: gateway.port, on: gateway.eventLoop)
      try await gateway.store.set(.silent)
      for _ in 0..<10 { _ = try await other.submit(.post, path, nil, token: TestTokens.user("alice")) }
      _ = try await other.submit(
        .post,
        "/v1/channels/delivered",
        #"{"latest_delivered_messages":[{"cid":"messaging:c","id":"m1"}]}"#,
        token: TestTokens.user("alice")
      )
      try await eventually("ten marks and a batch are pending") {
        try await gateway.eventLoop.submit({ gateway.loop.value.pendingCount }).get() >= 11
      }
      try await other.close()
      try await eventually("the closed connection is removed") {
        try await gateway.eventLoop.submit({ gateway.loop.value.connections.count }).get() <= 1
      }
      // Closing the store's client fails what is pending. Answers for the closed connection are dropped, and other
      // connections are served.
      try await gateway.eventLoop.flatSubmit { gateway.loop.value.close() }.get()
      #expect(try await gateway.eventLoop.submit { gateway.loop.value.pendingCount }.get() == 0)
      #expect(try await gateway.client.get("/nothing").status == 404)
    }
  }

  @Test func drainWaitsForOpenStreams() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      try await gateway.store.set(.silent)
      let waiting = try await gateway.client.submit(.post, path, nil, token: TestTokens.user("alice"))
      try await eventually("the mark is pending") {
        try await gateway.eventLoop.submit({ gateway.loop.value.pendingCount }).get() != 0
      }
      let drained = try await gateway.eventLoop.submit { gateway.loop.value.drain() }.get()
      let isDrained = Mutex(false)
      drained.whenComplete { _ in isDrained.withLock { $0 = true } }
      try await gateway.eventLoop.submit {}.get()
      #expect(!isDrained.withLock { $0 }, "the drain ended before the open stream")
      try await gateway.eventLoop.flatSubmit { gateway.loop.value.close() }.get()
      #expect(try await waiting.value("the answer").verdict == "503 outcome_unknown")
      try await drained.value("the end of draining")
      try await gateway.client.isClosed.value("the end of the connection")
    }
  }

  @Test func metricsCountRequests() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      for _ in 0..<3 { _ = try await gateway.client.post(path, nil, token: TestTokens.user("alice")) }
      _ = try await gateway.client.post(path + "?message_id=x", nil, token: TestTokens.user("alice"))
      _ = try await gateway.client.get("/nothing")
      let text = try await gateway.eventLoop.submit {
        var samples = MetricSamples()
        gateway.loop.value.collect(into: &samples)
        var buffer = ByteBuffer()
        samples.write(into: &buffer)
        return String(buffer: buffer)
      }.get()
      for line in [
        "tidemark_gateway_requests_total{route=\"mark_read\",status=\"2xx\"} 3",
        "tidemark_gateway_requests_total{route=\"mark_read\",status=\"4xx\"} 1",
        "tidemark_gateway_requests_total{route=\"none\",status=\"4xx\"} 1", "tidemark_gateway_connections 1",
        "tidemark_gateway_store_requests_in_flight 0", "tidemark_gateway_tokens_cached 2",
        "tidemark_gateway_store_connections_ready 1",
      ] {
        #expect(text.contains(line + "\n"), "\(line)\n\(text)")
      }
      #expect(text.contains("tidemark_gateway_store_round_trip_seconds_count "))
    }
  }
}
