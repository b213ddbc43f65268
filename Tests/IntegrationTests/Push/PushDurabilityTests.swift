import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Acknowledged pushes are durable.
  @Suite struct PushDurability {
    /// Push acks flow through one stream, by ticket and by name, while the store is killed and restarted five times.
    /// The stream stays open and every ack is answered. Everything that a foreign client was answered ok is there.
    @Test(arguments: ["ndjson", "frames"])
    func acknowledgedPushesSurviveKills(form: String) async throws {
      try await TestServices.with { services in
        let channels = (0..<5).map { "messaging:push-\($0)" }
        let path = try await services.prepareLoad(channels: channels, messages: 4_000, users: 4)
        let client = try Companion(
          TestServices.python,
          [TestServices.client("Push/push_stream.py"), "\(services.h2cPort)", path, form]
        )
        defer { client.end() }
        var generator = SplitMix64(printingSeedOf: "kills of the store under push acks")
        var last = 0
        for _ in 1...5 {
          last = try await Self.count(client, above: last)
          try await Task.sleep(for: .milliseconds(generator.below(201)))
          await services.stack.killStore()
          try await services.stack.startStore()
          try await services.stack.waitUntilGatewaysAreReady()
        }
        last = try await Self.count(client, above: last)
        client.send("finish")
        let tally = await client.line() ?? "the client ended"
        let verdict = await client.line() ?? "the client ended"
        #expect(verdict.hasPrefix("ok "), "\(tally), \(verdict)")
        #expect(Int(verdict.dropFirst(3)) ?? 0 >= last)
        print("push acks, \(form), over 5 kills: \(tally)")
      }
    }

    /// Wait until some hundreds of acks more than `last` were answered ok.
    private static func count(_ client: Companion, above last: Int) async throws -> Int {
      var count = last
      try await eventually("500 acknowledgements more than \(last) are answered ok") {
        client.send("count")
        guard let line = await client.line(), let answered = Int(line) else {
          throw Unexpected("the client ended")
        }
        count = answered
        return count > last + 500
      }
      return count
    }
  }
}
