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
      try await gateway.eventLoop.flatSubmit { gateway.loop.value.close() }.value("the end of the store's client")
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
      let drained = try await gateway.eventLoop.submit { gateway.loop.value.drain() }.value("the start of draining")
      let isDrained = Mutex(false)
      drained.whenComplete { _ in isDrained.withLock { $0 = true } }
      try await gateway.eventLoop.submit {}.value("a turn of the event loop")
      #expect(!isDrained.withLock { $0 }, "the drain ended before the open stream")
      try await gateway.eventLoop.flatSubmit { gateway.loop.value.close() }.value("the end of the store's client")
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

@Suite struct RequestIDsTests {
  @Test(arguments: [
    ("abc-123", "abc-123"), (String(repeating: "x", count: 64), String(repeating: "x", count: 64)),
    (String(repeating: "x", count: 65), nil), ("", nil), ("a b", nil), ("a\u{7F}", nil), ("é", nil),
  ])
  func validRequestIDIsAdopted(_ given: String, _ accepted: String?) {
    var ids = RequestIDs(random: 12_345)
    let bytes = Array(given.utf8)
    let id = ids.id(given: bytes.span.bytes)
    if let accepted {
      #expect(id == accepted)
    } else {
      #expect(id == "9ix-1")
      #expect(ids.id(given: bytes.span.bytes) == "9ix-2")
    }
  }
}
