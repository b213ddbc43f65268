import DequeModule
import ReceiptModel

/// Channels that are on their way from storage: those that have to wait for room in memory, those that are being read,
/// and those that were read and are not taken in yet.
struct LoadQueue {
  /// A channel that was read from storage.
  struct Arrival {
    var request: LoadRequest
    var reference: ChannelReference
    var result: Result<StoredChannel?, StorageError>
  }

  /// How many are being read, or were and are not taken in.
  var underWay = 0
  /// For requests, and for everything else.
  private var delayed: Deque<(request: LoadRequest, reference: ChannelReference)> = []
  private var delayedBehind: Deque<(request: LoadRequest, reference: ChannelReference)> = []
  /// Loads for requests that were let go before others since one of these was.
  private var delayedBefore = 0
  var arrived: Deque<Arrival> = []
  var arrivedBehind: Deque<Arrival> = []

  /// Whether none waits for room that would come before this one.
  func mayBeNext(_ request: LoadRequest) -> Bool {
    delayed.isEmpty && (delayedBehind.isEmpty || !request.isBehind)
  }

  mutating func delay(_ request: LoadRequest, _ reference: ChannelReference) {
    if request.isBehind {
      delayedBehind.append((request, reference))
    } else {
      delayed.append((request, reference))
    }
  }

  /// Those for requests first, but one of the others behind every four of them: changes that do not get into indexes
  /// would have requests refused in the end.
  mutating func next() -> (request: LoadRequest, reference: ChannelReference)? {
    if delayedBefore < 4, let next = delayed.popFirst() {
      delayedBefore += 1
      return next
    }
    delayedBefore = 0
    return delayedBehind.popFirst() ?? delayed.popFirst()
  }

  var hasArrived: Bool { !arrived.isEmpty || !arrivedBehind.isEmpty }

  func hasArrived(behind: Bool) -> Bool { behind ? !arrivedBehind.isEmpty : !arrived.isEmpty }

  mutating func keep(_ arrival: Arrival) {
    if arrival.request.isBehind { arrivedBehind.append(arrival) } else { arrived.append(arrival) }
  }
}

/// What comes into memory from storage, and what leaves memory for it.
extension StoreLoop {
  /// Lets channels go while they occupy more than the budget, a bounded slice of them at a time. Not while a commit is
  /// under way: the pages in it are not on storage yet, and their channels could be read back without them.
  func keepToBudget() {
    guard memory.budget < .max else { return }
    var resident = 0
    var channels = 0
    memory.reserve(
      shards.reduce(0) {
        $0 + $1.state.settings.byteCount + $1.state.webhooks.byteCount + $1.state.revokedTokens.byteCount
      }
    )
    for shard in shards {
      resident += shard.state.residentBytes
      channels += shard.state.loadedCount
    }
    if resident > memory.budget, !commits.isUnderWay {
      var looks = configuration.evictionLooksMax
      for _ in shards.indices where looks > 0 && resident > memory.target {
        evictionPosition = (evictionPosition + 1) % shards.count
        let shard = shards[evictionPosition]
        let evicted = shard.evictedCount
        // Each in turn gets its part, so that no shard's channels go first.
        var share = max(looks / shards.count, 16)
        looks -= share
        resident -= shard.evict(bytes: resident - memory.target, looks: &share)
        looks += share
        counters.channelsEvicted += shard.evictedCount - evicted
        channels -= Int(shard.evictedCount - evicted)
      }
    }
    memory.note(resident: resident, channels: channels)
    startDelayedLoads()
  }

  /// Has a channel read: now, or when there is room for it. Channels of the log's tail do not wait: they are few at a
  /// time, and what they are made of is in memory already.
  func load(_ request: LoadRequest, as reference: ChannelReference) {
    if case .cid = reference, !loads.mayBeNext(request) || !memory.admits(loading: loads.underWay) {
      counters.loadsDelayed += 1
      loads.delay(request, reference)
      return
    }
    loads.underWay += 1
    driver.load(request, as: reference)
  }

  /// Goes on with loads that waited for room. One always may be under way, so none waits forever.
  private func startDelayedLoads() {
    while memory.admits(loading: loads.underWay), let (request, reference) = loads.next() {
      // The channel may have come into memory another way.
      guard shards[Int(positions[Int(request.shard.rawValue)])].awaits(request, as: reference) else {
        continue
      }
      loads.underWay += 1
      driver.load(request, as: reference)
    }
  }

  /// A channel was read, or could not be. What waited for it is carried out in this turn, or in a later one where much
  /// was done before it.
  package func loaded(
    _ request: LoadRequest,
    as reference: ChannelReference,
    _ result: Result<StoredChannel?, StorageError>
  ) {
    guard !isHalted else { return }
    let arrival = LoadQueue.Arrival(request: request, reference: reference, result: result)
    if entriesLeft > 0, !loads.hasArrived(behind: request.isBehind) {
      takeIn(arrival)
    } else {
      loads.keep(arrival)
    }
    askForSlice()
    endTurn()
  }

  private func takeIn(_ arrival: LoadQueue.Arrival) {
    counters.channelsLoaded += 1
    loads.underWay -= 1
    let position = Int(positions[Int(arrival.request.shard.rawValue)])
    shards[position].loaded(arrival.request, as: arrival.reference, arrival.result)
    // Where memory is short the tail goes on with the next tick: each of its channels leaves again when its pages are
    // written.
    if case .number = arrival.reference, !memory.isPressed {
      shards[position].drainTail(inFlightMax: configuration.tailLoadsMax)
    }
  }

  /// Those that requests wait for first, but one of the others in any case.
  func takeArrived() {
    if let next = loads.arrivedBehind.popFirst() { takeIn(next) }
    while entriesLeft > 0, let next = loads.arrived.popFirst() { takeIn(next) }
    while entriesLeft > 0, let next = loads.arrivedBehind.popFirst() { takeIn(next) }
  }

  /// Steps were read, or could not be. The request that waited for them is carried out in this turn.
  package func stepsRead(_ request: StepRequest, _ result: Result<[StoredSegment], StorageError>) {
    guard !isHalted else { return }
    shards[Int(positions[Int(request.shard.rawValue)])].stepsRead(request, result)
    endTurn()
  }

  /// Channels were peeked at. What waited for nothing else is answered in this turn.
  package func peeked(_ request: PeekRequest, _ results: [Peeked]) {
    guard !isHalted else { return }
    shards[Int(positions[Int(request.shard.rawValue)])].peeked(request, results)
    endTurn()
  }
}
