import Foundation
import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// Routes with which backends reconcile, and bulk queries and commands.
  @Suite struct Rosters {
    @Test func rosterMessageAndBulkRoutesAnswer() async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [TestServices.client("API/rosters.py"), services.h2cURL, services.stack.files.jwtSecret]
        )
        #expect(output.status == 0 && output.out == "ok rosters\n", "\(output)")
      }
    }
  }
}
