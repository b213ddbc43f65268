import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// A push worker's day over two gateways and one store. The clients (`Clients/Push/push_day.py`) and their model of
  /// the acks answered ok (`Clients/Push/push_model.py`) share no code with the project. `TIDEMARK_SEED` repeats the
  /// backend's random choices.
  @Suite struct PushDays {
    /// 4,000 messages, in a long run 10,000, to 1,000 users, half of them offline. The control comes last: the model
    /// forgets one ack that was answered ok, and the comparison finds it.
    @Test func positionsMatchAcks() async throws {
      let messages = TestRun.count(4_000, long: 10_000)
      let tally = try await Self.run(users: 1_000, channels: 300, messages: messages)
      // The day must have enough pushes, and every kind of disturbance must have happened.
      let leasts = [
        "messages": messages, "tickets": messages, "badges": 400, "acks ok": messages, "acks not_a_member": 1,
        "acks member_not_found": 1,
        "acks channel_not_found": 1, "left": 10, "came back": 1, "messages deleted": 10,
        "channels recreated": 1,
      ]
      for (what, least) in leasts {
        #expect(tally[what, default: 0] >= least, "\(what): \(tally)")
      }
    }

    private static func run(
      users: Int,
      channels: Int,
      messages: Int
    ) async throws -> [String: Int] {
      let seed = TestRun.printedSeed(of: "push")
      var tally: [String: Int] = [:]
      try await TestServices.with { services in
        let specification: [String: Any] = [
          "gateways": services.stack.plan.gateways.map(\.listen.port),
          "admins": services.stack.plan.gateways.map(\.admin.port),
          "certificates": [services.certificate, ""],
          "seed": seed, "server": services.serverToken, "users": users, "channels": channels,
          "messages": messages,
        ]
        let path = services.directory + "/push.json"
        try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: path))
        let output = try await Command.run(
          TestServices.python,
          [TestServices.client("Push/push_day.py"), path]
        )
        let lines = output.out.split(separator: "\n")
        for line in lines { print(line) }
        #expect(
          output.status == 0 && lines.last?.hasPrefix("ok ") == true,
          "seed \(seed): \(output.error.suffix(4_000))"
        )
        if let line = lines.first(where: { $0.hasPrefix("tally ") }) {
          tally = try JSONDecoder().decode([String: Int].self, from: Data(line.dropFirst(6).utf8))
        }
      }
      return tally
    }
  }
}
