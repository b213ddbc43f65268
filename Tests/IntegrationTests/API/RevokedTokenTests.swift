import Foundation
import LocalStack
import Operations
import TestPrograms
import Testing

extension RealProcesses {
  /// Tokens that are revoked by their ids, on both gateways of a store.
  @Suite struct RevokedTokens {
    @Test func revocationReachesEveryGateway() async throws {
      try await TestServices.with { services in
        try await Self.play("revoke", services)
        await services.stack.killStore()
        await services.stack.killGateway(1)
        try await services.stack.startStore()
        // From the gateway's first response on: it is not ready before it has the list.
        try await services.stack.startGateway(1)
        try await services.stack.waitUntilGatewaysAreReady()
        let backups = services.directory + "/backups"
        try await services.backup(backups)
        try await Self.play("after-restart", services)

        await services.stack.stopStore()
        let data = services.stack.files.data
        try FileManager.default.moveItem(atPath: data, toPath: data + ".before")
        let restored = try await Backups.tidemark("restore", backups, data)
        #expect(restored.status == 0, "\(restored)")
        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()
        try await Self.play("restored", services)
      }
    }

    private static func play(_ part: String, _ services: TestServices) async throws {
      let gateways = services.stack.plan.gateways
      let output = try await Command.run(
        TestServices.python,
        [
          TestServices.client("API/revoked_tokens.py"), part, "\(gateways[0].listen.port)",
          services.certificate,
          "\(gateways[1].listen.port)", services.stack.files.jwtSecret,
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
          TestServices.binaries + "/tidemark",
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
        TestServices.binaries + "/tidemark",
        ["token", "--jwt-secret-file", secret, "--server", "--id", ".."]
      )
      #expect(refused.status != 0 && refused.error.contains("--id \"..\""), "\(refused)")
    }
  }
}
