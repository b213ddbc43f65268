import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// Conflicting registrations, impossible acknowledgement times (R20), and `mark_unread: public` (R4).
  @Suite struct MessageRules {
    @Test func messageRulesHold() async throws {
      try await Pair.with { pair in
        let output = try await Command.run(
          Pair.python,
          [Pair.client("API/message_rules.py"), pair.h2cURL, pair.stack.files.jwtSecret]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok"), "\(output)")
      }
    }
  }
}
