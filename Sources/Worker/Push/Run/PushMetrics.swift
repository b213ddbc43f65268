package import Operations
internal import Synchronization

/// Counters of pushes. One lock holds them, because a request to a provider costs much more.
package final class PushMetrics: Sendable {
  private struct Values {
    var jobs: [String: Int64] = [:]
    /// Devices by provider and result.
    var devices: [String: [String: Int64]] = [:]
    /// Requests by provider and outcome.
    var requests: [String: [String: Int64]] = [:]
    var inFlight: [String: Int] = [:]
    var paused: Set<String> = []
    var seconds: [String: Histogram] = [:]
  }

  private let providers: [String]
  private let values = Mutex(Values())

  /// Create counters at zero for the providers of that name.
  package init(providers: [String]) { self.providers = providers.sorted() }

  /// - Parameter result: `done` or `invalid`.
  func jobEnded(_ result: String) { values.withLock { $0.jobs[result, default: 0] += 1 } }

  func deviceEnded(_ outcome: PushOutcome, provider: String) {
    guard providers.contains(provider) else { return }
    values.withLock { $0.devices[provider, default: [:]][outcome.label, default: 0] += 1 }
  }

  func requestStarted(_ provider: String) { values.withLock { $0.inFlight[provider, default: 0] += 1 } }

  func requestEnded(_ provider: String, _ answer: PushAnswer, seconds: Double) {
    values.withLock { values in
      values.inFlight[provider, default: 1] -= 1
      values.requests[provider, default: [:]][answer.label, default: 0] += 1
      values.seconds[provider, default: Histogram.durations].record(seconds)
    }
  }

  func set(isPaused: Bool, _ provider: String) {
    values.withLock { values in
      if isPaused { values.paused.insert(provider) } else { values.paused.remove(provider) }
    }
  }

  /// Add all samples.
  package func collect(into samples: inout MetricSamples) {
    let values = values.withLock { $0 }
    for (result, count) in values.jobs {
      samples.counter(
        "tidemark_worker_push_jobs_total",
        help: "Push jobs that were answered, by result.",
        labels: ["result": result],
        count
      )
    }
    for provider in providers {
      for (result, count) in values.devices[provider] ?? [:] {
        samples.counter(
          "tidemark_worker_push_devices_total",
          help: "Devices of push jobs, by result.",
          labels: ["provider": provider, "result": result],
          count
        )
      }
      for (outcome, count) in values.requests[provider] ?? [:] {
        samples.counter(
          "tidemark_worker_push_requests_total",
          help: "Requests to push providers, by outcome.",
          labels: ["provider": provider, "outcome": outcome],
          count
        )
      }
      samples.gauge(
        "tidemark_worker_push_requests_in_flight",
        help: "Requests to push providers in flight.",
        labels: ["provider": provider],
        Double(values.inFlight[provider] ?? 0)
      )
      samples.gauge(
        "tidemark_worker_push_provider_paused",
        help: "1 while the provider refuses the credentials.",
        labels: ["provider": provider],
        values.paused.contains(provider) ? 1 : 0
      )
      if let seconds = values.seconds[provider] {
        samples.histogram(
          "tidemark_worker_push_request_seconds",
          help: "Duration of requests to push providers, failed ones included.",
          labels: ["provider": provider],
          seconds
        )
      }
    }
  }
}
