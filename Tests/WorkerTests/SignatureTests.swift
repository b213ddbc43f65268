import Foundation
import TestPrograms
import TestSupport
import Testing

@testable import FeedClient
@testable import Worker

@Suite struct SignatureTests {
  /// The vector of the Standard Webhooks specification's reference libraries.
  @Test func goldenVectorIsSigned() throws {
    let secret = try #require(WebhookSignature.secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
    let body = Array(#"{"test": 2432232314}"#.utf8)
    let header = WebhookSignature(secrets: [secret])
      .header(id: "msg_p5jXN8AQM9LWM0D4loKWxJek", seconds: 1_614_265_330, body: body)
    #expect(header == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
  }

  @Test func eachSecretSignsInOrder() {
    let (a, b) = ([UInt8](repeating: 1, count: 32), [UInt8](repeating: 2, count: 32))
    func header(_ secrets: [[UInt8]]) -> String {
      WebhookSignature(secrets: secrets).header(id: "msg_1", seconds: 5, body: [])
    }
    #expect(header([a, b]) == header([a]) + " " + header([b]))
  }

  @Test(arguments: ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAA", "whsec_!!!!"])
  func malformedSecretsAreRefused(_ text: String) {
    #expect(WebhookSignature.secret(text) == nil)
  }

  @Test func sameRecordsHaveTheSameIDAndBody() {
    let records = (1...3).map { FeedRecord(cursor: "c\($0)", id: "r\($0)", json: Array(#"{"id":"r\#($0)"}"#.utf8)) }
    let batch = Batch(consumer: "crm", partition: "0/4", from: nil, records: records)
    #expect(batch == Batch(consumer: "crm", partition: "0/4", from: nil, records: records))
    #expect(batch.id != Batch(consumer: "crm", partition: "0/4", from: nil, records: Array(records.dropLast())).id)
    #expect(batch.id != Batch(consumer: "crn", partition: "0/4", from: nil, records: records).id)
    #expect(batch.id.wholeMatch(of: /msg_[A-Za-z0-9_-]{43}/) != nil)
    #expect(batch.end == "c3" && batch.count == 3)
    let text = #"{"type":"tidemark.records","consumer":"crm","partition":"0/4","#
    #expect(
      String(decoding: batch.body, as: UTF8.self)
        == text + #""records":[{"id":"r1"},{"id":"r2"},{"id":"r3"}]}"#
    )
  }

  private static let python = packageRoot.appendingPathComponent(".build/python/bin/python").path

  @Test(
    .needs(
      FileManager.default.isExecutableFile(atPath: python),
      "standardwebhooks is not installed: `make test-deps` gets it from PyPI"
    )
  )
  func standardWebhooksVerifiesRequests() async throws {
    let old = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        var task = try WebhookTask.test(endpoint.url)
        task.secrets = [Array(0..<32), Array(32..<64)]
        try await feed.append(0, count: 3)
        try await Workers.with(feed, task) { _ in
          try await eventually("a webhook") { !endpoint.delivered.isEmpty }
        }
        let webhook = try #require(endpoint.delivered.first)
        let script = """
          import sys, json
          from standardwebhooks import Webhook
          headers = {"webhook-id": sys.argv[1], "webhook-timestamp": sys.argv[2], "webhook-signature": sys.argv[3]}
          body = sys.stdin.buffer.read()
          for secret in sys.argv[4:]:
              assert Webhook(secret).verify(body, headers)["consumer"] == "crm"
          try:
              Webhook(sys.argv[4]).verify(body + b" ", headers)
          except Exception:
              print("ok")
          """
        let output = try await Command.run(
          Self.python,
          ["-c", script, webhook.id, webhook.timestamp, webhook.signature, TasksFileTests.secret, old],
          input: String(decoding: webhook.body, as: UTF8.self)
        )
        #expect(output.status == 0 && output.out == "ok\n", "\(output)")
      }
    }
  }
}
