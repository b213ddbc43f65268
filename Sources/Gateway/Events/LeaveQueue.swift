internal import DequeModule
internal import ReceiptModel

/// Leaves that a user's index has reported, until the channel's own removal event arrives. One that has not arrived
/// after some ticks is reported to the stream instead.
struct LeaveQueue {
  /// A leave. Void once the attachment's `endsAt` differs.
  struct Leave {
    let ref: EventHub.Ref
    let channel: EventHub.ChannelIndex
    let at: Timestamp
    /// The tick at which the attachment ends.
    let endsAt: UInt32
  }

  /// Ticks to wait for the channel's event.
  static let waitTicks: UInt32 = 5

  /// In order of their end.
  private var leaves = Deque<Leave>()
  private var ticks: UInt32 = 0

  var isEmpty: Bool { leaves.isEmpty }

  /// Add a leave.
  ///
  /// - Returns: the tick at which the attachment ends.
  mutating func append(_ ref: EventHub.Ref, _ channel: EventHub.ChannelIndex, at time: Timestamp) -> UInt32 {
    let endsAt = ticks + Self.waitTicks
    leaves.append(Leave(ref: ref, channel: channel, at: time, endsAt: endsAt))
    return endsAt
  }

  mutating func tick() { ticks += 1 }

  /// Remove the next leave whose wait has ended.
  mutating func popEnded() -> Leave? {
    guard let leave = leaves.first, leave.endsAt <= ticks else { return nil }
    return leaves.removeFirst()
  }
}
