import Foundation
import TestPrograms
import Testing

extension RealProcesses {
  /// `--memory`: more channels than fit into the budget.
  @Suite struct Memory {
    private struct Measurement: Decodable {
      var memoryBytes: Int
      var dataSetBytes: Int
      var requests: Int
      var loads: Int
      var evicted: Int
      var residentBytesMax: Int
      var checked: Int
    }

    /// Runs `tidemark bench memory`, the source of the figures in docs/operate/reliability.md, over a small store. The
    /// data is several times the budget, with accesses by Zipf's law; no acknowledged mark is missing afterwards.
    @Test func dataBeyondBudgetIsServed() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-memory-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let output = try await Command.run(
        TestServices.binaries + "/tidemark",
        [
          "bench", "memory", "--channels", "4000", "--members", "5", "--memory", "1", "--seconds", "3",
          "--directory", directory, "--json",
        ]
      )
      #expect(output.status == 0, "\(output)")
      let one = try JSONDecoder().decode(Measurement.self, from: Data(output.out.utf8))
      #expect(one.memoryBytes == 1 << 20)
      #expect(one.dataSetBytes > 5 * one.memoryBytes)
      #expect(one.requests > 0 && one.loads > 0 && one.evicted > 0 && one.checked == 2_000)
      // Above 125 % of the budget the store loads no more channels. Loads already in flight still complete, and a
      // channel just made may be larger than estimated.
      #expect(one.residentBytesMax < 2 * one.memoryBytes)
    }
  }
}
