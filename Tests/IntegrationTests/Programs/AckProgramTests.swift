import Foundation
import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  @Suite struct AckProgram {
    /// `tidemark ack` needs only tickets: over TLS as arguments, over h2c as lines. A refused ticket gets its line
    /// and an exit code; a wrong command gets another exit code.
    @Test func ackNeedsOnlyTickets() async throws {
      try await TestServices.with { services in
        let channel = "/v1/channels/messaging:ack"
        let server = services.serverToken
        try await services.expect(201, "PUT", channel, token: server, json: #"{"members":["dan","eve"]}"#)
        try await services.expect(201, "POST", channel + "/messages", token: server, json: #"{"id":"m1"}"#)
        let response = try await services.expect(
          200,
          "POST",
          "/v1/push/tickets",
          token: server,
          json: """
            {"tickets":[{"cid":"messaging:ack","message_id":"m1","user_id":"dan"},
             {"cid":"messaging:ack","message_id":"m1","user_id":"eve"}]}
            """
        )
        let tickets = try #require(response["tickets"] as? [String])
        let overTLS = ["--gateway", services.tlsURL, "--ca", services.certificate]

        let one = try await Self.ack(overTLS + [tickets[0]])
        #expect(one.status == 0 && one.out == "ok messaging:ack m1 dan\n" && one.error.isEmpty, "\(one)")
        #expect(try await Self.delivered(services, "dan") == 1)
        #expect(try await Self.delivered(services, "eve") == 0)

        let forged = tickets[1].dropLast() + (tickets[1].hasSuffix("A") ? "Q" : "A")
        let lines = services.directory + "/tickets"
        try ([tickets[0], String(forged), "no ticket", "", tickets[1]].joined(separator: "\n"))
          .write(toFile: lines, atomically: true, encoding: .utf8)
        let three = try await Command.run(
          "/bin/sh",
          ["-c", "'\(TestServices.binaries)/tidemark' ack --json --gateway \(services.h2cURL) < '\(lines)'"]
        )
        #expect(three.status == 1 && three.error.isEmpty, "\(three)")
        #expect(
          three.out == """
            {"cid":"messaging:ack","message_id":"m1","ok":true,"user_id":"dan"}
            {"code":"ticket_invalid","ok":false}
            {"code":"ticket_invalid","ok":false}
            {"cid":"messaging:ack","message_id":"m1","ok":true,"user_id":"eve"}

            """
        )
        #expect(try await Self.delivered(services, "eve") == 1)

        try await services.expect(200, "DELETE", channel, token: server)
        let gone = try await Self.ack(overTLS + [tickets[0]])
        #expect(
          gone.status == 1 && gone.out == "channel_not_found: the channel has been deleted\n",
          "\(gone)"
        )
        let unverified = try await Self.ack(["--gateway", services.tlsURL, tickets[0]])
        #expect(
          unverified.status == 1 && unverified.out.isEmpty && unverified.error.hasPrefix("tidemark ack: ")
        )
        let wrong = try await Self.ack(["--gateway", "localhost", tickets[0]])
        #expect(wrong.status == 64 && wrong.error.contains("'localhost' is invalid for '--gateway <url>'"))
      }
    }

    private static func ack(_ arguments: [String]) async throws -> Command.Output {
      try await Command.run(TestServices.binaries + "/tidemark", ["ack"] + arguments)
    }

    private static func delivered(_ services: TestServices, _ user: String) async throws -> Int? {
      let response = try await services.expect(
        200,
        "GET",
        "/v1/channels/messaging:ack/read-state",
        token: services.serverToken
      )
      let rows = response["read"] as? [[String: Any]] ?? []
      return rows.first { ($0["user"] as? [String: Any])?["id"] as? String == user }?["last_delivered_seq"]
        as? Int
    }
  }
}
