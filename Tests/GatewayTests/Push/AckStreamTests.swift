import Foundation
import HTTP2Session
import NIOCore
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Push acks as lines (Proto/openapi.yaml), answered in order while the body is still being sent.
@Suite struct AckStreamTests {
  private static func line(_ message: String, _ user: String = "bob", cid: String = "messaging:c") -> String {
    #"{"cid":"\#(cid)","message_id":"\#(message)","user_id":"\#(user)"}"# + "\n"
  }

  private static func begin(
    _ gateway: TestGateway,
    token: String? = TestTokens.server
  ) async throws -> TestRequestStream {
    try await gateway.client.begin("/v1/push/acks", contentType: "application/x-ndjson", token: token)
  }

  private static func send(_ text: String, _ stream: TestRequestStream, _ gateway: TestGateway) async throws {
    try await gateway.client.send(ByteBuffer(string: text), stream)
  }

  /// The next response: its code or the marked message; `end` after the last one.
  private static func verdict(_ stream: TestRequestStream) async throws -> String {
    guard let line = await stream.line() else { return "end" }
    let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
    return PushRouteTests.verdict(try #require(object, "\(line)"))
  }

  private static func verdicts(_ stream: TestRequestStream, _ count: Int) async throws -> [String] {
    var verdicts: [String] = []
    for _ in 0..<count { verdicts.append(try await verdict(stream)) }
    return verdicts
  }

  /// Each response arrives before the next line is sent.
  @Test func eachLineIsAnsweredBeforeTheNext() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      let ticket = try await PushRouteTests.ticket(gateway, "m1", "bob")
      let stream = try await Self.begin(gateway)
      try await Self.send("{\"ticket\":\"\(ticket)\"}\n", stream, gateway)
      #expect(try await Self.verdict(stream) == "messaging:c m1 bob")
      #expect(stream.status == 200 && stream.contentType == "application/x-ndjson")
      #expect(stream.cacheControl == "no-store")
      try await Self.send(Self.line("m2"), stream, gateway)
      #expect(try await Self.verdict(stream) == "messaging:c m2 bob")
      try await Self.send("\n \n" + String(Self.line("m2", "eve").dropLast(10)), stream, gateway)
      try await Self.send(String(Self.line("m2", "eve").suffix(10)), stream, gateway)
      #expect(try await Self.verdict(stream) == "member_not_found")
      try await gateway.client.finish(stream)
      #expect(try await Self.verdict(stream) == "end")
    }
  }

  /// Invalid lines are answered in order, and the stream continues.
  @Test func invalidLinesAreRefusedInPlace() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let good = Self.line("m1")
      let long = "{\"ticket\":\"\(String(repeating: "A", count: 5_000))\"}\n"
      let table: [(String, String)] = [
        ("{\n", "invalid_json"), (good, "messaging:c m1 bob"), ("7\n", "invalid_field"),
        ("{} {}\n", "invalid_json"),
        (good, "messaging:c m1 bob"), (long, "line_too_long"), (good, "messaging:c m1 bob"),
        ("{\"ticket\":\"\u{1}\"}\n", "invalid_json"), ("[]\n", "invalid_field"),
        ("{\"ticket\":\"x\"}\n", "ticket_invalid"),
        (Self.line("m1", cid: "messaging:none"), "channel_not_found"),
        (Self.line(#"m\u00071"#), "invalid_message_id"),
        ("{\"ticket\":\"x\",\"acked_at\":\"soon\"}\n", "invalid_field"), (good, "messaging:c m1 bob"),
      ]
      let whole = try await Self.begin(gateway)
      try await Self.send(table.map(\.0).joined(), whole, gateway)
      try await gateway.client.finish(whole)
      #expect(try await Self.verdicts(whole, table.count + 1) == table.map(\.1) + ["end"])
    }
  }

  /// The last line needs no newline. A truncated one is invalid JSON.
  @Test(arguments: [("}", "messaging:c m1 bob"), ("", "invalid_json"), ("}\r\n\n", "messaging:c m1 bob")])
  func unterminatedLastLineIsProcessed(end: String, expected: String) async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let stream = try await Self.begin(gateway)
      try await Self.send(Self.line("m1") + Self.line("m1").dropLast(2) + end, stream, gateway)
      try await gateway.client.finish(stream)
      #expect(try await Self.verdicts(stream, 3) == ["messaging:c m1 bob", expected, "end"])
    }
  }

  @Test func bodyWithoutLinesGetsEmptyAnswer() async throws {
    try await TestGateway.run { gateway in
      for body in ["", "\n\n"] {
        let response = try await gateway.client.request(
          .post,
          "/v1/push/acks",
          body,
          token: TestTokens.server,
          contentType: "application/x-ndjson; charset=utf-8"
        )
        #expect(
          response.status == 200 && response.body.isEmpty && response.contentType == "application/x-ndjson"
        )
      }
    }
  }

  /// Only servers may send lines, and only to this route.
  @Test func linesRequireServerTokenAndAckRoute() async throws {
    try await TestGateway.run { gateway in
      let table: [(String, String?, String)] = [
        ("/v1/push/acks", nil, "401 token_missing"),
        ("/v1/push/acks", TestTokens.user("bob"), "403 server_token_required"),
        ("/v1/push/acks", "nonsense", "401 token_malformed"),
        ("/v1/push/tickets", TestTokens.server, "415 content_type_not_supported"),
        ("/v1/channels/read", TestTokens.server, "415 content_type_not_supported"),
      ]
      for (path, token, verdict) in table {
        let response = try await gateway.client.request(
          .post,
          path,
          "{}\n",
          token: token,
          contentType: "application/x-ndjson"
        )
        #expect(response.verdict == verdict, "\(path)")
      }
      #expect(try await gateway.store.takeLog() == [])
    }
  }

  /// The body has more lines than may be in flight, and the byte limit is lower still.
  @Test func bodyBeyondLimitsIsAnsweredInOrder() async throws {
    var limits = GatewayLimits()
    limits.acks = AckOrder.Limits(entries: 64, bytes: 4_096)
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      try await gateway.setUp("team:d", members: ["alice", "bob"], messages: ["m1"])
      let kinds: [(String, String)] = [
        (Self.line("m1"), "messaging:c m1 bob"), (Self.line("m1", cid: "team:d"), "team:d m1 bob"),
        ("x\n", "invalid_json"),
        (Self.line("m9"), "message_not_found"), (Self.line("m2"), "messaging:c m2 bob"),
      ]
      let count = 5_000
      let stream = try await Self.begin(gateway)
      try await Self.send((0..<count).map { kinds[$0 % kinds.count].0 }.joined(), stream, gateway)
      try await gateway.client.finish(stream)
      for index in 0..<count {
        let verdict = try await Self.verdict(stream)
        guard verdict == kinds[index % kinds.count].1 else {
          Issue.record("line \(index): \(verdict)")
          return
        }
      }
      #expect(try await Self.verdict(stream) == "end")
      try await eventually("the gateway has forgotten the stream") {
        try await gateway.metrics().contains("request_streams 0\n")
      }
    }
  }

  /// No store reply wakes the stream, because no line needs the store, and the body has ended. The stream resumes
  /// itself.
  @Test func locallyAnsweredLinesDoNotStallStream() async throws {
    var limits = GatewayLimits()
    limits.acks = AckOrder.Limits(entries: 64, bytes: 1_024)
    try await TestGateway.run(limits: limits) { gateway in
      let count = 2_000
      let stream = try await Self.begin(gateway)
      try await Self.send(String(repeating: "x\n", count: count), stream, gateway)
      try await gateway.client.finish(stream)
      for _ in 0..<count {
        guard try await Self.verdict(stream) == "invalid_json" else {
          Issue.record("unexpected answer")
          return
        }
      }
      #expect(try await Self.verdict(stream) == "end")
    }
  }

  /// Lines that the store fails get its code, and later lines are processed.
  @Test func storeFailureFailsOnlyItsLines() async throws {
    try await TestGateway.run(deadline: TestGateway.shortDeadline) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let stream = try await Self.begin(gateway)
      try await Self.send(Self.line("m1"), stream, gateway)
      #expect(try await Self.verdict(stream) == "messaging:c m1 bob")
      let table: [(StoreInMemory.Mode, String)] = [
        (.silent, "outcome_unknown"), (.refusing(.unavailable), "store_unavailable"),
        (.garbled, "internal_error"),
        (.normal, "messaging:c m1 bob"),
      ]
      for (mode, verdict) in table {
        try await gateway.store.set(mode)
        try await Self.send(Self.line("m1") + "x\n", stream, gateway)
        #expect(try await Self.verdicts(stream, 2) == [verdict, "invalid_json"])
      }
      try await gateway.client.finish(stream)
      #expect(try await Self.verdict(stream) == "end")
    }
  }

  /// Requests in flight at the reset are completed, and no state is kept.
  @Test func resetStreamLeavesNoState() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      let stream = try await Self.begin(gateway)
      try await Self.send(Self.line("m1"), stream, gateway)
      #expect(try await Self.verdict(stream) == "messaging:c m1 bob")
      try await Self.send(Self.line("m2") + Self.line("m2").dropLast(5), stream, gateway)
      try await gateway.client.reset(stream)
      // A later request on the connection was answered, so the reset has been read.
      _ = try await gateway.client.post("/v1/push/acks", #"{"acks":[]}"#)
      try await eventually("the gateway has forgotten the stream") {
        try await gateway.metrics().contains("request_streams 0\n")
      }
      try await eventually("the store has answered the request in flight") {
        try await gateway.metrics().contains("store_requests_in_flight 0\n")
      }
    }
  }

  /// The gateway stops reading from a client that does not read its responses, and ends the stream after a timeout.
  @Test func stalledReaderIsDisconnected() async throws {
    var limits = GatewayLimits()
    limits.streamIdleTimeout = .milliseconds(1_000)
    var http2 = HTTP2Limits()
    http2.streamQueueBytesMax = 1_000
    try await TestGateway.run(limits: limits, http2: http2) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let stream = try await Self.begin(gateway)
      try await gateway.client.stopReading()
      try await Self.send(String(repeating: Self.line("m1"), count: 200_000), stream, gateway)
      try await eventually("the stalled stream is counted") {
        try await gateway.metrics().contains("request_streams_stalled_total 1\n")
      }
      try await eventually("the gateway has forgotten the stream") {
        try await gateway.metrics().contains("request_streams 0\n")
      }
    }
  }
}

@Suite struct BodyLinesTests {
  private static let long = String(repeating: "x", count: 4_096)

  /// Bodies and the lines in them; `!` stands for a line that is too long.
  private static let bodies: [(body: String, found: [String])] = [
    ("", []), ("\n", []), ("{}\n", ["{}"]), ("{}", ["{}"]), ("a\nb\n", ["a", "b"]), ("a\nb", ["a", "b"]),
    ("\n\r\n \t\na\r\n\n", ["a\r"]), (" ", []), ("a\n\n\n\nb\n ", ["a", "b"]),
    (long + "\n", [long]), (long, [long]), (long + "y\nz\n", ["!", "z"]),
    (long + long + long + "\nz", ["!", "z"]),
    (long + "y", ["!"]), (long + "y\n" + long + "y\n\nz", ["!", "!", "z"]), ("a\u{0}b\n", ["a\u{0}b"]),
  ]

  /// Read a body in pieces of `pieceBytes`. Bytes that are not consumed are kept for the next piece.
  private static func read(_ body: [UInt8], pieceBytes: Int) -> [String] {
    var lines = BodyLines(byteCountMax: 4_096)
    var found: [String] = []
    var rest: [UInt8] = []
    var at = 0
    repeat {
      let end = min(at + pieceBytes, body.count)
      rest += body[at..<end]
      at = end
      var taken = 0
      scan: while true {
        switch lines.next(rest.span.bytes, from: taken, isEnd: at == body.count) {
        case .line(let line, let end):
          found.append(String(decoding: rest[line], as: UTF8.self))
          taken = end
        case .tooLong(let end):
          found.append("!")
          taken = end
        case .needsMore(let end):
          taken = end
          break scan
        }
      }
      rest.removeFirst(taken)
      #expect(rest.count <= 4_096)
    } while at < body.count
    #expect(rest.isEmpty)
    return found
  }

  @Test(arguments: [1, 2, 3, 7, 100, 4_095, 4_096, 4_097, 5_000, 100_000])
  func linesDoNotDependOnPieceSize(pieceBytes: Int) {
    for (body, found) in Self.bodies {
      // The longest bodies would take too long byte by byte.
      if pieceBytes == 1 && body.utf8.count > 2 * 4_096 { continue }
      let short = body.prefix(20)
      #expect(Self.read(Array(body.utf8), pieceBytes: pieceBytes) == found, "\(short) by \(pieceBytes)")
    }
  }
}
