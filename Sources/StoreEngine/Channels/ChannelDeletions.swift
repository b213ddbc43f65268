internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// A sliced deletion: the channel has more users than one turn has room for. Each turn queues membership removals for
/// some of them. Meanwhile requests do not find the channel, but its name is not free yet. The log is kept from the
/// start of the deletion, so that a restart resumes it.
struct SlicedChannelDeletion {
  let slot: ChannelSlot
  /// Batch in which the deletion began.
  let index: LogIndex
  /// Number of the last membership change before those of the deletion.
  let before: UInt64
  var scan = ShardState.MembershipScan()
  /// Whether the channel may be held after its last slice. It may not if a user was erased since the deletion began:
  /// the erasure has not found the channel among the user's any more.
  var mayBeHeld = false
}

/// Deletions of channels, in their stages: slices, for a channel with many users; a hold, while consumers of the feed
/// need the channel's names; a drop, while its pages are still on storage.
final class ChannelDeletions: ShardPart {
  private var drops = PendingDrops()
  /// Channels whose deletion runs in slices; the first has the next turn.
  private var slicedDeletions: Deque<SlicedChannelDeletion> = []

  /// Last deletion so far. A reply that a channel does not exist may leave when it is durable.
  var last: LogIndex { drops.last }
  /// Whether pages of a deleted channel are still on storage.
  var hasDrops: Bool { !drops.isEmpty }
  var hasSliced: Bool { !slicedDeletions.isEmpty }

  /// Channels that were not in memory when their hold ended, each with a number of loads: until the channel's drop is
  /// on storage and the loads from before then have ended, a load may still have read the channel.
  private var endedUnloaded: [ChannelNumber: UInt32] = [:]

  /// Return whether a channel that was read is gone since: the hold of its deletion has ended.
  func hasEndedUnloaded(_ number: ChannelNumber) -> Bool { !endedUnloaded.isEmpty && endedUnloaded[number] != nil }

  /// Oldest deletion that holds the log: its slices have not ended, or its pages are still on storage.
  var oldest: LogIndex? {
    let oldest = drops.oldest
    return slicedDeletions.reduce(oldest) { min($0 ?? $1.index, $1.index) }
  }

  /// Return the batch that deleted a channel of this name, if the channel is known to be gone whatever storage holds.
  func index(absent cid: [UInt8]) -> LogIndex? { drops.index(absent: cid) }

  /// Record that a channel of this name was created again.
  func nameReused(_ cid: String) { drops.nameReused(cid) }

  /// Return whether a channel's deletion has slices left, so that it must stay in memory. A held one has none.
  func hasSlicesLeft(_ slot: ChannelSlot) -> Bool {
    shard.state[slot].isBeingDeleted && shard.state.consumers.heldDeletion(of: shard.state[slot].number) == nil
  }

  /// Drop the deletions in progress, which the next start resumes.
  override func stop() { slicedDeletions = [] }

  /// Delete a channel in memory with the open batch.
  func end(_ slot: ChannelSlot, _ number: ChannelNumber, _ cid: String, at index: LogIndex) {
    shard.waiting.refuseSliced(slot)
    if !shard.events.isUnwatched { shard.events.recordDeletion(slot) }
    shard.removeDeleted(slot, cid: cid)
    drop(number, cid, at: index)
  }

  /// Delete a channel whose deletion is in the log's tail: the tail's other effects on it are not needed.
  func dropFromTail(_ number: ChannelNumber, _ cid: String, at index: LogIndex) {
    shard.tail.remove(number, cid: Array(cid.utf8))
    drop(number, cid, at: index)
  }

  private func drop(_ number: ChannelNumber, _ cid: String, at index: LogIndex) {
    if drops.isEmpty { shard.loop.commits.registerDrops(of: shard) }
    let drop = LoopCommit.Drop(shard: shard.state.id, channel: number, cid: Array(cid.utf8))
    drops.append(drop, at: index)
  }

  /// Add the drops whose deletion is durable.
  func takeDrops(into commit: inout LoopCommit) { commit.drops += drops.take(durable: shard.log.durable) }

  /// Complete the drops of the commit that has just become durable.
  func dropsCommitted() { drops.committed() }

  // MARK: Absent channels

  /// Return whether a channel that is not in memory was deleted, and may still be on storage.
  func isDeleted(_ cid: RawSpan) -> Bool { deletedIndex(cid) != nil }

  private func deletedIndex(_ cid: RawSpan) -> LogIndex? {
    drops.isEmpty ? nil : drops.index(absent: cid.withUnsafeBytes { Array($0) })
  }

  /// Return the earliest timing of a reply that a channel does not exist: when its deletion is durable.
  func replyTiming(absent cid: RawSpan) -> ReplyLane.Timing { shard.replyTiming(deletedIndex(cid) ?? .zero) }

  // MARK: Start

  /// Delete a channel at once, or, if it has many users, with the last slice. The reply leaves when that is durable.
  /// A duplicate is answered like its original, even if another channel has the name by now.
  func deleteChannel(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    try request.fields.end()
    guard !request.isDuplicate else {
      return shard.reply(request, shard.replyTiming(slot)) { $0.writeFlag(true) }
    }
    guard !shard.state.outbox.isFull else { return OutgoingChanges.refusedFull }
    shard.advanceTime()
    let index = shard.log.openBatchIndex
    var scan = ShardState.MembershipScan()
    let (number, cid) = (shard.state[slot].number, shard.state[slot].cid)
    let isDone = decideDeletionSlice(slot, &scan, mayBeHeld: true, into: &request.effects)
    // From here on the command counts as applied: a duplicate is answered when the deletion that it began has finished.
    shard.applyCommand(slot, request)
    guard !isDone else {
      if shard.state.consumers.heldDeletion(of: number) != nil, let slot = shard.state.slot(named: cid) {
        shard.waiting.refuseSliced(slot)
        limitHolds()
      }
      return shard.outgoing.replyWhenIndexed(request, index) { $0.writeFlag(true) }
    }
    slicedDeletions.append(
      SlicedChannelDeletion(slot: slot, index: index, before: request.outboxBefore, scan: scan, mayBeHeld: true)
    )
    shard.waiting.refuseSliced(slot)
    shard.loop.slices.queueForWork(shard)
    return shard.waiting.add(request.header, request.lane, for: .deletion(slot))
  }

  /// Resume the deletion of a channel that was loaded.
  ///
  /// - Parameter index: log index at which the deletion began.
  func resume(_ slot: ChannelSlot, at index: LogIndex) {
    guard hasSlicesLeft(slot) else { return }
    slicedDeletions.append(SlicedChannelDeletion(slot: slot, index: index, before: shard.state.outbox.last))
    if !shard.loop.isFollowing { shard.loop.slices.queueForWork(shard) }
  }

  // MARK: Holds

  /// Number of the first record that needs no names of a channel whose deletion ends now; nil: no consumer has records
  /// to commit before it. Until then the channel is held, so that they are told (R21).
  private var namesNeededBefore: UInt64? {
    guard shard.feed.isOn else { return nil }
    let number = shard.feed.nextNumber
    return shard.state.consumers.isBehind(number) ? number : nil
  }

  /// End the holds that no consumer needs any more, or all of them while the feed is off: some in each tick.
  func tick() {
    forgetEndedUnloaded()
    guard shard.state.consumers.hasHeldDeletions, !shard.isBatchFull else { return }
    let unneeded =
      shard.feed.isOn
      ? shard.state.consumers.unneededDeletions(first: shard.feed.first) : shard.state.consumers.heldDeletions
    for deletion in unneeded.prefix(Self.endsPerTick) { endHold(deletion) }
  }

  private static let endsPerTick = 64

  /// Forget the channels that no load can have read any more.
  private func forgetEndedUnloaded() {
    guard !endedUnloaded.isEmpty, !hasDrops else { return }
    let last = shard.loads.lastLoadID
    // Their drops are on storage by now, so later loads do not find them.
    for (channel, load) in endedUnloaded where load == .max { endedUnloaded[channel] = last }
    let oldest = shard.loads.oldestInFlight ?? .max
    endedUnloaded = endedUnloaded.filter { $0.value >= oldest }
  }

  /// End all holds: a user is erased whose id their channels may have. Consumers that have not come so far are told a
  /// gap.
  func endAllHolds() {
    for deletion in shard.state.consumers.heldDeletions { endHold(deletion) }
    for index in slicedDeletions.indices { slicedDeletions[index].mayBeHeld = false }
  }

  /// Record that consumers that are behind have lost the names of a channel, if it is deleted without a hold.
  private func recordLostNames(into effects: inout [Effect]) {
    guard case .channel(_, .channelDeleted)? = effects.last else { return }
    shard.state.consumers.decideNamesLost(before: shard.feed.nextNumber, into: &effects)
  }

  private func limitHolds() {
    if let deletion = shard.state.consumers.surplusDeletion { endHold(deletion) }
  }

  /// End the hold of a deletion: the channel is gone, and its name is free.
  private func endHold(_ deletion: HeldDeletion) {
    shard.advanceTime()
    let slot = shard.state.slot(numbered: deletion.channel)
    if slot == nil { endedUnloaded[deletion.channel] = .max }
    var effects: [Effect] = []
    shard.state.consumers.decideEnd(deletion, into: &effects)
    shard.applyEffects(effects, to: slot)
  }

  /// Record that a deletion is held: it has no further slices.
  func recordHold(_ channel: ChannelNumber) {
    guard !slicedDeletions.isEmpty else { return }
    slicedDeletions.removeAll { shard.state[$0.slot].number == channel }
  }

  // MARK: Following

  /// Record the end of a deletion that the owner has run in slices. The log is no longer kept for it.
  func followEnd(_ slot: ChannelSlot) {
    if !slicedDeletions.isEmpty { slicedDeletions.removeAll { $0.slot == slot } }
  }

  /// Resume the deletions that the previous owner has begun and not ended, as after a start.
  func promote() {
    for index in slicedDeletions.indices {
      let begun = slicedDeletions[index]
      slicedDeletions[index] = SlicedChannelDeletion(
        slot: begun.slot,
        index: begun.index,
        before: shard.state.outbox.last
      )
    }
    if hasSliced { shard.loop.slices.queueForWork(shard) }
  }

  // MARK: Slices

  /// Decide one slice, limited by the room in this turn and in the outbox.
  private func decideDeletionSlice(
    _ slot: ChannelSlot,
    _ scan: inout ShardState.MembershipScan,
    mayBeHeld: Bool,
    into effects: inout [Effect]
  ) -> Bool {
    let granted = min(shard.loop.budget.changes, shard.configuration.changesPendingMax - shard.state.outbox.count)
    var remaining = max(0, granted)
    let isDone = shard.state.decideDelete(
      channel: slot,
      &scan,
      limit: &remaining,
      namesNeededBefore: mayBeHeld ? namesNeededBefore : nil,
      into: &effects
    )
    if isDone { recordLostNames(into: &effects) }
    shard.loop.budget.useChanges(max(0, granted) - max(0, remaining))
    return isDone
  }

  /// Run one slice of each deletion, while this turn has room. Uses at most half of the outbox and resumes when it
  /// drains: the rest is for members who join now.
  func resume() {
    for _ in 0..<slicedDeletions.count {
      guard shard.loop.budget.changes > 0, !shard.isBatchFull else {
        return shard.loop.slices.queueForWork(shard)
      }
      guard shard.state.outbox.count < shard.configuration.changesPendingMax, var deletion = slicedDeletions.popFirst()
      else {
        return
      }
      var effects: [Effect] = []
      let index = shard.log.openBatchIndex
      let isDone = decideDeletionSlice(
        deletion.slot,
        &deletion.scan,
        mayBeHeld: deletion.mayBeHeld,
        into: &effects
      )
      if !effects.isEmpty { shard.applyEffects(effects, to: deletion.slot) }
      guard isDone else {
        slicedDeletions.append(deletion)
        continue
      }
      limitHolds()
      for requester in shard.waiting.take(.deletion(deletion.slot)) {
        _ = shard.outgoing.replyWhenIndexed(
          requester.header,
          requester.lane,
          index,
          after: deletion.before
        ) { $0.writeFlag(true) }
      }
    }
    if !slicedDeletions.isEmpty { shard.loop.slices.queueForWork(shard) }
  }

  // MARK: Requests

  /// Perform a request about a channel that is being deleted: the channel counts as absent, but its name is not free
  /// yet.
  func performDuringDeletion(
    _ request: inout Request,
    _ onAbsent: AbsentChannelAction,
    _ slot: ChannelSlot
  ) throws(WireError) -> Outcome {
    switch request.kind {
    case .deleteChannel:
      guard request.isDuplicate, slicedDeletions.contains(where: { $0.slot == slot }) else {
        return try shard.performAbsent(&request, onAbsent, shard.replyTiming(slot))
      }
      try request.fields.end()
      return shard.waiting.add(request.header, request.lane, for: .deletion(slot))
    case .putChannel, .importChannel:
      if let deletion = shard.state.consumers.heldDeletion(of: shard.state[slot].number) {
        let cid = Array(deletion.cid.utf8)
        let hold = (deletion, slot)
        return request.kind == .putChannel
          ? try shard.putChannel(&request, cid: cid.span.bytes, nil, ending: hold)
          : try shard.importChannel(&request, cid: cid.span.bytes, nil, ending: hold)
      }
      return .refused(.busy, retryAfterMilliseconds: 100, "a channel of this name is being deleted")
    default:
      return try shard.performAbsent(&request, onAbsent, shard.replyTiming(slot))
    }
  }
}

/// Deleted channels whose pages are still on storage. The pages are dropped once the deletion is durable. Until then
/// the channels' names are not looked up on storage, and the log is kept, so that a restart deletes the channels again.
struct PendingDrops {
  private struct Deletion {
    var index: LogIndex
    var drop: LoopCommit.Drop
  }

  /// Channels to drop, in log order.
  private var waiting: [Deletion] = []
  /// Channels that the commit in flight drops.
  private var inFlight: [Deletion] = []
  /// By cid, unless another channel has the name by now: the batch of the deletion, and the channel's number.
  private var absent: [[UInt8]: (index: LogIndex, channel: ChannelNumber)] = [:]

  var isEmpty: Bool { waiting.isEmpty && inFlight.isEmpty }

  /// Oldest deletion that is still to be dropped on storage.
  var oldest: LogIndex? { inFlight.first?.index ?? waiting.first?.index }

  /// Last deletion so far. A reply that a channel does not exist may leave when it is durable.
  private(set) var last = LogIndex.zero

  mutating func append(_ drop: LoopCommit.Drop, at index: LogIndex) {
    waiting.append(Deletion(index: index, drop: drop))
    absent[drop.cid] = (index, drop.channel)
    last = index
  }

  /// Record that a channel of this name was created again.
  mutating func nameReused(_ cid: String) {
    if !absent.isEmpty { absent[Array(cid.utf8)] = nil }
  }

  /// Return the batch that deleted a channel of this name, if the channel is known to be gone whatever storage holds.
  func index(absent cid: [UInt8]) -> LogIndex? { absent.isEmpty ? nil : absent[cid]?.index }

  /// Take the drops whose deletion is durable.
  mutating func take(durable: LogIndex) -> [LoopCommit.Drop] {
    let count = waiting.prefix { $0.index <= durable }.count
    inFlight += waiting.prefix(count)
    waiting.removeFirst(count)
    return inFlight.map(\.drop)
  }

  /// Complete the drops of a commit: from here on storage no longer finds these channels.
  mutating func committed() {
    for deletion in inFlight where absent[deletion.drop.cid]?.channel == deletion.drop.channel {
      absent[deletion.drop.cid] = nil
    }
    inFlight.removeAll(keepingCapacity: true)
  }
}
