import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The consumers of docs/api/feed.md run as printed, over h2c: Python's httpx, and Node's http2.
  @Suite struct DocumentedFeeds {
    private static let cid = "messaging:tour"
    /// The time limit for a program.
    private static let secondsMax = 300

    @Test func pythonConsumerReadsAndCommits() async throws {
      let program = try CodeBlocks.block("python", of: "api/feed.md")
      try await Self.run([TestServices.python, "-c", program])
    }

    @Test func nodeConsumerReadsAndCommits() async throws {
      let program = try CodeBlocks.block("js", of: "api/feed.md")
      try await Self.run(["node", "--input-type=module", "-e", program])
    }

    // MARK: Steps

    /// Run a consumer: its gateway is killed, and then shut down.
    private static func run(_ command: [String]) async throws {
      try await TestServices.with(storeFlags: ["--feed-retention", "1h"], usesTLS: false) { services in
        try await services.makeChannel(cid, message: "m1")
        let variables = ["GATEWAY=\(services.h2cURL)", "TOKEN=\(services.serverToken)"]
        let consumer = try Companion("env", variables + command, limit: .seconds(secondsMax))
        defer { consumer.end() }
        try await wait(consumer, for: ["channel.created \(cid)", "message.registered \(cid)"])
        try await waitUntilCommitted(services)
        for id in ["m2", "m3"] {
          if id == "m2" { await services.stack.killGateway(1) } else { await services.stack.stopGateway(1) }
          try await services.stack.startGateway(1)
          let message = #"{"id":"\#(id)","user_id":"alice"}"#
          let path = "/v1/channels/\(cid)/messages"
          try await services.expect(201, "POST", path, token: services.serverToken, json: message)
          try await wait(consumer, for: ["message.registered \(cid)"])
          try await waitUntilCommitted(services)
        }
      }
    }

    /// Wait for these lines, in this order; others may be between them.
    private static func wait(_ consumer: Companion, for expected: [String]) async throws {
      var rest = expected[...]
      var lines: [String] = []
      while let next = rest.first, let line = await consumer.line() {
        lines.append(line)
        if line == next { rest.removeFirst() }
      }
      guard rest.isEmpty else { throw Unexpected("no line \(rest[rest.startIndex]) in \(lines): \(consumer.errors)") }
    }

    /// Wait until the only consumer has committed everything, which it does at a heartbeat.
    private static func waitUntilCommitted(_ services: TestServices) async throws {
      try await eventually("the consumer has committed all records", pollInterval: .milliseconds(250)) {
        let list = try await services.expect(200, "GET", "/v1/feed/consumers", token: services.serverToken)
        let consumers = list["consumers"] as? [[String: Any]] ?? []
        let partitions = consumers.first?["partitions"] as? [[String: Any]] ?? []
        return consumers.count == 1 && !partitions.isEmpty && partitions.allSatisfy { $0["lag_records"] as? Int == 0 }
      }
    }
  }
}
