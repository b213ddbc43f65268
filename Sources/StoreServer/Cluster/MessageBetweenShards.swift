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
    case .deliverChanges: self = .delivery(try MembershipDelivery(to: header.shard, payload))
    case .confirmChanges: self = .confirmation(try MembershipConfirmation(to: header.shard, payload))
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
    case .delivery(let delivery): delivery.write(into: &buffer)
    case .confirmation(let confirmation): confirmation.write(into: &buffer)
    }
  }
}
