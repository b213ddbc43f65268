import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// The receipt features of the hosted products, one by one against the real services (docs/semantics.md, "Feature
  /// list").
  @Suite struct HostedFeatures {
    @Test func hostedReceiptFeaturesAreAvailable() async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [TestServices.client("API/hosted_features.py"), services.h2cURL, services.stack.files.jwtSecret]
        )
        let lines = output.out.split(separator: "\n").map(String.init)
        let failures = lines.filter { $0.hasPrefix("FAILED") }
        #expect(failures == [], "\(output.error)")
        #expect(output.status == 0, "\(output)")
        #expect(lines.count { $0.hasPrefix("ok ") } == 32, "\(output.out)")
      }
    }
  }
}
