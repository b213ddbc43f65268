import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Dumps of other products, imported by the real programs (docs/api/import-dumps.md).
  @Suite struct DumpImports {
    /// What a query answers after the import of a product's dump.
    struct Expectation: Sendable {
      var product: String
      var file: String
      var lines: Int
      var leftOut: String
      /// Percent-encoded.
      var cid: String
      /// As `user read message at time, delivered message at time, unread`, sorted by user. What was delivered is left
      /// out if it is what was read.
      var rows: [String]
      /// A thread's first message, percent-encoded, and its rows.
      var thread: (message: String, rows: [String])?
    }

    private static let expectations = [
      Expectation(
        product: "mattermost",
        file: "mattermost.jsonl",
        lines: 16,
        leftOut: "1 files, 1 permission roles, 1 reactions",
        cid: "mattermost:crew%2Ftown-square",
        rows: [
          "alice read 1714554120000:bob:2 at 2024-05-01T09:03:00.000Z, 0 unread",
          "bob read 1714554060000:alice at 2024-05-01T09:01:30.500Z, 0 unread",
          "carol, 3 unread",
        ],
        thread: (
          "1714554060000:alice",
          [
            "alice read 1714554080000:alice at 2024-05-01T09:01:25.000Z, 0 unread",
            "bob read 1714554070000:bob at 2024-05-01T09:01:15.000Z, 1 unread",
          ]
        )
      ),
      Expectation(
        product: "stream",
        file: "stream.json",
        lines: 9,
        leftOut: "1 attachments, 3 reactions",
        cid: "messaging:general",
        rows: [
          "alice read m3 at 2024-05-01T09:03:00.000Z, 0 unread",
          "bob read m2 at 2024-05-01T09:02:10.000Z, delivered m3 at 2024-05-01T09:03:01.000Z, 0 unread",
          // Under visible history carol starts with what was there when she joined.
          "carol read m2 at 2024-05-01T09:02:30.000Z, 0 unread",
        ]
      ),
      Expectation(
        product: "sendbird",
        file: "sendbird.json",
        lines: 7,
        leftOut: "1 files, 1 invitations",
        cid: "group_channels:sendbird_group_channel_1",
        rows: [
          "alice read 7004 at 2024-05-01T09:03:00.000Z, 0 unread",
          "bob read 7003 at 2024-05-01T09:01:30.000Z, delivered 7004 at 2024-05-01T09:02:30.000Z, 0 unread",
        ]
      ),
      Expectation(
        product: "matrix",
        file: "matrix.json",
        lines: 10,
        leftOut: "1 m.room.topic events, 1 reactions",
        cid: "matrix:%21crew%3Aexample.org",
        rows: [
          "@alice:example.org read $m3 at 2024-05-01T09:02:20.000Z, 0 unread",
          // Bob's receipt is private: this is his row as at his join.
          "@bob:example.org read $m1 at 2024-05-01T09:01:20.000Z, 1 unread",
        ],
        thread: ("%24m1", ["@alice:example.org read $r1 at 2024-05-01T09:01:36.000Z, 0 unread"])
      ),
    ]

    /// The dump of each product is checked, imported, and imported again. Its positions and times are those that the
    /// dump has.
    @Test func dumpsBecomeReadState() async throws {
      try await TestServices.with { services in
        let program = TestServices.binaries + "/tidemark"
        let flags = ["--gateway", services.h2cURL, "--jwt-secret-file", services.stack.files.jwtSecret]
        for expected in Self.expectations {
          let dump = ["import", Self.path(expected.file), "--from", expected.product]
          let dry = try await Command.run(program, dump + ["--dry-run"] + flags)
          #expect(dry.status == 0 && dry.error.contains("nothing was imported"), "\(dry)")
          for _ in 0..<2 {
            let output = try await Command.run(program, dump + flags)
            #expect(output.status == 0 && output.out.isEmpty, "\(output)")
            #expect(output.error.contains("converted to \(expected.lines) lines, 0 records refused"), "\(output.error)")
            #expect(output.error.contains("left out: \(expected.leftOut)\n"), "\(output.error)")
            #expect(output.error.contains("\(expected.lines) lines, 0 refused"), "\(output.error)")
            #expect(try await Self.rows(of: expected.cid, services) == expected.rows)
            if let thread = expected.thread {
              #expect(try await Self.rows(of: expected.cid, thread: thread.message, services) == thread.rows)
            }
          }
        }
        // Bob himself sees what he has read.
        let own = try await Self.rows(
          of: "matrix:%21crew%3Aexample.org",
          token: try await services.token("@bob:example.org"),
          services
        )
        #expect(own.last == "@bob:example.org read $m2 at 2024-05-01T09:02:30.000Z, 1 unread")
        // A time that a position has is the latest possible one.
        let readers = try await services.expect(
          200,
          "GET",
          "/v1/channels/messaging:general/messages/m1/readers",
          token: services.serverToken
        )
        let exact = (readers["members"] as? [[String: Any]] ?? []).map { $0["exact"] as? Bool }
        #expect(!exact.isEmpty && exact.allSatisfy { $0 == false }, "\(readers)")
      }
    }

    /// A refused record and a refused line name their places in the dump; `--skip` counts lines of the conversion.
    @Test func refusalsNameTheDump() async throws {
      try await TestServices.with { services in
        let program = TestServices.binaries + "/tidemark"
        let flags = ["--gateway", services.h2cURL, "--jwt-secret-file", services.stack.files.jwtSecret]
        let dump = """
          {"message_id":1,"channel_url":"a","created_at":1714554000000}
          {"message_id":2,"channel_url":"a"}
          {"message_id":3,"channel_url":"a","created_at":1714554000000,"parent_message_id":9}
          """
        let output = try await Command.run(program, ["import", "-", "--from", "sendbird"] + flags, input: dump)
        #expect(output.status == 1, "\(output)")
        #expect(output.out.contains("line 2: created_at is missing\n"), "\(output.out)")
        #expect(output.out.contains("line 3 (line 3 of the dump): message_not_found"), "\(output.out)")
        let report = services.directory + "/refused.ndjson"
        let skipped = try await Command.run(
          program,
          ["import", "-", "--from", "sendbird", "--skip", "2", "--report", report] + flags,
          input: dump
        )
        #expect(skipped.status == 1 && skipped.out.isEmpty, "\(skipped)")
        let lines = try String(contentsOfFile: report, encoding: .utf8).split(separator: "\n")
        #expect(lines.count == 2, "\(lines)")
        #expect(lines.first == #"{"code":"dump_record","detail":"created_at is missing","source":"line 2"}"#)
        #expect(lines.last?.contains(#""source":"line 3""#) == true, "\(lines)")
      }
    }

    /// The lines of a conversion are those that the import takes, and need no gateway.
    @Test func conversionsNeedNoGateway() async throws {
      let program = TestServices.binaries + "/tidemark"
      let dump = ["import", Self.path("stream.json"), "--from", "stream"]
      let converted = try await Command.run(program, dump + ["--convert-to", "-"])
      #expect(converted.status == 0, "\(converted)")
      #expect(converted.out.split(separator: "\n").count == 9, "\(converted.out)")
      try await TestServices.with { services in
        let flags = ["--gateway", services.h2cURL, "--jwt-secret-file", services.stack.files.jwtSecret]
        let imported = try await Command.run(program, ["import", "-"] + flags, input: converted.out)
        #expect(imported.status == 0 && imported.error.contains("9 lines, 0 refused"), "\(imported)")
      }
      for wrong in [["--convert-to", "-"], ["--from", "slack", "--convert-to", "-"], ["--from", "stream"]] {
        let output = try await Command.run(program, ["import", Self.path("stream.json")] + wrong)
        #expect(output.status == 64, "\(output)")
      }
      let lines = try await Command.run(
        program,
        ["import", Self.path("stream.json"), "--from", "mattermost"] + ["--convert-to", "-"]
      )
      #expect(lines.status == 1, "\(lines)")
    }

    private static func path(_ file: String) -> String {
      TestServices.packageRoot + "/Tests/DumpReadersTests/Fixtures/" + file
    }

    /// - Parameter token: nil: the server's.
    private static func rows(
      of cid: String,
      thread: String? = nil,
      token: String? = nil,
      _ services: TestServices
    ) async throws -> [String] {
      let query = thread.map { "?thread_id=\($0)" } ?? ""
      let answer = try await services.expect(
        200,
        "GET",
        "/v1/channels/\(cid)/read-state\(query)",
        token: token ?? services.serverToken
      )
      let rows = try #require(answer["read"] as? [[String: Any]], "\(answer)")
      return rows.map { row in
        func mark(_ message: String, _ time: String) -> String? {
          guard let id = row[message] as? String else { return nil }
          return " \(id)" + (row[time].map { " at \($0)" } ?? "")
        }
        let user = (row["user"] as? [String: Any])?["id"] as? String ?? ""
        let read = mark("last_read_message_id", "last_read")
        let delivered = mark("last_delivered_message_id", "last_delivered_at")
        let words = [
          user + (read.map { " read" + $0 } ?? ""), delivered == read ? nil : delivered.map { "delivered" + $0 },
          row["unread_messages"].map { "\($0) unread" },
        ]
        return words.compactMap { $0 }.joined(separator: ", ")
      }.sorted()
    }
  }
}
