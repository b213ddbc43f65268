internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// One running shard: its state, its log, its dirty pages and its pending requests. A shard lives on one event loop and
/// does no I/O: it asks its ``StoreLoop`` for every read and write.
///
/// Only this file changes the state, the log, the dirty pages and the eviction clock. Requests apply their
/// effects with ``applyEffects(_:to:session:)``; recovery and following assign those that they read.
final class ShardEngine {
  private(set) var state: ShardState
  let shardCount: Int
  /// Index of the shard among the shards of its loop.
  let indexInLoop: Int
  let configuration: StoreLoopConfiguration
  /// Unchecked for speed: the loop owns its shards, and every request uses this reference several times.
  unowned(unsafe) let loop: StoreLoop

  private(set) var log = ShardLog()
  /// Effects that recovery found in the log, for channels that are not in memory yet.
  let tail = LogTail()
  private(set) var dirty = DirtyPages()
  private(set) var eviction = EvictionClock()
  /// The buffer of the last command's effects, empty: the next command takes it for its capacity.
  private var effectsBuffer: [Effect] = []

  // Parts
  let sessions = ShardSessions()
  let waiting = WaitingRequests()
  let loads = ChannelLoads()
  let steps = StepSegments()
  let deletions = ChannelDeletions()
  let scans = ChannelScans()
  let indexes = UserIndexes()
  let outgoing = OutgoingChanges()
  let indexRebuild = ShardIndexRebuild()
  let unreadQueries = UnreadQueries()
  let purges = ShardPurges()
  let events = ShardEvents()
  let settings = ShardSettings()
  let tokens = ShardTokens()
  let push = ShardPush()
  let feed = ShardFeed()
  let consumers = FeedConsumers()
  let timers = ShardTimers()
  let pushJobs = ShardPushJobs()
  let exports = ChannelExports()

  /// All parts, in the order in which they begin to serve, forget a connection and stop.
  let parts: [ShardPart]

  init(
    id: ShardID,
    shardCount: Int,
    indexInLoop: Int,
    configuration: StoreLoopConfiguration,
    loop: StoreLoop,
    stored: StoredShard
  ) throws(StorageError) {
    self.state = ShardState(id: id, shardCount: shardCount)
    self.shardCount = shardCount
    self.indexInLoop = indexInLoop
    self.configuration = configuration
    self.loop = loop
    parts = [
      sessions, waiting, loads, steps, deletions, scans, indexes, outgoing, indexRebuild, unreadQueries, purges, events,
      settings, tokens, push, feed, consumers, timers, pushJobs, exports,
    ]
    for part in parts { part.attach(to: self) }
    requirePartsAttached(of: self)
    if loop.isFollowing { state.keepIndexNumbers(true) }
    try recover(stored)
    if !loop.isFollowing {
      for part in parts { part.beginToServe() }
    }
  }

  /// Whether the open batch is full: sliced work adds nothing more to it.
  var isBatchFull: Bool {
    log.openBatchEffects >= configuration.sliceEffects || feed.openBlockBytes >= ShardFeed.blockBytesMax
  }

  // MARK: Applying effects

  /// Assign decided effects, append them to the open batch and mark their pages dirty.
  ///
  /// - Parameters:
  ///   - slot: the effects' channel; nil if they create it, or are all on the shard.
  ///   - session: session of the command that was decided; nil if it was none.
  ///   - isPublished: whether subscribers and the feed receive the change; false for an import.
  /// - Returns: the slot of the effects' channel; a new slot if the effects created the channel.
  @discardableResult
  func applyEffects(
    _ effects: [Effect],
    to slot: ChannelSlot?,
    session: Int32? = nil,
    isPublished: Bool = true
  ) -> ChannelSlot? {
    var slot = slot
    let index = log.openBatchIndex
    var sealedPage: UInt32?
    var changesMessageCounts = false
    var hasWideIDs = false
    let beginsBatch = !log.hasOpenBatch
    let recordsFeed = feed.isOn && isPublished
    if recordsFeed { feed.beginCommand() }
    defer { if recordsFeed { feed.endCommand() } }
    for effect in effects {
      if !events.isUnwatched, isPublished { events.record(effect, slot) }
      if recordsFeed { feed.record(effect, slot) }
      if isFirstWideID(effect) { hasWideIDs = true }
      switch effect {
      case .channel(let number, let effect):
        if effect.traits.contains(.changesMessageCounts) { changesMessageCounts = true }
        slot = assignAndTouch(effect, on: number, to: slot, at: index, &sealedPage)
      case .shard(let effect): assignAndTouch(effect, at: index)
      }
      log.append(effect)
    }
    if changesMessageCounts, let slot { touch(.head, of: slot, index) }
    if beginsBatch {
      loop.commits.joinNextCommit(self)
      log.setOpenBatchTime(state.time)
    }
    if hasWideIDs { requireExtendedIDFormat() }
    if let session { sessions.markChanged(session) }
    if let sealedPage { steps.trimIfDue(slot!, sealedPage) }
    if scans.hasUnstarted { scans.startAnnouncements() }
    return slot
  }

  /// Assign an effect on the shard, and mark all pages dirty that it changes, as an owner and as a follower.
  func assignAndTouch(_ effect: ShardEffect, at index: LogIndex) {
    if case .membershipsConfirmed(let target, let number) = effect {
      // The outbox pages of confirmed changes are rewritten without these changes.
      for page in state.outbox.pages(for: target, through: number) { touchShardPage(.outbox(page), index) }
    }
    state.assign(effect)
    if case .timerAssigned(let number, let timer) = effect { timers.added(number, timer) }
    if case .consumer(.deletionHeld(let deletion)) = effect { deletions.recordHold(deletion.channel) }
    touchShardPage(effect.page, index)
  }

  /// Assign an effect on the shard that recovery has read.
  func assignRecovered(_ effect: ShardEffect) { state.assign(effect) }

  /// Advance the shard's time to that of a batch that was read.
  func assign(time: Timestamp) { state.assign(time: time) }

  /// Assign an effect on a channel in memory, and mark all pages dirty that it changes. An owner does this for effects
  /// that it has decided, a follower for those of the owner's log.
  ///
  /// - Parameters:
  ///   - slot: the channel's slot; nil if the effect creates the channel.
  ///   - sealedPage: set to the row page whose steps the effect has sealed into a segment.
  /// - Returns: the channel's slot; nil if the effect deleted the channel.
  @inline(__always)
  func assignAndTouch(
    _ effect: ChannelEffect,
    on number: ChannelNumber,
    to slot: ChannelSlot?,
    at index: LogIndex,
    _ sealedPage: inout UInt32?
  ) -> ChannelSlot? {
    switch effect {
    case .channelAssigned(let cid, let created, let own) where slot == nil:
      let created = insertChannel(number, cid: cid, created: created, own: own)
      deletions.nameReused(cid)
      if !events.isUnwatched { events.recordCreation(created) }
      touch(effect.page, of: created, index)
      return created
    case .channelDeleted(let cid):
      if let slot {
        deletions.end(slot, number, cid, at: index)
      } else {
        deletions.dropFromTail(number, cid, at: index)
      }
      return nil
    case .stepTailCut(let rowPage, _): sealedPage = rowPage
    case .stepsTrimmed(let rowPage, let first): steps.recordTrim(slot!, number, rowPage, before: first, at: index)
    case .messageDeleted, .truncated:
      for sequence in state[slot!].acknowledgementPagesEmptied(by: effect) {
        touch(.acknowledgements(sequence), of: slot!, index)
      }
    case .deletionBegun: if !events.isUnwatched { events.recordDeletion(slot!) }
    case .channelAssigned: break
    // Only its page changes.
    default: assert(!effect.traits.contains(.changesOtherParts))
    }
    guard let slot else { preconditionFailure("an effect on a channel that is not in memory") }
    state.assign(effect, to: slot)
    #if DEBUG
      state[slot].assertInvariants(changedBy: effect)
    #endif
    touch(effect.page, of: slot, index)
    return slot
  }

  /// Return whether an effect has the shard's first wide id, which older builds reject.
  private func isFirstWideID(_ effect: Effect) -> Bool { !state.hasWideIDs && effect.hasWideIDs }

  /// Make older builds refuse the directory from here on. The effect goes into the same batch as the first wide id,
  /// and later into the shard's head page.
  private func requireExtendedIDFormat() {
    state.assign(.idsWidened)
    log.append(.shard(.idsWidened))
  }

  func touch(_ page: PageID, of slot: ChannelSlot, _ index: LogIndex) {
    dirty.touch(page, of: slot, at: index, elapsed: loop.elapsedMilliseconds, loggedBytes: log.loggedBytes)
  }

  /// Mark one of the shard's own pages dirty.
  func touchShardPage(_ page: PageID, _ index: LogIndex) {
    dirty.touchShardPage(page, at: index, elapsed: loop.elapsedMilliseconds, loggedBytes: log.loggedBytes)
  }

  /// Mark a page dirty because of an effect that is in the log already: it is written before other pages.
  func touchRecovered(
    _ page: PageID,
    of slot: ChannelSlot,
    _ index: LogIndex,
    elapsed: Int64 = 0,
    loggedBytes: UInt64 = 0
  ) {
    dirty.touch(page, of: slot, at: index, elapsed: elapsed, loggedBytes: loggedBytes, isRecovered: true)
  }

  /// Likewise, one of the shard's own pages.
  func touchRecoveredShardPage(_ page: PageID, _ index: LogIndex) {
    dirty.touchShardPage(page, at: index, elapsed: 0, loggedBytes: 0, isRecovered: true)
  }

  /// Return the last effect that a reply about this channel reveals: on the channel, its type or its members' privacy
  /// settings.
  func lastEffect(_ slot: ChannelSlot) -> LogIndex {
    max(dirty.last(slot), max(dirty.typesLast, dirty.usersLast))
  }

  /// Return the earliest timing of a reply about this channel: when the last effect on the channel, its type or its
  /// members' privacy settings is durable.
  func replyTiming(_ slot: ChannelSlot) -> ReplyLane.Timing {
    replyTiming(lastEffect(slot))
  }

  func replyTiming(_ last: LogIndex) -> ReplyLane.Timing {
    log.replyTiming(last)
  }

  // MARK: Commands

  /// Read a command's counter, and look it up in its session: a duplicate counts as applied, and must not be applied
  /// again.
  @inline(__always)
  func begin(_ request: inout Request) throws(WireError) {
    begin(&request, try Request.counter(&request.fields))
  }

  func begin(_ request: inout Request, _ counter: UInt64) {
    swap(&request.effects, &effectsBuffer)
    let known = request.lane.sessionIndexes[indexInLoop]
    let session = known >= 0 ? known : sessions.index(of: request.lane)
    request.begin(
      counter,
      session: session,
      isDuplicate: sessions.hasApplied(counter, at: session),
      outboxBefore: state.outbox.last
    )
  }

  /// Apply the command's decided effects, unless the command is a duplicate.
  @discardableResult
  func applyCommand(_ slot: ChannelSlot?, _ request: borrowing Request) -> ChannelSlot? {
    guard !request.isDuplicate else { return slot }
    sessions.recordDecision(request)
    guard !request.effects.isEmpty else { return slot }
    return applyEffects(request.effects, to: slot, session: request.session)
  }

  /// Take back the buffer of a command's effects, for the next command.
  @inline(__always)
  func returnEffectsBuffer(of request: inout Request) {
    // Most commands have one effect; `removeAll` costs some 400 instructions.
    while request.effects.popLast() != nil {}
    swap(&request.effects, &effectsBuffer)
  }

  // MARK: Channels in memory

  /// Insert a channel into memory, with nothing but its head.
  private func insertChannel(_ number: ChannelNumber, cid: String, created: Timestamp, own: OptionPatch) -> ChannelSlot
  {
    let slot = state.insert(number, cid: cid, created: created, own: own)
    dirty.insert(slot)
    eviction.insert(slot)
    unreadQueries.channelLoaded(state[slot].cid)
    return slot
  }

  /// Install a channel that was loaded: its pages, and its effects in the log's tail, which leave the tail.
  func install(_ content: LoadedContent, _ number: ChannelNumber, cid: String, created: Timestamp, own: OptionPatch)
    -> ChannelSlot
  {
    let inTail = tail.effects(of: number)
    let slot = insertChannel(number, cid: cid, created: created, own: own)
    tail.remove(number, cid: state[slot].cid)
    for effect in content.effects { state.assign(effect, to: slot) }
    if loop.isFollowing {
      touchFollowed(slot, number, newer: content.newer, tail: inTail)
    } else {
      for (page, index) in content.newer { touchRecovered(page, of: slot, index) }
    }
    return slot
  }

  /// Remove a channel that was deleted with the open batch: none of its pages is written any more.
  func removeDeleted(_ slot: ChannelSlot, cid: String) {
    state.assign(.channelDeleted(cid: cid), to: slot)
    dirty.remove(slot)
  }

  /// Mark a channel as used, so that it is not evicted soon.
  @inline(__always)
  func recordUse(of slot: ChannelSlot) { eviction.markUsed(slot) }

  /// Forget which channel was used last: it may be evicted from now on, like others.
  func tickEviction() { eviction.tick() }

  /// Evict channels whose pages are all on storage. Requires that no commit is in flight: a page that is being written
  /// already counts as clean.
  ///
  /// - Parameters:
  ///   - wanted: bytes to free.
  ///   - scanBudget: slots that may be examined; decremented.
  /// - Returns: the bytes that were freed, and the number of channels.
  func evict(bytes wanted: Int, scanBudget: inout Int) -> (bytes: Int, channels: Int) {
    let slotCount = state.slotCount
    let before = state.residentBytes
    var evicted = 0
    guard slotCount > 0 else { return (0, 0) }
    // One round only: a second one would evict recently used channels too.
    var remaining = min(scanBudget, slotCount)
    while remaining > 0, before - state.residentBytes < wanted {
      remaining -= 1
      scanBudget -= 1
      guard let slot = eviction.advance(slotCount: slotCount), slot != eviction.last, state.isLoaded(slot),
        dirty.isClean(slot), dirty.last(slot) <= log.durable, !waiting.isSliced(slot),
        !indexRebuild.isScanning(slot), !deletions.hasSlicesLeft(slot), !events.hasUnsentEvents(slot)
      else { continue }
      events.clearSlot(slot)
      state.remove(slot)
      evicted += 1
    }
    return (before - state.residentBytes, evicted)
  }

  // MARK: State that no effect assigns

  /// Advance the shard's time to its clock, and return it.
  @inline(__always)
  @discardableResult
  func advanceTime() -> Timestamp { state.advance(clock: loop.clock) }

  /// Advance the shard's time to the join time of members added now, and return it.
  ///
  /// - Parameter slot: nil: the channel is new, or nobody is added.
  func advanceTime(forMembersOf slot: ChannelSlot?) -> Timestamp {
    state.advance(clock: loop.clock, forMembersOf: slot)
  }

  /// Copy its members' changed settings into a channel or thread (R7). Call this before any decision or query on it.
  @inline(__always)
  func refresh(_ slot: ChannelSlot) { state.refresh(slot) }

  /// Find the thread under a message, with its users' settings applied (``ShardState/thread(of:in:for:)``).
  func thread(of parent: RawSpan, in slot: ChannelSlot, for member: MemberOrdinal?) throws(Refusal) -> ChannelSlot? {
    try state.thread(of: parent, in: slot, for: member)
  }

  /// Find the thread that contains a reply, as far as the reply exists for a member, with its users' settings applied.
  func thread(withReply reply: RawSpan, in slot: ChannelSlot, for user: RawSpan) -> ChannelSlot? {
    state.thread(withReply: reply, in: slot, for: user)
  }

  /// Return the slot that contains a message, the channel's or a thread's, with its users' settings applied.
  func targetSlot(of message: RawSpan, in slot: ChannelSlot) -> ChannelSlot {
    state.targetSlot(of: message, in: slot)
  }

  /// Return the events for recorded changes, with settings applied to the channel and the threads concerned.
  func channelEvents(_ pending: PendingChannelEvents, in slot: ChannelSlot) -> [ChannelEvent] {
    state.events(pending, in: slot)
  }

  /// Return the records of the feed that follow from recorded changes.
  func feedRecords(_ pending: PendingChannelEvents, in slot: ChannelSlot) -> [FeedRecord] {
    state.feedRecords(pending, in: slot)
  }

  /// Return the records that a timer tells when it is due (``ShardState/dueRecords(of:in:examined:)``).
  func dueRecords(of timer: MessageTimer, in slot: ChannelSlot) -> [FeedRecord] {
    var examined = 0
    defer { loop.budget.useRows(examined) }
    state.refresh(slot)
    return state.dueRecords(of: timer, in: slot, examined: &examined)
  }

  /// Return where a record's names are found (``ShardState/feedNames(of:in:)``).
  func feedNames(of record: FeedRecord, in slot: ChannelSlot?) -> ShardState.FeedNames? {
    state.feedNames(of: record, in: slot)
  }

  /// Return the changes in a channel since a time, limited by the configuration and the loop's budget of rows.
  func channelEvents(in slot: ChannelSlot, since: Timestamp, limit: Int) -> [ChannelEvent]? {
    var remaining = loop.budget.rows
    defer { loop.budget.useRows(loop.budget.rows - remaining) }
    return state.events(
      in: slot,
      since: since,
      limit: limit,
      statusesMax: configuration.scanStatusesMax,
      remaining: &remaining
    )
  }

  /// Apply a change of a user's settings to a channel, and return where others see the user's row differently.
  func applySettingsChange(of user: RawSpan, in slot: ChannelSlot) -> [ChannelSlot] {
    state.applySettingsChange(of: user, in: slot)
  }

  /// Return the shards for which membership changes were queued since the last call.
  func takeQueuedTargets() -> [ShardID] { state.takeQueued() }

  /// Drop a step segment's bytes from memory, once they are on storage.
  func dropSegment(_ slot: ChannelSlot, _ rowPage: UInt32, _ segment: UInt32) {
    state.dropSegment(slot, rowPage, segment)
  }

  // MARK: Log

  /// Continue the log that recovery has read.
  func resumeLog(through end: LogIndex, first: LogIndex) {
    log.recovered(through: end, at: state.time, first: first)
  }

  /// Record a batch of the followed log.
  func recordFollowed(_ index: LogIndex, byteCount: Int) { log.follow(index, byteCount: byteCount) }

  /// Close the followed batches for a commit.
  ///
  /// - Returns: whether there are any.
  func closeFollowed() -> Bool { log.closeFollowed() }

  /// Mark the closed followed batches as durable.
  func followedCommitted() { log.committed() }

  /// Become the owner of the shard. Nothing is read: the state is already here (docs/contribute/architecture.md, "Log,
  /// pages and recovery").
  func promote() {
    log.promote(at: state.time)
    state.keepIndexNumbers(false)
    for part in parts { part.beginToServe() }
    deletions.promote()
  }

  /// Take the next page that is due. It counts as clean from here on.
  func takeDuePage() -> DirtyPages.Entry? {
    dirty.popDue { entry in
      loop.elapsedMilliseconds - entry.elapsed >= configuration.pageWriteAgeMilliseconds
        || log.loggedBytes - entry.loggedBytes >= configuration.pageWriteLogBytes
        || loop.memory.isUnderPressure || purges.isPageDue(entry.since)
    }
  }

  /// Trim the log before `oldest`, if that removes at least `batchesMin` batches.
  ///
  /// - Returns: the last batches that were removed before and are now.
  func trimLog(before oldest: LogIndex, batchesMin: UInt64) -> (after: LogIndex, through: LogIndex)? {
    log.takeLogTrim(before: oldest, batchesMin: batchesMin)
  }

  // MARK: Group commit

  /// Close the open batch and send the events of what happened in it.
  func closeBatch() -> LoopCommit.Batch {
    if !events.isUnwatched { advanceTime() }
    events.sendEvents(.afterNextCommit)
    let batch = log.close(shard: state.id, at: state.time, sessions: sessions.takeChanged())
    outgoing.batchClosed(through: state.outbox.last)
    indexes.closeBatch()
    // The head page keeps the sessions and the last index. It must be written before the log can be trimmed behind this
    // batch.
    touchShardPage(.shardHead, batch.index)
    return batch
  }

  /// Mark everything closed as durable.
  func committed() {
    log.committed()
    feed.committed()
    events.committed()
    outgoing.committed()
  }
}

/// A part of a shard: one feature with its state, which no other part uses. It reaches the rest through ``shard``.
class ShardPart: OwnedPart {
  /// Unchecked for speed: the shard owns its parts and outlives them. Set once, when the shard has its stored
  /// properties.
  unowned(unsafe) private(set) final var shard: ShardEngine!

  final func attach(to shard: ShardEngine) { self.shard = shard }

  final var isAttached: Bool { shard != nil }

  /// Begin to serve from the shard's recovered or followed state.
  func beginToServe() {}

  /// Forget a connection that is gone.
  func close(_ lane: ReplyLane) {}

  /// Drop all work: the loop has halted.
  func stop() {}
}

/// Work that runs in slices or at a time, not for a request.
extension ShardEngine {
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
    if indexRebuild.isRunning {
      if isAfterRead { loop.budget.allowChange() }
      indexRebuild.resume()
    }
    if deletions.hasSliced { deletions.resume() }
  }

  /// Run the timed work of the outbox and the indexes.
  func tickIndexes() {
    outgoing.tick()
    exports.tick()
    resumeIndexWork()
  }

  /// Begin a batch that holds nothing but the shard's time.
  ///
  /// - Parameter session: session of the request that needs it; nil if the shard does.
  func logTimeNow(session: Int32? = nil) {
    let time = Effect.shard(.countersAssigned(nextChannel: state.nextChannel, time: state.time))
    applyEffects([time], to: nil, session: session)
  }
}
