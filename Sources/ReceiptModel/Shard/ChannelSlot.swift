/// The slot of a loaded channel, or of one of its threads, in its shard's memory. Valid until the channel is evicted.
package struct ChannelSlot: Hashable, Sendable {
  /// The channel's slot number. Data kept beside a channel's state, for all its threads together, is keyed by it.
  package var rawValue: UInt32
  /// 0: the channel itself; else 1 + the index of a thread in it (R15).
  package let thread: UInt32

  package init(_ rawValue: UInt32) {
    self.rawValue = rawValue
    thread = 0
  }

  private init(_ rawValue: UInt32, thread: UInt32) {
    self.rawValue = rawValue
    self.thread = thread
  }

  package var isThread: Bool { thread > 0 }
  /// The slot of the channel itself.
  package var channel: ChannelSlot { ChannelSlot(rawValue) }
  /// Return the slot of one of this channel's threads.
  package func thread(_ index: Int) -> ChannelSlot { ChannelSlot(rawValue, thread: UInt32(index) + 1) }
}
