import Foundation
import NIOCore
import Operations
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Push tickets, and push acks in one body (Proto/openapi.yaml).
@Suite struct PushRouteTests {
  /// The entries of a ticket answer: codes, or `ticket` for a ticket.
  private static func codes(_ response: TestResponse) -> [String] {
    ((response.json["tickets"] as? [Any]) ?? []).map { ($0 as? [String: String])?["code"] ?? "ticket" }
  }

  /// The results of a response: codes, or the marked messages.
  static func results(_ response: TestResponse) -> [String] {
    ((response.json["results"] as? [[String: Any]]) ?? []).map(verdict)
  }

  static func verdict(_ result: [String: Any]) -> String {
    guard result["ok"] as? Bool == true else { return result["code"] as? String ?? "no code" }
    return ["cid", "message_id", "user_id"].map { result[$0] as? String ?? "?" }.joined(separator: " ")
  }

  private static func entry(_ cid: String, _ message: String, _ user: String, _ more: String = "") -> String {
    #"{"cid":"\#(cid)","message_id":"\#(message)","user_id":"\#(user)"\#(more)}"#
  }

  /// A ticket for that message and user.
  static func ticket(
    _ gateway: TestGateway,
    _ message: String,
    _ user: String,
    cid: String = "messaging:c",
    _ more: String = "",
    ttl: String = ""
  ) async throws -> String {
    let body = "{\"tickets\":[\(entry(cid, message, user, more))]\(ttl)}"
    let response = try await gateway.client.post("/v1/push/tickets", body)
    return try #require((response.json["tickets"] as? [String])?.first, "\(response.body)")
  }

  private static func delivered(_ gateway: TestGateway, _ user: String) async throws -> Int? {
    try await gateway.deliveredSequence(of: user, in: "messaging:c")
  }

  // MARK: Tickets

  @Test func ticketsAreIssuedPerEntry() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2", "m3"])
      _ = try await gateway.client.delete("/v1/channels/messaging:c/messages/m3")
      let entries = [
        Self.entry("messaging:c", "m1", "bob"), Self.entry("messaging:none", "m1", "bob"),
        Self.entry("messaging:c", "m1", "eve"), Self.entry("messaging:c", "m9", "bob"),
        Self.entry("messaging:c", "m3", "bob"), Self.entry("nothing", "m1", "bob"),
        Self.entry("messaging:c", "m1", "b\u{7F}b"), Self.entry("messaging:c", "m\u{7F}1", "bob"), "7", "{}",
        #"{"cid":"messaging:c","message_id":7,"user_id":"bob"}"#,
        Self.entry("messaging:c", "m1", "bob", #","device":7"#),
        Self.entry("messaging:c", "m2", "bob", #","device":null"#),
      ]
      let response = try await gateway.client.post(
        "/v1/push/tickets",
        "{\"tickets\":[\(entries.joined(separator: ","))],\"ttl\":60}"
      )
      #expect(response.status == 200)
      #expect(
        Self.codes(response) == [
          "ticket", "channel_not_found", "member_not_found", "message_not_found", "message_deleted",
          "invalid_cid", "invalid_user_id", "invalid_message_id", "invalid_field", "invalid_field",
          "invalid_field", "invalid_field", "ticket",
        ]
      )
      for case let ticket as String in (response.json["tickets"] as? [Any]) ?? [] {
        #expect(ticket.utf8.count <= 160 && ticket.wholeMatch(of: /[A-Za-z0-9_-]+/) != nil)
      }
      #expect(
        try await gateway.client.post("/v1/push/tickets", #"{"tickets":[]}"#).body == #"{"tickets":[]}"#
      )
    }
  }

  /// The decoded ticket has shard, device and expiry.
  @Test func ticketHasShardDeviceAndExpiry() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let codec = TicketCodec(keys: TicketKeys(secrets: [Array(TestTokens.secret.utf8)]))
      codec.bind(to: SessionID(high: 1, low: 2))
      func read(_ text: String, now: Int64) -> String {
        let text = Array(text.utf8)
        do throws(TicketRefusal) {
          let ticket = try codec.read(text.span.bytes, now: now)
          let owner = ShardID.owning(Array("messaging:c".utf8).span.bytes, count: 4)
          return "\(ticket.shard == owner) \(ticket.device.text)"
        } catch {
          return "\(error)"
        }
      }
      let now = Int64(Date().timeIntervalSince1970 * 1_000)
      let table: [(device: String, kept: String)] = [
        ("", ""), (#","device":"""#, ""), (#","device":"ios""#, "ios"), (#","device":"i o s""#, "other"),
        (#","device":"\#(String(repeating: "d", count: 32))""#, String(repeating: "d", count: 32)),
        (#","device":"\#(String(repeating: "d", count: 33))""#, "other"),
      ]
      for (device, kept) in table {
        let ticket = try await Self.ticket(gateway, "m1", "bob", device)
        #expect(read(ticket, now: now) == "true \(kept)")
        #expect(read(ticket, now: now + 604_700_000) == "true \(kept)")
        #expect(read(ticket, now: now + 604_900_000) == "expired")
      }
      let brief = try await Self.ticket(gateway, "m1", "bob", ttl: #","ttl":10"#)
      #expect(read(brief, now: now + 5_000) != "expired" && read(brief, now: now + 60_000) == "expired")
    }
  }

  @Test func invalidTicketRequestsAreRefused() async throws {
    try await TestGateway.run { gateway in
      let many = Array(repeating: "7", count: 1_001).joined(separator: ",")
      let bodies = [
        "{}", #"{"tickets":7}"#, #"{"tickets":[],"ttl":0}"#, #"{"tickets":[],"ttl":2419201}"#,
        #"{"tickets":[],"ttl":"60"}"#, "{\"tickets\":[\(many)]}",
      ]
      for body in bodies {
        #expect(
          try await gateway.client.post("/v1/push/tickets", body).verdict == "400 invalid_field",
          "\(body)"
        )
      }
      #expect(try await gateway.client.post("/v1/push/tickets", "{").verdict == "400 invalid_json")
      let asUser = try await gateway.client.post("/v1/push/tickets", "{}", token: TestTokens.user("bob"))
      #expect(asUser.verdict == "403 server_token_required")
      #expect(
        try await gateway.client.post("/v1/push/tickets", "{}", token: nil).verdict == "401 token_missing"
      )
    }
  }

  /// Without a ticket secret, no ticket is issued or accepted, and the response names the missing flag.
  @Test func pushRoutesNeedTicketSecret() async throws {
    try await TestGateway.run(tickets: nil) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      for (path, body) in [("tickets", #"{"tickets":[]}"#), ("acks", #"{"tickets":["AQ"]}"#)] {
        let response = try await gateway.client.post("/v1/push/\(path)", body)
        #expect(response.verdict == "501 not_implemented")
        #expect(response.body.contains("--ticket-secret-file"))
      }
      let acks = #"{"acks":[{"ticket":"AQ"},\#(Self.entry("messaging:c", "m1", "bob"))]}"#
      let response = try await gateway.client.post("/v1/push/acks", acks)
      #expect(Self.results(response) == ["not_implemented", "messaging:c m1 bob"])
    }
  }

  // MARK: Push acks

  /// A ticket needs no token. A token that is sent anyway does not matter.
  @Test(arguments: [nil, TestTokens.user("carol"), TestTokens.server])
  func ticketMarksMessageDelivered(token: String?) async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      let ticket = try await Self.ticket(gateway, "m2", "bob")
      #expect(try await Self.delivered(gateway, "bob") == 0)
      for _ in 0..<2 {
        let response = try await gateway.client.post(
          "/v1/push/acks",
          #"{"tickets":["\#(ticket)"]}"#,
          token: token
        )
        #expect(response.status == 200 && Self.results(response) == ["messaging:c m2 bob"])
      }
      #expect(try await Self.delivered(gateway, "bob") == 2)
      #expect(try await gateway.store.takeIssueTimes().suffix(2) == [nil, nil])
    }
  }

  @Test func invalidTicketsAreRefused() async throws {
    try await TestGateway.run { gateway in
      for cid in ["messaging:c", "messaging:gone", "messaging:again"] {
        try await gateway.setUp(cid, members: ["alice", "bob"], messages: ["m1", "m2"])
      }
      let good = try await Self.ticket(gateway, "m1", "bob")
      let deleted = try await Self.ticket(gateway, "m2", "bob")
      let gone = try await Self.ticket(gateway, "m1", "bob", cid: "messaging:gone")
      let again = try await Self.ticket(gateway, "m1", "bob", cid: "messaging:again")
      let left = try await Self.ticket(gateway, "m1", "bob", cid: "messaging:c")
      let foreign = TicketCodec(keys: TicketKeys(secrets: [Array(TestTokens.previousSecret.utf8)]))
      let own = TicketCodec(keys: TicketKeys(secrets: [Array(TestTokens.secret.utf8)]))
      for codec in [foreign, own] { codec.bind(to: SessionID(high: 1, low: 2)) }
      // The place of a channel that never existed.
      let place = [99] + [UInt8](repeating: 1, count: 11)
      func made(_ codec: TicketCodec, expiry: UInt64, shard: UInt16) -> String {
        var buffer = ByteBuffer()
        let none: [UInt8] = []
        codec.write(
          expiry: expiry,
          shard: ShardID(shard),
          place: place.span.bytes,
          device: none.span.bytes,
          into: &buffer
        )
        return String(buffer: buffer)
      }
      _ = try await gateway.client.delete("/v1/channels/messaging:c/messages/m2")
      _ = try await gateway.client.delete("/v1/channels/messaging:gone")
      _ = try await gateway.client.delete("/v1/channels/messaging:again")
      try await gateway.setUp("messaging:again", members: ["alice", "bob"], messages: ["m1"])
      let table = [
        (good, "messaging:c m1 bob"), (String(good.dropLast()), "ticket_invalid"), ("", "ticket_invalid"),
        ("AAAA", "ticket_invalid"), (deleted, "messaging:c m2 bob"), (gone, "channel_not_found"),
        (again, "channel_not_found"), (made(foreign, expiry: .max, shard: 0), "ticket_invalid"),
        (made(own, expiry: 1, shard: 0), "ticket_expired"),
        (made(own, expiry: .max, shard: 4), "ticket_invalid"),
        (made(own, expiry: .max, shard: 3), "channel_not_found"),
      ]
      let list = table.map { "\"\($0.0)\"" }.joined(separator: ",")
      let response = try await gateway.client.post(
        "/v1/push/acks",
        "{\"tickets\":[\(list),7,null]}",
        token: nil
      )
      #expect(Self.results(response) == table.map(\.1) + ["invalid_field", "invalid_field"])
      let body = #"{"remove":["bob"]}"#
      #expect(try await gateway.client.post("/v1/channels/messaging:c/members", body).status == 200)
      // The request names no user, so the code is the same with and without a token.
      for token in [nil, TestTokens.server] {
        let response = try await gateway.client.post(
          "/v1/push/acks",
          "{\"tickets\":[\"\(left)\"]}",
          token: token
        )
        #expect(Self.results(response) == ["not_a_member"])
      }
    }
  }

  @Test func workerAcksAreAnsweredPerEntry() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2", "m3"])
      _ = try await gateway.client.delete("/v1/channels/messaging:c/messages/m3")
      let ticket = try await Self.ticket(gateway, "m1", "bob")
      let name = { (more: String) in Self.entry("messaging:c", "m2", "bob", more) }
      let table: [(String, String)] = [
        (name(""), "messaging:c m2 bob"), ("{\"ticket\":\"\(ticket)\"}", "messaging:c m1 bob"),
        (name(#","provider":"fcm","provider_message_id":"x","device":"android""#), "messaging:c m2 bob"),
        (name(#","acked_at":"2026-01-02T03:04:05Z""#), "messaging:c m2 bob"),
        (name(#","acked_at":null,"device":null"#), "messaging:c m2 bob"),
        (Self.entry("messaging:none", "m2", "bob"), "channel_not_found"),
        (Self.entry("messaging:c", "m2", "eve"), "member_not_found"),
        (Self.entry("messaging:c", "m9", "bob"), "message_not_found"),
        (Self.entry("messaging:c", "m3", "bob"), "messaging:c m3 bob"),
        (Self.entry("nothing", "m2", "bob"), "invalid_cid"),
        (Self.entry("messaging:c", "", "bob"), "invalid_message_id"),
        (Self.entry("messaging:c", "m2", "b\u{7F}b"), "invalid_user_id"),
        (#"{"ticket":""}"#, "ticket_invalid"),
        (#"{"ticket":7}"#, "invalid_field"), ("7", "invalid_field"), ("null", "invalid_field"),
        ("{}", "invalid_field"),
        (#"{"cid":"messaging:c","message_id":"m2"}"#, "invalid_field"),
        (#"{"ticket":"\#(ticket)","cid":"messaging:c"}"#, "invalid_field"),
        (name(#","acked_at":"yesterday""#), "invalid_field"), (name(#","acked_at":5"#), "invalid_field"),
        (name(#","device":5"#), "invalid_field"), (name(#","provider":[]"#), "invalid_field"),
        (name(#","provider_message_id":5"#), "invalid_field"),
      ]
      let body = "{\"acks\":[\(table.map(\.0).joined(separator: ","))]}"
      let response = try await gateway.client.post("/v1/push/acks", body)
      #expect(response.status == 200)
      for (index, result) in Self.results(response).enumerated() {
        #expect(result == table[index].1, "\(table[index].0)")
      }
      #expect(Self.results(response).count == table.count)
      #expect(try await Self.delivered(gateway, "bob") == 3)
    }
  }

  @Test func invalidAckRequestsAreRefused() async throws {
    try await TestGateway.run { gateway in
      let many = Array(repeating: "7", count: 1_001).joined(separator: ",")
      for body in [
        "{}", #"{"tickets":[],"acks":[]}"#, #"{"acks":7}"#, "{\"acks\":[\(many)]}", #"{"acks":null}"#,
      ] {
        #expect(
          try await gateway.client.post("/v1/push/acks", body).verdict == "400 invalid_field",
          "\(body)"
        )
      }
      for (token, verdict) in [
        (nil, "401 token_missing"), (TestTokens.user("bob"), "403 server_token_required"),
      ] {
        let response = try await gateway.client.post("/v1/push/acks", #"{"acks":[]}"#, token: token)
        #expect(response.verdict == verdict)
      }
      let wrong = try await gateway.client.post("/v1/push/acks", #"{"tickets":[]}"#, token: "nonsense")
      #expect(wrong.verdict == "401 token_malformed")
      #expect(try await gateway.client.post("/v1/push/acks", #"{"acks":[]}"#).body == #"{"results":[]}"#)
      #expect(try await gateway.store.takeLog() == [])
    }
  }

  /// An ack that the store fails does not fail the others.
  @Test func storeFailureFailsOnlyItsAck() async throws {
    try await TestGateway.run(deadline: TestGateway.shortDeadline) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let body = "{\"acks\":[\(Self.entry("messaging:c", "m1", "bob")),7]}"
      let table: [(StoreInMemory.Mode, String)] = [
        (.refusing(.unavailable), "store_unavailable"), (.refusing(.busy), "store_busy"),
        (.refusing(.outcomeUnknown), "outcome_unknown"), (.refusing(.messageDeleted), "message_deleted"),
        (.refusing(.userErased), "user_erased"), (.garbled, "internal_error"),
        (.silent, "outcome_unknown"), (.normal, "messaging:c m1 bob"),
      ]
      for (mode, result) in table {
        try await gateway.store.set(mode)
        let response = try await gateway.client.post("/v1/push/acks", body)
        #expect(Self.results(response) == [result, "invalid_field"], "\(mode)")
      }
    }
  }

  /// A batch begun within the gateway reports its results once, when all are known.
  @Test func hookBatchReportsResultsOnce() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let ticket = try await Self.ticket(gateway, "m1", "bob")
      let (loop, eventLoop) = (gateway.loop, gateway.eventLoop)
      let results = eventLoop.makePromise(of: [ProblemCode?].self)
      try await eventLoop.submit {
        let batch = loop.value.push.begin(.closure { results.succeed($0) }, source: .hook, countMax: 3)
        let (text, cid, user) = (Array(ticket.utf8), Array("messaging:c".utf8), Array("eve".utf8))
        let message = Array("m1".utf8)
        let none: [UInt8] = []
        do throws(ProblemCode) {
          let byTicket = try PushAck(
            ticket: text.span.bytes,
            provider: none.span.bytes,
            device: none.span.bytes
          )
          loop.value.push.add(byTicket, in: batch)
          let byName = try PushAck(
            cid: cid.span.bytes,
            message: message.span.bytes,
            user: user.span.bytes,
            provider: none.span.bytes,
            device: none.span.bytes
          )
          loop.value.push.add(byName, in: batch)
        } catch {
          Issue.record(error)
        }
        loop.value.push.refuse(.invalidField, .hook, in: batch)
        loop.value.push.end(batch)
        loop.value.endTurn()
      }.get()
      #expect(try await results.futureResult.value("the results") == [nil, .memberNotFound, .invalidField])
      try await eventLoop.submit {
        let batch = loop.value.push.begin(.closure { #expect($0.isEmpty) }, source: .hook, countMax: 1)
        loop.value.push.end(batch)
        #expect(loop.value.push.batchCount == 0)
      }.get()
    }
  }

  // MARK: Metrics

  @Test func acksAreCountedByLabels() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      let ticket = try await Self.ticket(gateway, "m1", "bob", #","device":"ios""#)
      try await gateway.store.advance(milliseconds: 2_000)
      for _ in 0..<2 {
        _ = try await gateway.client.post("/v1/push/acks", "{\"tickets\":[\"\(ticket)\"]}", token: nil)
      }
      _ = try await gateway.client.post("/v1/push/acks", #"{"tickets":["AAAA"]}"#, token: nil)
      let names = [
        Self.entry("messaging:c", "m2", "bob", #","provider":"fcm","device":"pixel 7""#),
        Self.entry("messaging:c", "m2", "eve", #","provider":"fcm""#),
      ]
      _ = try await gateway.client.post("/v1/push/acks", "{\"acks\":[\(names.joined(separator: ","))]}")
      let text = try await gateway.metrics()
      for line in [
        #"push_acks_total{by="ticket",provider="none",device="ios",result="moved"} 1"#,
        #"push_acks_total{by="ticket",provider="none",device="ios",result="known"} 1"#,
        #"push_acks_total{by="ticket",provider="none",device="none",result="refused"} 1"#,
        #"push_acks_total{by="worker",provider="fcm",device="other",result="moved"} 1"#,
        #"push_acks_total{by="worker",provider="fcm",device="none",result="refused"} 1"#,
        #"push_delivery_seconds_bucket{provider="none",le="1"} 0"#,
        #"push_delivery_seconds_bucket{provider="none",le="2.5"} 1"#,
        #"push_delivery_seconds_count{provider="fcm"} 1"#,
      ] { #expect(text.contains("tidemark_gateway_" + line + "\n"), "\(line)") }
    }
  }

  @Test func storeFailuresAreCountedSeparately() async throws {
    try await TestGateway.run(deadline: TestGateway.shortDeadline) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let ticket = try await Self.ticket(gateway, "m1", "bob")
      try await gateway.store.set(.silent)
      let response = try await gateway.client.post(
        "/v1/push/acks",
        "{\"tickets\":[\"\(ticket)\"]}",
        token: nil
      )
      #expect(response.body == #"{"results":[{"ok":false,"code":"outcome_unknown"}]}"#)
      let text = try await gateway.metrics()
      #expect(text.contains(#"push_acks_total{by="ticket",provider="none",device="none",result="failed"} 1"#))
      #expect(!text.contains(#"device="none",result="refused""#))
    }
  }

  /// A device that keeps sending its ticket leaves capacity for other callers.
  @Test func deviceAcksInFlightAreLimited() async throws {
    var limits = GatewayLimits()
    limits.deviceAcks = 3
    try await TestGateway.run(limits: limits, deadline: .seconds(1)) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let ticket = try await Self.ticket(gateway, "m1", "bob")
      func body(_ count: Int) -> String {
        "{\"tickets\":[\(Array(repeating: "\"\(ticket)\"", count: count).joined(separator: ","))]}"
      }
      let client = gateway.client
      #expect(try await client.post("/v1/push/acks", body(3), token: nil).status == 200)
      let tooMany = try await client.post("/v1/push/acks", body(4), token: nil)
      #expect(tooMany.verdict == "503 store_busy" && tooMany.headers["retry-after"] != nil)
      try await gateway.store.set(.silent)
      async let waiting = client.post("/v1/push/acks", body(2), token: nil)
      try await eventually("entries of a device are pending") {
        try await gateway.eventLoop.submit({ gateway.loop.value.push.deviceEntries }).get() != 0
      }
      #expect(try await client.post("/v1/push/acks", body(2), token: nil).verdict == "503 store_busy")
      #expect(try await waiting.status == 200)
      try await gateway.store.set(.normal)
      // The limit does not apply to servers. Finished acks free their capacity.
      let acks = Array(repeating: Self.entry("messaging:c", "m1", "bob", ""), count: 4).joined(separator: ",")
      #expect(try await client.post("/v1/push/acks", "{\"acks\":[\(acks)]}").status == 200)
      #expect(try await client.post("/v1/push/acks", body(3), token: nil).status == 200)
    }
  }

  @Test func configuredLabelNamesAreAlwaysKept() {
    var names = LabelNames(["ios", "web"])
    for index in 0..<40 {
      let bytes = Array("phone-\(index)".utf8)
      _ = names.number(bytes.span.bytes)
    }
    let (known, late) = (Array("web".utf8), Array("tablet".utf8))
    let numbers = (names.number(known.span.bytes), names.number(late.span.bytes))
    #expect(names.text(numbers.0) == "web" && numbers.1 == LabelNames.other)
  }

  @Test func labelNamesAreBounded() {
    var names = LabelNames()
    func number(_ text: String) -> UInt8 {
      let bytes = Array(text.utf8)
      return names.number(bytes.span.bytes)
    }
    #expect(number("") == LabelNames.none)
    for wrong in ["a b", "é", String(repeating: "x", count: 33), "\"", "a\n"] {
      #expect(number(wrong) == LabelNames.other)
    }
    for index in 0..<40 {
      let expected = index < LabelNames.countMax ? UInt8(index + 2) : LabelNames.other
      #expect(number("provider-\(index)") == expected)
    }
    #expect(number("provider-3") == 5 && names.text(5) == "provider-3")
    #expect(names.text(LabelNames.none) == "none" && names.text(LabelNames.other) == "other")
  }
}

extension TestGateway {
  /// The loop's metrics as text.
  func metrics() async throws -> String {
    try await eventLoop.submit { [loop] in
      var samples = MetricSamples()
      loop.value.collect(into: &samples)
      var buffer = ByteBuffer()
      samples.write(into: &buffer)
      return String(buffer: buffer)
    }.get()
  }
}
