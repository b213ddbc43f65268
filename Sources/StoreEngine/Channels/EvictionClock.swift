internal import ReceiptModel

/// Clock eviction over a shard's slots: selects loaded channels to evict when memory is short. A channel that was used
/// since the hand last passed it survives another round; the first unused one is evicted. The use that a channel was
/// loaded for does not count, so repeatedly used channels stay, and one-off loads do not displace them.
struct EvictionClock {
  private enum Mark: UInt8 {
    case unused
    case used
    /// Loaded, and not used yet.
    case fresh
  }

  private var marks: [Mark] = []
  private var hand = 0
  /// The channel that was used last. It stays until it goes unused between two ticks: otherwise a channel larger than
  /// the whole budget would be loaded for every request.
  private(set) var last: ChannelSlot?

  /// Channels evicted since start.
  private(set) var evictedCount: UInt64 = 0

  mutating func recordEviction() { evictedCount += 1 }

  /// Add a channel that was loaded.
  mutating func insert(_ slot: ChannelSlot) {
    let position = Int(slot.rawValue)
    if position >= marks.count {
      marks.append(contentsOf: repeatElement(.unused, count: position + 1 - marks.count))
    }
    marks[position] = .fresh
  }

  /// Mark a channel as used. Writes one byte, on every request.
  @inline(__always)
  mutating func markUsed(_ slot: ChannelSlot) {
    let position = Int(slot.rawValue)
    marks[position] = marks[position] == .fresh ? .unused : .used
    last = slot
  }

  /// Forget the last used channel.
  mutating func tick() { last = nil }

  /// Move the hand on by one slot of `slotCount`.
  ///
  /// - Returns: the slot that was passed, if it was unused since the last round.
  mutating func advance(slotCount: Int) -> ChannelSlot? {
    if hand >= slotCount { hand = 0 }
    let position = hand
    hand += 1
    guard marks[position] == .unused else {
      marks[position] = .unused
      return nil
    }
    return ChannelSlot(UInt32(position))
  }
}
