internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// One running shard: its state, its log, its dirty pages and its pending requests. A shard lives on one event loop and
/// does no I/O: it asks its ``StoreLoop`` for every read and write.
final class ShardEngine {
  var state: ShardState
  let shardCount: Int
  /// Position of the shard among the shards of its loop.
  let position: Int
  let configuration: StoreLoopConfiguration
  /// Unchecked for speed: the loop owns its shards, and every request uses this reference several times.
  unowned(unsafe) let loop: StoreLoop

  var log = ShardLog()
  /// Effects that recovery found in the log, for channels that are not in memory yet.
  var tail = LogTail()
  var sessions = SessionTable()
  var dirty = DirtyPages()
  var eviction = EvictionClock()
  /// Effects of the current command; kept for its capacity.
  var effects: [Effect] = []
  /// Set while the loop has this shard queued for more index work.
  var isQueuedForWork = false

  // Parts
  let waiting = WaitingRequests()
  let loads = ChannelLoads()
  let steps = StepSegments()
  let deletions = ChannelDeletions()
  let scans = ChannelScans()
  let indexes = UserIndexes()
  let outgoing = OutgoingChanges()
  let rebuilds = IndexRebuilds()
  let unreadQueries = UnreadQueries()
  let purges = PurgeRounds()
  let events = ShardEvents()
  let settings = SettingsRequests()
  let tokens = TokenRequests()
  let push = PushRequests()

  init(
    id: ShardID,
    shardCount: Int,
    position: Int,
    configuration: StoreLoopConfiguration,
    loop: StoreLoop,
    stored: StoredShard
  ) throws(StorageError) {
    self.state = ShardState(id: id, shardCount: shardCount)
    self.shardCount = shardCount
    self.position = position
    self.configuration = configuration
    self.loop = loop
    let parts: [ShardPart] = [
      waiting, loads, steps, deletions, scans, indexes, outgoing, rebuilds, unreadQueries, purges,
      events, settings, tokens, push,
    ]
    for part in parts { part.attach(to: self) }
    assert(
      Mirror(reflecting: self).children.allSatisfy { ($0.value as? ShardPart)?.isAttached != false },
      "a part is missing in `parts`"
    )
    try recover(stored)
    events.recovered(at: log.durableTime)
    settings.findUnreplicatedUsers()
    outgoing.recovered(through: state.outbox.last)
  }

  /// Whether the gathering batch is full: sliced work adds nothing more to it.
  var isBatchFull: Bool { log.gatheredEffects >= configuration.sliceEffects }

  // MARK: Applying effects

  /// Assign the decided effects, append them to the gathering batch and mark their pages dirty.
  ///
  /// - Returns: the slot of the effects' channel; a new slot if the effects created the channel.
  @discardableResult
  func applyEffects(_ slot: ChannelSlot?, session: Int32?) -> ChannelSlot? {
    var slot = slot
    let index = log.gatheringIndex
    var cutPage: UInt32?
    var changesMessageCounts = false
    var bringsWideIDs = false
    let begins = !log.isGathering
    for effect in effects {
      if !events.isUnwatched { events.record(effect, slot) }
      if isFirstWideID(effect) { bringsWideIDs = true }
      switch effect {
      case .channel(let number, let effect):
        if effect.traits.contains(.changesMessageCounts) { changesMessageCounts = true }
        switch effect {
        case .stepTailCut(let rowPage, _): cutPage = rowPage
        case .stepsTrimmed(let rowPage, let first):
          steps.recordTrim(slot!, number, rowPage, before: first, at: index)
        case .messageDeleted, .truncated:
          for sequence in state[slot!].receiptsEmptied(by: effect) { touch(slot, .receipts(sequence), index) }
        case .deletionBegun: if !events.isUnwatched { events.recordDeletion(slot!) }
        default: break
        }
        slot = assign(effect, on: number, to: slot, at: index)
      case .shard(let effect):
        if case .membershipsSent(let target, let number) = effect { touchAcknowledged(target, number, index) }
        state.assign(effect)
        touch(nil, effect.page, index)
      }
      log.append(effect)
    }
    if changesMessageCounts { touch(slot, .head, index) }
    if begins {
      loop.commits.joinNextCommit(self)
      log.begin(at: state.time)
    }
    if bringsWideIDs { requireExtendedIDFormat() }
    if let session { sessions.touch(session) }
    if let cutPage { steps.trimSteps(slot!, cutPage) }
    if scans.hasUnstarted { scans.startAnnouncements() }
    return slot
  }

  /// Assign an effect on a channel and mark its page dirty.
  ///
  /// - Returns: the channel's slot; nil if the effect deleted the channel.
  private func assign(
    _ effect: ChannelEffect,
    on number: ChannelNumber,
    to known: ChannelSlot?,
    at index: LogIndex
  ) -> ChannelSlot? {
    let slot: ChannelSlot
    switch effect {
    case .channelDeleted(let cid):
      deletions.end(known!, number, cid, at: index)
      return nil
    case .channelAssigned(let cid, let created, let own) where known == nil:
      slot = state.insert(number, cid: cid, created: created, own: own)
      dirty.insert(slot)
      eviction.insert(slot)
      deletions.nameReused(cid)
      unreadQueries.entered(state[slot].cid)
      if !events.isUnwatched { events.recordCreation(slot) }
    default:
      slot = known!
      state.assign(effect, to: slot)
      #if DEBUG
        state[slot].assertInvariants(touchedBy: effect)
      #endif
    }
    touch(slot, effect.page, index)
    return slot
  }

  /// Whether an effect brings the shard's first wide id, which older builds reject.
  private func isFirstWideID(_ effect: Effect) -> Bool { !state.hasWideIDs && effect.bringsWideIDs }

  /// Make older builds refuse the directory from here on. The effect goes into the same batch as the first wide id,
  /// and later into the shard's head page.
  private func requireExtendedIDFormat() {
    state.assign(.idsWidened)
    log.append(.shard(.idsWidened))
  }

  private func touch(_ slot: ChannelSlot?, _ page: PageID, _ index: LogIndex) {
    dirty.touch(slot, page, at: index, elapsed: loop.elapsedMilliseconds, loggedBytes: log.loggedBytes)
  }

  /// Mark the outbox pages of changes that were taken as dirty, so that they are rewritten without these changes.
  private func touchAcknowledged(_ target: ShardID, _ number: UInt64, _ index: LogIndex) {
    for page in state.outbox.pages(for: target, through: number) { touch(nil, .outbox(page), index) }
  }

  /// Last effect that an answer about this channel reveals: on the channel, its type or its members' privacy settings.
  func lastEffect(_ slot: ChannelSlot) -> LogIndex {
    max(dirty.last(slot), dirty.typesLast, dirty.usersLast)
  }

  /// Earliest timing of an answer about this channel: when the last effect on the channel, its type or its members'
  /// privacy settings is durable.
  func replyTiming(_ slot: ChannelSlot) -> ReplyLane.Timing {
    replyTiming(lastEffect(slot))
  }

  func replyTiming(_ last: LogIndex) -> ReplyLane.Timing {
    log.replyTiming(last)
  }

  // MARK: Group commit

  /// Close the gathering batch and send the events of what happened in it.
  func closeBatch() -> CommitGroup.Batch {
    if !events.isUnwatched { _ = state.advance(clock: loop.clock) }
    events.sendEvents(.afterNextCommit)
    let batch = log.close(
      shard: state.id,
      at: state.time,
      sessions: sessions.takeTouched(at: state.time, elapsed: loop.elapsedMilliseconds)
    )
    outgoing.batchClosed(through: state.outbox.last)
    indexes.closeBatch()
    // The head page keeps the sessions and the last index. It must be written before the log can be cut behind this
    // batch.
    touch(nil, .shardHead, batch.index)
    return batch
  }

  /// Mark everything closed as durable.
  func committed() {
    log.committed()
    events.committed()
    outgoing.outgoingChangesDurable()
  }

  /// Encode the pages that are due, in their current state. Requires that nothing is gathering: a page carries the
  /// index of the last closed batch, which is durable before the page is.
  ///
  /// - Returns: how many bytes were added.
  func addDuePages(to group: inout CommitGroup, budget: Int) -> Int {
    assert(!log.isGathering)
    var added = 0
    while added < budget {
      let entry = dirty.popDue { entry in
        loop.elapsedMilliseconds - entry.elapsed >= configuration.checkpointAgeMilliseconds
          || log.loggedBytes - entry.loggedBytes >= configuration.checkpointLogBytes
          || loop.memory.isPressed || purges.isPageDue(entry.since)
      }
      guard let entry else { break }
      guard let write = encode(entry) else { continue }
      added += write.bytes.readableBytes
      group.pages.append(write)
    }
    return added
  }

  /// Return the possible cut of the log if it is worth a write.
  func takeCut(batchesMin: UInt64) -> CommitGroup.Cut? {
    guard !dirty.hasRecovered, tail.isEmpty else { return nil }
    let oldest = min(dirty.oldest ?? log.durable.next, deletions.oldest ?? log.durable.next)
    let batchesMin = purges.isUnderWay ? 1 : batchesMin
    guard let possible = log.takeCut(before: oldest, batchesMin: batchesMin) else { return nil }
    return CommitGroup.Cut(shard: state.id, through: possible)
  }

  /// Return nil for a segment of steps that was trimmed before it was written.
  private func encode(_ entry: DirtyPages.Entry) -> CommitGroup.PageWrite? {
    var cid: [UInt8]?
    var channel = ChannelNumber(0)
    let effects: [Effect]
    if let slot = entry.slot {
      channel = state[slot].number
      if entry.page == .head { cid = state[slot].cid }
      effects = state.effects(of: entry.page, in: slot)
      if entry.page.isOfSteps {
        guard !effects.isEmpty else { return nil }
        steps.recordWrite(slot, channel, entry.page)
      }
    } else {
      effects = shardPageEffects(entry.page)
    }
    var bytes = ByteBuffer()
    Page(index: log.closed, effects: effects).write(into: &bytes)
    let key = PageKey(shard: state.id, channel: channel, page: entry.page)
    return CommitGroup.PageWrite(key: key, cid: cid, bytes: bytes)
  }

  /// The current effects of one of the shard's own pages.
  private func shardPageEffects(_ page: PageID) -> [Effect] {
    switch page {
    case .shardHead: headEffects
    case .types: state.typeEffects
    case .users(let number): state.userEffects(number)
    case .outbox(let number): state.outboxEffects(number)
    case .index: state.indexEffects
    case .webhooks(let number): state.webhookEffects(number)
    case .tokens: state.tokenEffects
    case .head, .rows, .segment, .receipts, .steps, .threadRows, .threadSegment, .memberships:
      preconditionFailure("page \(page) belongs to a channel")
    }
  }

  /// The counters, the id format and the sessions.
  private var headEffects: [Effect] {
    let kept = sessions.records(
      elapsed: loop.elapsedMilliseconds,
      lifetimeMilliseconds: 2 * configuration.sessionLifetimeMilliseconds
    )
    return [.shard(.countersAssigned(nextChannel: state.nextChannel, time: state.time))]
      + (state.hasWideIDs ? [.shard(.idsWidened)] : []) + kept.map { .shard(.sessionAssigned($0)) }
  }

  // MARK: Recovery

  /// Restore the shard's own pages and index the log's tail by channel. Channels' pages are read on demand.
  private func recover(_ stored: StoredShard) throws(StorageError) {
    let id = state.id
    var included: [PageID: LogIndex] = [:]
    for (number, bytes) in stored.pages {
      let location = "shard \(id.rawValue), \(Self.name(number))"
      let page = try Self.page(bytes, location)
      included[number] = page.index
      try assign(page.effects, of: number, location)
    }
    let headIndex = included[.shardHead] ?? .zero
    let pagesIndex = included.values.max() ?? .zero
    var last: LogIndex?
    for (index, bytes) in stored.log {
      let location = "shard \(id.rawValue), log index \(index.rawValue)"
      let batch: LogBatch
      do { batch = try LogBatch(bytes.readableBytesSpan) } catch { throw .corrupt("\(location): \(error)") }
      guard batch.index == index else { throw .corrupt("\(location): holds batch \(batch.index.rawValue)") }
      if let last, index != last.next {
        throw .corrupt("\(location): follows \(last.rawValue), batches in between are missing")
      }
      if last == nil, index > max(headIndex, .zero).next {
        throw .corrupt("\(location): the batches after \(headIndex.rawValue), the head page's, are missing")
      }
      last = index
      state.assign(time: batch.time)
      if index > headIndex { for session in batch.sessions { sessions.assign(session) } }
      for effect in batch.effects {
        switch effect {
        case .channel(let number, .channelDeleted(let cid)):
          deletions.dropFromTail(number, cid, at: index)
        case .channel(let number, let effect):
          if case .channelAssigned(let cid, _, _) = effect { deletions.nameReused(cid) }
          tail.append(effect, on: number, at: index)
        case .shard(let effect):
          guard index > included[effect.page] ?? .zero else { continue }
          try checkFollows(effect, location)
          assignToShard(effect)
          dirty.touch(nil, effect.page, at: index, elapsed: 0, loggedBytes: 0, isRecovered: true)
        }
      }
    }
    if let last, pagesIndex > last {
      throw .corrupt("shard \(id.rawValue): its pages are ahead of its log, which ends at \(last.rawValue)")
    }
    let end = max(last ?? .zero, pagesIndex)
    log.recovered(through: end, at: state.time, first: stored.log.first?.index ?? end.next)
    if !stored.log.isEmpty {
      dirty.touch(nil, .shardHead, at: log.durable, elapsed: 0, loggedBytes: 0, isRecovered: true)
    }
  }

  private func assign(_ effects: [Effect], of page: PageID, _ location: String) throws(StorageError) {
    for effect in effects {
      guard case .shard(let effect) = effect, effect.page == page else {
        throw .corrupt("\(location): holds an effect of another page")
      }
      try checkFollows(effect, location)
      assignToShard(effect)
    }
  }

  /// Readable name of one of the shard's own pages.
  private static func name(_ page: PageID) -> String {
    switch page {
    case .shardHead: "head page"
    case .types: "types page"
    case .users(let number): "users page \(number)"
    case .outbox(let number): "outbox page \(number)"
    case .index: "index page"
    case .webhooks(let number): "webhooks page \(number)"
    case .tokens: "tokens page"
    case .head, .rows, .segment, .receipts, .steps, .threadRows, .threadSegment, .memberships: "page \(page)"
    }
  }

  /// Throw where assigning the effect would trap: users must appear in the order of their numbers.
  private func checkFollows(_ effect: ShardEffect, _ location: String) throws(StorageError) {
    let follows =
      switch effect {
      case .userAssigned(let number, let settings):
        !settings.user.isEmpty
          && (number < state.settings.count && !state.settings.isNameless(number)
            ? state.settings[number].user.isExactly(settings.user)
            : number <= state.settings.count && state.settings.find(settings.user) == nil)
      case .userErased(let number, _, _, _): number <= state.settings.count
      case .userSettled(let number, _): Int(number) < state.settings.count
      default: true
      }
    guard follows else { throw .corrupt("\(location): users' settings are out of order") }
    if case .tokenRevoked(let revocation) = effect, revocation.version <= state.revokedTokens.version {
      throw .corrupt("\(location): token revocations are out of order")
    }
    guard outgoing.isValidOutboxEffect(effect) else {
      throw .corrupt("\(location): an invalid membership change")
    }
  }

  private func assignToShard(_ effect: ShardEffect) {
    switch effect {
    case .sessionAssigned(let record): sessions.assign(record)
    case .membershipQueued, .membershipsSent: outgoing.recoverChange(effect)
    default: state.assign(effect)
    }
  }

  static func page(_ bytes: ByteBuffer, _ location: @autoclosure () -> String) throws(StorageError) -> Page {
    do { return try Page(bytes.readableBytesSpan) } catch { throw .corrupt("\(location()): \(error)") }
  }

  /// Resume pending changes, a rebuild and channel deletions, as far as the budget until the next slice allows.
  ///
  /// - Parameter isAfterRead: something was just loaded. If memory is short, it is evicted again at the end of the
  ///   turn, so at least one step is made.
  func resumeIndexWork(isAfterRead: Bool = false) {
    if !indexes.isEmpty {
      if isAfterRead { loop.budget.allowChange() }
      indexes.applyChanges()
    }
    if rebuilds.isRunning {
      if isAfterRead { loop.budget.allowChange() }
      rebuilds.resumeRebuild()
    }
    if deletions.hasSliced { deletions.resumeDeletions() }
  }

  /// Run the timed work of the outbox and the indexes.
  func tickIndexes() {
    outgoing.tickOutgoing()
    resumeIndexWork()
  }

  /// Advance the shard's time to its clock.
  func advanceTime() { _ = state.advance(clock: loop.clock) }

  /// Begin a batch that holds nothing but the shard's time.
  ///
  /// - Parameter session: session of the request that needs it; nil if the shard does.
  func logTimeNow(session: Int32? = nil) {
    effects.removeAll(keepingCapacity: true)
    effects.append(.shard(.countersAssigned(nextChannel: state.nextChannel, time: state.time)))
    applyEffects(nil, session: session)
  }
}
