import Foundation
import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// Routes with which backends reconcile, and bulk queries and commands.
  @Suite struct Rosters {
    @Test func rosterMessageAndBulkRoutesAnswer() async throws {
      try await Pair.with { pair in
        let output = try await Command.run(
          Pair.python,
          [Pair.client("API/rosters.py"), pair.h2cURL, pair.stack.files.jwtSecret]
        )
        #expect(output.status == 0 && output.out == "ok rosters\n", "\(output)")
      }
    }
  }
}
