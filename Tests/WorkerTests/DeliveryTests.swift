import Foundation
import LocalStack
import NIOCore
import NIOPosix
import Operations
import Synchronization
import TestSupport
import Testing

@testable import Worker

/// A whole worker between a fake feed and fake endpoints.
@Suite struct DeliveryTests {
  private static func ids(_ partition: Int, _ count: Int) -> [String] { (1...count).map { "\(partition).\($0)" } }

  private static func fill(_ feed: Feed, _ count: Int) async throws {
    for partition in 0..<FakeFeed.count { try await feed.append(partition, count: count) }
  }

  private static func expectAll(_ endpoint: FakeEndpoint, _ count: Int) {
    for partition in 0..<FakeFeed.count {
      #expect(endpoint.records["\(partition)/\(FakeFeed.count)"] == ids(partition, count))
    }
    #expect(endpoint.overlaps == 0)
  }

  private static func waitForCommits(_ feed: Feed, _ count: Int) async throws {
    try await eventually("every record committed") {
      try await feed.committed() == Array(repeating: count, count: FakeFeed.count)
    }
  }

  @Test func recordsArriveInOrderAndAreCommitted() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        try await Self.fill(feed, 13)
        try await Workers.with(feed, .test(endpoint.url)) { workers in
          try await Self.waitForCommits(feed, 13)
          try await feed.append(2, count: 1)
          try await eventually("a later record") { try await feed.committed()[2] == 14 }
          try await eventually("ready") { workers.readiness.isReady }
          let text = try await workers.scrape(feed.loop)
          #expect(MetricText.value(#"tidemark_worker_records_total{webhook="crm",result="delivered"}"#, in: text) == 53)
          #expect(MetricText.value(#"tidemark_worker_partitions{webhook="crm"}"#, in: text) == 4)
        }
        for partition in [0, 1, 3] { #expect(endpoint.records["\(partition)/4"] == Self.ids(partition, 13)) }
        #expect(endpoint.records["2/4"] == Self.ids(2, 14))
        #expect(endpoint.overlaps == 0 && Set(endpoint.delivered.map(\.id)).count == endpoint.delivered.count)
        let (left, authorizations) = try await feed.use { ($0.left, $0.authorizations) }
        #expect(left == ["w1"] && authorizations.allSatisfy { $0.hasPrefix("Bearer ey") })
      }
    }
  }

  /// Each fault hits the first attempt of each batch of partition 1; the other partitions are not disturbed by it.
  @Test(arguments: ["500", "hang", "garbage", "close", "redirect", "retry-after", "slow", "none"])
  func faultsDelayOnlyTheirPartition(_ fault: String) async throws {
    let behaviour: FakeEndpoint.Behaviour =
      switch fault {
      case "500": .status(500, body: String(repeating: "long ", count: 10_000))
      case "hang": .hang
      case "garbage": .garbage
      case "close": .close
      case "redirect": .status(302, headers: [("location", "http://127.0.0.1:1/")])
      case "retry-after": .status(429, headers: [("retry-after", "1")])
      case "slow": .slow(.milliseconds(300))
      default: .ok
      }
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        endpoint.behave { webhook, earlier in webhook.partition == "1/4" && earlier == 0 ? behaviour : .ok }
        try await Self.fill(feed, 8)
        var task = try WebhookTask.test(endpoint.url)
        task.timeoutMilliseconds = 1_000
        try await Workers.with(feed, task) { workers in try await Self.waitForCommits(feed, 8) }
        Self.expectAll(endpoint, 8)
        // Each repeated attempt has the id and body of the first.
        for (_, attempts) in Dictionary(grouping: endpoint.attempts, by: \.id) {
          #expect(Set(attempts.map(\.body)).count == 1)
        }
        #expect(endpoint.attempts.count > endpoint.delivered.count || ["slow", "none"].contains(fault))
        for partition in 0..<FakeFeed.count { #expect(try await feed.state(partition).attempt == nil) }
      }
    }
  }

  @Test func endpointThatWasDownGetsEverything() async throws {
    try await Feed.with { feed in
      let port = try LoopbackPorts.free(1)[0].port
      try await Self.fill(feed, 8)
      try await Workers.with(feed, .test("http://127.0.0.1:\(port)/hook")) { workers in
        try await eventually("a stored attempt") { try await feed.state(0).attempt != nil }
        let text = try await workers.scrape(feed.loop)
        #expect(
          MetricText.sum("tidemark_worker_attempts_total", in: text) > 0 && text.contains(#"outcome="connection""#)
        )
        #expect(try await feed.committed() == [0, 0, 0, 0])
        try await FakeEndpoint.with(port: port) { endpoint in
          try await Self.waitForCommits(feed, 8)
          Self.expectAll(endpoint, 8)
        }
      }
    }
  }

  @Test func endlessBodyIsNotRead() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with({ _, _ in .endlessBody }) { endpoint in
        try await feed.append(0, count: 12)
        try await Workers.with(feed, .test(endpoint.url)) { _ in
          try await eventually("every record committed") { try await feed.committed()[0] == 12 }
        }
        #expect(endpoint.records["0/4"] == Self.ids(0, 12))
      }
    }
  }

  /// While the endpoint takes nothing, records wait at the gateway.
  @Test func unreadRecordsWaitAtTheGateway() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with({ _, _ in .status(503) }) { endpoint in
        let count = 20_000
        try await feed.use { $0.append(0, count: count, padding: 2_000) }
        try await Workers.with(feed, .test(endpoint.url, records: 100)) { _ in
          var sent = -1
          try await eventually("no more is sent", pollInterval: .milliseconds(500)) {
            let before = sent
            sent = try await feed.use { $0.sent(0) }
            return sent == before && !endpoint.attempts.isEmpty
          }
          #expect(sent > 0 && sent < count)
          endpoint.behave { _, _ in .ok }
          try await eventually("every record committed") { try await feed.committed()[0] == count }
        }
        #expect(endpoint.records["0/4"] == Self.ids(0, count))
      }
    }
  }

  @Test func goneEndpointIsPaused() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with({ _, _ in .status(410) }) { endpoint in
        try await feed.append(0, count: 20)
        try await Workers.with(feed, .test(endpoint.url)) { workers in
          try await eventually("a pause") {
            let text = try await workers.scrape(feed.loop)
            return MetricText.value(#"tidemark_worker_webhook_paused{webhook="crm"}"#, in: text) == 1
          }
          // Another partition does not call the endpoint at all.
          try await feed.append(1, count: 1)
          try await eventually("the stored attempt") { try await feed.state(0).attempt?.attempts == 1 }
          let attempt = try #require(try await feed.state(0).attempt)
          #expect(attempt.nextAt - attempt.firstAt >= RetrySchedule.delayMax)
        }
        #expect(endpoint.attempts.count == 1)
      }
    }
  }

  @Test func endedStreamsLoseNothing() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        endpoint.behave { webhook, earlier in earlier == 0 && webhook.id.utf8.last ?? 0 > 0x60 ? .status(500) : .ok }
        try await Self.fill(feed, 2)
        try await Workers.with(feed, .test(endpoint.url, records: 2)) { _ in
          // What is added then needs a new stream.
          for _ in 0..<4 {
            try await eventually("a stream of each partition") {
              try await feed.use { feed in (0..<FakeFeed.count).allSatisfy { feed.sent($0) > 0 } }
            }
            try await feed.use { $0.endStreams() }
            try await Self.fill(feed, 2)
          }
          try await Self.waitForCommits(feed, 10)
        }
        Self.expectAll(endpoint, 10)
      }
    }
  }

  @Test func gapIsCountedAndPassed() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        try await feed.append(0, count: 5)
        try await feed.use { $0.kept[0] = 3 }
        try await Workers.with(feed, .test(endpoint.url)) { workers in
          try await eventually("every record committed") { try await feed.committed()[0] == 5 }
          let text = try await workers.scrape(feed.loop)
          #expect(MetricText.value(#"tidemark_worker_gaps_total{webhook="crm"}"#, in: text) == 1)
        }
        #expect(endpoint.records["0/4"] == ["0.4", "0.5"])
      }
    }
  }

  @Test func refusalsOfTheGatewayAreShownByReadiness() async throws {
    try await Feed.with { feed in
      var task = try WebhookTask.test("http://127.0.0.1:1/")
      task.retryMilliseconds = 7_200_000
      try await feed.use { $0.retentionSeconds = 3_600 }
      try await Workers.with(feed, task) { workers in
        try await eventually("the reason") {
          workers.readiness.notReadyReasons.contains { $0.contains("retry_for is longer than the feed is kept") }
        }
      }
      try await feed.use {
        $0.retentionSeconds = nil
        $0.filtersConflict = true
      }
      try await Workers.with(feed, task) { workers in
        try await eventually("the reason") {
          workers.readiness.notReadyReasons.contains { $0.contains("409 other_filters") }
        }
      }
    }
  }

  @Test func privateAddressesAreNotCalled() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        var task = try WebhookTask.test("http://hook.test:\(endpoint.port)/")
        task.allowsPrivateAddresses = false
        try await feed.append(0, count: 1)
        try await Workers.with(
          feed,
          task,
          lookup: { _, port in [try SocketAddress(ipAddress: "127.0.0.1", port: port)] }
        ) {
          workers in
          try await eventually("a refusal") { try await workers.scrape(feed.loop).contains(#"outcome="address""#) }
        }
        #expect(endpoint.attempts.isEmpty)
      }
    }
  }

  /// The client connects to the address that was checked, whatever the name means to the system's resolver.
  @Test func checkedAddressIsTheOneCalled() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        let lookups = Mutex(0)
        let task = try WebhookTask.test("http://no-such-host.invalid:\(endpoint.port)/", records: 1)
        try await feed.append(0, count: 20)
        try await Workers.with(feed, task) { _, port in
          lookups.withLock { $0 += 1 }
          return [try SocketAddress(ipAddress: "127.0.0.1", port: port)]
        } _: { _ in
          try await eventually("every record committed") { try await feed.committed()[0] == 20 }
        }
        #expect(lookups.withLock { $0 } == 1)
      }
    }
  }
}
