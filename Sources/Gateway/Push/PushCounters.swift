internal import Operations
internal import ReceiptModel
internal import ReceiptWire

/// Counters of push acks for one event loop.
struct PushCounters {
  /// Outcome of a push ack.
  enum Outcome: Int, CaseIterable {
    case moved, known
    /// The push ack is invalid.
    case refused
    /// A temporary failure: a retry may succeed.
    case failed
  }

  /// From a tenth of a second to a week: a push may wait long for its device.
  private static let deliveryBounds: [Double] = [
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400, 604_800,
  ]

  var providers: LabelNames
  var devices = LabelNames(["ios", "android", "web"])
  /// By source, provider, device and outcome; empty until first used.
  private var counts: [UInt64] = []
  /// By provider.
  private var deliveries: [Histogram?] = Array(repeating: nil, count: LabelNames.numberCount)

  /// - Parameter hooks: the provider labels of the gateway's hooks.
  init(hooks: [String] = []) { providers = LabelNames(["apns", "fcm", "webpush", "huawei"] + hooks) }

  mutating func labels(_ source: AckSource, provider: RawSpan, device: RawSpan) -> AckLabels {
    var labels = AckLabels()
    labels.source = source
    labels.provider = providers.number(provider)
    labels.device = devices.number(device)
    return labels
  }

  /// Count an answered push ack.
  mutating func count(_ labels: AckLabels, _ outcome: Outcome) {
    if counts.isEmpty {
      let count = AckSource.allCases.count * LabelNames.numberCount * LabelNames.numberCount
      counts = Array(repeating: 0, count: count * Outcome.allCases.count)
    }
    let name =
      (Int(labels.source.rawValue) * LabelNames.numberCount + Int(labels.provider)) * LabelNames.numberCount
    counts[(name + Int(labels.device)) * Outcome.allCases.count + outcome.rawValue] &+= 1
  }

  /// Record how long a push took to be delivered. A delivery time before the message's registration is ignored.
  mutating func delivered(_ labels: AckLabels, sent: Timestamp, delivered: Timestamp) {
    guard delivered >= sent else { return }
    let provider = Int(labels.provider)
    if deliveries[provider] == nil { deliveries[provider] = Histogram(bounds: Self.deliveryBounds) }
    deliveries[provider]?.record(Double(delivered.milliseconds - sent.milliseconds) / 1_000)
  }

  func add(to samples: inout MetricSamples) {
    for at in counts.indices where counts[at] > 0 {
      let (name, outcome) = at.quotientAndRemainder(dividingBy: Outcome.allCases.count)
      let (rest, device) = name.quotientAndRemainder(dividingBy: LabelNames.numberCount)
      let (source, provider) = rest.quotientAndRemainder(dividingBy: LabelNames.numberCount)
      samples.counter(
        "tidemark_gateway_push_acks_total",
        help:
          "Push acknowledgements by source, provider, device and outcome.",
        labels: [
          "by": "\(AckSource.allCases[source])", "provider": providers.text(UInt8(provider)),
          "device": devices.text(UInt8(device)), "result": "\(Outcome.allCases[outcome])",
        ],
        Int64(clamping: counts[at])
      )
    }
    for at in deliveries.indices {
      guard let histogram = deliveries[at] else { continue }
      samples.histogram(
        "tidemark_gateway_push_delivery_seconds",
        help: "Time from a message's registration to its acknowledged delivery.",
        labels: ["provider": providers.text(UInt8(at))],
        histogram
      )
    }
  }
}

extension ProblemCode {
  /// Whether the failure is temporary: with the store available, or with a ticket secret on this gateway, a retry may
  /// succeed.
  var isServiceFailure: Bool {
    switch self {
    case .storeUnavailable, .storeBusy, .outcomeUnknown, .clockJump, .dataDirectoryLost, .internalError,
      .notImplemented:
      true
    default: false
    }
  }
}

extension PushCounters.Outcome {
  /// The outcome of a push ack refused in a frame, by the rule of ``ProblemCode/isServiceFailure``.
  init(refusedWith code: ErrorCode) {
    switch code {
    case .busy, .unavailable, .outcomeUnknown, .clockJump, .dataDirectoryLost, .notImplemented:
      self = .failed
    default: self = .refused
    }
  }
}
