import Crypto
import Foundation
import Operations
import TestSupport
import Testing

@testable import PushSandbox
@testable import Worker

/// The senders against the sandbox, over real connections.
@Suite struct PushProviderTests {
  private static let names = ["webpush": "web", "apns": "ios", "fcm": "android"]

  private static func notification(_ change: (inout PushContent) -> Void = { _ in }) -> PushNotification {
    var content = PushContent(cid: "messaging:a", messageID: "m1", title: "alice", body: "hello")
    change(&content)
    return PushNotification(content: content, ticket: "AT6A", badge: 3)
  }

  private static func device(_ kind: String, _ answer: JSONValue) throws -> PushDevice {
    guard kind == "webpush" else {
      return PushDevice(provider: names[kind] ?? "", address: .token(answer["token"]?.string ?? ""))
    }
    let subscription = WebPushSubscription(
      endpoint: try #require(answer["subscription"]?["endpoint"]?.string),
      publicKey: try #require(answer["subscription"]?["keys"]?["p256dh"]?.string.flatMap(Base64URL.bytes)),
      secret: try #require(answer["subscription"]?["keys"]?["auth"]?.string.flatMap(Base64URL.bytes))
    )
    return PushDevice(provider: "web", address: .subscription(subscription))
  }

  private static func send(
    _ provider: any PushProvider,
    _ notification: PushNotification,
    _ device: PushDevice
  ) async -> PushAnswer {
    do {
      let connection = try provider.open(device)
      defer { provider.close(connection) }
      return await provider.send(notification, to: device, on: connection, now: Times.now)
    } catch {
      return error
    }
  }

  /// Run a body with a sandbox, a sender and a device of one kind.
  private static func with(
    _ kind: String,
    _ change: (inout PushProviderTask) -> Void = { _ in },
    _ body: (Sandbox, any PushProvider, PushDevice) async throws -> Void
  ) async throws {
    try await Sandbox.with { sandbox in
      var task = try #require(try sandbox.task().providers[names[kind] ?? ""])
      change(&task)
      let provider = task.makeProvider(lookup: HostResolver.system)
      do {
        try await body(sandbox, provider, try device(kind, await sandbox.addDevice(kind)))
      } catch {
        await provider.shutDown()
        throw error
      }
      await provider.shutDown()
    }
  }

  @Test(arguments: ["webpush", "apns", "fcm"])
  func pushArrivesWithTicketAndBadge(_ kind: String) async throws {
    try await Self.with(kind) { sandbox, provider, device in
      let notification = Self.notification {
        $0.collapseKey = "k"
        $0.ttlSeconds = 60
        $0.data = ["x": .integer(7)]
        $0.aps = ["sound": .string("default")]
      }
      let answer = await Self.send(provider, notification, device)
      guard case .accepted(let id?) = answer, !id.isEmpty else { throw Unexpected("\(answer)") }
      let delivery = try #require(try await sandbox.deliveries().first)
      let headers = try #require(delivery["headers"]?.object)
      let payload = try #require(delivery["payload"]?["message"]?["data"] ?? delivery["payload"])
      #expect(payload["ticket"] == .string("AT6A") && payload["cid"] == .string("messaging:a"))
      switch kind {
      case "webpush":
        #expect(payload["badge"] == .integer(3) && payload["title"] == .string("alice") && payload["x"] == .integer(7))
        #expect(headers == ["ttl": .string("60"), "urgency": .string("high"), "topic": .string("k")])
      case "apns":
        let aps = try #require(payload["aps"])
        #expect(aps["badge"] == .integer(3) && aps["mutable-content"] == .integer(1))
        #expect(aps["sound"] == .string("default"))
        #expect(aps["alert"] == .object(["title": .string("alice"), "body": .string("hello")]))
        #expect(headers["apns-priority"] == .string("10") && headers["apns-collapse-id"] == .string("k"))
        #expect(headers["apns-push-type"] == .string("alert") && headers["apns-topic"] == .string("com.example.chat"))
      default:
        #expect(payload["badge"] == .string("3") && payload["x"] == .string("7"))
        #expect(headers == ["ttl": .string("60s"), "priority": .string("HIGH"), "collapse_key": .string("k")])
      }
    }
  }

  @Test func pushWithoutTitleIsSentInTheBackground() async throws {
    try await Self.with("apns") { sandbox, provider, device in
      let notification = Self.notification { ($0.title, $0.body) = (nil, nil) }
      guard case .accepted = await Self.send(provider, notification, device) else { throw Unexpected("refused") }
      let headers = try #require(try await sandbox.deliveries().first?["headers"])
      #expect(headers["apns-push-type"] == .string("background") && headers["apns-priority"] == .string("5"))
    }
  }

  /// A fault of the sandbox, and the sender's answer for each protocol.
  @Test(arguments: ["webpush", "apns", "fcm"])
  func faultsAreClassified(_ kind: String) async throws {
    try await Self.with(kind, { $0.timeoutMilliseconds = 1_000 }) { sandbox, provider, device in
      for fault in SandboxFault.allCases where fault != .gone {
        try await sandbox.addFault(fault.rawValue, kind: kind)
        let answer = await Self.send(provider, Self.notification(), device)
        let expected: [String]
        switch fault {
        case .throttled: expected = ["throttled"]
        case .expired: expected = [kind == "webpush" ? "unavailable" : "token_expired"]
        case .credentials: expected = [kind == "webpush" ? "rejected" : "credentials_refused"]
        case .tooLarge: expected = ["rejected"]
        case .unavailable, .error, .hang, .close, .lost, .gone: expected = ["unavailable"]
        }
        #expect(expected.contains(answer.label), "\(fault): \(answer)")
        // Requests on a connection that has just been closed fail, too.
        var after = await Self.send(provider, Self.notification(), device)
        for _ in 0..<10 where after.label != "accepted" {
          after = await Self.send(provider, Self.notification(), device)
        }
        #expect(after.label == "accepted", "after \(fault): \(after)")
      }
      try await sandbox.addFault("gone", kind: kind)
      for _ in 0..<2 {
        let answer = await Self.send(provider, Self.notification(), device)
        #expect(answer.label == "gone", "\(answer)")
      }
    }
  }

  @Test func retryAfterIsRead() async throws {
    try await Self.with("fcm") { sandbox, provider, device in
      try await sandbox.addFault("throttled", kind: "fcm")
      let answer = await Self.send(provider, Self.notification(), device)
      #expect(answer == .throttled(.provider, retryAfterMilliseconds: 1_000))
    }
  }

  @Test(arguments: ["webpush", "apns", "fcm"])
  func largePayloadsAreNotSent(_ kind: String) async throws {
    try await Self.with(kind) { sandbox, provider, device in
      let notification = Self.notification { $0.body = String(repeating: "x", count: 4_096) }
      let answer = await Self.send(provider, notification, device)
      guard case .rejected(code: "payload_too_large", _) = answer else { throw Unexpected("\(answer)") }
      #expect(try await sandbox.deliveries().isEmpty)
    }
  }

  @Test func unknownDevicesAreRejectedAndNotGone() async throws {
    for (kind, token) in [("apns", String(repeating: "ab", count: 32)), ("fcm", "unknown"), ("apns", "no token")] {
      try await Self.with(kind) { _, provider, _ in
        let device = PushDevice(provider: "x", address: .token(token))
        #expect(await Self.send(provider, Self.notification(), device).label == "rejected")
      }
    }
  }

  @Test func wrongKeysAreNamed() async throws {
    try await Self.with(
      "apns",
      { task in
        guard case .apns(var settings) = task.kind else { return }
        settings.key = P256.Signing.PrivateKey()
        task.kind = .apns(settings)
      }
    ) { _, provider, device in
      let answer = await Self.send(provider, Self.notification(), device)
      guard case .credentialsRefused(code: "invalid_provider_token", _) = answer else { throw Unexpected("\(answer)") }
    }
    try await Self.with(
      "fcm",
      { task in
        guard case .fcm(var settings) = task.kind else { return }
        settings.clientEmail = "somebody@example.com"
        task.kind = .fcm(settings)
      }
    ) { _, provider, device in
      let answer = await Self.send(provider, Self.notification(), device)
      guard case .credentialsRefused(code: "invalid_grant", _) = answer else { throw Unexpected("\(answer)") }
    }
  }

  /// Endpoints of Web Push come from clients: none may lead into the worker's network.
  @Test(arguments: [
    "https://127.0.0.1/x", "https://localhost/x", "https://[::1]/x", "https://169.254.169.254/x", "http://example.com/",
    "ftp://example.com/", "https://user@example.com/", "",
  ])
  func endpointsOfPrivateAddressesAreRejected(_ endpoint: String) async throws {
    try await Self.with("webpush", { $0.allowsPrivateAddresses = false }) { _, provider, device in
      guard case .subscription(var subscription) = device.address else { throw Unexpected("no subscription") }
      subscription.endpoint = endpoint
      let device = PushDevice(provider: "web", address: .subscription(subscription))
      let answer = await Self.send(provider, Self.notification(), device)
      #expect(answer.label == "rejected", "\(answer)")
    }
  }

  @Test func idleOriginsGiveWayToOthers() throws {
    var task = PushProviderTask(
      name: "web",
      kind: .webPush(PushProviderTask.WebPush(key: P256.Signing.PrivateKey(), subject: "mailto:a@example.com"))
    )
    task.timeoutMilliseconds = 100
    let settings = PushProviderTask.WebPush(key: P256.Signing.PrivateKey(), subject: "mailto:a@example.com")
    let provider = WebPushProvider(task, settings, lookup: HostResolver.system)
    func device(_ number: Int) -> PushDevice {
      let subscription = WebPushSubscription(endpoint: "https://h\(number).example/x", publicKey: [], secret: [])
      return PushDevice(provider: "web", address: .subscription(subscription))
    }
    let connections = try (0..<WebPushProvider.originsMax).map { try provider.open(device($0)) }
    #expect(throws: PushAnswer.self) { try provider.open(device(1_000)) }
    provider.close(connections[0])
    _ = try provider.open(device(1_000))
    #expect(throws: PushAnswer.self) { try provider.open(device(0)) }
  }
}
