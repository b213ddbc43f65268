import Foundation
import Operations
import Testing

@testable import Worker

@Suite struct TasksFileTests {
  static let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

  private static func parse(_ text: String) throws(SettingsError) -> TasksFile {
    try TasksFile.parse(text, file: "tasks.yaml") { _ in }
  }

  @Test func everyKeyIsRead() throws {
    let webhook = try #require(
      try Self.parse(
        """
        webhooks:
          - name: crm_1-a
            url: https://Example.com/hook?x=1
            secrets: [\(Self.secret)]
            types: [read, status]
            channel_types: [messaging]
            from: 2026-01-31T12:00:00Z
            partitions: 16
            batch: {records: 7, wait: 250ms}
            timeout: 3s
            retry_for: 2h
            allow_private: true
            version: http/1.1
        """
      ).webhooks.first
    )
    #expect(webhook.name == "crm_1-a")
    #expect(webhook.url.text == "https://example.com:443/hook?x=1")
    #expect(webhook.secrets == [Array(0..<32)])
    #expect(webhook.types == ["read", "status"] && webhook.channelTypes == ["messaging"])
    #expect(webhook.start == .time("2026-01-31T12:00:00Z"))
    #expect(webhook.partitionCount == 16 && webhook.partitions.last == "15/16")
    #expect(webhook.batchRecordsMax == 7 && webhook.batchWaitMilliseconds == 250)
    #expect(webhook.timeoutMilliseconds == 3_000 && webhook.retryMilliseconds == 7_200_000)
    #expect(webhook.allowsPrivateAddresses && webhook.version == .http1)
  }

  @Test func defaultsAreThoseOfTheManual() throws {
    let text = "webhooks: [{name: a, url: 'https://example.com', secrets: [\(Self.secret)]}]"
    let webhook = try #require(try Self.parse(text).webhooks.first)
    #expect(webhook.start == .now && webhook.partitionCount == 8 && webhook.batchRecordsMax == 100)
    #expect(webhook.batchWaitMilliseconds == 1_000 && webhook.timeoutMilliseconds == 10_000)
    #expect(webhook.retryMilliseconds == 20 * 3_600_000 && !webhook.allowsPrivateAddresses)
    #expect(webhook.version == .auto && webhook.url.path == "/")
  }

  /// A member of a valid webhook that is replaced or added, and the beginning of the error.
  @Test(arguments: [
    ("name: CRM", "webhooks[0].name \"CRM\" has to be 1 to 64 of a-z 0-9 _ -"),
    ("url: http://example.com", "webhooks[0].url has to begin with https://; `allow_http: true`"),
    ("url: ftp://example.com", "webhooks[0].url has to be https://HOST"),
    ("url: https://user@example.com", "webhooks[0].url has to be https://HOST"),
    ("url: https://10.0.0.1/", "webhooks[0].url has a private address; `allow_private: true`"),
    ("url: 'https://[::1]/'", "webhooks[0].url has a loopback address"),
    ("secrets: []", "webhooks[0] has no secrets"),
    ("secrets: [abc]", "webhooks[0].secrets[0] has to be whsec_ and base64"),
    ("secrets: whsec_x", "webhooks[0].secrets has to be a list"),
    ("secrets_file: /x", "webhooks[0].secrets_file cannot be given with secrets"),
    ("types: [reads]", "webhooks[0].types \"reads\" is unknown; known are message.registered"),
    ("types: []", "webhooks[0].types is empty"),
    ("channel_types: messaging", "webhooks[0].channel_types has to be a list"),
    ("from: yesterday", "webhooks[0].from \"yesterday\" has to be now, earliest or a time"),
    ("partitions: 0", "webhooks[0].partitions has to be a whole number from 1 to 1024"),
    ("batch: {record: 1}", "webhooks[0].batch.record is unknown; known keys are records, wait"),
    ("batch: {records: 2000}", "webhooks[0].batch.records has to be a whole number from 1 to 1000"),
    ("batch: {wait: 2m}", "webhooks[0].batch.wait has to be a time such as 500ms or 10s, from 0s to 1m"),
    ("batch: 7", "webhooks[0].batch has to be `key: value` lines"),
    ("timeout: 1ms", "webhooks[0].timeout has to be a time"),
    ("retry_for: soon", "webhooks[0].retry_for has to be a time"),
    ("allow_private: maybe", "webhooks[0].allow_private has to be true or false"),
    ("ca_file: /no/such/file", "webhooks[0].ca_file /no/such/file cannot be read"),
    ("version: h3", "webhooks[0].version has to be auto or http/1.1"),
    ("retries: 3", "webhooks[0].retries is unknown; known keys are name, url"),
  ])
  func errorsNameKeyAndRemedy(_ line: String, _ error: String) throws {
    let key = String(line.prefix { $0 != ":" })
    var lines = ["name: crm", "url: https://example.com/x", "secrets: [\(Self.secret)]"]
    lines.removeAll { $0.hasPrefix(key + ":") }
    let text = "webhooks:\n  - " + (lines + [line]).joined(separator: "\n    ")
    let thrown = try #require(throws: SettingsError.self) { try Self.parse(text) }
    #expect(thrown.description.hasPrefix("--config tasks.yaml: " + error), "\(thrown)")
    #expect(!thrown.description.contains("\n"))
  }

  @Test(arguments: [
    ("", "the file is empty"), ("webhooks: []", "webhooks is missing or empty"),
    ("webhook: []", "webhook is unknown; known keys are webhooks"), ("a: [", "not readable as YAML: line"),
    ("webhooks:\n  - url: https://example.com", "webhooks[0].name is missing"),
    ("webhooks:\n  - name: a\n    name: b", "not readable as YAML: line"),
  ])
  func filesWithoutWebhooksAreRefused(_ text: String, _ error: String) throws {
    let thrown = try #require(throws: SettingsError.self) { try Self.parse(text) }
    #expect(thrown.description.hasPrefix("--config tasks.yaml: " + error), "\(thrown)")
  }

  @Test func sameNameTwiceIsRefused() throws {
    let one = "{name: a, url: 'https://example.com', secrets: [\(Self.secret)]}"
    let thrown = try #require(throws: SettingsError.self) { try Self.parse("webhooks: [\(one), \(one)]") }
    #expect(thrown.description.contains("webhooks[1] has the name \"a\" of another webhook"))
  }

  @Test func secretsAreReadFromFile() throws {
    let path = NSTemporaryDirectory() + "tidemark-secrets-\(UUID().uuidString)"
    let other = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
    try "\(Self.secret)\r\n\(other)\n".write(toFile: path, atomically: true, encoding: .utf8)
    defer { try? FileManager.default.removeItem(atPath: path) }
    let text = "webhooks: [{name: a, url: 'https://example.com', secrets_file: \(path)}]"
    #expect(try Self.parse(text).webhooks.first?.secrets == [Array(0..<32), Array(32..<64)])
  }

  @Test func missingSecretsFileIsNamedWithItsField() throws {
    let text = "webhooks: [{name: a, url: 'https://example.com', secrets_file: /no/such/file}]"
    let thrown = try #require(throws: SettingsError.self) { try Self.parse(text) }
    let start = "tasks.yaml: webhooks[0].secrets_file /no/such/file: the file cannot be read ("
    #expect(thrown.problem.hasPrefix(start), "\(thrown)")
    #expect(thrown.problem.hasSuffix("; give a readable file of at most 65536 bytes"), "\(thrown)")
    #expect(thrown.description == "--config \(thrown.problem)")
  }

  @Test func retriesLongerThanRetentionAreRefused() throws {
    let text = "webhooks: [{name: a, url: 'https://example.com', secrets: [\(Self.secret)], retry_for: 2h}]"
    let webhook = try #require(try Self.parse(text).webhooks.first)
    #expect(webhook.refusal(retentionSeconds: nil) == nil)
    #expect(webhook.refusal(retentionSeconds: 7_200) == nil)
    #expect(webhook.refusal(retentionSeconds: 7_199)?.contains("shorten it") == true)
  }
}
