internal import Operations

/// Client of a webhook's endpoint: signs batches and classifies the answers.
package final class WebhookEndpoint: Sendable {
  private let path: String
  private let signature: WebhookSignature
  private let endpoint: CheckedEndpoint

  /// Create a client without connections.
  package init(_ task: WebhookTask, lookup: @escaping HostResolver.Lookup = HostResolver.system) {
    path = task.url.path
    signature = WebhookSignature(secrets: task.secrets)
    let settings = CheckedEndpoint.Settings(
      url: task.url,
      timeoutMilliseconds: task.timeoutMilliseconds,
      connectionCountMax: task.partitionCount,
      allowsPrivateAddresses: task.allowsPrivateAddresses,
      authorityFile: task.authorityFile,
      version: task.version
    )
    endpoint = CheckedEndpoint(settings, lookup: lookup)
  }

  /// Make one attempt to deliver a batch. It ends within the task's timeout, and soon after its task is cancelled.
  package func deliver(_ batch: Batch) async -> DeliveryOutcome {
    let seconds = Times.now / 1_000
    let headers = [
      ("content-type", "application/json"), ("webhook-id", batch.id), ("webhook-timestamp", "\(seconds)"),
      ("webhook-signature", signature.header(id: batch.id, seconds: seconds, body: batch.body)),
    ]
    switch await endpoint.post(path, headers: headers, body: batch.body) {
    case .success(let response) where (200..<300).contains(response.status): return .delivered
    case .success(let response):
      let failure = DeliveryFailure.status(
        response.status,
        location: response.headers["location"],
        retryAfter: response.headers["retry-after"],
        excerpt: String(decoding: response.body, as: UTF8.self),
        now: Times.now
      )
      return .failed(failure)
    case .failure(let failure): return .failed(failure)
    }
  }

  /// Close all connections. No attempt may be in flight.
  package func shutDown() async { await endpoint.shutDown() }
}
