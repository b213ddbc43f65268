import Foundation
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// A restore repeats the erasures that are newer than the backup.
  @Suite struct ErasureLedgers {
    @Test func erasedUsersStayErasedAfterRestore() async throws {
      let folder = NSTemporaryDirectory() + "tidemark-ledger-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: folder) }
      let ledger = folder + "/erasures"
      try await TestServices.with(storeFlags: ["--erasure-ledger", ledger]) { services in
        let server = services.serverToken
        let channel = "/v1/channels/messaging:a"
        try await services.expect(
          201,
          "PUT",
          channel,
          token: server,
          json: #"{"members":["alice","bob-who-goes","carol-who-goes"]}"#
        )
        for (id, sender) in [("m1", "bob-who-goes"), ("m2", "carol-who-goes")] {
          let json = #"{"id":"\#(id)","user_id":"\#(sender)"}"#
          try await services.expect(201, "POST", channel + "/messages", token: server, json: json)
        }
        try await Self.erase("carol-who-goes", services)
        let to = services.directory + "/backups"
        try await services.backup(to)
        try await Self.erase("bob-who-goes", services)
        let text = try String(contentsOfFile: ledger, encoding: .utf8)
        #expect(text.components(separatedBy: "\nerased ").count >= 3 && !text.contains("who-goes"), "\(text)")

        // The backup alone does not contain bob's erasure.
        let unknown = try await Self.restore(to, services.directory + "/unknown")
        #expect(unknown["erased_again"] as? Int == 0)
        let backupTime = try #require(unknown["time"] as? String)
        #expect(unknown["erasures_complete_through"] as? String == backupTime)
        // With the ledger, bob is erased before the store serves any request.
        let (members, summary) = try await services.withRestored(
          to,
          "known",
          flags: ["--erasure-ledger", ledger]
        ) { stack in
          let url = "http://\(stack.plan.gateways[0].listen)\(channel)/read-state"
          let response = try await Command.run(
            "curl",
            ["-sS", "--http2-prior-knowledge", "-H", "authorization: Bearer \(server)", url]
          )
          let check = try String(contentsOfFile: stack.files.data + "/erasures", encoding: .utf8)
          return (response.out, check)
        }
        #expect(members.contains("alice") && !members.contains("who-goes"), "\(members)")
        #expect(summary.components(separatedBy: "\nerased ").count >= 3 && !summary.contains("who-goes"))
        let known = try await Self.restore(to, services.directory + "/again", "--erasure-ledger", ledger)
        #expect(known["erased_again"] as? Int == 1)
        #expect(try #require(known["erasures_complete_through"] as? String) >= backupTime)
        #expect(!FileManager.default.fileExists(atPath: services.directory + "/again/.restoring"))

        // The store refuses data that is older than the ledger.
        let older = try await Command.run(
          TestServices.binaries + "/tidemark-store",
          ["--data", services.directory + "/unknown", "--listen", "127.0.0.1:0", "--erasure-ledger", ledger]
        )
        #expect(
          older.status == 78 && older.error.contains("restore it with tidemark restore --erasure-ledger"),
          "\(older)"
        )

        // While the ledger cannot be written, erasures fail and everything else works.
        try FileManager.default.moveItem(atPath: ledger, toPath: ledger + ".away")
        let refused = try await services.curl("DELETE", "/v1/users/alice", token: server)
        #expect(refused.status == 503, "\(refused)")
        try await services.expect(200, "GET", channel, token: server)
        try FileManager.default.moveItem(atPath: ledger + ".away", toPath: ledger)
        try await Self.erase("alice", services)
        let after = try String(contentsOfFile: ledger, encoding: .utf8)
        #expect(after.components(separatedBy: "\nerased ").count >= 4, "\(after)")
      }
    }

    private static func erase(_ user: String, _ services: TestServices) async throws {
      try await eventually("\(user) is erased") {
        (200..<300).contains(
          try await services.curl("DELETE", "/v1/users/\(user)", token: services.serverToken).status
        )
      }
    }

    private static func restore(_ from: String, _ to: String, _ flags: String...) async throws -> [String:
      Any]
    {
      let output = try await Command.run(TestServices.binaries + "/tidemark", ["restore", from, to] + flags)
      let object = try? JSONSerialization.jsonObject(with: Data(output.out.utf8)) as? [String: Any]
      guard output.status == 0, let object else { throw Unexpected("tidemark restore: \(output)") }
      return object
    }
  }
}
