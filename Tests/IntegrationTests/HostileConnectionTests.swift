import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Strangers who take up connections (`Clients/hostile_connections.py`), beside a client that behaves.
  @Suite struct HostileConnections {
    @Test func silentOnesAtTheStoreGiveWay() async throws {
      try await Self.play("silent_at_the_store") { pair, driver in
        try await driver.lastLine(restartingIn: pair)
      }
    }

    @Test func anAddressHasItsShare() async throws {
      try await Self.play(
        "of_one_address",
        gatewayFlags: ["--connections", "400", "--connections-per-address", "20"]
      )
    }

    @Test func whoHasShownNoTokenGivesWay() async throws {
      try await Self.play("unproven", gatewayFlags: ["--connections", "40"])
    }

    private static func play(
      _ name: String,
      gatewayFlags: [String] = [],
      _ body: (Pair, Companion) async throws -> String = { try await $1.lastLine() }
    ) async throws {
      try await Pair.with(gatewayFlags: gatewayFlags) { pair in
        let plan = pair.stack.plan
        let specification: [String: Any] = [
          "gateway": pair.h2cPort, "admin": plan.gateways[1].admin.port, "store": plan.store.port,
          "store_admin": plan.storeAdmin.port, "server": pair.serverToken,
          "token": try await pair.token("bob"),
        ]
        try await Companion.play("hostile_connections.py", name, specification, pair) {
          try await body(pair, $0)
        }
      }
    }
  }
}
