import Foundation
import TestSupport
import Testing

@testable import Worker

@Suite struct RateTests {
  /// Prints the batches per second of one record each, over loopback, for docs/api/worker.md. A release build with
  /// `TIDEMARK_WORKER_BATCHES=100000` gives the figure there.
  @Test func batchesOfOneRecordFlow() async throws {
    let count = (TestRun.number("TIDEMARK_WORKER_BATCHES") ?? 400) / FakeFeed.count
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        endpoint.keepsNothing()
        try await Workers.with(feed, .test(endpoint.url, records: 1)) { _ in
          for partition in 0..<FakeFeed.count { try await feed.append(partition, count: 1) }
          try await eventually("every partition served") { try await feed.committed() == [1, 1, 1, 1] }
          for partition in 0..<FakeFeed.count { try await feed.append(partition, count: count) }
          let start = ContinuousClock.now
          try await eventually("every record committed") {
            try await feed.committed().allSatisfy { $0 == count + 1 }
          }
          let seconds = (ContinuousClock.now - start) / .seconds(1)
          print("\(Int(Double(count * FakeFeed.count) / seconds)) batches of one record per second")
        }
        #expect(endpoint.count >= (count + 1) * FakeFeed.count)
      }
    }
  }
}
