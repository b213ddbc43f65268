import Foundation
import Operations
import TestSupport
import Testing

@testable import PushSandbox
@testable import Worker

/// The section `push` of the tasks file.
@Suite struct PushTasksTests {
  private static func parse(_ text: String) throws(SettingsError) -> PushTask? {
    try TasksFile.parse(text, file: "tasks.yaml") { _ in }.push
  }

  /// Run a body with a folder of the sandbox's keys.
  private static func withKeys(_ body: (SandboxFiles) throws -> Void) throws {
    let folder = NSTemporaryDirectory() + "tidemark-push-keys-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let files = SandboxFiles(directory: folder)
    _ = try SandboxKeys.loadOrCreate(files)
    try files.writeTasks(port: 1)
    try body(files)
  }

  @Test func everyKeyIsRead() throws {
    try Self.withKeys { files in
      let folder = files.directory
      let task = try #require(
        try Self.parse(
          """
          push:
            skip: read
            report: accepted
            badge: false
            ticket_ttl: 1d
            retry_for: 30s
            requests: 7
            providers:
              - name: web
                kind: webpush
                key_file: \(folder)/vapid.pem
                subject: mailto:ops@example.com
                timeout: 2s
                pause: 3s
                allow_private: true
                allow_http: true
                ca_file: \(folder)/ca.pem
              - {name: ios, kind: apns, key_file: \(folder)/apns.p8, key_id: ABCDE12345, team_id: FGHIJ67890,
                 topic: com.example.chat, environment: development}
              - {name: android, kind: fcm, key_file: \(folder)/service-account.json}
          """
        )
      )
      #expect(task.skip == .read && task.report == .accepted && !task.sendsBadge && task.ticketSeconds == 86_400)
      #expect(task.retryMilliseconds == 30_000 && task.requestsMax == 7 && task.providers.count == 3)
      let web = try #require(task.providers["web"])
      #expect(web.timeoutMilliseconds == 2_000 && web.pauseMilliseconds == 3_000 && web.allowsPrivateAddresses)
      #expect(web.allowsHTTP && web.authorityFile == folder + "/ca.pem")
      guard case .apns(let apns) = task.providers["ios"]?.kind, case .fcm(let fcm) = task.providers["android"]?.kind
      else { throw Unexpected("\(task.providers)") }
      #expect(apns.url.origin == "https://api.sandbox.push.apple.com" && apns.keyID == "ABCDE12345")
      #expect(fcm.url.origin == "https://fcm.googleapis.com" && fcm.tokenURL.path == "/token")
      #expect(fcm.path == "/v1/projects/tidemark-sandbox/messages:send")
    }
  }

  @Test func defaultsAreThoseOfTheManual() throws {
    try Self.withKeys { files in
      let task = try #require(try TasksFile.load(files.tasks, warn: { _ in }).push)
      #expect(task.skip == .delivered && task.report == .acknowledged && task.sendsBadge)
      #expect(task.ticketSeconds == 604_800 && task.retryMilliseconds == 600_000 && task.requestsMax == 100)
      let web = try #require(task.providers["web"])
      #expect(web.timeoutMilliseconds == 10_000 && web.pauseMilliseconds == 60_000 && !web.allowsHTTP)
    }
  }

  /// A key of a valid APNs provider that is replaced or added (or of the section, with `push.`), and the error.
  @Test(arguments: [
    ("name: iOS", "push.providers[0] name \"iOS\" has to be 1 to 64 of a-z 0-9 _ -"),
    ("kind: adm", "push.providers[0].kind has to be webpush, apns or fcm"),
    ("key_file: /nowhere/key.p8", "/nowhere/key.p8: the file cannot be read"),
    ("key_file: KEYS/ca.pem", "push.providers[0].key_file has to name a PEM file with a private key of P-256"),
    ("key_id: ABC", "push.providers[0].key_id \"ABC\" has to be 10 letters and digits"),
    ("team_id: ABC", "push.providers[0].team_id \"ABC\" has to be 10 letters and digits"),
    ("topic: a b", "push.providers[0].topic has to be the app's bundle id"),
    ("environment: test", "push.providers[0].environment has to be production or development"),
    ("url: https://localhost", "push.providers[0].url cannot be given with environment: choose one"),
    ("subject: mailto:a@b", "push.providers[0].subject is unknown; known keys are name, kind"),
    ("timeout: 1ms", "push.providers[0].timeout has to be a time such as 500ms or 10s, from"),
    ("ca_file: /nowhere", "push.providers[0].ca_file /nowhere cannot be read"),
    ("allow_private: maybe", "push.providers[0].allow_private has to be true or false"),
    ("push.skip: none", "push.skip has to be delivered or read"),
    ("push.report: never", "push.report has to be acknowledged or accepted"),
    ("push.ticket_ttl: 29d", "push.ticket_ttl has to be a time such as 500ms or 10s, from 1s to 28d"),
    ("push.retry_for: 2d", "push.retry_for has to be a time"),
    ("push.requests: 0", "push.requests has to be a whole number from 1 to 1000"),
    ("push.retries: 3", "push.retries is unknown; known keys are providers, skip"),
  ])
  func wrongKeysAreNamed(_ change: String, _ problem: String) throws {
    try Self.withKeys { files in
      var keys = [
        "name": "ios", "kind": "apns", "key_file": "KEYS/apns.p8", "key_id": "ABCDE12345", "team_id": "FGHIJ67890",
        "topic": "com.example.chat", "environment": "production",
      ]
      var section = ""
      let parts = change.split(separator: ": ", maxSplits: 1).map(String.init)
      if parts[0].hasPrefix("push.") {
        section = "  \(parts[0].dropFirst(5)): \(parts[1])\n"
      } else {
        keys[parts[0]] = parts[1]
      }
      let lines = keys.sorted { $0.key < $1.key }.map { "      \($0.key): \($0.value)" }.joined(separator: "\n")
      let text = "push:\n\(section)  providers:\n    -\n\(lines)\n".replacing("KEYS", with: files.directory)
      do throws(SettingsError) {
        _ = try Self.parse(text)
        Issue.record("\(change) was accepted")
      } catch {
        #expect("\(error)".contains(problem), "\(error)")
      }
    }
  }
}
