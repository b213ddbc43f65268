import Foundation
import LocalStack
import Operations
import TestPrograms
import Testing

extension RealProcesses {
  /// Tickets and push acks over the real services, by foreign clients (`Clients/Push/push_acks.py`, curl).
  @Suite struct Pushes {
    /// Tickets that are forged, truncated, expired or another store's; for deleted or recreated objects; and under
    /// the second secret.
    @Test func onlyValidTicketsAreAccepted() async throws {
      try await Self.play("tickets") { services, driver in
        var last = ""
        for await line in driver.lines {
          last = line
          guard line == "rotate" else { continue }
          let old = try String(contentsOfFile: services.stack.files.ticketSecret, encoding: .utf8)
          await services.stack.stopGateway(0)
          // The other gateway read the file when it started, and does not know of the change.
          try services.stack.files.write(
            "another-secret-of-tickets-long-enough\n" + old,
            to: services.stack.files.ticketSecret
          )
          try await services.stack.startGateway(0)
          driver.send("done")
        }
        return last
      }
    }

    @Test func linesAreAnswered() async throws {
      try await Self.play("lines") { _, driver in try await driver.lastLine() }
    }

    @Test func unreadAnswersUseBoundedMemory() async throws {
      try await Self.play("silent") { services, driver in
        let memory = MemoryWatch(try await services.gatewayProcess)
        await memory.start()
        let last = try await driver.lastLine()
        let grownBytes = await memory.stop()
        #expect(grownBytes < 128 << 20, "the gateway grew by \(grownBytes >> 20) MiB")
        return last
      }
    }

    /// curl uploads each line as soon as it is written, and prints each response as it arrives.
    @Test func curlLinesAreAnsweredAsTheyArrive() async throws {
      try await TestServices.with { services in
        try await services.makeChannel("messaging:curl", message: "m1")
        let line = #"{"cid":"messaging:curl","message_id":"m1","user_id":"bob"}"# + "\n"
        let file = services.directory + "/lines"
        let count = 5_000
        try (String(repeating: line, count: count) + "{").write(
          toFile: file,
          atomically: false,
          encoding: .utf8
        )
        let response = try await services.curl(
          "POST",
          "/v1/push/acks",
          token: services.serverToken,
          arguments: ["-H", "content-type: application/x-ndjson", "-T", file]
        )
        #expect(response.status == 200)
        let results = response.body.split(separator: "\n")
        let good = #"{"ok":true,"cid":"messaging:curl","message_id":"m1","user_id":"bob"}"#
        #expect(results.count == count + 1 && results.dropLast().allSatisfy { $0 == good })
        #expect(results.last == #"{"ok":false,"code":"invalid_json"}"#)
        // The request is refused before the gateway reads a line: curl shows the response.
        let refused = try await services.curl(
          "POST",
          "/v1/push/acks",
          arguments: ["-H", "content-type: application/x-ndjson", "-T", file]
        )
        #expect(refused.status == 401 && refused.body.contains("token_missing"), "\(refused)")
      }
    }

    /// Run a case of the script.
    ///
    /// - Parameter body: reads the script's output to its end, and returns its last line.
    private static func play(_ name: String, _ body: (TestServices, Companion) async throws -> String)
      async throws
    {
      try await TestServices.with { services in
        let specification: [String: Any] = [
          "port": services.h2cPort, "admin": services.stack.plan.gateways[1].admin.port,
          "url": services.tlsURL,
          "certificate": services.certificate, "server": services.serverToken,
          "secret": services.stack.files.ticketSecret, "store": services.stack.plan.store.port,
        ]
        try await Companion.play("Push/push_acks.py", name, specification, services) {
          try await body(services, $0)
        }
      }
    }
  }
}
