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
  /// The buffer of the last command's effects, empty: the next command takes it for its capacity.
  var effectsBuffer: [Effect] = []
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

  var parts: [ShardPart] {
    [
      waiting, loads, steps, deletions, scans, indexes, outgoing, rebuilds, unreadQueries, purges,
      events, settings, tokens, push,
    ]
  }

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
    for part in parts { part.attach(to: self) }
    assertPartsAttached(of: self)
    if loop.isFollowing { state.keepIndexNumbers(true) }
    try recover(stored)
    if !loop.isFollowing {
      for part in parts { part.beginToServe() }
    }
  }

  /// Whether the open batch is full: sliced work adds nothing more to it.
  var isBatchFull: Bool { log.openBatchEffects >= configuration.sliceEffects }

  // MARK: Applying effects

  /// Assign decided effects, append them to the open batch and mark their pages dirty.
  ///
  /// - Parameters:
  ///   - slot: the effects' channel; nil if they create it, or are all on the shard.
  ///   - session: session of the command that was decided; nil if it was none.
  /// - Returns: the slot of the effects' channel; a new slot if the effects created the channel.
  @discardableResult
  func applyEffects(_ effects: [Effect], to slot: ChannelSlot?, session: Int32? = nil) -> ChannelSlot? {
    var slot = slot
    let index = log.openBatchIndex
    var cutPage: UInt32?
    var changesMessageCounts = false
    var bringsWideIDs = false
    let begins = !log.hasOpenBatch
    for effect in effects {
      if !events.isUnwatched { events.record(effect, slot) }
      if isFirstWideID(effect) { bringsWideIDs = true }
      switch effect {
      case .channel(let number, let effect):
        if effect.traits.contains(.changesMessageCounts) { changesMessageCounts = true }
        slot = assignAndTouch(effect, on: number, to: slot, at: index, &cutPage)
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

  /// Assign an effect on a channel in memory, and mark all pages dirty that it changes. An owner does this for effects
  /// that it has decided, a follower for those of the owner's log.
  ///
  /// - Parameters:
  ///   - slot: the channel's slot; nil if the effect creates the channel.
  ///   - cutPage: set to the row page whose steps the effect has sealed into a segment.
  /// - Returns: the channel's slot; nil if the effect deleted the channel.
  @inline(__always)
  func assignAndTouch(
    _ effect: ChannelEffect,
    on number: ChannelNumber,
    to slot: ChannelSlot?,
    at index: LogIndex,
    _ cutPage: inout UInt32?
  ) -> ChannelSlot? {
    switch effect {
    case .stepTailCut(let rowPage, _): cutPage = rowPage
    case .stepsTrimmed(let rowPage, let first):
      steps.recordTrim(slot!, number, rowPage, before: first, at: index)
    case .messageDeleted, .truncated:
      for sequence in state[slot!].receiptsEmptied(by: effect) { touch(slot, .receipts(sequence), index) }
    case .deletionBegun: if !events.isUnwatched { events.recordDeletion(slot!) }
    default: break
    }
    return assign(effect, on: number, to: slot, at: index)
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

  func touch(_ slot: ChannelSlot?, _ page: PageID, _ index: LogIndex) {
    dirty.touch(slot, page, at: index, elapsed: loop.elapsedMilliseconds, loggedBytes: log.loggedBytes)
  }

  /// Mark the outbox pages of changes that were taken as dirty, so that they are rewritten without these changes.
  func touchAcknowledged(_ target: ShardID, _ number: UInt64, _ index: LogIndex) {
    for page in state.outbox.pages(for: target, through: number) { touch(nil, .outbox(page), index) }
  }

  /// Last effect that a reply about this channel reveals: on the channel, its type or its members' privacy settings.
  func lastEffect(_ slot: ChannelSlot) -> LogIndex {
    max(dirty.last(slot), dirty.typesLast, dirty.usersLast)
  }

  /// Earliest timing of a reply about this channel: when the last effect on the channel, its type or its members'
  /// privacy settings is durable.
  func replyTiming(_ slot: ChannelSlot) -> ReplyLane.Timing {
    replyTiming(lastEffect(slot))
  }

  func replyTiming(_ last: LogIndex) -> ReplyLane.Timing {
    log.replyTiming(last)
  }

  // MARK: Group commit

  /// Close the open batch and send the events of what happened in it.
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
    // The head page keeps the sessions and the last index. It must be written before the log can be trimmed behind this
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

  /// Encode the pages that are due, in their current state. Requires that no batch is open: a page carries the
  /// index of the last closed batch, which is durable before the page is.
  ///
  /// - Returns: how many bytes were added.
  func addDuePages(to group: inout CommitGroup, budget: Int) -> Int {
    assert(!log.hasOpenBatch)
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

  /// Return the possible trim of the log if it is worth a write.
  func takeLogTrim(batchesMin: UInt64) -> CommitGroup.LogTrim? {
    // A follower nearly always has effects in its tail; it keeps the log from the oldest of them on.
    guard loop.isFollowing || !dirty.hasRecovered && tail.isEmpty else { return nil }
    var oldest = min(dirty.oldest ?? log.durable.next, deletions.oldest ?? log.durable.next)
    if loop.isFollowing { oldest = min(oldest, oldestFollowed ?? oldest) }
    let batchesMin = purges.isUnderWay ? 1 : batchesMin
    guard let possible = log.takeLogTrim(before: oldest, batchesMin: batchesMin) else { return nil }
    return CommitGroup.LogTrim(shard: state.id, through: possible)
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
  /// Resume pending changes, a rebuild and channel deletions, as far as the budget until the next slice allows.
  ///
  /// - Parameter isAfterRead: something was just loaded. If memory is short, it is evicted again at the end of the
  ///   turn, so at least one step is made.
  func resumeIndexWork(isAfterRead: Bool = false) {
    guard !loop.isFollowing else { return }
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
    let time = Effect.shard(.countersAssigned(nextChannel: state.nextChannel, time: state.time))
    applyEffects([time], to: nil, session: session)
  }
}
