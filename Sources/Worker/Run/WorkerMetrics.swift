internal import NIOCore
package import Operations
internal import Synchronization

/// Counters of one webhook. They are few and change at most a few thousand times a second, so one lock holds them.
package final class WebhookMetrics: Sendable {
  private struct Values {
    var attempts: [String: Int64] = [:]
    var batchesDelivered: Int64 = 0
    var recordsDelivered: Int64 = 0
    var batchesDead: Int64 = 0
    var recordsDead: Int64 = 0
    var gaps: Int64 = 0
    var inFlight = 0
    var partitions = 0
    /// Dead letters by served partition.
    var deadLetters: [String: Int] = [:]
    var isPaused = false
    var lagSeconds: Double = 0
    var lagRecords: Int64 = 0
    var seconds = Histogram.durations
  }

  private let name: String
  private let values = Mutex(Values())

  /// Create counters at zero for the webhook of that name.
  package init(_ name: String) { self.name = name }

  func attemptStarted() { values.withLock { $0.inFlight += 1 } }

  func attemptEnded(_ outcome: DeliveryOutcome, _ batch: Batch, seconds: Double) {
    values.withLock { values in
      values.inFlight -= 1
      values.seconds.record(seconds)
      switch outcome {
      case .delivered:
        values.attempts["delivered", default: 0] += 1
        values.batchesDelivered += 1
        values.recordsDelivered += Int64(batch.count)
      case .failed(let failure): values.attempts[failure.cause.label, default: 0] += 1
      }
    }
  }

  func deadLetterAdded(_ letter: DeadLetter) {
    values.withLock { values in
      values.batchesDead += 1
      values.recordsDead += Int64(letter.count)
    }
  }

  func gapReceived() { values.withLock { $0.gaps += 1 } }

  func partitionStarted() { values.withLock { $0.partitions += 1 } }

  func partitionEnded(_ partition: String) {
    values.withLock { values in
      values.partitions -= 1
      values.deadLetters[partition] = nil
    }
  }

  func set(deadLetters: Int, of partition: String) { values.withLock { $0.deadLetters[partition] = deadLetters } }

  func set(isPaused: Bool) { values.withLock { $0.isPaused = isPaused } }

  func set(lagSeconds: Double, records: Int64) {
    values.withLock { values in
      values.lagSeconds = lagSeconds
      values.lagRecords = records
    }
  }

  /// Add all samples.
  package func collect(into samples: inout MetricSamples) {
    let values = values.withLock { $0 }
    let labels: KeyValuePairs<String, String> = ["webhook": name]
    for (outcome, count) in values.attempts {
      samples.counter(
        "tidemark_worker_attempts_total",
        help: "Requests to endpoints, by outcome.",
        labels: ["webhook": name, "outcome": outcome],
        count
      )
    }
    let results = [
      ("delivered", values.batchesDelivered, values.recordsDelivered),
      ("dead_letter", values.batchesDead, values.recordsDead),
    ]
    for (result, batches, records) in results {
      samples.counter(
        "tidemark_worker_batches_total",
        help: "Batches delivered, and batches that became dead letters.",
        labels: ["webhook": name, "result": result],
        batches
      )
      samples.counter(
        "tidemark_worker_records_total",
        help: "Records of those batches.",
        labels: ["webhook": name, "result": result],
        records
      )
    }
    samples.counter(
      "tidemark_worker_gaps_total",
      help: "Gaps: records that were no longer kept when they were to be delivered.",
      labels: labels,
      values.gaps
    )
    let gauges: [(String, String, Double)] = [
      ("requests_in_flight", "Requests in flight, at most one for each partition.", Double(values.inFlight)),
      ("partitions", "Partitions that this worker serves.", Double(values.partitions)),
      (
        "dead_letters", "Dead letters of the partitions that this worker serves.",
        Double(values.deadLetters.values.reduce(0, +))
      ),
      ("webhook_paused", "1 while the endpoint answers 410 Gone.", values.isPaused ? 1 : 0),
      (
        "lag_seconds",
        "Time since the last committed record, or since the consumer was created; 0 without lag. Of all partitions.",
        values.lagSeconds
      ),
      ("lag_records", "Records that are not committed, over all partitions.", Double(values.lagRecords)),
    ]
    for (metric, help, value) in gauges {
      samples.gauge("tidemark_worker_\(metric)", help: help, labels: labels, value)
    }
    samples.histogram(
      "tidemark_worker_request_seconds",
      help: "Duration of requests to endpoints, failed ones included.",
      labels: labels,
      values.seconds
    )
  }
}
