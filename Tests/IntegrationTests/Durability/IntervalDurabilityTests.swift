import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// `--durability interval:MS`: the losses that a crash can cause in this mode.
  @Suite struct IntervalDurability {
    /// A crash of the process loses nothing: the kernel has all written bytes.
    @Test func processKillLosesNothing() async throws {
      try await TestServices.with(storeFlags: ["--durability", "interval:200"]) { services in
        let channels = (0..<3).map { "messaging:interval-\($0)" }
        _ = try await services.expectKillsLoseNothing(4, channels: channels, messages: 2_000, users: 2)
      }
    }

    /// Replies do not wait for a sync. Syncs still happen, and the log and a metric show the mode.
    @Test func repliesDoNotWaitForSync() async throws {
      try await TestServices.with(storeFlags: ["--durability", "interval:100"]) { services in
        try await services.makeChannels(["messaging:interval"], messages: 60, users: 1)
        let trace = services.directory + "/trace"
        let strace = try await services.traceStore(into: trace)
        for message in 1...50 {
          try await services.expect(
            200,
            "POST",
            "/v1/channels/messaging:interval/read?message_id=m\(message)",
            token: services.token("user-0")
          )
        }
        let port = services.stack.plan.store.port
        func recorded() throws -> SyncTrace {
          SyncTrace(try String(contentsOfFile: trace, encoding: .utf8), port: port)
        }
        try await eventually("a sync") { try recorded().events.contains(.syncReturned) }
        await strace.stop()
        #expect(try recorded().replies.bare > 0, "every reply waited for a sync")
        let admin = services.stack.plan.storeAdmin
        #expect(try await Scrape.value("tidemark_store_sync_interval_milliseconds", of: admin) == 100)
        let log = try services.log(of: "tidemark-store")
        #expect(log.contains("if the machine fails, those since the last sync are lost"))
      }
    }

    /// The error names the flag and its valid values.
    @Test(
      arguments: [
        "often", "interval", "interval:", "interval:0", "interval:60001", "interval:-1", "interval:1x",
      ]
    )
    func unknownModeIsRejected(mode: String) async throws {
      let output = try await Command.run(
        TestServices.binaries + "/tidemark-store",
        ["--data", NSTemporaryDirectory() + "never", "--durability", mode]
      )
      #expect(output.status != 0)
      #expect(output.error.contains("--durability") && output.error.contains("interval:"), "\(output)")
    }
  }
}
