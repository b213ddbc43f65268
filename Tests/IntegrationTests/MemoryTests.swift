import Foundation
import TestPrograms
import Testing

extension RealProcesses {
  /// `--memory`: more channels than there is room for.
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

    /// `tidemark bench memory`, which makes the figures of docs/reliability.md, over a small store: several times the
    /// budget, used by Zipf's law; nothing that was acknowledged is missing afterwards.
    @Test func severalTimesTheBudget() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-memory-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let output = try await Command.run(
        Pair.binaries + "/tidemark",
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
      // A quarter above the budget no channel is read in any more; requests that were on their way are, and what was
      // just made may be larger than expected.
      #expect(one.residentBytesMax < 2 * one.memoryBytes)
    }
  }
}
