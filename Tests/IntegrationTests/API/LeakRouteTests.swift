import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// R7 on every route of the real services: the reads of a hidden user appear in no other user's answers.
  @Suite struct LeakRoutes {
    @Test func hiddenActionsAreInvisible() async throws {
      let seed = TestRun.printedSeed(of: "leaks on routes")
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [
            TestServices.client("API/leak_routes.py"), services.h2cURL, services.stack.files.jwtSecret,
            "\(seed)", "8",
          ]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok "), "seed \(seed): \(output)")
        print(output.out, terminator: "")
      }
    }
  }
}
