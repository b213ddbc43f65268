internal import ReceiptModel

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
  private(set) var isUnderPressure = false
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
    isUnderPressure = resident > budget
  }

  /// Return whether another channel may be loaded, with `loading` loads in flight of the average size. The hard limit
  /// is a quarter above the budget: the margin covers waiting for page writes and for the clock's hand.
  func admits(loading: Int) -> Bool {
    guard budget < .max else { return true }
    // One load is always admitted: a busy channel larger than the budget must not keep all others out.
    if loading == 0 { return true }
    let average = loaded == 0 ? Self.unknownChannelBytes : resident / loaded
    return resident + loading * average <= budget + budget / 4
  }
}
