import Crypto
import Foundation
import HTTP2Session
import NIOCore
import Operations
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Signatures and times of webhooks. The signatures were made with Python's hmac.
@Suite struct HookSignatureTests {
  private static let first = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
  private static let second = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
  private static let signed = "v1,GBgFCOjNMyChaJkM0TGTXQ0NUYGvEvHC2nCqyIezE9Q="
  private static let signedEmpty = "v1,amcCR9+HGJUcbpN0HzliuKzDJkenCx5mV9lf3DlQ0mM="
  private static let signedBySecond = "v1,ugjBlSQ7Ecjo1jzQ69v03kLqeAt5A1/PbYt+VO9RMls="
  private static let body = #"{"type":"push.delivered"}"#
  private static let sent: Int64 = 1_700_000_000

  private func verdict(
    id: String = "msg_1",
    timestamp: String = "1700000000",
    _ signatures: String = Self.signed,
    body: String = Self.body,
    now: Int64 = Self.sent
  ) throws -> String {
    let secrets = [
      try #require(HookSignature.secret(Self.first)), try #require(HookSignature.secret(Self.second)),
    ]
    let (id, timestamp) = (Array(id.utf8), Array(timestamp.utf8))
    let (signatures, body) = (Array(signatures.utf8), Array(body.utf8))
    do {
      let sent = try HookSignature(secrets: secrets).check(
        id: id.span.bytes,
        timestamp: timestamp.span.bytes,
        signatures: signatures.span.bytes,
        body: body.span.bytes,
        now: now * 1_000
      )
      return "\(sent)"
    } catch {
      switch error {
      case .header(let name): return name.rawValue
      case .signature: return "signature"
      case .time: return "time"
      }
    }
  }

  @Test func validSignatureIsAccepted() throws {
    #expect(try verdict() == "1700000000")
    #expect(try verdict(Self.signedEmpty, body: "") == "1700000000")
    #expect(try verdict(Self.signedBySecond) == "1700000000")
    #expect(try verdict("v2,none \(Self.signedBySecond) v1,AAAA") == "1700000000")
  }

  @Test func invalidSignatureIsRefused() throws {
    #expect(try verdict(id: "msg_2") == "signature")
    #expect(try verdict(timestamp: "1700000001") == "signature")
    #expect(try verdict(timestamp: "01700000000") == "signature")
    #expect(try verdict(body: Self.body + " ") == "signature")
    let bare = String(Self.signed.dropFirst(3))
    for signature in [
      bare, "v1a,\(bare)", "v1,\(bare.dropLast())", "v1,\(bare)=", "v1,", "v1," + bare.lowercased(),
      "v1 \(bare)",
      Self.signed.replacing("v1,G", with: "v1,H"),
    ] {
      #expect(try verdict(signature) == "signature", "\(signature)")
    }
  }

  /// The same signature in base64 with unused bits set.
  @Test func nonCanonicalSignatureIsRefused() throws {
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    let last = try #require(Self.signed.dropLast().last)
    let other = alphabet[try #require(alphabet.firstIndex(of: last)) + 1]
    let signature = Self.signed.dropLast(2) + "\(other)="
    #expect(try verdict(String(signature)) == "signature")
  }

  @Test func malformedHeadersAreRefused() throws {
    for id in ["", "a b", "é", String(repeating: "i", count: 129)] {
      #expect(try verdict(id: id) == "webhook-id", "\(id)")
    }
    for timestamp in ["", "now", "-1700000000", "1.7e9", "1700000000000"] {
      #expect(try verdict(timestamp: timestamp) == "webhook-timestamp", "\(timestamp)")
    }
    #expect(try verdict("") == "webhook-signature")
  }

  @Test func timestampMayDifferByFiveMinutes() throws {
    for (difference, expected) in [
      (0, "1700000000"), (300, "1700000000"), (-300, "1700000000"), (301, "time"), (-301, "time"),
      (1_000_000_000, "time"),
    ] as [(Int64, String)] {
      #expect(try verdict(now: Self.sent + difference) == expected, "\(difference)")
    }
  }

  @Test func secretIsParsedFromText() {
    #expect(HookSignature.secret(Self.first) == Array(0..<32))
    for text in [
      "", "whsec_", "whsec_AAEC", String(Self.first.dropFirst(6)),
      "whsec_" + String(repeating: "A", count: 88),
      "whsec_!AECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    ] {
      #expect(HookSignature.secret(text) == nil, "\(text)")
    }
  }
}

/// The file of `--hooks-file`.
@Suite struct HookConfigurationTests {
  private static let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

  private func load(_ text: String, secretFile: String? = nil) throws -> [PushHook] {
    let directory =
      FileManager.default.temporaryDirectory.path + "/tidemark-\(UInt64.random(in: 0...UInt64.max))"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    if let secretFile {
      try secretFile.write(toFile: directory + "/secret", atomically: true, encoding: .utf8)
    }
    let path = directory + "/hooks"
    try text.replacing("DIRECTORY", with: directory).write(toFile: path, atomically: true, encoding: .utf8)
    do {
      return try HookConfiguration.load(path) { _ in }
    } catch {
      #expect(error.description.hasPrefix("--hooks-file "))
      #expect(!error.description.contains("\n"))
      throw error
    }
  }

  @Test func hooksAreReadFromYAMLAndJSON() throws {
    let yaml = """
      hooks:
        relay:
          secrets: [\(Self.secret)]
        other-1:
          secret-files: DIRECTORY/secret
          provider: fcm
          events: payload.events
          delivered:
            meta.kind: [delivered, opened]
          fields:
            ticket: custom.ticket
            acked_at: at
      """
    let hooks = try load(yaml, secretFile: "\(Self.secret)\n\(Self.secret)\n")
    #expect(hooks.map(\.name) == ["other-1", "relay"])
    #expect(hooks.map { String(decoding: $0.provider, as: UTF8.self) } == ["fcm", "relay"])
    #expect(hooks[1].mapping == HookMapping())
    let mapping = hooks[0].mapping
    #expect(mapping.events == HookMapping.path(ifAny: "payload.events"))
    #expect(mapping.kind == HookMapping.path(ifAny: "meta.kind"))
    #expect(mapping.delivered == ["delivered", "opened"].map { Array($0.utf8) })
    #expect(
      mapping.ticket == HookMapping.path(ifAny: "custom.ticket") && mapping.cid == nil
        && mapping.device == nil
    )
    let json = try load("{\"hooks\": {\"relay\": {\"secrets\": [\"\(Self.secret)\"]}}}")
    #expect(json.map(\.name) == ["relay"])
  }

  @Test func exampleFileIsValid() throws {
    let hooks = try HookConfiguration.load(packageRoot.path + "/Deploy/hooks.example.yaml") { _ in }
    #expect(hooks.map(\.name) == ["provider", "relay"])
  }

  @Test func invalidHooksAreNamed() throws {
    func hook(_ lines: String) -> String { "hooks: {relay: {\(lines)}}" }
    let good = "secrets: [\(Self.secret)]"
    let table: [(String, String)] = [
      ("", "has to be `hooks:`"), ("hooks: []", "has to be `hooks:`"), ("hooks: {}", "has to be `hooks:`"),
      ("hooks: {a: {}}\nother: 1", "has to be `hooks:`"), ("hooks: {", "neither YAML nor JSON"),
      ("hooks: {a: {}, a: {}}", "neither YAML nor JSON: line 1: duplicate key: a"),
      (
        "hooks:\n  a:\n\t secrets: [\(Self.secret)]",
        "neither YAML nor JSON: line 3, column 1: found character"
      ),
      ("hooks:\n  a:\n    secrets: [\(Self.secret)]]", "neither YAML nor JSON: line 3, column "),
      ("hooks: {a: {\(good)\u{7}}}", "neither YAML nor JSON: character "),
      ("hooks: {relay: }", "hook \"relay\" has no settings; give at least `secrets`"),
      ("hooks: {a/b: {\(good)}}", "hook \"a/b\": the name has to be 1 to 64"),
      (hook("provider: x"), "hook \"relay\", \"secrets\": is missing"),
      (hook("secrets: [whsec_short]"), "hook \"relay\", \"secrets[0]\": has to be `whsec_` and base64"),
      (hook("secrets: [\(Self.secret), 5]"), "hook \"relay\", \"secrets\": must be a list of strings"),
      (
        hook("secret-files: /none"),
        "--hooks-file /none: the file cannot be read (No such file or directory)"
      ),
      (
        hook("\(good), secert: x"), "hook \"relay\", \"secert\": is unknown; known keys are delivered, events"
      ),
      (hook("\(good), provider: a b"), "hook \"relay\", \"provider\": has to be 1 to 32"),
      (hook("\(good), provider: 5"), "hook \"relay\", \"provider\": has to be a text"),
      (hook("\(good), events: a..b"), "hook \"relay\", \"events\": has to be names with dots"),
      (hook("\(good), delivered: yes"), "hook \"relay\", \"delivered\": has to be one path with its values"),
      (hook("\(good), delivered: {type: []}"), "hook \"relay\", \"delivered\": has to be one path"),
      (hook("\(good), fields: ticket"), "hook \"relay\", \"fields\": has to be names with paths"),
      (hook("\(good), fields: {tickets: a}"), "hook \"relay\", \"fields.tickets\": is unknown"),
      (hook("\(good), fields: {ticket: .a}"), "hook \"relay\", \"fields.ticket\": has to be names with dots"),
      (hook("\(good), fields: {cid: a, user_id: b}"), "hook \"relay\", \"fields\": needs `ticket`, or `cid`"),
      (hook("\(good), fields: {device: a}"), "hook \"relay\", \"fields\": needs `ticket`, or `cid`"),
    ]
    for (text, part) in table {
      let error = #expect(throws: SettingsError.self) { _ = try load(text) }
      #expect(error?.description.contains("\(Self.secret)") == false, "\(text): \(error?.description ?? "")")
      #expect(error?.description.contains(part) == true, "\(text): \(error?.description ?? "")")
    }
  }
}

/// `POST /v1/push/hooks/{name}`.
@Suite struct HookRouteTests {
  private static let secrets = ["first-secret-of-the-relay-here", "second-secret-of-the-relay-too"].map {
    Array($0.utf8)
  }
  private static let hooks = [
    PushHook(
      name: "relay",
      signature: HookSignature(secrets: secrets),
      provider: Array("relay".utf8),
      mapping: HookMapping()
    )
  ]

  private static func post(
    _ gateway: TestGateway,
    _ body: String,
    id: String,
    at time: Date = Date(),
    secret: [UInt8] = secrets[0],
    hook: String = "relay",
    contentType: String = "application/json",
    headers override: [(name: String, value: String)]? = nil
  ) async throws -> TestResponse {
    let seconds = "\(Int(time.timeIntervalSince1970))"
    let code = HMAC<SHA256>.authenticationCode(
      for: Array("\(id).\(seconds).\(body)".utf8),
      using: SymmetricKey(data: secret)
    )
    let headers = [
      (name: "webhook-id", value: id), (name: "webhook-timestamp", value: seconds),
      (name: "webhook-signature", value: "v1,\(Data(code).base64EncodedString())"),
    ]
    return try await gateway.client.request(
      .post,
      "/v1/push/hooks/\(hook)",
      body,
      token: nil,
      contentType: contentType,
      headers: override ?? headers
    )
  }

  private static func delivery(_ message: String, user: String = "bob", more: String = "") -> String {
    #"{"type":"push.delivered","data":{"cid":"messaging:c","message_id":"\#(message)","user_id":"\#(user)"\#(more)}}"#
  }

  private static func run(_ body: @escaping (TestGateway) async throws -> Void) async throws {
    try await TestGateway.run(hooks: hooks, deadline: TestGateway.shortDeadline) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      _ = try await gateway.store.takeLog()
      try await body(gateway)
    }
  }

  private static func delivered(_ gateway: TestGateway, _ user: String = "bob") async throws -> Int? {
    try await gateway.deliveredSequence(of: user, in: "messaging:c")
  }

  /// The key of a note_webhook, and until when the webhook is to be known.
  private static func note(_ request: StoreInMemory.Request?) throws -> (key: String, until: Int64) {
    let request = try #require(request)
    var reader = FieldReader(request.payload.readableBytesSpan)
    let key = try reader.text()
    _ = try reader.varint()
    return (key, try reader.time().milliseconds)
  }

  @Test func repeatedWebhookIsRefused() async throws {
    try await Self.run { gateway in
      let sent = Date()
      let response = try await Self.post(gateway, Self.delivery("m1"), id: "a", at: sent)
      #expect(response.status == 200 && response.body == #"{"results":[{"ok":true}],"ignored":0}"#)
      let requests = try await gateway.store.takeRequests()
      #expect(requests.map(\.kind) == [.webhookKnown, .acknowledgePush, .noteWebhook])
      #expect(try await Self.delivered(gateway) == 1)
      _ = try await gateway.store.takeLog()
      let again = try await Self.post(gateway, Self.delivery("m1"), id: "a", at: sent)
      #expect(again.verdict == "409 webhook_replayed")
      #expect(try await gateway.store.takeLog() == [.webhookKnown])
      // The webhook is recorded until its timestamp is too old to be accepted.
      let note = try Self.note(requests.last)
      #expect(note.key == "relay:a" && note.until == (Int64(sent.timeIntervalSince1970) + 360) * 1_000)
    }
  }

  @Test func ticketsListsAndOtherEventsAreAccepted() async throws {
    try await Self.run { gateway in
      let issued = try await gateway.client.post(
        "/v1/push/tickets",
        #"{"tickets":[{"cid":"messaging:c","message_id":"m2","user_id":"alice"}]}"#
      )
      let ticket = try #require((issued.json["tickets"] as? [String])?.first)
      let events = [
        Self.delivery("m1", more: #","acked_at":"2026-03-01T12:00:00Z","device":"ios""#),
        #"{"type":"push.sent","data":{}}"#, #"{"type":"push.delivered"}"#, "17",
        #"{"type":"push.delivered","data":{"ticket":"\#(ticket)","acked_at":1772366400}}"#,
        #"{"type":"push.delivered","data":{"ticket":"\#(ticket)x"}}"#, Self.delivery("m9"),
        Self.delivery("m2", user: "b\u{7F}b"), Self.delivery("m2", more: #","acked_at":"noon""#),
      ]
      let response = try await Self.post(gateway, "[\(events.joined(separator: ","))]", id: "a")
      let codes = (response.json["results"] as? [NSDictionary] ?? []).map { $0["code"] as? String ?? "ok" }
      #expect(
        codes == [
          "ok", "invalid_field", "ok", "ticket_invalid", "message_not_found", "invalid_user_id",
          "invalid_field",
        ]
      )
      #expect(response.json["ignored"] as? Int == 2)
      #expect(try await Self.delivered(gateway) == 1)
      #expect(try await Self.delivered(gateway, "alice") == 2)
      let none = try await Self.post(gateway, #"{"type":"push.sent"}"#, id: "b")
      #expect(none.body == #"{"results":[],"ignored":1}"#)
    }
  }

  @Test func onlyConfiguredSecretsAreAccepted() async throws {
    try await Self.run { gateway in
      #expect(
        try await Self.post(gateway, Self.delivery("m1"), id: "a", secret: Self.secrets[1]).status == 200
      )
      let foreign = try await Self.post(gateway, Self.delivery("m2"), id: "b", secret: Array("another".utf8))
      #expect(foreign.verdict == "401 webhook_signature_invalid")
      #expect(foreign.headers["www-authenticate"] == nil)
      let bare = try await Self.post(gateway, Self.delivery("m2"), id: "b", headers: [])
      #expect(bare.verdict == "401 webhook_signature_invalid")
      for time in [Date(timeIntervalSinceNow: -400), Date(timeIntervalSinceNow: 400)] {
        #expect(
          try await Self.post(gateway, Self.delivery("m2"), id: "b", at: time).verdict
            == "400 webhook_too_old"
        )
      }
      let unknown = try await Self.post(gateway, Self.delivery("m2"), id: "b", hook: "other")
      #expect(unknown.verdict == "404 hook_not_found")
      #expect(try await Self.delivered(gateway) == 1)
    }
  }

  @Test func bodiesWithoutEventsAreRefused() async throws {
    try await Self.run { gateway in
      for (body, type, expected) in [
        ("{", "application/json", "400 invalid_json"), ("", "application/json", "400 invalid_json"),
        ("17", "application/json", "400 invalid_field"),
        (
          "[\(Array(repeating: "{}", count: 1_001).joined(separator: ","))]", "application/json",
          "400 invalid_field"
        ),
        (Self.delivery("m1"), "text/plain", "415 content_type_not_supported"),
        (Self.delivery("m1"), "application/x-ndjson", "415 content_type_not_supported"),
      ] {
        let response = try await Self.post(gateway, body, id: "a", contentType: type)
        #expect(response.verdict == expected, "\(body.prefix(20)) \(type)")
      }
      #expect(try await gateway.store.takeLog().isEmpty)
    }
  }

  /// A webhook that the store failed may be sent again, and is then processed.
  @Test func webhookIsNotRecordedWhenStoreFails() async throws {
    try await Self.run { gateway in
      for (mode, expected) in [
        (.silent, "503 store_unavailable"), (.refusingKind(.acknowledgePush, .busy), "503 store_busy"),
        (.ignoringKind(.acknowledgePush), "503 outcome_unknown"),
        (.refusingKind(.noteWebhook, .unavailable), "503 store_unavailable"),
        (.garbled, "500 internal_error"),
      ] as [(StoreInMemory.Mode, String)] {
        try await gateway.store.set(mode)
        #expect(try await Self.post(gateway, Self.delivery("m2"), id: "a").verdict == expected, "\(mode)")
      }
      try await gateway.store.set(.normal)
      #expect(try await Self.post(gateway, Self.delivery("m2"), id: "a").status == 200)
      #expect(try await Self.delivered(gateway) == 2)
    }
  }

  /// With a ticket secret, the same webhook would be processed.
  @Test func webhookIsNotRecordedWithoutTicketSecret() async throws {
    try await TestGateway.run(tickets: nil, hooks: Self.hooks) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      let body = #"{"type":"push.delivered","data":{"ticket":"AQvT"}}"#
      for _ in 0..<2 {
        #expect(try await Self.post(gateway, body, id: "a").verdict == "501 not_implemented")
      }
      #expect(try await Self.post(gateway, Self.delivery("m2"), id: "a").status == 200)
    }
  }

  @Test func concurrentDuplicateIsRefused() async throws {
    try await Self.run { gateway in
      let sent = Date()
      async let first = Self.post(gateway, Self.delivery("m1"), id: "a", at: sent)
      async let second = Self.post(gateway, Self.delivery("m1"), id: "a", at: sent)
      let verdicts = [try await first.verdict, try await second.verdict].sorted()
      #expect(verdicts == ["200", "409 webhook_replayed"])
    }
  }
}
