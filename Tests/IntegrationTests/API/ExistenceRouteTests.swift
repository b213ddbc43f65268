import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// Ids of channels and users cannot be probed: a user's token gets the same answers whether an id exists or not.
  @Suite struct ExistenceRoutes {
    @Test func foreignIDsAreNotRevealed() async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [TestServices.client("API/existence_routes.py"), services.h2cURL, services.stack.files.jwtSecret]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok "), "\(output)")
        print(output.out, terminator: "")
      }
    }
  }
}
