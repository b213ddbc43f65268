internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine

/// A message from one shard to another, whichever node owns it (Proto/frames.md, "Between nodes"). The sender repeats
/// changes until they are confirmed, so a message may be lost.
enum MessageBetweenShards: Sendable {
  case delivery(MembershipDelivery)
  case confirmation(MembershipConfirmation)

  /// The shard that the message is for.
  var to: ShardID {
    switch self {
    case .delivery(let delivery): delivery.to
    case .confirmation(let confirmation): confirmation.to
    }
  }

  /// The shard that sends the message.
  var from: ShardID {
    switch self {
    case .delivery(let delivery): delivery.from
    case .confirmation(let confirmation): confirmation.from
    }
  }

  init(_ header: FrameHeader, _ payload: RawSpan) throws(WireError) {
    switch header.kind {
    case .deliverChanges:
      let fields = try DeliveredChanges(payload)
      self = .delivery(
        MembershipDelivery(from: fields.from, to: header.shard, after: fields.after, changes: fields.changes)
      )
    case .confirmChanges:
      let fields = try ConfirmedChanges(payload)
      self = .confirmation(MembershipConfirmation(to: header.shard, from: fields.from, through: fields.through))
    default: throw .unknownKind(header.kind.rawValue)
    }
  }

  /// Maximum number of changes in a frame: with the longest ids they are some 650 KB, and a frame has 1 MiB.
  static let changesMax = 1_024

  /// The messages that fit a frame each, in order.
  var frames: [MessageBetweenShards] {
    guard case .delivery(let delivery) = self, delivery.changes.count > Self.changesMax else { return [self] }
    var frames: [MessageBetweenShards] = []
    var rest = delivery
    while !rest.changes.isEmpty {
      var part = rest
      part.changes = Array(rest.changes.prefix(Self.changesMax))
      rest.changes.removeFirst(part.changes.count)
      rest.after = part.changes.last?.number ?? rest.after
      frames.append(.delivery(part))
    }
    return frames
  }

  func write(into buffer: inout ByteBuffer) {
    switch self {
    case .delivery(let delivery):
      DeliveredChanges(from: delivery.from, after: delivery.after, changes: delivery.changes)
        .write(to: delivery.to, into: &buffer)
    case .confirmation(let confirmation):
      ConfirmedChanges(from: confirmation.from, through: confirmation.through)
        .write(to: confirmation.to, into: &buffer)
    }
  }
}
