import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Attackers that occupy connections (`Clients/Hostile/hostile_connections.py`), beside a well-behaved client.
  @Suite struct HostileConnections {
    @Test func silentStoreConnectionsAreEvicted() async throws {
      try await Self.play("silent_at_the_store") { services, driver in
        try await driver.lastLine(restartingIn: services)
      }
    }

    @Test func connectionsPerAddressAreLimited() async throws {
      try await Self.play(
        "of_one_address",
        gatewayFlags: ["--connections", "400", "--connections-per-address", "20"]
      )
    }

    @Test func connectionsWithoutTokenAreEvicted() async throws {
      try await Self.play("unauthenticated", gatewayFlags: ["--connections", "40"])
    }

    @Test func gatewayWithoutDescriptorsPausesAccepting() async throws {
      try await Self.play("descriptors", gatewayFlags: ["--loops", "1"]) { services, driver in
        let line = try await driver.lastLine()
        let log = try services.log(of: "gateway-h2c")
        let refused = log.split(separator: "\n").filter { $0.contains("Connections are refused") }
        #expect((1...8).contains(refused.count), "\(refused)")
        return line
      }
    }

    @Test func fastReadersDoNotDelayOthers() async throws {
      try await Self.play("documents", gatewayFlags: ["--loops", "1"])
    }

    @Test func scrapesDoNotStopClients() async throws {
      try await Self.play("scrapes", gatewayFlags: ["--loops", "1"])
    }

    @Test func brokenConnectionsAreInTheAuditLog() async throws {
      try await Self.play("broken_protocol") { services, driver in
        let line = try await driver.lastLine()
        try await eventually("the log counts the connections of the attacker's address") {
          let log = try services.log(of: "gateway-h2c")
          let counts = log.matches(of: /address=127\.0\.0\.3 connections=(\d+) .*Refused in the last/)
          return counts.reduce(0) { $0 + (Int($1.1) ?? 0) } == 5
        }
        return line
      }
    }

    /// Log lines that attackers cause are limited to one per second and kind, with a count.
    @Test func refusedConnectionsAreLoggedRateLimited() async throws {
      try await Self.play("refused") { services, driver in
        func lines() throws -> [Substring] {
          try ["tidemark-store", "gateway-tls", "gateway-h2c"].flatMap { name in
            try services.log(of: name).split(
              separator: "\n"
            )
          }
        }
        let before = try lines().count
        let start = ContinuousClock.now
        let line = try await driver.lastLine()
        let seconds = Int((ContinuousClock.now - start).components.seconds)
        let refused = try lines().filter { $0.contains("Connection refused") }
        let counts = refused.compactMap { line in line.firstMatch(of: /\ count=(\d+)/).flatMap { Int($0.1) } }
        #expect(!refused.isEmpty && counts.count == refused.count && counts.reduce(0, +) <= 500, "\(refused)")
        #expect(refused.count <= 2 * (seconds + 2), "\(refused.count) lines in \(seconds) s")
        #expect(try lines().count - before <= refused.count + 10)
        return line
      }
    }

    private static func play(
      _ name: String,
      gatewayFlags: [String] = [],
      _ body: (TestServices, Companion) async throws -> String = { try await $1.lastLine() }
    ) async throws {
      try await TestServices.with(gatewayFlags: gatewayFlags) { services in
        let plan = services.stack.plan
        let specification: [String: Any] = [
          "gateway": services.h2cPort, "admin": plan.gateways[1].admin.port, "store": plan.store.port,
          "store_admin": plan.storeAdmin.port, "server": services.serverToken,
          "token": try await services.token("bob"), "pid": Int(try await services.gatewayProcess.processID),
        ]
        try await Companion.play("Hostile/hostile_connections.py", name, specification, services) {
          try await body(services, $0)
        }
      }
    }
  }
}
