import Foundation
import LocalStack
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
          "gateway": pair.h2cPort, "pid": Int(try await pair.gatewayProcess.processID), "limit": 160 << 20,
          "server": pair.serverToken, "token": try await pair.token("bob"),
        ]
        try await Companion.play("hostile_memory.py", attack, specification, pair) { driver in
          try await driver.lastLine()
        }
      }
    }
  }
}
