import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Strangers who make a gateway hold memory or burn its time (`Clients/hostile_memory.py`), beside a client that asks
  /// 50 times a second. It may hold 64 MiB for all; what an allocator adds to that comes on top.
  @Suite struct HostileMemory {
    @Test(arguments: ["headers_held", "headers_decoded", "answers_held", "bodies_held"])
    func isBoundedAndGivenBack(_ attack: String) async throws {
      try await Pair.with(gatewayFlags: ["--gateway-memory", "64M", "--loops", "1"]) { pair in
        let specification: [String: Any] = [
          "port": pair.h2cPort, "pids": [Int(try await pair.gatewayProcess.processID)], "limit": 160 << 20,
          "server": pair.serverToken, "token": try await pair.token("bob"),
        ]
        try await Companion.play("hostile_memory.py", attack, specification, pair) { driver in
          try await driver.lastLine()
        }
      }
    }

    /// HAProxy as it is deployed stands before two gateways, and its few connections to them are everybody's: what the
    /// strangers do falls on their address.
    @Test(arguments: ["headers_held", "headers_decoded", "answers_held", "bodies_held"])
    func isBoundedBehindHAProxy(_ attack: String) async throws {
      let flags = ["--gateway-memory", "64M", "--loops", "1", "--trusted-proxies", "127.0.0.1"]
      try await Balanced.with(gatewayFlags: flags) { balanced in
        let specification: [String: Any] = [
          "port": balanced.listen.port, "certificate": balanced.certificate, "limit": 160 << 20,
          "pids": await balanced.stack.gatewayProcesses.map { Int($0.processID) },
          "server": balanced.serverToken,
          "token": try await balanced.mint.user("bob", lifetime: .seconds(3600)),
        ]
        let directory = balanced.directory
        try await Companion.play("hostile_memory.py", attack, specification, balanced.stack, in: directory) {
          try await $0.lastLine()
        }
      }
    }
  }
}
