internal import Operations
internal import ReceiptModel
internal import ReceiptWire

/// Who has acknowledged a push, as metrics name it.
package enum AckSource: UInt8, CaseIterable, Sendable {
  case ticket, worker, hook
}

/// What is counted of an acknowledgement beside what came of it: the source, and the numbers of the others' names in
/// ``PushCounters``.
package struct AckLabels: Sendable, Equatable {
  package var source = AckSource.ticket
  package var provider = LabelNames.none
  package var device = LabelNames.none

  package init() {}
}

/// Names that callers choose, as labels: a few of them, the rest together, so that nobody makes metrics without end.
package struct LabelNames: Sendable {
  /// Different names at most.
  package static let countMax = 32
  /// None was given.
  package static let none: UInt8 = 0
  /// One that is not of the form, or too many.
  package static let other: UInt8 = 1
  /// All numbers are below.
  package static let numberCount = countMax + 2

  private static let byteCountMax = 32

  private var names: [[UInt8]] = []

  /// - Parameter names: those that have their places from the start, so that no others can take them.
  package init(_ names: [String] = []) {
    for name in names {
      let bytes = Array(name.utf8)
      _ = number(bytes.span.bytes)
    }
  }

  /// The number of a name, which may be its first.
  package mutating func number(_ name: RawSpan) -> UInt8 {
    if name.isEmpty { return Self.none }
    for at in names.indices where Self.isEqual(names[at], name) { return UInt8(at + 2) }
    guard Self.isLabel(name), names.count < Self.countMax else { return Self.other }
    names.append(name.withUnsafeBytes { Array($0) })
    return UInt8(names.count + 1)
  }

  private static func isEqual(_ known: [UInt8], _ name: RawSpan) -> Bool { name.equals(known.span.bytes) }

  /// The label's value.
  func text(_ number: UInt8) -> String {
    switch number {
    case Self.none: "none"
    case Self.other: "other"
    default: String(decoding: names[Int(number) - 2], as: UTF8.self)
    }
  }

  /// 1 to 32 of `[A-Za-z0-9_.-]`, as roles are.
  package static func isLabel(_ name: RawSpan) -> Bool {
    name.byteCount <= byteCountMax && Identifier.isRole(name)
  }
}

/// What one event loop counts of acknowledgements.
struct PushCounters {
  /// What came of one.
  enum Outcome: Int, CaseIterable {
    case moved, known
    /// Something is wrong with it.
    case refused
    /// Nothing is known to be wrong with it: the same may go better another time.
    case failed
  }

  /// From a tenth of a second to a week: a push waits for its device.
  private static let deliveryBounds: [Double] = [
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400, 604_800,
  ]

  var providers: LabelNames
  var devices = LabelNames(["ios", "android", "web"])
  /// By source, provider, device and outcome; empty before the first.
  private var counts: [UInt64] = []
  /// By provider.
  private var deliveries: [Histogram?] = Array(repeating: nil, count: LabelNames.numberCount)

  /// - Parameter hooks: what the gateway's hooks are counted as.
  init(hooks: [String] = []) { providers = LabelNames(["apns", "fcm", "webpush", "huawei"] + hooks) }

  mutating func labels(_ source: AckSource, provider: RawSpan, device: RawSpan) -> AckLabels {
    var labels = AckLabels()
    labels.source = source
    labels.provider = providers.number(provider)
    labels.device = devices.number(device)
    return labels
  }

  /// Counts one that has an answer.
  mutating func count(_ labels: AckLabels, _ outcome: Outcome) {
    if counts.isEmpty {
      let count = AckSource.allCases.count * LabelNames.numberCount * LabelNames.numberCount
      counts = Array(repeating: 0, count: count * Outcome.allCases.count)
    }
    let name =
      (Int(labels.source.rawValue) * LabelNames.numberCount + Int(labels.provider)) * LabelNames.numberCount
    counts[(name + Int(labels.device)) * Outcome.allCases.count + outcome.rawValue] &+= 1
  }

  /// Notes how long a message took that was delivered by this; of one that is said to have arrived before it was sent
  /// nobody knows.
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
          "Acknowledgements of pushes, by what they were made with, provider, device and what came of them.",
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
        help: "From a message's registration to its delivery as an acknowledgement told it.",
        labels: ["provider": providers.text(UInt8(at))],
        histogram
      )
    }
  }
}

extension ProblemCode {
  /// The same may go better with the store at hand, or once this gateway has a secret for tickets: whoever sent it is
  /// to send it again.
  var isOfTheService: Bool {
    switch self {
    case .storeUnavailable, .storeBusy, .outcomeUnknown, .clockJump, .dataDirectoryLost, .internalError,
      .notImplemented:
      true
    default: false
    }
  }
}

extension PushCounters.Outcome {
  /// What an acknowledgement counts as that is refused in a frame: as ``ProblemCode/isOfTheService`` has it of others.
  init(refusedWith code: ErrorCode) {
    switch code {
    case .busy, .unavailable, .outcomeUnknown, .clockJump, .dataDirectoryLost, .notImplemented:
      self = .failed
    default: self = .refused
    }
  }
}
