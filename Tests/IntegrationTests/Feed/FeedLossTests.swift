import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The change feed tells every acknowledged change, in the order of its channel (R21), while readers, gateways and
  /// the store are killed. The clients (`Clients/Feed/feed_account.py`) share no code with the project. `TIDEMARK_SEED`
  /// repeats their random choices; `TIDEMARK_LOSS_SECONDS` sets the duration.
  @Suite struct FeedLosses {
    static let seconds = TestRun.number("TIDEMARK_LOSS_SECONDS") ?? TestRun.count(10, long: 300)

    @Test func everyAcknowledgedChangeIsToldInOrder() async throws {
      let seed = TestRun.printedSeed(of: "losses of the feed")
      try await TestServices.with(storeFlags: ["--feed-retention", "1h,64MiB"], usesTLS: false) { services in
        let specification: [String: Any] = [
          "gateways": services.stack.plan.gateways.map(\.listen.port), "seed": seed, "seconds": Self.seconds,
          "server": services.serverToken, "directory": services.directory,
        ]
        let path = services.directory + "/feed.json"
        try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: path))
        let driver = try Companion(
          TestServices.python,
          [TestServices.client("Feed/feed_account.py"), path],
          limit: .seconds(Self.seconds + 400)
        )
        defer { driver.end() }
        var last = ""
        for await line in driver.lines {
          last = line
          var endedNode = 0
          if try await Losses.performRequest(line, services.stack, endedNode: &endedNode) {
            driver.send("done")
          } else {
            print(line)
          }
        }
        #expect(last.hasPrefix("ok "), "seed \(seed): \(last) \(driver.errors)")
        #expect(Int(last.dropFirst(3)) ?? 0 > 20 * Self.seconds, "\(last): too few changes")
      }
    }
  }
}
