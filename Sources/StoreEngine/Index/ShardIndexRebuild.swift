internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Rebuild of users' indexes from the channels (R13, R14), in slices with requests in between.
final class ShardIndexRebuild: ShardPart {
  private var rebuild: RebuildScan?
  /// The part of a rebuild that finished last since the start.
  private var lastRebuild: RebuildIndexReply?

  /// Slots that one slice scans.
  private static let slotsPerSlice = 1_024

  var isRunning: Bool { rebuild != nil }

  /// Return whether the rebuild is scanning the channel or index in a slot, which must stay in memory.
  func isScanning(_ slot: ChannelSlot) -> Bool { rebuild?.slot == slot }

  /// Return whether the rebuild waits for this load.
  func isLoading(_ reference: ChannelReference) -> Bool {
    guard case .loading(let name, _)? = rebuild?.stage else { return false }
    return reference == .cid(name)
  }

  // MARK: The request

  /// Start a phase, or report its progress if it is running or has ended. The driver of a rebuild repeats the request
  /// for a phase until the phase is done.
  func rebuildIndex(_ request: inout Request) throws(WireError) -> Outcome {
    let fields = try RebuildIndexRequest(&request.fields)
    let epoch = fields.epoch
    guard let phase = RebuildIndexReply.Phase(rawValue: fields.phase) else {
      return .refused(.invalidField, "phase: 0 (ask), 1 (send again), 2 (sweep)")
    }
    if phase == .none {
      guard epoch == 0 else { return .refused(.invalidField, "epoch: 0 with phase 0") }
    } else if !isUnderWay(phase, epoch), !isFinished(phase, epoch) {
      guard rebuild == nil else {
        return .refused(.busy, retryAfterMilliseconds: 1_000, "another rebuild is in progress")
      }
      guard epoch > 0, epoch >= shard.state.outbox.epoch, epoch <= Outbox.numberMax else {
        return .refused(.invalidField, "epoch: at least \(max(1, shard.state.outbox.epoch))")
      }
      begin(phase, epoch)
    }
    let progress = rebuild?.fields ?? finishedFields
    return shard.reply(request, shard.replyTiming(shard.log.last)) { progress.write(into: &$0) }
  }

  private func isUnderWay(_ phase: RebuildIndexReply.Phase, _ epoch: UInt64) -> Bool {
    rebuild.map { $0.phase == phase && $0.epoch == epoch } ?? false
  }

  private func isFinished(_ phase: RebuildIndexReply.Phase, _ epoch: UInt64) -> Bool {
    rebuild == nil && lastRebuild.map { $0.phase == phase && $0.epoch == epoch } ?? false
  }

  /// Progress while no rebuild runs: that of the last finished phase, or none since the start.
  private var finishedFields: RebuildIndexReply {
    var fields =
      lastRebuild
      ?? RebuildIndexReply(
        phase: .none,
        epoch: shard.state.outbox.epoch,
        channelsDone: 0,
        channels: shard.state.nextChannel.rawValue - 1,
        entries: 0
      )
    fields.phase = .none
    return fields
  }

  private func begin(_ phase: RebuildIndexReply.Phase, _ epoch: UInt64) {
    if epoch > shard.state.outbox.epoch {
      shard.applyEffects([.shard(.indexEpochAssigned(epoch))], to: nil)
    }
    rebuild = RebuildScan(phase: phase, epoch: epoch, end: shard.state.nextChannel)
    shard.loop.slices.queueForWork(shard)
  }

  // MARK: Running

  /// Run one slice. Results of reads come back to it.
  func resume() {
    var slots = Self.slotsPerSlice
    while shard.loop.budget.changes > 0, let stage = rebuild?.stage {
      switch stage {
      case .looking:
        guard shard.loop.elapsedMilliseconds >= rebuild?.retryAt ?? 0, examine(&slots) else { return }
      case .naming:
        return
      case .loading(let name, let number):
        guard arrived(name, number) else { return }
      case .queuing(let slot, let number, var scan):
        // Use at most half of the outbox; the rest is for members who join now.
        guard shard.state.outbox.count < shard.configuration.changesPendingMax else { return }
        requeueMemberships(slot, number, &scan)
      case .sweeping(let slot, let number, var position): sweep(slot, number, &position)
      case .sending(let through):
        guard shard.outgoing.areConfirmed(through: through) else { return }
        lastRebuild = rebuild?.fields
        rebuild = nil
      }
    }
    if rebuild != nil { shard.loop.slices.queueForWork(shard) }
  }

  /// Find the next channel or index, in memory, then on storage.
  ///
  /// - Returns: false if that takes another turn.
  private func examine(_ slots: inout Int) -> Bool {
    guard let end = rebuild?.end else { return false }
    while let next = rebuild?.nextSlot, next < shard.state.slotCount {
      guard slots > 0 else {
        shard.loop.slices.queueForWork(shard)
        return false
      }
      slots -= 1
      rebuild?.nextSlot += 1
      let slot = ChannelSlot(UInt32(next))
      if shard.state.isLoaded(slot), shard.state[slot].number.rawValue < end, start(slot) { return true }
    }
    while let next = rebuild?.nextNumber, next < end {
      guard slots > 0 else {
        shard.loop.slices.queueForWork(shard)
        return false
      }
      slots -= 1
      rebuild?.nextNumber += 1
      if rebuild?.isDone(next) == false { return read(ChannelNumber(next)) }
    }
    if rebuild?.isSecondRound == false, rebuild?.missing.isEmpty == false {
      rebuild?.isSecondRound = true
      rebuild?.nextSlot = 0
      return true
    }
    if let next = rebuild?.missing.popLast() {
      return rebuild?.isDone(next) == false ? read(ChannelNumber(next)) : true
    }
    let through = rebuild?.phase == .resending ? shard.state.outbox.last : 0
    rebuild?.stage = .sending(through: through)
    return true
  }

  /// Read a channel for its name; always false, because that takes another turn.
  private func read(_ number: ChannelNumber) -> Bool {
    let reference = ChannelReference.number(number)
    guard !shard.loads.isInFlight(reference) else {
      // A channel of the log's tail, which is being loaded already.
      retryLater(number)
      return false
    }
    rebuild?.stage = .naming(number)
    shard.loads.load(reference, isForName: true, isBackground: true)
    return false
  }

  private func retryLater(_ number: ChannelNumber) {
    rebuild?.missing.append(number.rawValue)
    rebuild?.stage = .looking
    rebuild?.retryAt = shard.loop.elapsedMilliseconds + shard.configuration.changesRetryMilliseconds
  }

  /// Handle the read of a channel for its name, or its failure.
  func nameRead(_ reference: ChannelReference, _ result: Result<StoredChannel?, StorageError>) {
    guard case .number(let number) = reference, case .naming(number)? = rebuild?.stage else { return }
    do throws(StorageError) {
      let stored = try result.get()
      rebuild?.stage = .looking
      guard let name = try shard.loads.name(of: number, stored) else {
        // Deleted long ago, or in memory only.
        if rebuild?.isSecondRound == true {
          rebuild?.markDone(number.rawValue)
        } else {
          rebuild?.missing.append(number.rawValue)
        }
        return
      }
      rebuild?.stage = .loading(name, number)
      let isWanted =
        IndexName.isIndex(name) == (rebuild?.phase == .sweeping) && shard.deletions.index(absent: name) == nil
      if !isWanted {
        finishRebuilding(number)
      } else if shard.state.slot(named: name) == nil {
        let reference = ChannelReference.cid(name)
        if !shard.loads.isInFlight(reference) { shard.loads.load(reference, isBackground: true) }
      }
    } catch {
      shard.loop.driver.reportError(error)
      if case .failed = error { retryLater(number) } else { finishRebuilding(number) }
    }
  }

  /// Handle the end of a load by name.
  ///
  /// - Returns: false if the load is still in flight.
  private func arrived(_ name: [UInt8], _ number: ChannelNumber) -> Bool {
    if let slot = shard.state.slot(named: name), shard.state[slot].number == number {
      rebuild?.stage = .looking
      if !start(slot) { finishRebuilding(number) }
      return true
    }
    guard !shard.loads.isInFlight(.cid(name)) else { return false }
    // Deleted meanwhile, or the name belongs to another channel now.
    finishRebuilding(number)
    return true
  }

  /// Handle a failed load by name.
  func recordUnreadable(_ reference: ChannelReference, _ error: StorageError) {
    guard case .loading(let name, let number)? = rebuild?.stage, reference == .cid(name) else { return }
    if case .failed = error { retryLater(number) } else { finishRebuilding(number) }
  }

  private func finishRebuilding(_ number: ChannelNumber) {
    rebuild?.markDone(number.rawValue)
    rebuild?.stage = .looking
  }

  /// Start on the channel or index in a slot.
  ///
  /// - Returns: whether there is anything to do.
  private func start(_ slot: ChannelSlot) -> Bool {
    let number = shard.state[slot].number
    guard let rebuild, !rebuild.isDone(number.rawValue) else { return false }
    // The deletion already notifies the channel's users.
    guard !shard.state[slot].isBeingDeleted else {
      finishRebuilding(number)
      return false
    }
    switch (rebuild.phase, shard.state[slot].isIndex) {
    case (.resending, false):
      self.rebuild?.stage = .queuing(slot, number, ShardState.MembershipScan())
    case (.sweeping, true):
      self.rebuild?.stage = .sweeping(slot, number, position: 0)
    default:
      finishRebuilding(number)
      return false
    }
    return true
  }

  private func requeueMemberships(
    _ slot: ChannelSlot,
    _ number: ChannelNumber,
    _ scan: inout ShardState.MembershipScan
  ) {
    guard shard.state.isLoaded(slot), shard.state[slot].number == number, !shard.state[slot].isBeingDeleted
    else {
      return finishRebuilding(number)
    }
    var effects: [Effect] = []
    var remaining = shard.loop.budget.changes
    let isDone = shard.state.decideRequeueMemberships(slot, &scan, limit: &remaining, into: &effects)
    shard.loop.budget.useChanges(max(1, shard.loop.budget.changes - remaining))
    rebuild?.entries += UInt64(effects.count)
    if !effects.isEmpty { shard.applyEffects(effects, to: nil) }
    if isDone { finishRebuilding(number) } else { rebuild?.stage = .queuing(slot, number, scan) }
  }

  private func sweep(_ slot: ChannelSlot, _ number: ChannelNumber, _ position: inout UInt32) {
    guard let epoch = rebuild?.epoch, shard.state.isLoaded(slot), shard.state[slot].number == number else {
      return finishRebuilding(number)
    }
    var effects: [Effect] = []
    let first = position
    let limit = shard.loop.budget.changes
    let isDone = shard.state.decideRemoveUnconfirmed(slot, from: &position, epoch: epoch, limit: limit, into: &effects)
    shard.loop.budget.useChanges(max(1, Int(position - first)))
    rebuild?.entries += UInt64(position - first)
    if !effects.isEmpty {
      shard.loop.counters.indexEntries += UInt64(effects.count)
      shard.applyEffects(effects, to: slot)
    }
    if isDone {
      finishRebuilding(number)
    } else {
      rebuild?.stage = .sweeping(slot, number, position: position)
    }
  }
}

/// One phase of an index rebuild, running in one shard. The first phase scans every channel and queues its memberships
/// again; the second scans every index and removes unconfirmed entries. It scans memory first, by slot, then the rest,
/// by number: each is read by number for its name, then loaded by name as for a request.
struct RebuildScan {
  enum Stage {
    /// Find the next slot or number.
    case looking
    /// Reading a channel by number, for its name.
    case naming(ChannelNumber)
    /// Loading a channel by name.
    case loading([UInt8], ChannelNumber)
    case queuing(ChannelSlot, ChannelNumber, ShardState.MembershipScan)
    case sweeping(ChannelSlot, ChannelNumber, position: UInt32)
    /// The scan is complete; changes up to this one must still reach the index.
    case sending(through: UInt64)
  }

  var phase: RebuildIndexReply.Phase
  var epoch: UInt64
  /// Channels with numbers below this are scanned; later ones already have the new epoch.
  let end: UInt64
  var stage = Stage.looking
  var nextSlot = 0
  var nextNumber: UInt64 = 1
  /// Numbers that were found nowhere, and are scanned once more: a channel of the log's tail that was loaded meanwhile
  /// may be in memory only, in a slot that the scan has passed.
  var missing: [UInt64] = []
  var isSecondRound = false
  /// Completed numbers, one bit each.
  private var done: [UInt64]
  private(set) var doneCount: UInt64 = 0
  var entries: UInt64 = 0
  /// When to retry a failed read, in the loop's elapsed time.
  var retryAt: Int64 = 0

  init(phase: RebuildIndexReply.Phase, epoch: UInt64, end: ChannelNumber) {
    self.phase = phase
    self.epoch = epoch
    self.end = end.rawValue
    done = Array(repeating: 0, count: Int(end.rawValue / 64) + 1)
  }

  /// The slot that is being scanned, which must stay in memory.
  var slot: ChannelSlot? {
    switch stage {
    case .queuing(let slot, _, _), .sweeping(let slot, _, _): slot
    case .looking, .naming, .loading, .sending: nil
    }
  }

  func isDone(_ number: UInt64) -> Bool { done[Int(number / 64)] >> (number % 64) & 1 != 0 }

  mutating func markDone(_ number: UInt64) {
    guard !isDone(number) else { return }
    done[Int(number / 64)] |= 1 << (number % 64)
    doneCount += 1
  }

  var fields: RebuildIndexReply {
    RebuildIndexReply(phase: phase, epoch: epoch, channelsDone: doneCount, channels: end - 1, entries: entries)
  }
}
