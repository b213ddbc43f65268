import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Streams whose clients are hostile or unlucky (`Clients/Hostile/hostile_streams.py`). Tests of single frames are in
  /// `Proto/scripts/http2/events.probe`.
  @Suite struct HostileStreams {
    /// The gateway's memory for unread streams is bounded; a client that reads gets every event.
    @Test func unreadStreamsUseBoundedMemory() async throws {
      try await Self.play("never_reading", users: 30) { services, driver in
        let memory = MemoryWatch(try await services.gatewayProcess)
        await memory.start()
        let last = try await driver.lastLine()
        let grownBytes = await memory.stop()
        #expect(grownBytes < 64 << 20, "the gateway grew by \(grownBytes >> 20) MiB")
        return last
      }
    }

    @Test func endedStreamsLeaveNoState() async throws {
      try await Self.play("ending", users: 12) { _, driver in try await driver.lastLine() }
    }

    /// Hundreds of clients reconnect at once to a gateway that was killed and restarted; two thousand in a long run.
    @Test func allClientsReconnectAtOnce() async throws {
      try await Self.play("crowd", users: 200) { services, driver in
        try await driver.lastLine(restartingIn: services)
      }
    }

    @Test func arbitraryIDsResetOrAreRejected() async throws {
      try await Self.play("cursors", users: 1) { _, driver in try await driver.lastLine() }
    }

    @Test func newStreamsDoNotLowerIDs() async throws {
      try await Self.play("newcomers", users: 30) { _, driver in try await driver.lastLine() }
    }

    /// Run a case of the script against the h2c gateway.
    ///
    /// - Parameter body: reads the script's output to its end, and returns its last line.
    private static func play(
      _ name: String,
      users: Int,
      _ body: (TestServices, Companion) async throws -> String
    ) async throws {
      try await TestServices.with { services in
        var tokens: [String: String] = [:]
        for number in 100..<100 + users {
          tokens["user-\(number)"] = try await services.token("user-\(number)")
        }
        let specification: [String: Any] = [
          "gateway": services.h2cPort, "admin": services.stack.plan.gateways[1].admin.port,
          "server": services.serverToken, "users": tokens, "crowd": TestRun.count(300, long: 2_000),
        ]
        try await Companion.play("Hostile/hostile_streams.py", name, specification, services) {
          try await body(services, $0)
        }
      }
    }
  }
}
