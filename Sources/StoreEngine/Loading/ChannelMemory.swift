internal import DequeModule
internal import ReceiptModel

/// The channels of a loop in memory, within its budget: their loading from storage, and their eviction.
final class ChannelMemory: LoopPart {
  private var queue = LoadQueue()
  private var pressure: MemoryPressure
  /// Shard that evicts first in the next round.
  private var evictionPosition = 0

  /// - Parameter budget: bytes that channels and users' settings may occupy.
  init(budget: Int) { pressure = MemoryPressure(budget: budget) }

  /// Whether resident bytes exceed the budget: pages are written early, so that their channels can be evicted.
  var isUnderPressure: Bool { pressure.isUnderPressure }

  override func stop() { queue = LoadQueue() }

  // MARK: Eviction

  /// Evict channels while they exceed the budget, a bounded slice at a time. Not while a commit is in flight: its
  /// pages are not on storage yet, and their channels could be read back without them.
  func evictOverBudget() {
    guard pressure.budget < .max else { return }
    let shards = loop.shards
    var resident = 0
    var channels = 0
    pressure.reserve(
      shards.reduce(0) {
        $0 + $1.state.settings.byteCount + $1.state.webhooks.byteCount + $1.state.revokedTokens.byteCount
          + $1.timers.byteCount + $1.state.pushJobs.byteCount
      }
    )
    for shard in shards {
      resident += shard.state.residentBytes
      channels += shard.state.loadedCount
    }
    if resident > pressure.budget, !loop.commits.isUnderWay {
      var scanBudget = loop.configuration.evictionScanMax
      for _ in shards.indices where scanBudget > 0 && resident > pressure.target {
        evictionPosition = (evictionPosition + 1) % shards.count
        let shard = shards[evictionPosition]
        // Each shard in turn evicts a share, so that no shard's channels go first.
        var share = max(scanBudget / shards.count, 16)
        scanBudget -= share
        let evicted = shard.evict(bytes: resident - pressure.target, scanBudget: &share)
        scanBudget += share
        resident -= evicted.bytes
        channels -= evicted.channels
        loop.counters.channelsEvicted += UInt64(evicted.channels)
      }
    }
    pressure.record(resident: resident, channels: channels)
    startDelayed()
  }

  // MARK: Loading

  /// Load a channel, now or when there is room for it. Channels of the log's tail do not wait: they are few at a time,
  /// and their effects are in memory already.
  func load(_ request: LoadRequest, as reference: ChannelReference) {
    if case .cid = reference, !queue.canStart(request) || !pressure.admits(loading: queue.inFlight) {
      loop.counters.loadsDelayed += 1
      queue.delay(request, reference)
      return
    }
    queue.began()
    loop.driver.load(request, as: reference)
  }

  /// Start delayed loads. One load is always admitted, so none waits forever.
  private func startDelayed() {
    while pressure.admits(loading: queue.inFlight), let (request, reference) = queue.next() {
      // The channel may have been loaded another way.
      guard loop.ownShard(request.shard).loads.isWanted(request, as: reference) else { continue }
      queue.began()
      loop.driver.load(request, as: reference)
    }
  }

  /// Install a channel that was read, or keep it for a later turn if this turn's budget is used up.
  func loaded(_ arrival: LoadQueue.LoadedChannel) {
    if loop.budget.entries > 0, !queue.hasArrived(isBackground: arrival.request.isBackground) {
      install(arrival)
    } else {
      queue.keep(arrival)
    }
  }

  /// Continue the loads of the log's tail, in all shards.
  func drainTails() {
    for shard in loop.shards {
      shard.loads.drainTail(inFlightMax: isUnderPressure ? 1 : loop.configuration.tailLoadsMax)
    }
  }

  private func install(_ arrival: LoadQueue.LoadedChannel) {
    loop.counters.channelsLoaded += 1
    queue.installed()
    let shard = loop.ownShard(arrival.request.shard)
    var isReadable = true
    if case .failure = arrival.result { isReadable = false }
    loop.driver.noteDecision(.install(arrival.request, arrival.reference, isReadable: isReadable))
    shard.loads.loaded(arrival.request, as: arrival.reference, arrival.result)
    // If memory is short, the tail continues at the next tick: each of its channels is evicted once its pages are
    // written.
    if case .number = arrival.reference, !isUnderPressure {
      shard.loads.drainTail(inFlightMax: loop.configuration.tailLoadsMax)
    }
  }

  /// Whether channels were read that are not installed yet.
  var hasArrived: Bool { queue.hasArrived(isBackground: false) || queue.hasArrived(isBackground: true) }

  /// Install arrived channels: those that requests wait for first, but at least one background load.
  func installLoaded() {
    if let next = queue.takeLoaded(isBackground: true) { install(next) }
    while loop.budget.entries > 0, let next = queue.takeLoaded(isBackground: false) { install(next) }
    while loop.budget.entries > 0, let next = queue.takeLoaded(isBackground: true) { install(next) }
  }
}

/// Channel loads of a loop: those that wait for room in memory, those in flight, and results that are not installed
/// yet.
struct LoadQueue {
  /// A channel that was read from storage.
  struct LoadedChannel {
    var request: LoadRequest
    var reference: ChannelReference
    var result: Result<StoredChannel?, StorageError>
  }

  /// Number of loads in flight, including results that are not installed yet.
  private(set) var inFlight = 0
  /// Delayed loads: for requests, and in the background.
  private var delayed: Deque<(request: LoadRequest, reference: ChannelReference)> = []
  private var delayedInBackground: Deque<(request: LoadRequest, reference: ChannelReference)> = []
  /// Loads for requests that have started since the last background one.
  private var startsSinceBackground = 0
  private var arrived: Deque<LoadedChannel> = []
  private var arrivedInBackground: Deque<LoadedChannel> = []

  /// Return whether no delayed load must start before this one.
  func canStart(_ request: LoadRequest) -> Bool {
    delayed.isEmpty && (delayedInBackground.isEmpty || !request.isBackground)
  }

  mutating func delay(_ request: LoadRequest, _ reference: ChannelReference) {
    if request.isBackground {
      delayedInBackground.append((request, reference))
    } else {
      delayed.append((request, reference))
    }
  }

  /// Take the next delayed load: those for requests first, but a background one after every four. If membership
  /// changes never reached the indexes, requests would be refused in the end.
  mutating func next() -> (request: LoadRequest, reference: ChannelReference)? {
    if startsSinceBackground < 4, let next = delayed.popFirst() {
      startsSinceBackground += 1
      return next
    }
    startsSinceBackground = 0
    return delayedInBackground.popFirst() ?? delayed.popFirst()
  }

  mutating func began() { inFlight += 1 }

  mutating func installed() { inFlight -= 1 }

  func hasArrived(isBackground: Bool) -> Bool {
    isBackground ? !arrivedInBackground.isEmpty : !arrived.isEmpty
  }

  mutating func keep(_ arrival: LoadedChannel) {
    if arrival.request.isBackground { arrivedInBackground.append(arrival) } else { arrived.append(arrival) }
  }

  /// Take the oldest result that is kept.
  mutating func takeLoaded(isBackground: Bool) -> LoadedChannel? {
    isBackground ? arrivedInBackground.popFirst() : arrived.popFirst()
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

  /// Forget which channel was used last.
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
