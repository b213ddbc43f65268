import Foundation
import HTTP2Session
import NIOCore
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Imports and exports (docs/api/import-export.md), as their callers see them.
@Suite struct TransferRouteTests {
  private static let lineType = "application/x-ndjson"
  private static let channelLine = #"{"channel":{"cid":"messaging:c","created_at":"2024-03-01T09:00:00Z"}}"#
  private static let messageLine =
    #"{"message":{"cid":"messaging:c","id":"m1","user_id":"alice","created_at":"2024-03-01T09:01:00Z"}}"#
  private static let memberLine = #"{"member":{"cid":"messaging:c","user_id":"alice"}}"#

  /// A channel type, a user, and a channel with everything in it.
  private static let history: [String] = [
    #"{"channel_type":{"type":"team","options":{"history":"hidden"}}}"#,
    #"{"user":{"id":"carol","privacy_settings":{"read_receipts":{"enabled":false}}}}"#,
    channelLine,
    #"{"message":{"cid":"messaging:c","id":"m1","user_id":"alice","created_at":"2024-03-01T09:01:00Z","#
      + #""receipt":true}}"#,
    #"{"message":{"cid":"messaging:c","id":"r1","user_id":"bob","created_at":"2024-03-01T09:02:00Z","#
      + #""parent_id":"m1"}}"#,
    memberLine,
    #"{"member":{"cid":"messaging:c","user_id":"bob","last_read_message_id":"m1","#
      + #""last_read_at":"2024-03-01T09:01:30Z"}}"#,
    #"{"acknowledged":{"cid":"messaging:c","message_id":"m1","user_id":"bob","at":"2024-03-01T09:03:00Z","#
      + #""note":"on it"}}"#,
  ]
  /// The lines of ``history`` in short.
  private static let historyInShort = [
    "channel_type team", "user carol", "channel messaging:c", "message m1", "message r1", "member alice",
    "member bob", "acknowledged bob",
  ]

  /// A line of an export in short: its kind, and what it names.
  private static func short(_ line: NSDictionary) -> String {
    guard let kind = line.allKeys.first as? String, let fields = line[kind] as? NSDictionary else { return "no line" }
    let name: String
    switch kind {
    case "channel_type": name = "type"
    case "channel": name = "cid"
    case "member", "acknowledged": name = "user_id"
    case "error": name = "code"
    default: name = "id"
    }
    return "\(kind) \(fields[name] as? String ?? "without a name")"
  }

  /// Export, and return the lines in short.
  private static func export(_ client: TestClient, _ query: String = "") async throws -> [String] {
    let response = try await client.get("/v1/export" + query)
    #expect(response.status == 200 && response.contentType == lineType)
    return try response.lines.map { short($0) }
  }

  /// An answer to an import in short, as in `3 import_gap` or `done: 12 lines, 1 refused`.
  private static func short(answer: NSDictionary) -> String {
    let code = answer["code"] as? String ?? "no code"
    if let line = answer["line"] as? Int { return "\(line) \(code)" }
    let lines = answer["lines"] as? Int ?? -1
    let refused = answer["refused"] as? Int ?? -1
    guard let isDone = answer["done"] as? Bool else { return "\(lines) lines, \(refused) refused" }
    return "\(isDone ? "done" : code): \(lines) lines, \(refused) refused"
  }

  /// Import lines, and return the answers in short.
  private static func importLines(
    _ client: TestClient,
    _ lines: [String],
    _ query: String = ""
  ) async throws -> [String] {
    let response = try await client.request(
      .post,
      "/v1/import" + query,
      lines.map { $0 + "\n" }.joined(),
      token: TestTokens.server,
      contentType: lineType
    )
    #expect(response.status == 200 && response.contentType == lineType)
    return try response.lines.map { short(answer: $0) }
  }

  private static func send(_ text: String, _ stream: TestRequestStream, _ client: TestClient) async throws {
    try await client.send(ByteBuffer(string: text), stream)
  }

  // MARK: Import

  @Test func importedHistoryIsExportedAndImportedElsewhere() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      #expect(try await Self.importLines(client, Self.history) == ["done: 8 lines, 0 refused"])
      let state = try await client.get("/v1/channels/messaging:c/read-state")
      let rows = try #require(state.json["read"] as? [NSDictionary])
      let bob = try #require(rows.first { ($0["user"] as? NSDictionary)?["id"] as? String == "bob" })
      #expect(bob["last_read_seq"] as? Int == 1 && bob["last_read_message_id"] as? String == "m1")

      let exported = try await client.get("/v1/export")
      let lines = try exported.lines
      #expect(lines.map { Self.short($0) } == Self.historyInShort)
      #expect(member("channel.created_at", of: lines[2]) as? String == "2024-03-01T09:00:00.000Z")
      #expect(member("message.created_at", of: lines[3]) as? String == "2024-03-01T09:01:00.000Z")
      #expect(member("message.parent_id", of: lines[4]) as? String == "m1")
      #expect(member("member.last_read_at", of: lines[6]) as? String == "2024-03-01T09:01:30.000Z")
      #expect(member("acknowledged.note", of: lines[7]) as? String == "on it")

      // The same lines again change nothing.
      let texts = exported.body.split(separator: "\n").map { String($0) }
      #expect(try await Self.importLines(client, texts) == ["done: 8 lines, 0 refused"])
      #expect(try await client.get("/v1/export").body == exported.body)
      try await TestGateway.run { other in
        #expect(try await Self.importLines(other.client, texts) == ["done: 8 lines, 0 refused"])
        let copied = try await other.client.get("/v1/export").body.split(separator: "\n").map { String($0) }
        #expect(Set(copied) == Set(texts))
      }
    }
  }

  @Test func wrongLinesAreRefusedAndOthersAreImported() async throws {
    try await TestGateway.run { gateway in
      let table: [(line: String, code: String?)] = [
        ("{", "invalid_json"), ("[]", "invalid_field"), ("{}", "invalid_field"),
        (#"{"something":{}}"#, "unknown_field"), (Self.channelLine, nil), (#"{"channel":{"cid":"c"}}"#, "invalid_cid"),
        (#"{"channel":{"cid":"messaging:c","topic":"t"}}"#, "unknown_field"),
        (#"{"message":{"cid":"messaging:none","id":"m1"}}"#, "channel_not_found"), (Self.messageLine, nil),
        (#"{"message":{"cid":"messaging:c","id":"m1","user_id":"bob"}}"#, "message_conflict"),
        (#"{"message":{"cid":"messaging:c","id":"m3","seq":3}}"#, "import_gap"),
        (#"{"message":{"cid":"messaging:c","id":"m2","created_at":"2999-01-01T00:00:00Z"}}"#, "time_in_future"),
        (#"{"member":{"cid":"messaging:c","user_id":"bob","last_read_message_id":"m9"}}"#, "message_not_found"),
        (Self.memberLine, nil), (#"{"member":{"cid":"messaging:c","user_id":"bob"}}"#, nil),
        (#"{"acknowledged":{"cid":"messaging:c","message_id":"m1","user_id":"bob"}}"#, "receipt_not_requested"),
        (#"{"user":{"id":""}}"#, "invalid_user_id"), (String(repeating: "x", count: 49_153), "line_too_long"),
      ]
      var expected: [String] = []
      for (index, row) in table.enumerated() {
        if let code = row.code { expected.append("\(index + 1) \(code)") }
      }
      expected.append("done: \(table.count) lines, \(expected.count) refused")
      let answers = try await Self.importLines(gateway.client, table.map(\.line))
      #expect(answers == expected)
      let exported = try await Self.export(gateway.client)
      #expect(exported == ["channel messaging:c", "message m1", "member alice", "member bob"])
    }
  }

  @Test func dryRunImportsNothingAndOnlyServersImport() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let dry = try await Self.importLines(client, Self.history + ["{"], "?dry_run=true")
      #expect(dry == ["9 invalid_json", "done: 9 lines, 1 refused"])
      #expect(try await Self.export(client) == [])
      // Blank lines are passed over.
      #expect(try await Self.importLines(client, ["", " "]) == ["done: 0 lines, 0 refused"])
      let requests: [(query: String, token: String?, type: String, expected: String)] = [
        ("?dry_run=maybe", TestTokens.server, Self.lineType, "400 invalid_query"),
        ("", TestTokens.server, "application/json", "415 content_type_not_supported"),
        ("", TestTokens.user("alice"), Self.lineType, "403 server_token_required"),
        ("", nil, Self.lineType, "401 token_missing"),
      ]
      for row in requests {
        let path = "/v1/import" + row.query
        let response = try await client.request(.post, path, "{}\n", token: row.token, contentType: row.type)
        #expect(response.verdict == row.expected, "\(row)")
      }
    }
  }

  /// The last answer says how many lines are done; those after them are sent again.
  @Test func importEndsWhereStoreFails() async throws {
    try await TestGateway.run { gateway in
      let lines = [Self.channelLine, Self.messageLine, Self.memberLine]
      let table: [(StoreInMemory.Mode, String)] = [
        (.refusingKind(.importMessages, .busy), "store_busy"),
        (.refusingKind(.importMessages, .unavailable), "store_unavailable"), (.garbled, "internal_error"),
      ]
      for (mode, code) in table {
        try await gateway.store.set(mode)
        #expect(try await Self.importLines(gateway.client, lines) == ["\(code): 1 lines, 0 refused"])
      }
      try await gateway.store.set(.normal)
      let rest = try await Self.importLines(gateway.client, Array(lines.dropFirst()))
      #expect(rest == ["done: 2 lines, 0 refused"])
      #expect(try await Self.export(gateway.client) == ["channel messaging:c", "message m1", "member alice"])
    }
  }

  @Test func lostStoreConnectionAndExpiredTokenEndImportAfterDoneLines() async throws {
    try await TestGateway.run { gateway in
      let (client, store) = (gateway.client, gateway.store)
      let cut = try await client.begin("/v1/import", contentType: Self.lineType)
      try await Self.send(Self.channelLine + "\n" + Self.messageLine + "\n", cut, client)
      try await eventually("two lines are done") { try await gateway.metric("import_lines_total") == 2 }
      try await store.set(.closing(.importMembers))
      try await Self.send(Self.memberLine + "\n", cut, client)
      #expect(try await Self.short(answer: cut.object()) == "outcome_unknown: 2 lines, 0 refused")
      #expect(await cut.line() == nil)
      try await client.finish(cut)
      try await store.set(.normal)

      let expiry = Int(Date().timeIntervalSince1970) + 600
      let token = TestTokens.make(#"{"server":true,"exp":\#(expiry)}"#)
      let expiring = try await client.begin("/v1/import", contentType: Self.lineType, token: token)
      try await Self.send(Self.memberLine + "\n", expiring, client)
      try await eventually("the third line is done") { try await gateway.metric("import_lines_total") == 3 }
      gateway.clock.advance(by: .seconds(601))
      #expect(try await Self.short(answer: expiring.object()) == "token_expired: 1 lines, 0 refused")
      #expect(await expiring.line() == nil)
      try await client.finish(expiring)
      #expect(try await Self.export(client) == ["channel messaging:c", "message m1", "member alice"])
    }
  }

  @Test func abortedImportKeepsItsWholeLines() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let stream = try await client.begin("/v1/import", contentType: Self.lineType)
      try await Self.send("{\n" + Self.channelLine + "\n", stream, client)
      // A refused line is answered while the body goes on.
      #expect(try await Self.short(answer: stream.object()) == "1 invalid_json")
      try await Self.send(Self.messageLine + "\n" + String(Self.memberLine.dropLast()), stream, client)
      try await eventually("three lines are done") { try await gateway.metric("import_lines_total") == 3 }
      try await client.reset(stream)
      try await eventually("the gateway has forgotten it") { try await gateway.metric("request_streams") == 0 }
      #expect(try await Self.export(client) == ["channel messaging:c", "message m1"])
      let lines = [Self.channelLine, Self.messageLine, Self.memberLine]
      #expect(try await Self.importLines(client, lines) == ["done: 3 lines, 0 refused"])
    }
  }

  @Test func unreadAnswersStopAnImport() async throws {
    var limits = GatewayLimits()
    limits.streamIdleTimeout = .seconds(2)
    var http2 = HTTP2Limits()
    http2.streamQueueBytesMax = 1_000
    try await TestGateway.run(limits: limits, http2: http2) { gateway in
      let stalled = try await TestClient.connect(port: gateway.port, window: 65_535, on: gateway.eventLoop)
      _ = try await stalled.get("/v1/channels/messaging:none")
      try await stalled.stopReading()
      let stream = try await stalled.begin("/v1/import", contentType: Self.lineType)
      try await Self.send(String(repeating: "x\n", count: 20_000), stream, stalled)
      try await eventually("the unread stream is reset") {
        try await gateway.metric("request_streams_stalled_total") == 1
      }
      #expect(try await gateway.metric("request_streams") == 0)
      let refused = try await gateway.metric("import_lines_refused_total")
      #expect(refused > 0 && refused < 20_000)
      try await stalled.close()
    }
  }

  // MARK: Export

  @Test func exportHasChosenTypeOrUser() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let team = [#"{"channel":{"cid":"team:d"}}"#, #"{"member":{"cid":"team:d","user_id":"alice"}}"#]
      #expect(try await Self.importLines(client, Self.history + team) == ["done: 10 lines, 0 refused"])
      let ofType = try await Self.export(client, "?channel_type=team")
      #expect(ofType.filter { !$0.hasPrefix("user ") } == ["channel_type team", "channel team:d", "member alice"])
      // A person's data: nothing of others.
      let ofUser = try await Self.export(client, "?user_id=bob")
      #expect(ofUser == ["user bob", "message r1", "member bob", "acknowledged bob"])
      let both = try await Self.export(client, "?user_id=alice&channel_type=team")
      #expect(both == ["user alice", "member alice"])
      #expect(try await client.get("/v1/export?channel_type=a%20b").verdict == "400 invalid_channel_type")
      #expect(try await client.get("/v1/export?user_id=b%7Fb").verdict == "400 invalid_user_id")
      let user = try await client.get("/v1/export", token: TestTokens.user("bob"))
      #expect(user.verdict == "403 server_token_required")
      let head = try await client.request(.head, "/v1/export", nil, token: TestTokens.server)
      #expect(head.status == 200 && head.body.isEmpty)
    }
  }

  @Test func exportRepeatsWhatStoreRefusesOrLoses() async throws {
    try await TestGateway.run { gateway in
      let (client, store) = (gateway.client, gateway.store)
      #expect(try await Self.importLines(client, Self.history) == ["done: 8 lines, 0 refused"])
      let lists = NextAnswers([.refusal(.busy), .closing, .refusal(.unavailable)])
      let parts = NextAnswers([.refusal(.busy), .closing])
      try await store.set(
        .scripted { request in
          switch request.kind {
          case .listStoredChannels: return lists.take()
          case .exportChannel: return parts.take()
          default: return .engine
          }
        }
      )
      #expect(try await Self.export(client) == Self.historyInShort)
      #expect(lists.isEmpty && parts.isEmpty)
      // Deleted since it was listed.
      try await store.set(.refusingChannel("messaging:c", .channelNotFound))
      #expect(try await Self.export(client) == ["channel_type team", "user carol"])
      // What cannot be repeated ends the export with an error.
      try await store.script(.exportChannel) { _ in .reply(ByteBuffer(repeating: 0xFF, count: 20)) }
      let cut = try await Self.export(client)
      #expect(cut == ["channel_type team", "user carol", "error internal_error"])
    }
  }

  @Test func seventeenthExportIsRefused() async throws {
    try await TestGateway.run { gateway in
      let (client, store) = (gateway.client, gateway.store)
      try await store.set(.ignoringKind(.listChannelTypes))
      var streams: [TestRequestStream] = []
      for _ in 0..<16 { streams.append(try await client.lines("/v1/export")) }
      try await eventually("16 exports are open") { try await gateway.metric("exports") == 16 }
      #expect(try await client.get("/v1/export").verdict == "409 limit_reached")
      for stream in streams { try await client.reset(stream) }
      try await eventually("the aborted exports are forgotten") { try await gateway.metric("exports") == 0 }
      try await store.set(.normal)
      #expect(try await Self.export(client) == [])
    }
  }

  /// A client that takes no lines gets what its window and the gateway's bounded queue hold, and is then reset.
  @Test func unreadExportReadsNoFurtherAndIsReset() async throws {
    var limits = GatewayLimits()
    limits.streamIdleTimeout = .seconds(3)
    try await TestGateway.run(limits: limits) { gateway in
      let client = gateway.client
      let channelCount = 64
      let messageCount = 80
      let prefix = String(repeating: "m", count: 200)
      var lines: [String] = []
      for channel in 0..<channelCount {
        lines.append(#"{"channel":{"cid":"messaging:c\#(channel)"}}"#)
        for message in 0..<messageCount {
          lines.append(#"{"message":{"cid":"messaging:c\#(channel)","id":"\#(prefix)\#(message)"}}"#)
        }
      }
      #expect(try await Self.importLines(client, lines) == ["done: \(lines.count) lines, 0 refused"])
      let stalled = try await TestClient.connect(port: gateway.port, window: 65_535, on: gateway.eventLoop)
      _ = try await stalled.get("/v1/channels/messaging:c0")
      try await stalled.stopReading()
      _ = try await gateway.store.takeLog()
      _ = try await stalled.lines("/v1/export")
      try await eventually("the unread export is reset") { try await gateway.metric("exports_stalled_total") == 1 }
      // Each channel takes one request or more.
      let partCount = try await gateway.store.takeLog().count { $0 == .exportChannel }
      #expect(partCount > 0 && partCount < channelCount)
      #expect(try await gateway.metric("exports") == 0)
      #expect(try await Self.export(client).count == lines.count)
      try await stalled.close()
    }
  }
}
