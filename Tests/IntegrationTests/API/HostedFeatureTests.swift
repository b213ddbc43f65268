import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// The receipt features of the hosted products, one by one against the real pair (docs/semantics.md, "Feature
  /// list").
  @Suite struct HostedFeatures {
    @Test func hostedReceiptFeaturesAreAvailable() async throws {
      try await Pair.with { pair in
        let output = try await Command.run(
          Pair.python,
          [Pair.client("API/hosted_features.py"), pair.h2cURL, pair.stack.files.jwtSecret]
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
