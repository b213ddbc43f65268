import Foundation
import TestPrograms
import Testing

extension RealProcesses {
  /// Runs `tidemark bench recovery`, the source of the figures in docs/operate/reliability.md, over a small store. The
  /// store is killed three times, and still has everything that it acknowledged.
  @Suite struct Recovery {
    private struct Measurement: Decodable {
      var killed: String
      var marks: Int
      var logBytes: Int
      var tailChannels: Int
      var residentBytesReady: Int
      var checked: Int
    }

    @Test func recoveryKeepsAcknowledgedMarks() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-recovery-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let output = try await Command.run(
        TestServices.binaries + "/tidemark",
        [
          "bench", "recovery", "--channels", "2000", "--members", "3", "--load", "6", "--directory",
          directory,
          "--json",
        ]
      )
      #expect(output.status == 0, "\(output)")
      let kills = try output.out.split(separator: "\n").map {
        try JSONDecoder().decode(Measurement.self, from: Data($0.utf8))
      }
      #expect(kills.map(\.killed) == ["just made", "at rest", "under load"])
      #expect(kills.allSatisfy { $0.checked == 2_000 && $0.logBytes > 0 && $0.residentBytesReady > 0 })
      // At rest the log has no tail to replay. On a busy machine the other tails may be gone before they are counted.
      #expect(kills.count == 3 && kills[1].tailChannels == 0 && kills[2].marks > 0)
    }
  }
}
