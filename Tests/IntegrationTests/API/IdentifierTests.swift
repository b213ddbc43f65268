import Foundation
import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// Ids of other systems (docs/guide-backend.md): `auth0 5f7c`, `@bob:example.org`, `a/b`, `Zoë`.
  @Suite struct Identifiers {
    @Test func foreignIDsStayDistinctOnEveryRoute() async throws {
      try await Pair.with { pair in
        #expect(try await Self.run(pair, "first") == "ok 21 users, 8 channels, 9 messages\n")
        // From the log, then from pages.
        for _ in 0..<2 {
          await pair.stack.killStore()
          try await pair.stack.startStore()
          try await pair.stack.waitUntilGatewaysAreReady()
          #expect(try await Self.run(pair, "again") == "ok 21 users, 8 channels, 9 messages\n")
        }
        await pair.stack.stopStore()
        let kinds = try StoredKinds(directory: pair.stack.files.data)
        #expect(kinds.logged.union(kinds.paged).contains("idsWidened"), "older builds are not kept out")
        try await pair.stack.startStore()
        try await pair.stack.waitUntilGatewaysAreReady()
        let erased = try await Self.run(pair, "erase")
        #expect(erased == "ok 21 users, 8 channels, 9 messages\n")
        for program in ["tidemark-store", "gateway-h2c"] {
          let log = try String(contentsOfFile: pair.stack.files.log(of: program), encoding: .utf8)
          for id in ["auth0", "example.org", "Zo", "quoted"] {
            #expect(!log.contains(id), "\(program) logs ids")
          }
        }
        // No file contains an erased user (R16), whatever characters the id has; tables are compacted a day later.
        await pair.stack.stopStore()
        for id in ["auth0|5f7c", "@bob:example.org", "plain:"] {
          let found = try await Command.run("grep", ["-rlF", "--exclude=*.sst", id, pair.stack.files.data])
          #expect(found.status == 1, "\(id): \(found.out)")
        }
      }
    }

    /// The way back to an older build: with ids in the old character set alone, it finds no record that it does not
    /// know.
    @Test func ordinaryIDsKeepTheOldFormat() async throws {
      try await Pair.with { pair in
        try await pair.makeChannel("messaging:!members-1", message: "m:1~x")
        try await pair.expect(
          200,
          "POST",
          "/v1/channels/messaging:!members-1/read",
          token: pair.token("bob")
        )
        await pair.stack.stopStore()
        let kinds = try StoredKinds(directory: pair.stack.files.data)
        #expect(!kinds.logged.union(kinds.paged).contains("idsWidened"))
      }
    }

    private static func run(_ pair: Pair, _ turn: String) async throws -> String {
      let output = try await Command.run(
        Pair.python,
        [
          Pair.client("API/ids.py"), pair.h2cURL, pair.stack.files.jwtSecret, turn,
          pair.directory + "/ids.json",
        ]
      )
      return output.status == 0 ? output.out : "\(output)"
    }
  }
}
