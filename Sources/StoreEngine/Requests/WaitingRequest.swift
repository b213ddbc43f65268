internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The reason why a request waits.
enum WaitReason: Hashable {
  /// Its channel is loaded, or the name of a ticket's channel is looked up.
  case load(ChannelReference)
  /// This read of steps.
  case steps(UInt32)
  /// Its next slice.
  case slice(ChannelSlot)
  /// A later slice, because the request is wide or another one of its channel is postponed.
  case postponed
  /// The ledger records the erasure of a user.
  case ledger(UInt32)
  /// Membership changes reach the users' indexes.
  case index(UInt32)
  /// The channel in this slot is deleted.
  case deletion(ChannelSlot)
  /// Peeks and loads for unread counts.
  case unread(UInt32)
  /// A scan over channels.
  case scan(UInt32)

  /// A reason without its details.
  enum Kind: Int, CaseIterable {
    case load, steps, slice, postponed, ledger, index, deletion, unread, scan
  }

  var kind: Kind {
    switch self {
    case .load: .load
    case .steps: .steps
    case .slice: .slice
    case .postponed: .postponed
    case .ledger: .ledger
    case .index: .index
    case .deletion: .deletion
    case .unread: .unread
    case .scan: .scan
    }
  }

  /// Whether the request is performed again at the end of the wait; otherwise it only waits for its reply.
  var performsAgain: Bool {
    switch kind {
    case .load, .steps, .slice, .postponed, .ledger: true
    case .index, .deletion, .unread, .scan: false
    }
  }
}

/// A request that waits, with its bytes if it is performed again.
struct WaitingRequest {
  /// Rises with every request that waits. A request that waits again keeps its number.
  var number: UInt64 { attempt.number }
  let header: FrameHeader
  /// The whole payload, including the bytes after its fields; empty if the request only waits for its reply.
  let payload: ByteBuffer
  let lane: ReplyLane
  /// Counter of a command that was not applied; nil for a query.
  let counter: UInt64?
  var attempt: RequestAttempt
  /// Of `slice`: the channel, which must stay in memory because rows are identified by number.
  let slot: ChannelSlot?
  /// Of `postponed`: empty if the request is about no single channel.
  let cid: [UInt8]

  func isErasing(_ other: String, in channel: ChannelSlot) -> Bool {
    guard slot == channel, !lane.isClosed, case .erase(_, let user, true)? = attempt.progress else {
      return false
    }
    return user.isExactly(other)
  }
}
