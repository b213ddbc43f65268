import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// Conflicting registrations, impossible acknowledgement times (R20), and `mark_unread: public` (R4).
  @Suite struct MessageRules {
    @Test func messageRulesHold() async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [TestServices.client("API/message_rules.py"), services.h2cURL, services.stack.files.jwtSecret]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok"), "\(output)")
      }
    }
  }
}
