import Foundation
import GatewayClient
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Attackers that make a gateway hold memory or use its time (`Clients/Hostile/hostile_memory.py`), beside a client
  /// that sends 50 requests a second. The gateway may hold 64 MiB for all of them, plus the allocator's overhead; the
  /// store holds nothing for them.
  @Suite struct HostileMemory {
    @Test(arguments: [
      "headers_held", "headers_decoded", "answers_held", "answers_of_one_user", "bodies_held", "tables_held",
      "resets_unread", "single_bytes", "streams_of_frames",
    ])
    func memoryIsBoundedAndReleased(_ attack: String) async throws {
      try await TestServices.with(gatewayFlags: ["--gateway-memory", "64M", "--loops", "1"]) { services in
        let specification: [String: Any] = [
          "port": services.h2cPort, "limit": 96 << 20,
          "pids": try await [services.gatewayProcess, services.storeProcess].map { Int($0.processID) },
          "server": services.serverToken, "token": try await services.token("bob"),
          "other": try await services.token("user-1"),
        ]
        try await Companion.play("Hostile/hostile_memory.py", attack, specification, services) { driver in
          try await driver.lastLine()
        }
      }
    }

    /// The deployed HAProxy stands in front of two gateways, with one connection to them for each client connection.
    @Test(arguments: ["headers_held", "headers_decoded", "answers_held", "bodies_held"])
    func memoryIsBoundedBehindHAProxy(_ attack: String) async throws {
      try await LoadBalancedServices.with(gatewayFlags: ["--gateway-memory", "64M", "--loops", "1"]) {
        services in
        let specification: [String: Any] = [
          "port": services.listen.port, "certificate": services.certificate, "limit": 96 << 20,
          "pids": await services.stack.gatewayProcesses.map { Int($0.processID) },
          "server": services.serverToken,
          "token": try await services.tokenIssuer.user("bob", lifetime: .seconds(3600)),
          "other": try await services.tokenIssuer.user("user-1", lifetime: .seconds(3600)),
        ]
        let directory = services.directory
        try await Companion.play(
          "Hostile/hostile_memory.py",
          attack,
          specification,
          services.stack,
          in: directory
        ) {
          try await $0.lastLine()
        }
      }
    }
  }
}
