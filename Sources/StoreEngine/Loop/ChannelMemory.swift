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
  var isPressed: Bool { pressure.isPressed }

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
        let evicted = shard.eviction.evictedCount
        // Each shard in turn evicts a share, so that no shard's channels go first.
        var share = max(scanBudget / shards.count, 16)
        scanBudget -= share
        resident -= shard.evict(bytes: resident - pressure.target, scanBudget: &share)
        scanBudget += share
        loop.counters.channelsEvicted += shard.eviction.evictedCount - evicted
        channels -= Int(shard.eviction.evictedCount - evicted)
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
      guard loop.owner(request.shard).loads.isWanted(request, as: reference) else { continue }
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
      shard.loads.drainTail(inFlightMax: isPressed ? 1 : loop.configuration.tailLoadsMax)
    }
  }

  private func install(_ arrival: LoadQueue.LoadedChannel) {
    loop.counters.channelsLoaded += 1
    queue.installed()
    let shard = loop.owner(arrival.request.shard)
    shard.loads.loaded(arrival.request, as: arrival.reference, arrival.result)
    // If memory is short, the tail continues at the next tick: each of its channels is evicted once its pages are
    // written.
    if case .number = arrival.reference, !isPressed {
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

  /// Whether no delayed load must start before this one.
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
