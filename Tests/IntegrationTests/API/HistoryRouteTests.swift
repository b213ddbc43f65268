import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// R6 on every route and in events: two channels that differ only before a member joined under hidden history look
  /// the same to that member.
  @Suite struct HistoryRoutes {
    @Test func hiddenHistoryIsNotRevealed() async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [TestServices.client("API/history_routes.py"), services.h2cURL, services.stack.files.jwtSecret]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok "), "\(output)")
        print(output.out, terminator: "")
      }
    }
  }
}
