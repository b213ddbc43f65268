internal import ReceiptModel
internal import ReceiptWire

/// A request frame that `POST /v1/frames` accepts.
struct FrameRule {
  /// The fields after the cid and the counter, with the ranges that the routes enforce.
  let fields: [RequestField.Validation]
  /// Maximum size of a reply in bytes, besides names that the request also has.
  let replyBytesMax: Int
  /// Whether the flag `thread` may be set.
  let takesThread: Bool

  /// Nil: the kind is not accepted here.
  private init?(_ spec: RequestSpec) {
    guard let reply = spec.replyBytesMax else { return nil }
    fields = spec.validations
    replyBytesMax = FrameHeader.byteCount + reply
    takesThread = spec.kind.traits.contains(.thread)
  }

  /// A *delivery* without its names, and the maximum size of those.
  static let deliveryBytesMax = RequestSpec.deliveryBytesMax
  static let namesBytesMax =
    Identifier.cidLengthMax + Identifier.userLengthMax + Identifier.messageLengthMax + 6
  /// The end of the year 9999, the latest time that answers can show, in milliseconds since 1970.
  static let timeMax: Int64 = 253_402_300_799_999
  static let ackedRange: StaticString = "time acked: up to the year 9999"
  static let namesRange: StaticString = "flags: 0 or 1"

  /// By the kind's number; nil: not accepted here.
  static let all: [FrameRule?] = {
    var rules = [FrameRule?](repeating: nil, count: 256)
    for spec in RequestSpec.all { rules[Int(spec.kind.rawValue)] = FrameRule(spec) }
    return rules
  }()
}
