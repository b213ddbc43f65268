import Foundation
import LocalStack
import Logging
import NIOCore
import Operations
import TestSupport
import Testing

@testable import FeedClient
@testable import Worker

extension WebhookTask {
  /// A task for a test's endpoint, on loopback.
  static func test(_ url: String, records: Int = 5) throws -> WebhookTask {
    guard let url = EndpointURL(url) else { throw Unexpected("no URL: \(url)") }
    var task = WebhookTask(name: "crm", url: url, secrets: [Array(0..<32)])
    task.partitionCount = FakeFeed.count
    task.batchRecordsMax = records
    task.batchWaitMilliseconds = 20
    task.timeoutMilliseconds = 2_000
    task.allowsPrivateAddresses = true
    return task
  }
}

/// Workers that run while a test's body runs.
struct Workers: Sendable {
  let worker: Worker
  let readiness: Readiness
  let metrics: MetricsRegistry
  private let running: Task<Void, any Error>

  private init(_ feed: Feed, _ task: WebhookTask, name: String, lookup: @escaping HostResolver.Lookup) {
    readiness = Readiness()
    metrics = MetricsRegistry()
    var logger = Logger(label: "test")
    logger.logLevel = .critical
    let worker = Worker(
      TasksFile(webhooks: [task]),
      gateway: FeedGateway(url: feed.gateway.url, tls: feed.gateway.tls, credential: feed.gateway.credential),
      name: name,
      readiness: readiness,
      metrics: metrics,
      logger: logger,
      lookup: lookup
    )
    self.worker = worker
    running = Task { try await worker.run() }
  }

  /// Run a worker while `body` runs, then stop it.
  static func with<Value: Sendable>(
    _ feed: Feed,
    _ task: WebhookTask,
    name: String = "w1",
    lookup: @escaping HostResolver.Lookup = HostResolver.system,
    _ body: (Workers) async throws -> Value
  ) async throws -> Value {
    let workers = Workers(feed, task, name: name, lookup: lookup)
    let result: Result<Value, any Error>
    do { result = .success(try await body(workers)) } catch { result = .failure(error) }
    try await workers.stop()
    return try result.get()
  }

  /// Stop as at SIGTERM.
  func stop() async throws {
    worker.stop()
    try await within("the worker's end") { try await running.value }
  }

  /// End at once, as a killed process does, except for its sockets' data.
  func kill() async {
    running.cancel()
    _ = await running.result
  }

  /// The text of its metrics.
  func scrape(_ loop: any EventLoop) async throws -> String {
    let samples = try await metrics.collect(on: loop).get()
    var buffer = ByteBuffer()
    samples.write(into: &buffer)
    return String(buffer: buffer)
  }
}
