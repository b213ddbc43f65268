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
    loop.driver.willTake(.install(arrival.request, arrival.reference, isReadable: isReadable))
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
