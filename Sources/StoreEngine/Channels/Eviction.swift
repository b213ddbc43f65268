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
  mutating func touch(_ slot: ChannelSlot) {
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

/// Memory budget for loaded channels, and the decisions that depend on it.
struct MemoryPressure {
  /// Bytes that channels and users' settings may occupy in memory.
  private let total: Int
  /// Bytes that channels may occupy: the total without users' settings, but at least a quarter of it, so that the
  /// shards can keep working.
  private(set) var budget: Int
  /// Assumed size of a channel while none is loaded: after a start all gateways connect at once.
  private static let unknownChannelBytes = 16 << 10
  /// Resident bytes exceed the budget: pages are written early, so that their channels can be evicted.
  private(set) var isPressed = false
  private var resident = 0
  private var loaded = 0

  init(budget: Int) {
    total = budget
    self.budget = budget
  }

  /// Reserve room for users' settings, which are never evicted.
  mutating func reserve(_ settingsBytes: Int) {
    budget = total == .max ? .max : max(total - settingsBytes, total / 4)
  }

  /// Resident bytes at which eviction stops: a little below the budget, so that not every load must evict.
  var target: Int { budget - budget / 32 }

  /// Record the resident bytes and the number of loaded channels.
  mutating func record(resident: Int, channels: Int) {
    self.resident = resident
    loaded = channels
    isPressed = resident > budget
  }

  /// Whether another channel may be loaded, with `loading` loads in flight of the average size. The hard limit is a
  /// quarter above the budget: the margin covers waiting for page writes and for the clock's hand.
  func admits(loading: Int) -> Bool {
    guard budget < .max else { return true }
    // One load is always admitted: a busy channel larger than the budget must not keep all others out.
    if loading == 0 { return true }
    let average = loaded == 0 ? Self.unknownChannelBytes : resident / loaded
    return resident + loading * average <= budget + budget / 4
  }
}

extension ShardEngine {
  /// Evict channels whose pages are all on storage. Requires that no commit is in flight: a page that is being written
  /// already counts as clean.
  ///
  /// - Parameters:
  ///   - wanted: bytes to free.
  ///   - scanBudget: slots that may be examined; decremented.
  /// - Returns: bytes that were freed.
  func evict(bytes wanted: Int, scanBudget: inout Int) -> Int {
    let slotCount = state.slotCount
    let before = state.residentBytes
    guard slotCount > 0 else { return 0 }
    // One round only: a second one would evict recently used channels too.
    var left = min(scanBudget, slotCount)
    while left > 0, before - state.residentBytes < wanted {
      left -= 1
      scanBudget -= 1
      guard let slot = eviction.advance(slotCount: slotCount), slot != eviction.last, state.isLoaded(slot),
        dirty.isClean(slot), dirty.last(slot) <= log.durable, !waiting.isSliced(slot),
        !rebuilds.isScanning(slot),
        !state[slot].isBeingDeleted, !events.hasUnsentEvents(slot)
      else { continue }
      events.left(slot)
      state.remove(slot)
      eviction.recordEviction()
    }
    return before - state.residentBytes
  }
}
