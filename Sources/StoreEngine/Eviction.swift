import ReceiptModel

/// Which loaded channels leave memory when it is short: a clock over a shard's slots. A channel that was used since the
/// hand last passed it stays for another round; the first that was not, goes. The use that a channel was read in for
/// does not count: what is asked for again and again stays, whatever passes by once.
struct EvictionClock {
  private enum Mark: UInt8 {
    case unused
    case used
    /// Read in, and not used yet.
    case fresh
  }

  private var marks: [Mark] = []
  private var hand = 0
  /// The channel that was used last stays until nothing has used it between two ticks: one that is larger than the
  /// whole budget would be read in for every request otherwise.
  private(set) var last: ChannelSlot?

  /// A channel has come into memory.
  mutating func insert(_ slot: ChannelSlot) {
    let position = Int(slot.rawValue)
    if position >= marks.count {
      marks.append(contentsOf: repeatElement(.unused, count: position + 1 - marks.count))
    }
    marks[position] = .fresh
  }

  /// The channel is being used: a byte is written, on every request.
  @inline(__always)
  mutating func touch(_ slot: ChannelSlot) {
    let position = Int(slot.rawValue)
    marks[position] = marks[position] == .fresh ? .unused : .used
    last = slot
  }

  /// Time has passed.
  mutating func tick() { last = nil }

  /// Moves the hand on by one slot of `slotCount`.
  ///
  /// - Returns: the slot it has passed, where that was not used since the last time.
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

/// How much of the budget for channels in memory is taken, and what follows from that.
struct MemoryPressure {
  /// Bytes that channels and users' settings may occupy in memory.
  private let total: Int
  /// Bytes that channels may occupy: what users' settings leave of it, but a quarter at least, so that the shards go on
  /// working.
  private(set) var budget: Int
  /// What a channel is taken to need while none is in memory: after a start every gateway comes at once.
  private static let unknownChannelBytes = 16 << 10
  /// More is resident than the budget allows: pages are written before their time, so that their channels can go.
  private(set) var isPressed = false
  private var resident = 0
  private var loaded = 0

  init(budget: Int) {
    total = budget
    self.budget = budget
  }

  /// Users' settings occupy so much; they never leave.
  mutating func reserve(_ settingsBytes: Int) {
    budget = total == .max ? .max : max(total - settingsBytes, total / 4)
  }

  /// Below this enough has been let go: a little below the budget, so that not every load has to find room.
  var target: Int { budget - budget / 32 }

  /// What is resident now, in bytes, and how many channels that are.
  mutating func note(resident: Int, channels: Int) {
    self.resident = resident
    loaded = channels
    isPressed = resident > budget
  }

  /// Whether another channel may be read in, with so many on their way: an average channel is expected. A quarter more
  /// than the budget is the end; what waits for pages to be written or for the hand to come round is between the two.
  func admits(loading: Int) -> Bool {
    guard budget < .max else { return true }
    // Whatever is taken: a channel that is busy all the time, and larger than the budget, may not keep all others out.
    if loading == 0 { return true }
    let average = loaded == 0 ? Self.unknownChannelBytes : resident / loaded
    return resident + loading * average <= budget + budget / 4
  }
}

extension ShardEngine {
  /// Lets channels go whose pages are all on storage. No commit may be under way: a page that is being written counts
  /// as clean already.
  ///
  /// - Parameters:
  ///   - wanted: bytes that would be enough.
  ///   - looks: slots that may be looked at; taken from.
  /// - Returns: bytes that came free.
  func evict(bytes wanted: Int, looks: inout Int) -> Int {
    let slotCount = state.slotCount
    let before = state.residentBytes
    guard slotCount > 0 else { return 0 }
    // One round: with two, having been used would protect nothing.
    var left = min(looks, slotCount)
    while left > 0, before - state.residentBytes < wanted {
      left -= 1
      looks -= 1
      guard let slot = clock.advance(slotCount: slotCount), slot != clock.last, state.isLoaded(slot),
        dirty.isClean(slot), dirty.last(slot) <= durable, !isSliced(slot), rebuild?.slot != slot,
        !state[slot].isEnding, !subscriptions.isNoted(slot)
      else { continue }
      subscriptions.left(slot)
      state.remove(slot)
      evictedCount += 1
    }
    return before - state.residentBytes
  }
}
