import Foundation
import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// Ids of other systems (docs/guides/backend.md): `auth0 5f7c`, `@bob:example.org`, `a/b`, `Zoë`.
  @Suite struct Identifiers {
    @Test func foreignIDsStayDistinctOnEveryRoute() async throws {
      try await TestServices.with { services in
        #expect(try await Self.run(services, "first") == "ok 21 users, 8 channels, 9 messages\n")
        // From the log, then from pages.
        for _ in 0..<2 {
          await services.stack.killStore()
          try await services.stack.startStore()
          try await services.stack.waitUntilGatewaysAreReady()
          #expect(try await Self.run(services, "again") == "ok 21 users, 8 channels, 9 messages\n")
        }
        await services.stack.stopStore()
        let kinds = try StoredKinds(directory: services.stack.files.data)
        #expect(kinds.logged.union(kinds.paged).contains("idsWidened"), "older builds are not kept out")
        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()
        let erased = try await Self.run(services, "erase")
        #expect(erased == "ok 21 users, 8 channels, 9 messages\n")
        for program in ["tidemark-store", "gateway-h2c"] {
          let log = try services.log(of: program)
          for id in ["auth0", "example.org", "Zo", "quoted"] {
            #expect(!log.contains(id), "\(program) logs ids")
          }
        }
        // No file contains an erased user (R16), whatever characters the id has; tables are compacted a day later.
        await services.stack.stopStore()
        for id in ["auth0|5f7c", "@bob:example.org", "plain:"] {
          let found = try await Command.run(
            "grep",
            ["-rlF", "--exclude=*.sst", id, services.stack.files.data]
          )
          #expect(found.status == 1, "\(id): \(found.out)")
        }
      }
    }

    /// The way back to an older build: with ids in the old character set alone, it finds no record that it does not
    /// know.
    @Test func ordinaryIDsKeepTheOldFormat() async throws {
      try await TestServices.with { services in
        try await services.makeChannel("messaging:!members-1", message: "m:1~x")
        try await services.expect(
          200,
          "POST",
          "/v1/channels/messaging:!members-1/read",
          token: services.token("bob")
        )
        await services.stack.stopStore()
        let kinds = try StoredKinds(directory: services.stack.files.data)
        #expect(!kinds.logged.union(kinds.paged).contains("idsWidened"))
      }
    }

    private static func run(_ services: TestServices, _ turn: String) async throws -> String {
      let output = try await Command.run(
        TestServices.python,
        [
          TestServices.client("API/ids.py"), services.h2cURL, services.stack.files.jwtSecret, turn,
          services.directory + "/ids.json",
        ]
      )
      return output.status == 0 ? output.out : "\(output)"
    }
  }
}
