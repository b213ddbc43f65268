internal import DequeModule
internal import ReceiptModel

/// Which streams get which channels: the *attachments* of streams to channels, kept in both directions, which agree;
/// with the leaves that have yet to end one.
struct ChannelAttachments {
  typealias Ref = EventHub.Ref
  typealias Channel = EventHub.ChannelIndex

  private struct Attachment {
    /// The stream's position among the channel's streams.
    var position: UInt32
    /// When its user joined, according to the user's index or the channel.
    var joinedAt: Timestamp
    /// The tick at which the attachment ends after the user's index has reported a leave; 0: no leave.
    var endsAt: UInt32 = 0
  }

  /// The attachments of the stream in one slot.
  private struct Row {
    var generation: UInt32
    var channels: [Channel: Attachment] = [:]
  }

  /// By the slot of the stream.
  private var rows: [Row] = []
  /// The slots of each channel's streams, by the channel's slot.
  private var streamsByChannel: [[UInt32]] = []
  /// Attachments of all streams together.
  private(set) var count = 0
  private var leaves = LeaveQueue()

  // MARK: Queries

  /// Return the slots of a channel's streams.
  func streams(of channel: Channel) -> [UInt32] {
    Int(channel.slot) < streamsByChannel.count ? streamsByChannel[Int(channel.slot)] : []
  }

  /// Return whether no stream has the channel.
  func hasNoStreams(_ channel: Channel) -> Bool {
    Int(channel.slot) >= streamsByChannel.count || streamsByChannel[Int(channel.slot)].isEmpty
  }

  /// Return the channels of a stream, in the order of their indexes.
  func channels(of ref: Ref) -> [Channel] { holds(ref) ? rows[Int(ref.slot)].channels.keys.sorted() : [] }

  func channelCount(of ref: Ref) -> Int { holds(ref) ? rows[Int(ref.slot)].channels.count : 0 }

  func isAttached(_ ref: Ref, _ channel: Channel) -> Bool { attachment(ref, channel) != nil }

  /// Return when the stream's user joined; nil: not attached.
  func joinedAt(_ ref: Ref, _ channel: Channel) -> Timestamp? { attachment(ref, channel)?.joinedAt }

  /// Whether any attachment may have a leave. Leaves are rare: callers check this before ``isLeaving(_:_:)``.
  var hasLeaves: Bool { !leaves.isEmpty }

  /// Return whether the user's index has reported a leave that has not ended the attachment yet.
  func isLeaving(_ ref: Ref, _ channel: Channel) -> Bool { attachment(ref, channel).map { $0.endsAt != 0 } ?? false }

  private func attachment(_ ref: Ref, _ channel: Channel) -> Attachment? {
    holds(ref) ? rows[Int(ref.slot)].channels[channel] : nil
  }

  private func holds(_ ref: Ref) -> Bool {
    Int(ref.slot) < rows.count && rows[Int(ref.slot)].generation == ref.generation
  }

  // MARK: Attachments

  /// Attach a stream to a channel that it does not have.
  mutating func attach(_ ref: Ref, _ channel: Channel, joinedAt: Timestamp) {
    while rows.count <= Int(ref.slot) { rows.append(Row(generation: 0)) }
    while streamsByChannel.count <= Int(channel.slot) { streamsByChannel.append([]) }
    if !holds(ref) {
      assert(rows[Int(ref.slot)].channels.isEmpty, "a removed stream is attached")
      rows[Int(ref.slot)] = Row(generation: ref.generation)
    }
    let position = UInt32(streamsByChannel[Int(channel.slot)].count)
    let replaced = rows[Int(ref.slot)].channels.updateValue(
      Attachment(position: position, joinedAt: joinedAt),
      forKey: channel
    )
    assert(replaced == nil, "a stream is attached twice")
    streamsByChannel[Int(channel.slot)].append(ref.slot)
    count += 1
  }

  /// Change when the user of an attached stream joined.
  mutating func setJoined(_ ref: Ref, _ channel: Channel, at time: Timestamp) {
    if holds(ref) { rows[Int(ref.slot)].channels[channel]?.joinedAt = time }
  }

  /// Detach a stream from a channel. False: it is not attached.
  mutating func detach(_ ref: Ref, _ channel: Channel) -> Bool {
    guard holds(ref), let position = rows[Int(ref.slot)].channels.removeValue(forKey: channel)?.position,
      let last = streamsByChannel[Int(channel.slot)].popLast()
    else { return false }
    count -= 1
    if last != ref.slot {
      streamsByChannel[Int(channel.slot)][Int(position)] = last
      rows[Int(last)].channels[channel]?.position = position
    }
    // An unused stream or channel keeps no memory.
    if rows[Int(ref.slot)].channels.isEmpty { rows[Int(ref.slot)].channels = [:] }
    if streamsByChannel[Int(channel.slot)].isEmpty { streamsByChannel[Int(channel.slot)] = [] }
    return true
  }

  // MARK: Leaves

  /// Start the leave of a stream whose user is no longer a member. Until the channel's own removal event arrives,
  /// nothing else is delivered.
  mutating func beginLeave(_ ref: Ref, _ channel: Channel, at time: Timestamp) {
    guard let attachment = attachment(ref, channel), attachment.endsAt == 0 else { return }
    rows[Int(ref.slot)].channels[channel]?.endsAt = leaves.append(ref, channel, at: time)
  }

  /// Cancel a leave, if there is one: the user has joined again.
  mutating func cancelLeave(_ ref: Ref, _ channel: Channel) {
    if holds(ref) { rows[Int(ref.slot)].channels[channel]?.endsAt = 0 }
  }

  mutating func tick() { leaves.tick() }

  /// Remove the next leave whose wait has ended, and that was not cancelled.
  mutating func popEndedLeave() -> LeaveQueue.Leave? {
    while let leave = leaves.popEnded() {
      if attachment(leave.ref, leave.channel)?.endsAt == leave.endsAt { return leave }
    }
    return nil
  }

  /// The first broken invariant; nil: there is none.
  var brokenInvariant: String? {
    if count != rows.reduce(0, { $0 + $1.channels.count }) { return "attachments of streams" }
    if count != streamsByChannel.reduce(0, { $0 + $1.count }) { return "attachments of channels" }
    for (slot, row) in rows.enumerated() {
      for (channel, attachment) in row.channels
      where streamsByChannel[Int(channel.slot)][Int(attachment.position)] != UInt32(slot) {
        return "position of stream \(slot) in channel \(channel.slot)"
      }
    }
    return nil
  }
}

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
