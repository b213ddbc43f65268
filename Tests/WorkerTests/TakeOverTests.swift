import Foundation
import NIOCore
import Operations
import TestSupport
import Testing

@testable import FeedClient
@testable import Worker

/// Several workers, leases that move, and dead letters.
@Suite struct TakeOverTests {
  @Test func secondWorkerRepeatsTheBatchOfTheFirst() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with({ _, _ in .status(500) }) { endpoint in
        try await feed.append(0, count: 3)
        try await Workers.with(feed, .test(endpoint.url, records: 3)) { workers in
          try await eventually("two attempts stored") { try await feed.state(0).attempt?.attempts ?? 0 >= 2 }
          await workers.kill()
        }
        let (first, attempts) = (endpoint.attempts.count, try await feed.state(0).attempt?.attempts ?? 0)
        try await feed.use { $0.expire("w1") }
        // More records, which a new batch would have contained.
        try await feed.append(0, count: 4)
        endpoint.behave { _, _ in .ok }
        try await Workers.with(feed, .test(endpoint.url), name: "w2") { _ in
          try await eventually("every record committed") { try await feed.committed()[0] == 7 }
        }
        let repeated = try #require(endpoint.attempts.dropFirst(first).first)
        #expect(attempts >= 2 && repeated.records == ["0.1", "0.2", "0.3"])
        #expect(repeated.id == endpoint.attempts[0].id && repeated.body == endpoint.attempts[0].body)
        #expect(endpoint.records["0/4"] == (1...7).map { "0.\($0)" })
      }
    }
  }

  @Test func workersShareThePartitions() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        let task = try WebhookTask.test(endpoint.url)
        try await Workers.with(feed, task, name: "w1") { one in
          for partition in 0..<4 { try await feed.append(partition, count: 5) }
          try await eventually("the first worker's deliveries") { try await feed.committed() == [5, 5, 5, 5] }
          try await Workers.with(feed, task, name: "w2") { two in
            try await eventually("two partitions each") {
              for workers in [one, two] {
                let text = try await workers.scrape(feed.loop)
                guard MetricText.value(#"tidemark_worker_partitions{webhook="crm"}"#, in: text) == 2 else {
                  return false
                }
              }
              return true
            }
            for partition in 0..<4 { try await feed.append(partition, count: 5) }
            try await eventually("both workers' deliveries") { try await feed.committed() == [10, 10, 10, 10] }
            let text = try await two.scrape(feed.loop)
            let name = #"tidemark_worker_records_total{webhook="crm",result="delivered"}"#
            #expect(MetricText.value(name, in: text) == 10)
          }
          for partition in 0..<4 { try await feed.append(partition, count: 5) }
          try await eventually("the rest after the second has left") {
            try await feed.committed() == [15, 15, 15, 15]
          }
        }
        for partition in 0..<4 {
          #expect(endpoint.records["\(partition)/4"] == (1...15).map { "\(partition).\($0)" })
        }
      }
    }
  }

  @Test func lostLeaseIsNotCommitted() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with({ _, _ in .slow(.milliseconds(500)) }) { endpoint in
        try await feed.append(0, count: 1)
        try await Workers.with(feed, .test(endpoint.url)) { _ in
          try await eventually("a request") { !endpoint.attempts.isEmpty }
          // Another worker opens the partition while the request is in flight, and no partition is granted again.
          let other = try await FeedStream.open(feed.gateway, path: "/v1/feed?consumer=crm&partition=0/4")
          try await feed.use { $0.refusesLeases = true }
          #expect(await other.next()?.isEmpty == false)
          try await eventually("the end of the request in flight") { endpoint.inFlight == 0 }
          other.close()
          // The worker's next stream commits after what it does with the answer that it has.
          try await feed.use { $0.refusesLeases = false }
          try await eventually("a commit") { try await feed.committed()[0] == 1 }
        }
        #expect(try await feed.use { $0.lateCommits } == 0)
        #expect(endpoint.attempts.count == 2)
      }
    }
  }

  @Test func expiredLeaseStopsEverything() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        try await Workers.with(feed, .test(endpoint.url)) { workers in
          try await feed.append(0, count: 1)
          try await eventually("a delivery") { try await feed.committed()[0] == 1 }
          try await feed.use { $0.refusesLeases = true }
          try await eventually("no partitions") {
            let text = try await workers.scrape(feed.loop)
            return MetricText.value(#"tidemark_worker_partitions{webhook="crm"}"#, in: text) == 0
          }
          try await feed.append(0, count: 1)
          #expect(!workers.readiness.isReady)
          try await feed.use { $0.refusesLeases = false }
          try await eventually("delivery goes on") { try await feed.committed()[0] == 2 }
        }
        #expect(endpoint.records["0/4"] == ["0.1", "0.2"])
      }
    }
  }

  // MARK: Dead letters

  private static func deadLetterTask(_ endpoint: FakeEndpoint) throws -> WebhookTask {
    var task = try WebhookTask.test(endpoint.url, records: 2)
    task.retryMilliseconds = 1_000
    // Batches are only as large as they may be, however slow the machine is.
    task.batchWaitMilliseconds = 60_000
    return task
  }

  @Test func deadLettersLetDeliveryGoOnAndAreReplayed() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with { endpoint in
        let task = try Self.deadLetterTask(endpoint)
        endpoint.behave { webhook, _ in webhook.records.contains("0.3") ? .status(500) : .ok }
        try await feed.append(0, count: 6)
        try await Workers.with(feed, task) { workers in
          try await eventually("every record passed") { try await feed.committed()[0] == 6 }
          #expect(endpoint.records["0/4"] == ["0.1", "0.2", "0.5", "0.6"])
          let letters = try await DeadLetterReplay.list(feed.gateway, webhook: "crm")
          let letter = try #require(letters.first)
          #expect(letters.count == 1 && letter.letter.error == "500" && letter.letter.count == 2)
          #expect(DeadLetterTable.text(letters).contains("crm \(letter.id) partition 0/4, 2 records, "))
          #expect(DeadLetterTable.json(letters).contains(#""id":"\#(letter.id)""#))
          let text = try await workers.scrape(feed.loop)
          #expect(MetricText.value(#"tidemark_worker_dead_letters{webhook="crm"}"#, in: text) == 1)
          // Beside the running worker, without a lease of its own.
          let epoch = try await feed.use { $0.partitions[0].epoch }
          let replay = DeadLetterReplay(gateway: feed.gateway, task: task, checkInterval: .milliseconds(50))
          #expect(try await replay.replay(letter) != .delivered(records: 2))
          endpoint.behave { _, _ in .ok }
          #expect(try await replay.replay(letter) == .delivered(records: 2))
          await replay.close()
          #expect(try await DeadLetterReplay.list(feed.gateway, webhook: "crm").isEmpty)
          #expect(try await feed.use { $0.partitions[0].epoch } == epoch)
          // The replayed request is the one that failed.
          let failed = try #require(endpoint.attempts.first { $0.records == ["0.3", "0.4"] })
          #expect(endpoint.delivered.last?.id == failed.id && endpoint.delivered.last?.body == failed.body)
          // The worker does not bring the removed dead letter back.
          endpoint.behave { _, earlier in earlier == 0 ? .status(500) : .ok }
          try await feed.append(0, count: 2)
          try await eventually("later records") { try await feed.committed()[0] == 8 }
          #expect(try await feed.state(0).deadLetters.isEmpty)
        }
      }
    }
  }

  @Test func recordsNoLongerKeptAreReportedByReplay() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with({ _, _ in .status(500) }) { endpoint in
        let task = try Self.deadLetterTask(endpoint)
        try await feed.append(0, count: 2)
        try await Workers.with(feed, task) { _ in
          try await eventually("a dead letter") { try await feed.committed()[0] == 2 }
        }
        try await feed.use { $0.kept[0] = 1 }
        endpoint.behave { _, _ in .ok }
        let letter = try #require(try await DeadLetterReplay.list(feed.gateway, webhook: "crm").first)
        let replay = DeadLetterReplay(gateway: feed.gateway, task: task, checkInterval: .milliseconds(50))
        #expect(try await replay.replay(letter) == .incomplete(records: 1))
        await replay.close()
        #expect(try await DeadLetterReplay.list(feed.gateway, webhook: "crm").count == 1)
      }
    }
  }

  /// A removal whose read and write enclose a new dead letter's write does not overwrite it.
  @Test func removalDoesNotOverwriteNewDeadLetter() async throws {
    try await Feed.with { feed in
      try await FakeEndpoint.with({ _, _ in .status(500) }) { endpoint in
        let task = try Self.deadLetterTask(endpoint)
        let first = DeadLetter(from: "p0-0", to: "p0-2", count: 2, firstErrorAt: 0, lastErrorAt: 0, error: "500")
        let second = DeadLetter(from: "p0-2", to: "p0-4", count: 2, firstErrorAt: 0, lastErrorAt: 0, error: "500")
        try await feed.use { feed in
          feed.partitions[0].epoch = 1
          feed.partitions[0].state = PartitionState(deadLetters: [first]).text
          // The worker stores the second dead letter and opens its next stream right after the replay has read.
          feed.afterStateRead = {
            feed.partitions[0].state = PartitionState(deadLetters: [first, second]).text
            feed.partitions[0].epoch = 2
          }
        }
        let replay = DeadLetterReplay(gateway: feed.gateway, task: task, checkInterval: .milliseconds(10))
        try await replay.remove(PlacedDeadLetter(webhook: "crm", partition: "0/4", letter: first))
        await replay.close()
        #expect(try await feed.state(0).deadLetters == [second])
        #expect(try await feed.use { $0.lateCommits } == 1)
      }
    }
  }

  @Test func reappearedDeadLetterIsRemovedAgain() async throws {
    try await Feed.with { feed in
      let letter = DeadLetter(from: "p0-0", to: "p0-2", count: 2, firstErrorAt: 0, lastErrorAt: 0, error: "500")
      let text = PartitionState(deadLetters: [letter]).text
      try await feed.use { feed in
        feed.partitions[0].state = text
        feed.afterStateRead = { feed.afterStateRead = { feed.partitions[0].state = text } }
      }
      let task = try WebhookTask.test("http://127.0.0.1:1/")
      let replay = DeadLetterReplay(gateway: feed.gateway, task: task, checkInterval: .milliseconds(10))
      try await replay.remove(PlacedDeadLetter(webhook: "crm", partition: "0/4", letter: letter))
      await replay.close()
      #expect(try await feed.state(0).deadLetters.isEmpty)
    }
  }
}
