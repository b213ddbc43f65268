import Foundation
import LocalStack
import Operations
import TestPrograms
import Testing

extension RealProcesses {
  /// The examples of docs/api/push-worker.md and docs/api/push-device.md run: curl, Python's httpx and h2, and the
  /// service worker in Chromium.
  @Suite struct DocumentedPushes {
    private static let channel = "/v1/channels/messaging:tour"
    private static let page = "api/push-worker.md"
    private static let devicePage = "api/push-device.md"

    /// Where an example shows its response, the response follows the line after `#>`.
    @Test func documentedPushCommandsRun() async throws {
      try await Self.withSecrets { services in
        let block = try CodeBlocks.block("sh", of: Self.page)
        let responses = block.split(separator: "\n").filter { $0.hasPrefix("#> ") }.map {
          String($0.dropFirst(3))
        }
        #expect(responses.count == 6)
        let output = try await Command.run(
          "/bin/bash",
          ["-c", "set -e\n" + CodeBlocks.here(block, services)]
        )
        #expect(output.status == 0 && output.error.isEmpty, "\(output)")
        var rest = Substring(output.out)
        for response in responses {
          let found = try #require(rest.range(of: response), "\(response) is not in \(rest) of \(output.out)")
          rest = rest[found.upperBound...]
        }
      }
    }

    @Test func batchExamplesRun() async throws {
      try await Self.withMessage { services in
        let lines = try await Self.python([try CodeBlocks.blocks("python", of: Self.page)[0]], services)
        #expect(lines.count == 2, "\(lines)")
        #expect(lines[0].contains("'badge': 1, 'mutable-content': 1}, 'ticket': '"), "\(lines)")
        #expect(lines[1].hasPrefix("no push ('messaging:tour', 'p1', 'mallory', 'ios') "), "\(lines)")
        let ticket = try #require(
          lines[0].components(separatedBy: "'ticket': '").last?.prefix(while: { $0 != "'" })
        )
        try await services.expect(
          200,
          "POST",
          "/v1/push/acks",
          json: #"{"tickets":["\#(ticket)"]}"#
        )
        try await Self.expectDelivered(services)
      }
    }

    @Test func lineExampleRuns() async throws {
      try await Self.withMessage { services in
        let lines = try await Self.python([try CodeBlocks.blocks("python", of: Self.page)[1]], services)
        let done =
          "p1 {'ok': True, 'cid': 'messaging:tour', 'message_id': 'p1', 'user_id': 'bob'}"
        #expect(lines == [done, "nothing {'ok': False, 'code': 'message_not_found'}", done])
        try await Self.expectDelivered(services)
      }
    }

    @Test func frameExampleRuns() async throws {
      try await Self.withMessage { services in
        let blocks = try CodeBlocks.blocks("python", of: Self.page)
        let lines = try await Self.python(Array(blocks[1...2]), services)
        // The first block's output comes first, and the message is already marked.
        #expect(Set(lines.dropFirst(3)) == ["0 moved 0", "1 code 33", "2 moved 0"], "\(lines)")
        try await Self.expectDelivered(services)
      }
    }

    /// The hooks file is used unchanged, and the example in each of its comments is a delivery.
    @Test func webhookExamplesAreAccepted() async throws {
      let hooks = NSTemporaryDirectory() + "tidemark-hooks-\(UUID().uuidString).yaml"
      defer { try? FileManager.default.removeItem(atPath: hooks) }
      let file = try CodeBlocks.block("yaml", of: Self.page)
      try file.write(toFile: hooks, atomically: true, encoding: .utf8)
      try await Self.withMessage(gatewayFlags: ["--hooks-file", hooks]) { services in
        let sender = try #require(try CodeBlocks.blocks("python", of: Self.page).last)
        let lines = try await Self.python([sender, Self.shownEvents], services, [file])
        let done = #"200 {"results":[{"ok":true}],"ignored":0}"#
        // First the responses to the sender's own request; then those to the events: "…" is not a ticket.
        let none = #"200 {"results":[{"ok":false,"code":"ticket_invalid"}],"ignored":0}"#
        #expect(lines == [done, none, none, done], "\(lines)")
        try await Self.expectDelivered(services)
      }
    }

    /// Posts the events shown in the comments of a hooks file, each with its hook's first secret.
    private static let shownEvents = """
      import re, sys
      for event, name, secret in re.findall(r'# ({.*})\\n(?:  # .*\\n)*  (\\w+):[^{]*?(whsec_[\\w=+/]+)', sys.argv[1]):
          answer = post(name, secret, json.loads(event))
          print(answer.status_code, answer.text, flush=True)
      """

    /// A browser's own fetch, from a page of another origin; the page makes the push.
    @Test func serviceWorkerExampleAcknowledges() async throws {
      let place = try Browser.Place()
      try await Self.withMessage(gatewayFlags: ["--cors-origin", "http://\(place.listed)"]) { services in
        let ticketRequest = #"{"tickets":[{"cid":"messaging:tour","message_id":"p1","user_id":"bob"}]}"#
        let response = try await services.expect(
          200,
          "POST",
          "/v1/push/tickets",
          token: services.serverToken,
          json: ticketRequest
        )
        let ticket = try #require((response["tickets"] as? [String])?.first)
        let content = Browser.Content(
          document: "Documents/push_page.html",
          files: [
            "push.js": try CodeBlocks.block("js", of: Self.devicePage),
            "service_worker.js": try String(
              contentsOfFile: TestServices.client("Documents/service_worker.js"),
              encoding: .utf8
            ),
          ]
        )
        let push = #"{"ticket":"\#(ticket)","title":"alice","body":"a message"}"#
        let browser = try await Browser(services, place, page: place.listed, token: push, content)
        do {
          try await browser.wait(
            for: ["shown", #""title":"alice""#, #""body":"a message""#],
            ["done"]
          )
          #expect(browser.count("broken") == 0, "\(browser.console)")
          try await Self.expectDelivered(services)
        } catch {
          await browser.end()
          throw error
        }
        await browser.end()
      }
    }

    /// The extension's Swift code is type-checked against a stand-in for Apple's module.
    @Test func notificationExtensionTypeChecks() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-extension-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      try CodeBlocks.block("swift", of: Self.devicePage).write(
        toFile: directory + "/NotificationService.swift",
        atomically: true,
        encoding: .utf8
      )
      let module = ["-parse-as-library", "-module-name", "UserNotifications", "-emit-module"]
      for arguments in [
        module + [
          TestServices.client("Documents/UserNotifications.swift"), "-o", "UserNotifications.swiftmodule",
        ],
        [
          "-typecheck", "-parse-as-library", "-swift-version", "6", "-I", ".", "-I", TestServices.binaries + "/Modules",
          "NotificationService.swift",
        ],
      ] {
        let output = try await Command.run("swiftc", arguments, directory: directory)
        #expect(output.status == 0 && output.error.isEmpty, "\(output)")
      }
    }

    // MARK: Steps

    /// A pair as `make run` leaves it.
    private static func withSecrets(
      gatewayFlags: [String] = [],
      _ body: (TestServices) async throws -> Void
    ) async throws {
      try await TestServices.with(gatewayFlags: gatewayFlags) { services in
        try (services.serverToken + "\n").write(
          toFile: services.directory + "/server.token",
          atomically: true,
          encoding: .utf8
        )
        try await body(services)
      }
    }

    /// The same, with the channel and the message that the document's code uses.
    private static func withMessage(
      gatewayFlags: [String] = [],
      _ body: (TestServices) async throws -> Void
    ) async throws {
      try await withSecrets(gatewayFlags: gatewayFlags) { services in
        try await services.makeChannel("messaging:tour", message: "p1")
        try await body(services)
      }
    }

    /// Run blocks one after another, and return their output.
    private static func python(_ blocks: [String], _ services: TestServices, _ arguments: [String] = [])
      async throws
      -> [String]
    {
      let port = "\(services.stack.plan.gateways[0].listen.port)"
      let script = CodeBlocks.here(blocks.joined(separator: "\n"), services)
        .replacingOccurrences(of: #""localhost", 8443"#, with: #""localhost", \#(port)"#)
      let output = try await Command.run(TestServices.python, ["-c", script] + arguments)
      #expect(output.status == 0 && output.error.isEmpty, "\(output)")
      return output.out.split(separator: "\n").map(String.init)
    }

    private static func expectDelivered(_ services: TestServices) async throws {
      let status = try await services.expect(
        200,
        "GET",
        channel + "/messages/p1/status",
        token: services.serverToken
      )
      #expect(status["status"] as? String == "delivered")
    }
  }
}
