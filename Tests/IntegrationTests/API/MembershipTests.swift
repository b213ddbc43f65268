import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// A command that is resent after a lost connection is applied exactly once, even if other callers change the same
  /// data in between.
  @Suite struct ExactlyOnce {
    /// A member is added, removed and added again through two gateways. A proxy cuts their connections to the store
    /// at random, in the middle of frames.
    @Test func membershipMatchesAcknowledgedCommands() async throws {
      try await Self.overCutConnections("membership over cut connections") { services, ports, seed in
        try await services.expect(
          201,
          "PUT",
          "/v1/channels/messaging:cut",
          token: services.serverToken,
          json: #"{"members":["alice"]}"#
        )
        return try await Command.run(
          TestServices.python,
          [
            TestServices.client("API/membership.py"), "\(ports[0])", "\(ports[1])", services.serverToken,
            "messaging:cut",
            "bob", "400", "\(seed)",
          ]
        )
      }
    }

    /// Many users join, leave, change privacy settings and are erased concurrently (R7, R13, R16). The index of each
    /// user's channels also ends as acknowledged.
    @Test func usersMatchAcknowledgedCommands() async throws {
      try await Self.overCutConnections("users over cut connections") { services, ports, seed in
        try await Command.run(
          TestServices.python,
          [
            TestServices.client("API/concurrent_users.py"), "\(ports[0]),\(ports[1])", services.serverToken,
            "12", "6",
            "60",
            "\(seed)",
          ]
        )
      }
    }

    /// Run a client against two gateways whose connections to the store are cut at random. The client must succeed,
    /// and connections must have been cut.
    ///
    /// - Parameter client: gets the services, the gateways' ports and the seed.
    private static func overCutConnections(
      _ name: String,
      _ client: (TestServices, [Int], Int) async throws -> Command.Output
    ) async throws {
      let seed = TestRun.printedSeed(of: "\(name)")
      try await TestServices.with { services in
        let ports = try LoopbackPorts.free(6)
        var proxies: [Companion] = []
        var gateways: [ChildProcess] = []
        defer { for proxy in proxies { proxy.end() } }
        for number in 0..<2 {
          let proxy = try Companion(
            TestServices.python,
            [
              TestServices.client("API/cutting_proxy.py"), "\(ports[number].port)",
              "\(services.stack.plan.store.port)",
              "\(seed + number)", "2500",
            ]
          )
          proxies.append(proxy)
          guard await proxy.line() == "ready" else { throw Unexpected("the proxy did not start") }
          gateways.append(
            try ChildProcess(
              name: "gateway-\(number)",
              executable: try Executables(directory: TestServices.binaries).gateway,
              arguments: [
                "--listen", "\(ports[2 + number])", "--h2c", "--store", "\(ports[number])", "--secret-file",
                services.stack.files.frameSecret, "--jwt-secret-file", services.stack.files.jwtSecret,
                "--admin",
                "\(ports[4 + number])", "--log-level", "error",
              ],
              logFile: services.directory + "/gateway-\(number).log"
            )
          )
        }
        let output = try await client(services, [ports[2].port, ports[3].port], seed)
        let admin = services.stack.plan.storeAdmin
        let opened = try await Scrape.value("tidemark_store_connections_opened_total", of: admin)
        for gateway in gateways { await gateway.stop() }
        // Two gateways of the services, two behind the proxies; each further connection replaces a cut one.
        let cuts = Int(opened) - 4
        #expect(cuts >= 10, "only \(cuts) connections were cut")
        #expect(output.status == 0 && output.out.hasPrefix("ok "), "seed \(seed): \(output)")
        print(output.out, terminator: "")
      }
    }
  }
}
