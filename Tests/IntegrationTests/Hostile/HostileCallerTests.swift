import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Callers that send too many requests, or tokens that are refused (`Clients/Hostile/hostile_callers.py`), beside a
  /// well-behaved one.
  @Suite struct HostileCallers {
    @Test func rateLimitsApplyToUserServerAndAddress() async throws {
      let flags = ["--rate-user", "5", "--rate-server", "20", "--rate-address", "10"]
      try await Self.play("rates", gatewayFlags: flags)
    }

    @Test(arguments: [
      "bad_tokens", "bad_tokens_of_many_connections", "malformed_tokens", "bad_tokens_behind_a_proxy",
    ])
    func refusedTokensAreRateLimited(_ name: String) async throws {
      // With a limit for each address, the addresses of this machine count too.
      try await Self.play(name, gatewayFlags: ["--connections-per-address", "1000"])
    }

    @Test func heldResourcesDoNotBlockSharedConnection() async throws {
      try await Self.play(
        "shared_connection",
        gatewayFlags: ["--gateway-memory", "64M", "--rate-server", "20"]
      )
    }

    @Test func oneUserCannotTakeAllScans() async throws {
      try await Self.play("scans", gatewayFlags: [])
    }

    @Test func connectionsWithoutTokenAreRestricted() async throws {
      try await Self.play("strangers", gatewayFlags: [])
    }

    @Test func proxyHeaderNamesTheClient() async throws {
      try await Self.play("proxy_headers", gatewayFlags: ["--proxy-protocol", "--rate-address", "1"])
    }

    private static func play(_ name: String, gatewayFlags: [String]) async throws {
      let flags = gatewayFlags + ["--trusted-proxies", "127.0.0.9", "--loops", "2"]
      try await TestServices.with(gatewayFlags: flags) { services in
        let secret = try String(contentsOfFile: services.stack.files.jwtSecret, encoding: .utf8)
        let specification: [String: Any] = [
          "gateway": services.h2cPort, "admin": services.stack.plan.gateways[1].admin.port,
          "server": services.serverToken,
          "secret": String(secret.prefix { $0 != "\n" }),
        ]
        try await Companion.play("Hostile/hostile_callers.py", name, specification, services) {
          try await $0.lastLine()
        }
      }
    }
  }
}
