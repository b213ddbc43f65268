import Foundation
import TestPrograms
import Testing

extension RealProcesses {
  /// List flags accept commas, several values and repetition, and times have one notation, in every command.
  @Suite struct CommandLines {
    private static func tidemark(_ arguments: [String]) async throws -> Command.Output {
      try await Command.run(TestServices.binaries + "/tidemark", arguments)
    }

    /// Each command line has one mistake: the flag that the error must name comes after all others.
    @Test func listsAndTimesHaveOneNotation() async throws {
      let table: [([String], error: String)] = [
        (["bench", "compare", "--rows", "read-query,status", "--rounds", "0"], "--rounds"),
        (
          ["bench", "compare", "--rows", "read-query", "status", "--streams", "1,10", "--rounds", "0"],
          "--rounds"
        ),
        (["bench", "compare", "--rows", "read-query", "--rows", "status", "--rounds", "0"], "--rounds"),
        (["bench", "compare", "--rows", "read-query,nonsense"], "nonsense"),
        (["bench", "compare", "--seconds", "500ms", "--rounds", "0"], "--rounds"),
        (["bench", "compare", "--seconds", "11m"], "--seconds"),
        (["bench", "events", "--parts", "latency", "cost", "--seconds", "0.5", "--rate", "0"], "--rate"),
        (["bench", "events", "--parts", "latency,nonsense"], "--parts"),
        (["bench", "users", "--sizes", "10", "--sizes", "100,1000", "--marks", "0"], "--marks"),
        (["bench", "push", "--ways", "ndjson-ticket,frames-name", "--rounds", "0"], "--rounds"),
        (["bench", "push", "--ways", "ndjson-ticket", "ndjson-ticket"], "--ways"),
        (["bench", "recovery", "--load", "1m", "--members", "0"], "--members"),
        (["bench", "memory", "--seconds", "2h"], "--seconds"),
        (["token", "--jwt-secret-file", "none", "--server", "--ttl", "5000d"], "--ttl"),
        (["token", "--jwt-secret-file", "none", "--server", "--ttl", "soon"], "--ttl"),
      ]
      for (arguments, error) in table {
        let output = try await Self.tidemark(arguments)
        #expect(output.status == 64, "\(arguments): \(output)")
        let line = output.error.split(separator: "\n").first ?? ""
        #expect(line.contains(error), "\(arguments): \(line)")
      }
      let storeFlags: [(flags: [String], error: String)] = [
        (["--durability", "interval:2m"], "interval:TIME"),
        (["--clock-start-max", "30s"], "clock-start-max must be at least clock-jump-max"),
      ]
      for (flags, error) in storeFlags {
        let store = try await Command.run(
          TestServices.binaries + "/tidemark-store",
          ["--data", "/nonexistent/none", "--listen", "127.0.0.1:0"] + flags
        )
        #expect(store.status != 0 && store.error.contains(error), "\(store)")
      }
    }
  }
}
