/// A webhook of the tasks file.
package struct WebhookTask: Sendable, Equatable {
  /// Where a new consumer begins.
  package enum Start: Sendable, Equatable {
    case now
    case earliest
    /// RFC 3339.
    case time(String)

    /// The value of `from` in the gateway's API.
    package var text: String {
      switch self {
      case .now: "now"
      case .earliest: "earliest"
      case .time(let text): text
      }
    }
  }

  /// HTTP versions that the endpoint is offered.
  package enum Version: String, Sendable, CaseIterable {
    /// HTTP/2 if the endpoint offers it in TLS, else HTTP/1.1.
    case auto
    case http1 = "http/1.1"
  }

  /// Name of the webhook and of its consumer in the feed.
  package var name: String
  /// The endpoint.
  package var url: EndpointURL
  /// Keys of the signatures, the first first.
  package var secrets: [[UInt8]]
  /// Types of records; empty: all.
  package var types: [String] = []
  /// Types of channels; empty: all.
  package var channelTypes: [String] = []
  /// Where the consumer begins when it is created.
  package var start = Start.now
  /// Number of partitions that the feed is read in.
  package var partitionCount = 8
  /// Maximum number of records of a batch.
  package var batchRecordsMax = 100
  /// Maximum time between the first and the last record of a batch, in milliseconds.
  package var batchWaitMilliseconds: Int64 = 1_000
  /// Limit of a whole request, in milliseconds.
  package var timeoutMilliseconds: Int64 = 10_000
  /// Time from a batch's first attempt after which it becomes a dead letter, in milliseconds.
  package var retryMilliseconds: Int64 = 20 * 3_600_000
  /// Whether the endpoint may have an address that is not public.
  package var allowsPrivateAddresses = false
  /// File of an additional trust root, PEM.
  package var authorityFile: String?
  /// HTTP versions that the endpoint is offered.
  package var version = Version.auto

  /// Create a task with the defaults of the tasks file.
  package init(name: String, url: EndpointURL, secrets: [[UInt8]]) {
    self.name = name
    self.url = url
    self.secrets = secrets
  }

  /// Partitions in the notation of the gateway's API, such as `3/8`.
  package var partitions: [String] { (0..<partitionCount).map { "\($0)/\(partitionCount)" } }

  /// Return why the task cannot run with a feed that is kept for `retentionSeconds` (nil: without a limit of time).
  package func refusal(retentionSeconds: Int64?) -> String? {
    guard let retentionSeconds, retryMilliseconds > retentionSeconds * 1_000 else { return nil }
    return "retry_for is longer than the feed is kept (\(retentionSeconds) s): shorten it, or raise --feed-retention"
  }
}
