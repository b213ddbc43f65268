import Foundation
import LocalStack
import Operations
import TestPrograms
import Testing

extension RealProcesses {
  /// Tokens that are revoked by their ids, on both gateways of a store.
  @Suite struct RevokedTokens {
    @Test func revocationReachesEveryGateway() async throws {
      try await Pair.with { pair in
        try await Self.play("revoke", pair)
        await pair.stack.killStore()
        await pair.stack.killGateway(1)
        try await pair.stack.startStore()
        // From the gateway's first response on: it is not ready before it has the list.
        try await pair.stack.startGateway(1)
        try await pair.stack.waitUntilGatewaysAreReady()
        let backups = pair.directory + "/backups"
        try await pair.backup(backups)
        try await Self.play("after-restart", pair)

        await pair.stack.stopStore()
        let data = pair.stack.files.data
        try FileManager.default.moveItem(atPath: data, toPath: data + ".before")
        let restored = try await Backups.tidemark("restore", backups, data)
        #expect(restored.status == 0, "\(restored)")
        try await pair.stack.startStore()
        try await pair.stack.waitUntilGatewaysAreReady()
        try await Self.play("restored", pair)
      }
    }

    private static func play(_ part: String, _ pair: Pair) async throws {
      let gateways = pair.stack.plan.gateways
      let output = try await Command.run(
        Pair.python,
        [
          Pair.client("API/revoked_tokens.py"), part, "\(gateways[0].listen.port)", pair.certificate,
          "\(gateways[1].listen.port)", pair.stack.files.jwtSecret,
        ]
      )
      #expect(output.status == 0 && output.out == "ok\n", "\(part): \(output)")
    }

    @Test func programTokensHaveUniqueIDs() async throws {
      let secret = NSTemporaryDirectory() + "tidemark-secret-\(UUID().uuidString)"
      try "0123456789abcdef0123456789abcdef\n".write(toFile: secret, atomically: true, encoding: .utf8)
      defer { try? FileManager.default.removeItem(atPath: secret) }
      func claims(_ flags: String...) async throws -> [String: Any] {
        let output = try await Command.run(
          Pair.binaries + "/tidemark",
          ["token", "--jwt-secret-file", secret] + flags
        )
        try #require(output.status == 0, "\(output)")
        var part = output.out.split(separator: ".")[1].replacing("-", with: "+").replacing("_", with: "/")
        part += String(repeating: "=", count: (4 - part.count % 4) % 4)
        let data = try #require(Data(base64Encoded: String(part)))
        return try #require(JSONSerialization.jsonObject(with: data) as? [String: Any])
      }
      let (first, second) = (try await claims("--server"), try await claims("--server"))
      let ids = [first, second].compactMap { $0["jti"] as? String }
      #expect(ids.count == 2 && ids[0] != ids[1] && ids.allSatisfy { UUID(uuidString: $0) != nil })
      #expect(try await claims("--server", "--id", "backend/7")["jti"] as? String == "backend/7")
      #expect(try await claims("--user", "bob")["jti"] == nil)
      #expect(try await claims("--user", "bob", "--id", "phone")["jti"] as? String == "phone")
      let refused = try await Command.run(
        Pair.binaries + "/tidemark",
        ["token", "--jwt-secret-file", secret, "--server", "--id", ".."]
      )
      #expect(refused.status != 0 && refused.error.contains("--id \"..\""), "\(refused)")
    }
  }
}
