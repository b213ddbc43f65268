import Foundation
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// A store restored from a backup, under gateways that were connected before.
  @Suite struct Restores {
    /// No state from before the restore continues as if the store were the same: open streams, resumed streams,
    /// tickets, and commands without a response.
    @Test func restoredStoreInvalidatesOldState() async throws {
      try await TestServices.with { services in
        try await services.makeChannel("messaging:a", message: "m1")
        let alice = try await services.token("alice")
        let bob = try await services.token("bob")
        let early = try await Self.ticket("m1", services)
        let to = services.directory + "/backups"
        try await services.backup(to)

        // Events after the backup, which the stream delivers.
        let stream = try Self.stream(services, alice)
        defer { stream.end() }
        try await Self.wait(stream, for: "id: ")
        let json = #"{"id":"m2","user_id":"alice"}"#
        try await services.expect(
          201,
          "POST",
          "/v1/channels/messaging:a/messages",
          token: services.serverToken,
          json: json
        )
        let read = "/v1/channels/messaging:a/read"
        try await services.expect(200, "POST", read, token: bob, json: #"{"message_id":"m2"}"#)
        let id = try await Self.wait(stream, for: "id: ", after: #""last_read_message_id":"m2""#)
        let late = try await Self.ticket("m2", services)

        await services.stack.stopStore()
        let data = services.stack.files.data
        try FileManager.default.moveItem(atPath: data, toPath: data + ".before")
        let restored = try await Backups.tidemark("restore", to, data)
        #expect(restored.status == 0, "\(restored)")
        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()

        // The open stream gets a reset and ends; a client that resumes it gets one too.
        try await Self.wait(stream, for: "event: stream.reset")
        let end = try await Self.rest(of: stream)
        #expect(end.contains { $0.contains("the connection to the store was lost") }, "\(end)")
        let resumed = try Self.stream(services, alice, ["-H", "Last-Event-ID: " + id.dropFirst(4)])
        defer { resumed.end() }
        try await Self.wait(resumed, for: "event: stream.reset")
        let status = "/v1/channels/messaging:a/messages/m2/status"
        let lost = try await services.curl("GET", status, token: alice)
        #expect(lost.status == 404 && lost.body.contains("message_not_found"), "\(lost)")
        for ticket in [early, late] {
          let acks = try await services.curl("POST", "/v1/push/acks", json: #"{"tickets":["\#(ticket)"]}"#)
          #expect(acks.body.contains("ticket_invalid"), "\(acks)")
        }
        // The same number is another message now, and the resumed stream reports it.
        let other = #"{"id":"other","user_id":"alice"}"#
        try await services.expect(
          201,
          "POST",
          "/v1/channels/messaging:a/messages",
          token: services.serverToken,
          json: other
        )
        try await services.expect(200, "POST", read, token: bob, json: #"{"message_id":"other"}"#)
        try await Self.wait(resumed, for: #""last_read_message_id":"other""#)
        let acks = try await services.curl(
          "POST",
          "/v1/push/acks",
          json: #"{"tickets":["\#(try await Self.ticket("other", services))"]}"#
        )
        #expect(acks.status == 200 && !acks.body.contains("ticket_invalid"), "\(acks)")
      }
    }

    /// Gateways under load reconnect to the restored store by themselves; their sessions do not carry over. Every
    /// mark that the restored store acknowledges is kept.
    @Test func gatewaysReconnectUnderLoad() async throws {
      try await TestServices.with { services in
        let specification = try await services.prepareLoad(
          channels: ["messaging:over"],
          messages: 2_000,
          users: 4
        )
        let client = try Companion(
          TestServices.python,
          [TestServices.client("Load/marks_under_load.py"), "\(services.h2cPort)", specification]
        )
        defer { client.end() }
        let to = services.directory + "/backups"
        try await services.backup(to)
        client.send("remember")
        _ = await client.line()
        let data = services.stack.files.data
        await services.stack.killStore()
        try FileManager.default.moveItem(atPath: data, toPath: data + ".before")
        let restored = try await Backups.tidemark("restore", to, data)
        #expect(restored.status == 0, "\(restored)")
        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()
        client.send("forget")
        #expect(await client.line() == "forgotten")
        try await eventually("marks of the restored store are acknowledged") {
          client.send("remember")
          return await client.line() != "remembered 0"
        }
        client.send("check")
        let response = await client.line() ?? "the client ended"
        #expect(response.hasPrefix("ok "), "\(response)")
      }
    }

    /// The commands of docs/operate/backup.md, as printed.
    @Test func documentedRestoreCommandsRun() async throws {
      try await TestServices.with { services in
        try await services.makeChannel("messaging:a", message: "m1")
        let ports = try LoopbackPorts.free(2)
        let replacements = [
          ("127.0.0.1:7410", "\(services.stack.plan.store)"), ("127.0.0.1:7499", "\(ports[0])"),
          ("/etc/tidemark/frame-secret", services.stack.files.frameSecret),
          ("/var/backups/tidemark", services.directory + "/backups"),
          // The longer path comes first, because the other one is its prefix.
          ("/var/lib/tidemark-again", services.directory + "/again"),
          ("/var/lib/tidemark", services.directory + "/restored"),
          ("/mnt/other/erasures", services.directory + "/erasures"),
          ("/tmp/tidemark-drill", services.directory + "/drill"),
        ]
        var played = 0
        for line in try Self.documented() {
          // A separate store, beside the one that is backed up.
          let isStore = line.hasPrefix("tidemark-store ")
          let words = (isStore ? [("127.0.0.1:7410", "\(ports[1])")] + replacements : replacements).reduce(
            line
          ) {
            $0.replacingOccurrences(of: $1.0, with: $1.1)
          }
          .split(separator: " ").map(String.init)
          played += 1
          if words[0] == "tidemark" {
            let output = try await Command.run(TestServices.binaries + "/tidemark", Array(words.dropFirst()))
            #expect(output.status == 0, "\(line): \(output)")
          } else {
            let store = try Companion(TestServices.binaries + "/" + words[0], Array(words.dropFirst()))
            defer { store.end() }
            try await Self.wait(store, for: "is listening")
          }
        }
        #expect(played >= 8)
      }
    }

    // MARK: Details

    /// The lines of the `sh` blocks that run this project's programs.
    private static func documented() throws -> [String] {
      let text = try String(contentsOfFile: TestServices.packageRoot + "/docs/operate/backup.md", encoding: .utf8)
      return text.components(separatedBy: "```sh\n").dropFirst().flatMap { block in
        block.prefix(upTo: block.range(of: "```")?.lowerBound ?? block.endIndex).split(separator: "\n")
          .map(String.init).filter { $0.hasPrefix("tidemark") }
      }
    }

    private static func ticket(_ message: String, _ services: TestServices) async throws -> String {
      let entry = #"{"cid":"messaging:a","message_id":"\#(message)","user_id":"bob"}"#
      let response = try await services.expect(
        200,
        "POST",
        "/v1/push/tickets",
        token: services.serverToken,
        json: #"{"tickets":[\#(entry)]}"#
      )
      guard let ticket = (response["tickets"] as? [String])?.first else { throw Unexpected("\(response)") }
      return ticket
    }

    private static func stream(_ services: TestServices, _ token: String, _ arguments: [String] = []) throws
      -> Companion
    {
      try Companion(
        "curl",
        [
          "-sS", "-N", "--http2-prior-knowledge", "-H", "authorization: Bearer \(token)",
          services.h2cURL + "/v1/events",
        ]
          + arguments,
        limit: .seconds(300)
      )
    }

    private static func rest(of stream: Companion) async throws -> [String] {
      var lines: [String] = []
      while let line = await stream.line() { lines.append(line) }
      return lines
    }

    /// The next line that contains `text`; with `other`, the last such line before a line with `other`.
    @discardableResult
    private static func wait(_ stream: Companion, for text: String, after other: String? = nil) async throws
      -> String
    {
      var isBehind = other == nil
      var last: String?
      while let line = await stream.line() {
        if line.contains(text) { last = line }
        if let other, line.contains(other) { isBehind = true }
        if isBehind, let last { return last }
      }
      throw Unexpected("the stream ended before \(text)")
    }
  }
}
