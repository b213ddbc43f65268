import Foundation
import LocalStack
import Operations
import Testing

extension RealProcesses {
  /// An acknowledged command is durable.
  @Suite struct Durability {
    /// The store is killed under load twenty times. A foreign client records what was acknowledged, and after each
    /// kill reads everything back.
    @Test func acknowledgedMarksSurviveKills() async throws {
      try await TestServices.with { services in
        let channels = (0..<5).map { "messaging:kill-\($0)" }
        let last = try await services.expectKillsLoseNothing(
          20,
          channels: channels,
          messages: 4_000,
          users: 4
        )
        print("acknowledged over 20 kills: \(last), none lost")
      }
    }

    /// A killed process leaves its page cache behind, so this test checks the sync itself, with strace. Between the
    /// arrival of each mark and the departure of its reply, a sync has begun and returned. Housekeeping frames of the
    /// gateway are not counted: the trace is decoded into frames.
    @Test func noReplyLeavesBeforeItsSync() async throws {
      try await TestServices.with { services in
        try await services.makeChannels(["messaging:sync"], messages: 60, users: 1)
        let trace = services.directory + "/trace"
        let strace = try await services.traceStore(into: trace)
        for message in 1...50 {
          try await services.expect(
            200,
            "POST",
            "/v1/channels/messaging:sync/read?message_id=m\(message)",
            token: services.token("user-0")
          )
        }
        await strace.stop()
        let (covered, bare) = SyncTrace(
          try String(contentsOfFile: trace, encoding: .utf8),
          port: services.stack.plan.store.port
        ).replies
        #expect(covered == 50, "\(covered) of 50 replies left after a sync")
        #expect(bare == 0, "\(bare) replies left without a sync since their request")
      }
    }
  }
}
