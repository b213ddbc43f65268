import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// A change of a user's settings or of a channel type reaches every shard, even if the gateway is killed half-way
  /// (R7, R8).
  @Suite struct SettingsReplication {
    @Test func replicationSurvivesGatewayKill() async throws {
      let seed = TestRun.printedSeed(of: "settings through a gateway that is killed")
      try await Pair.with { pair in
        let ports = try LoopbackPorts.free(2)
        let output = try await Command.run(
          Pair.python,
          [
            Pair.client("API/settings_replication.py"), pair.h2cURL, pair.serverToken, "25", "\(seed)",
            "http://\(ports[0])", try Executables(directory: Pair.binaries).gateway, "--listen",
            "\(ports[0])", "--h2c", "--store", "\(pair.stack.plan.store)", "--secret-file",
            pair.stack.files.frameSecret, "--jwt-secret-file", pair.stack.files.jwtSecret, "--admin",
            "\(ports[1])", "--log-level", "error",
          ]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok 25 rounds"), "seed \(seed): \(output)")
        print(output.out, terminator: "")
      }
    }
  }
}
