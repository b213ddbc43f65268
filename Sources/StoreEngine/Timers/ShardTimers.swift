internal import HeapModule
internal import ReceiptModel

/// The timers of a shard's messages: reminders (R22) and the expiry of acknowledgement requests (R9). When a timer is
/// due, its records go into the feed, in the batch that removes it: so they are told once.
final class ShardTimers: ShardPart {
  /// The pending timers, next one first. Empty while the shard follows another one's log.
  private var order = Heap<Entry>()
  /// Due timers whose channels are being loaded.
  private var loading: [ChannelNumber: [UInt64]] = [:]
  /// Number of channels that are loaded at a time for timers.
  private static let loadingMax = 64

  private struct Entry: Comparable {
    var dueAt: Timestamp
    var number: UInt64

    static func < (a: Entry, b: Entry) -> Bool { (a.dueAt, a.number) < (b.dueAt, b.number) }
  }

  /// Size in bytes, of the timers in the model too.
  var byteCount: Int { shard.state.timers.byteCount + order.count * MemoryLayout<Entry>.stride }

  override func beginToServe() {
    var entries: [Entry] = []
    entries.reserveCapacity(shard.state.timers.count)
    shard.state.timers.forEach { entries.append(Entry(dueAt: $1.dueAt, number: $0)) }
    order = Heap(entries)
  }

  override func stop() {
    order = Heap()
    loading = [:]
  }

  /// Schedule a timer that was just assigned.
  func added(_ number: UInt64, _ timer: MessageTimer) {
    guard !shard.loop.isFollowing else { return }
    order.insert(Entry(dueAt: timer.dueAt, number: number))
  }

  /// Tell what is due, as far as this turn has room. The rest follows in later slices.
  func resume() {
    guard let next = order.min, next.dueAt <= shard.state.time else { return }
    loop: while let next = order.min, next.dueAt <= shard.state.time {
      guard shard.loop.budget.rows > 0, !shard.isBatchFull else { return shard.loop.slices.queueForWork(shard) }
      guard let timer = shard.state.timers[next.number] else {
        order.removeMin()
        continue
      }
      order.removeMin()
      if let slot = shard.state.slot(numbered: timer.channel) {
        tell(next.number, timer, slot)
      } else if !load(timer.channel, for: next.number) {
        // The loads in progress, or the next tick, resume.
        order.insert(next)
        break loop
      }
    }
  }

  private func tell(_ number: UInt64, _ timer: MessageTimer, _ slot: ChannelSlot) {
    // While the feed is off there is nobody to tell; its consumers get a gap.
    if shard.feed.isOn {
      shard.recordUse(of: slot)
      shard.feed.append(due: shard.dueRecords(of: timer, in: slot))
    }
    remove(number)
  }

  private func remove(_ number: UInt64) { shard.applyEffects([.shard(.timerRemoved(number))], to: nil) }

  // MARK: Channels that are not in memory

  /// Load the channel of a due timer, by its number: its name is looked up first.
  ///
  /// - Returns: whether the timer waits for the load, or is removed; false: there are too many loads.
  private func load(_ channel: ChannelNumber, for number: UInt64) -> Bool {
    guard shard.feed.isOn else {
      remove(number)
      return true
    }
    if loading[channel] != nil {
      loading[channel]?.append(number)
      return true
    }
    guard loading.count < Self.loadingMax else { return false }
    loading[channel] = [number]
    if let head = shard.tail.head(of: channel) {
      load(channel, Array(head.cid.utf8))
    } else {
      wait(channel, for: .head(channel))
    }
    return true
  }

  private func load(_ channel: ChannelNumber, _ cid: [UInt8]) {
    guard shard.loads.mayLoad(lookedUp: cid) else { return finish(channel) }
    wait(channel, for: .cid(cid))
  }

  private func wait(_ channel: ChannelNumber, for reference: ChannelReference) {
    if !shard.loads.isInFlight(reference) { shard.loads.load(reference, isBackground: true) }
    shard.loads.add(.timers(channel), to: reference)
  }

  /// Continue with the name of a channel; nil: there is no such channel any more.
  func nameRead(_ channel: ChannelNumber, _ cid: [UInt8]?) {
    guard loading[channel] != nil else { return }
    if let cid, shard.state.slot(numbered: channel) == nil { load(channel, cid) } else { finish(channel) }
  }

  /// Tell the due timers of a channel whose load has ended.
  func loaded(_ channel: ChannelNumber) { finish(channel) }

  /// Try again later.
  func unreadable(_ channel: ChannelNumber) {
    for number in loading.removeValue(forKey: channel) ?? [] {
      guard let timer = shard.state.timers[number] else { continue }
      order.insert(Entry(dueAt: max(timer.dueAt, retryTime), number: number))
    }
  }

  private var retryTime: Timestamp {
    Timestamp(milliseconds: shard.state.time.milliseconds + Self.retryMilliseconds)
  }

  private static let retryMilliseconds: Int64 = 10_000

  /// Tell the timers of a channel that is in memory, or does not exist any more: the first one now, because the channel
  /// may be evicted again, the others as far as this turn has room.
  private func finish(_ channel: ChannelNumber) {
    let slot = shard.state.slot(numbered: channel)
    for (index, number) in (loading.removeValue(forKey: channel) ?? []).enumerated() {
      guard let timer = shard.state.timers[number] else { continue }
      if slot != nil, index > 0 {
        order.insert(Entry(dueAt: timer.dueAt, number: number))
      } else if let slot {
        tell(number, timer, slot)
      } else {
        remove(number)
      }
    }
    resume()
  }
}
