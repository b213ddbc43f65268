import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// A member's own state, and the effect of a send on its sender, against the real services (R4, R5, R14).
  @Suite struct OwnMarks {
    @Test func ownStateFollowsMarksAndSends() async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [TestServices.client("API/own_marks.py"), services.h2cURL, services.stack.files.jwtSecret]
        )
        let lines = output.out.split(separator: "\n").map(String.init)
        #expect(lines.filter { $0.hasPrefix("FAILED") } == [], "\(output.error)")
        #expect(output.status == 0, "\(output)")
        #expect(lines.count { $0.hasPrefix("ok ") } == 8, "\(output.out)")
      }
    }
  }
}
