internal import ReceiptModel

/// The source of a push ack, as a metric label.
package enum AckSource: UInt8, CaseIterable, Sendable {
  case ticket, worker, hook
}

/// The metric labels of a push ack, besides its outcome: the source, and indexes of the other names in
/// ``PushCounters``.
package struct AckLabels: Sendable, Equatable {
  package var source = AckSource.ticket
  package var provider = LabelNames.none
  package var device = LabelNames.none

  package init() {}
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

  private static let byteCountMax = 32

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
}
