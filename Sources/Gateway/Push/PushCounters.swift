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
    let name = (Int(labels.source.rawValue) * LabelNames.numberCount + Int(labels.provider)) * LabelNames.numberCount
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
        help: "Push acks by source, provider, device and outcome.",
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
    case .busy, .unavailable, .outcomeUnknown, .clockJump, .dataDirectoryLost, .notImplemented: self = .failed
    default: self = .refused
    }
  }
}

/// The source of a push ack, as a metric label.
package enum AckSource: UInt8, CaseIterable, Sendable, BitwiseCopyable {
  case ticket, worker, hook
}

/// The metric labels of a push ack, besides its outcome: the source, and indexes of the other names in
/// ``PushCounters``.
package struct AckLabels: Sendable, Equatable, BitwiseCopyable {
  package var source = AckSource.ticket
  package var provider = LabelNames.none
  package var device = LabelNames.none

  package init(_ source: AckSource = .ticket) { self.source = source }
}

/// Label values chosen by callers. Their number is limited; further names share one value, so that callers cannot
/// create metrics without bound.
package struct LabelNames: Sendable {
  /// Maximum number of distinct names.
  package static let countMax = 32
  /// No name was given.
  package static let none: UInt8 = 0
  /// The name is malformed, or the limit is reached.
  package static let other: UInt8 = 1
  /// All indexes are below this.
  package static let numberCount = countMax + 2

  static let byteCountMax = 32

  private var names: [[UInt8]] = []

  /// - Parameter names: names that are registered in advance, so that others cannot displace them.
  package init(_ names: [String] = []) {
    for name in names {
      let bytes = Array(name.utf8)
      _ = number(bytes.span.bytes)
    }
  }

  /// Return the index of a name, which is registered if new.
  package mutating func number(_ name: RawSpan) -> UInt8 {
    if name.isEmpty { return Self.none }
    for at in names.indices where Self.isEqual(names[at], name) { return UInt8(at + 2) }
    guard Self.isLabel(name), names.count < Self.countMax else { return Self.other }
    names.append(name.withUnsafeBytes { Array($0) })
    return UInt8(names.count + 1)
  }

  private static func isEqual(_ known: [UInt8], _ name: RawSpan) -> Bool { name.equals(known.span.bytes) }

  /// Return the label's value for an index.
  func text(_ number: UInt8) -> String {
    switch number {
    case Self.none: "none"
    case Self.other: "other"
    default: String(decoding: names[Int(number) - 2], as: UTF8.self)
    }
  }

  /// Return whether a name is 1 to 32 of `[A-Za-z0-9_.-]`, like a role.
  package static func isLabel(_ name: RawSpan) -> Bool {
    name.byteCount <= byteCountMax && Identifier.isRole(name)
  }

  /// Return the name if it is a label, else an empty one.
  @_lifetime(copy name)
  static func labelOrNone(_ name: RawSpan) -> RawSpan { isLabel(name) ? name : name.extracting(first: 0) }
}
