import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// One shard at work: its state, the batch that gathers, which pages are dirty, and the channels that are being loaded.
/// It lives on one event loop and does no I/O; what has to be read or written is asked of its ``StoreLoop``.
final class ShardEngine {
  var state: ShardState
  let shardCount: Int
  /// The shard's place among those of its loop.
  let position: Int
  let configuration: StoreLoopConfiguration
  /// Unchecked: the loop owns its shards, and every request looks at it several times.
  unowned(unsafe) let loop: StoreLoop

  // The log
  /// Batches up to here are durable.
  private(set) var durable: LogIndex
  /// Batches up to here are closed: durable, or in flight.
  private(set) var closed: LogIndex
  /// The times of those batches: a start from what is durable has no earlier time (R20).
  private(set) var durableTime = Timestamp.none
  private(set) var closedTime = Timestamp.none
  /// When the batch that gathers was begun: nothing in it happened before.
  private(set) var gatheringTime = Timestamp.none
  /// What the log said when the shard started; none: it was new.
  private(set) var startTime = Timestamp.none
  private(set) var loggedBytes: UInt64 = 0
  private var effectBytes = ByteBuffer()
  private var effectCount = 0
  private(set) var cut: LogIndex
  var sessions = SessionTable()
  var dirty = DirtyPages()
  var clock = EvictionClock()
  /// Channels that were let go, since start.
  var evictedCount: UInt64 = 0

  // Channels on storage
  var loads: [ChannelReference: ChannelLoad] = [:]
  /// Of the last read that was asked for.
  var loadTicket: UInt32 = 0
  /// Effects found in the log at recovery whose channel is not in memory yet.
  var tail = LogTail()
  /// Channels of the tail that are being read to get the log cut.
  var tailLoads = 0
  /// When those that could not be read are tried again, in the loop's elapsed time.
  var tailRetryAt: Int64 = 0

  // Of the request at hand
  /// When the token of the user for whom it is made was issued, in seconds since 1970; nil: it does not say, nobody's
  /// token is looked at.
  var issued: UInt32?
  /// Users of this home shard whose latest settings are not known to be in all others, by their numbers.
  var unsettledUsers: Set<UInt32> = []

  // Slices
  /// Queries that are answered a slice at a time, the one whose turn is next first.
  var slicedQueries: Deque<SlicedQuery> = []
  /// How far the query at hand has come, where it goes on.
  var progress: SlicedQuery.Progress?
  /// Set while a slice is carried out.
  var isGoingOn = false

  // Steps
  var stepReads: [UInt32: StepRead] = [:]
  /// Of the last read of steps that was asked for.
  var stepTicket: UInt32 = 0
  /// What was read for the request that is being performed again; none for others.
  var readSegments = ReadSegments()
  /// How often steps were read for the request at hand.
  var stepRounds = 0
  /// Row pages whose segments are being read to be written as fewer, or cannot be.
  var trimsUnderWay: Set<TrimPlace> = []
  /// Segments that are to be deleted, when the batch with this index is durable.
  private var trims: [(index: LogIndex, trim: CommitGroup.Trim)] = []
  /// Segments of steps in the commit that is under way.
  private var segmentsInFlight: [(slot: ChannelSlot, channel: ChannelNumber, page: PageID)] = []

  // Removal
  var deletions = Deletions()
  /// Channels that are being deleted, the one whose turn is next first.
  var endings: Deque<ChannelEnding> = []
  var purges = Purges()
  var erasures = WaitingErasures()
  // The index of users' channels
  var outgoing = OutgoingChanges()
  var incoming = IncomingChanges()
  var rebuild: IndexRebuild?
  /// The last part of a rebuild that came to its end since the start.
  var rebuilt: RebuildFields?
  /// The loop knows that there is more to do for the indexes.
  var isWorking = false
  // Unread counts
  /// Requests that wait for channels which are not in memory, by their tickets.
  var unreadRequests: [UInt32: UnreadRequest] = [:]
  /// Of the last of them.
  var unreadTicket: UInt32 = 0
  /// Channels that are being peeked at.
  var peekWatches = PeekWatches()
  /// Requests that wait for a slice, in the order in which they came.
  var postponed: Deque<PostponedRequest> = []
  // Events
  var subscriptions = Subscriptions()
  var eventProgress = EventProgress(.none)
  /// What is being told; kept for its capacity.
  var eventParts = EventParts()
  var walks = ChannelWalks()

  /// Effects of the command at hand; kept for its capacity.
  var effects: [Effect] = []

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
    self.durable = .zero
    self.closed = .zero
    self.cut = .zero
    try recover(stored)
    eventProgress = EventProgress(durableTime)
    findUnsettled()
    outgoing.recovered(through: state.outbox.last)
  }

  /// The index of the batch that gathers.
  var gatheringIndex: LogIndex { closed.next }
  var isGathering: Bool { effectCount > 0 }
  /// Whether what is done in slices adds nothing to the batch that gathers any more.
  var isBatchFull: Bool { effectCount >= configuration.sliceEffects }
  /// Whether requests wait for channels.
  var hasWaiting: Bool {
    loads.values.contains { !$0.waiting.isEmpty } || stepReads.values.contains { $0.isForRequest }
      || !outgoing.held.isEmpty || endings.contains { !$0.askers.isEmpty }
      || !unreadRequests.isEmpty || !erasures.isEmpty || !postponed.isEmpty || walks.requests > 0
  }

  // MARK: Carrying out

  /// Assigns the decided effects, adds them to the batch that gathers and notes their pages.
  ///
  /// - Returns: the slot of the channel they are about; a new one where they created it.
  @discardableResult
  func carryOut(_ slot: ChannelSlot?, session: Int32?) -> ChannelSlot? {
    var slot = slot
    let index = gatheringIndex
    var cutPage: UInt32?
    var changesMessageCounts = false
    var bringsWideIDs = false
    let bytesBefore = effectBytes.readableBytes
    for effect in effects {
      if !subscriptions.isEmpty { note(effect, slot) }
      switch effect {
      case .stepTailCut(_, let rowPage, _): cutPage = rowPage
      case .stepsTrimmed(let number, let rowPage, let first):
        noteTrim(slot!, number, rowPage, before: first, at: index)
      case .messageDeleted, .truncated:
        changesMessageCounts = true
        for sequence in state[slot!].receiptsEmptied(by: effect) { touch(slot, .receipts(sequence), index) }
      case .messageAssigned:
        changesMessageCounts = true
        bringsWideIDs = bringsWideIDs || isFirstWideID(effect)
      case .channelAssigned, .rowAssigned, .userAssigned, .membershipQueued, .membershipAssigned, .inThread:
        bringsWideIDs = bringsWideIDs || isFirstWideID(effect)
      case .deletionBegun: if !subscriptions.isEmpty { noteDeleted(slot!) }
      case .membershipsSent(let target, let number): touchTaken(target, number, index)
      default: break
      }
      if case .channelDeleted(let number, let cid) = effect {
        end(slot!, number, cid, at: index)
        slot = nil
      } else if effect.channel == nil {
        state.assign(effect)
        touch(nil, effect.page, index)
      } else {
        if slot == nil, case .channelAssigned(let number, let cid, let created, let own) = effect {
          slot = state.insert(number, cid: cid, created: created, own: own)
          dirty.insert(slot!)
          clock.insert(slot!)
          deletions.isBack(cid)
          peekWatches.entered(state[slot!].cid)
          if !subscriptions.isEmpty { noteCreated(slot!) }
        } else {
          state.assign(effect, to: slot!)
          #if DEBUG
            state[slot!].assertInvariants(touchedBy: effect)
          #endif
        }
        touch(slot, effect.page, index)
      }
      effectBytes.writeEffect(effect)
    }
    if changesMessageCounts { touch(slot, .head, index) }
    if effectCount == 0 {
      loop.gathers(self)
      gatheringTime = state.time
    }
    effectCount += effects.count
    if bringsWideIDs { widenIDs() }
    loop.gatheredBytes += effectBytes.readableBytes - bytesBefore
    if let session { sessions.touch(session) }
    if let cutPage { trimSteps(slot!, cutPage) }
    if !walks.unstarted.isEmpty { startAnnouncements() }
    return slot
  }

  /// Whether an effect brings the first id into the shard that older builds do not take.
  private func isFirstWideID(_ effect: Effect) -> Bool { !state.hasWideIDs && effect.bringsWideIDs }

  /// Has older builds refuse the directory from here on: the effect is in the same batch as the first wide id, and then
  /// in the shard's head page.
  private func widenIDs() {
    state.assign(.idsWidened)
    effectBytes.writeEffect(.idsWidened)
    effectCount += 1
  }

  private func touch(_ slot: ChannelSlot?, _ page: PageID, _ index: LogIndex) {
    dirty.touch(slot, page, at: index, elapsed: loop.elapsedMilliseconds, loggedBytes: loggedBytes)
  }

  /// Changes that were taken are on their way no more: their pages are written without them.
  private func touchTaken(_ target: ShardID, _ number: UInt64, _ index: LogIndex) {
    for page in state.outbox.pages(for: target, through: number) { touch(nil, .outbox(page), index) }
  }

  /// The last effect that an answer about this channel tells of: on it, on its type, or on what its members hide.
  func lastEffect(_ slot: ChannelSlot) -> LogIndex {
    max(dirty.last(slot), dirty.typesLast, dirty.usersLast)
  }

  /// When an answer about this channel may leave: when the last effect on it, on its type, or on what its members hide
  /// is durable.
  func departure(_ slot: ChannelSlot) -> ReplyLane.Departure {
    departure(lastEffect(slot))
  }

  func departure(_ last: LogIndex) -> ReplyLane.Departure {
    if last <= durable { return .now }
    return last <= closed ? .withInFlight : .withGathering
  }

  // MARK: Group commit

  /// Closes the batch that gathers, and tells of what happened in it.
  func closeBatch() -> CommitGroup.Batch {
    if !subscriptions.isEmpty { _ = state.advance(clock: loop.clock) }
    tellEvents(.withGathering)
    let index = gatheringIndex
    var bytes = ByteBuffer()
    bytes.reserveCapacity(effectBytes.readableBytes + 64)
    LogBatch.write(
      index: index,
      time: state.time,
      sessions: sessions.takeTouched(at: state.time, elapsed: loop.elapsedMilliseconds),
      effectCount: effectCount,
      effects: effectBytes,
      into: &bytes
    )
    effectBytes.clear()
    effectCount = 0
    closed = index
    closedTime = state.time
    loggedBytes += UInt64(bytes.readableBytes)
    outgoing.closed = state.outbox.last
    incoming.closeBatch()
    // The head page keeps the sessions and the last index: it has to be written before the log can be cut behind this
    // batch.
    touch(nil, .shardHead, index)
    return CommitGroup.Batch(shard: state.id, index: index, bytes: bytes)
  }

  /// Everything closed is durable.
  func committed() {
    durable = closed
    durableTime = closedTime
    eventProgress.committed()
    memberChangesDurable()
  }

  /// Segments before one are trimmed by the batch that gathers: deleted when that is durable. Where there were none
  /// nothing is.
  private func noteTrim(
    _ slot: ChannelSlot,
    _ channel: ChannelNumber,
    _ rowPage: UInt32,
    before first: UInt32,
    at index: LogIndex
  ) {
    guard !state[slot].steps.segments(rowPage).isEmpty else { return }
    if trims.isEmpty { loop.trims(self) }
    let trim = CommitGroup.Trim(shard: state.id, channel: channel, rowPage: rowPage, before: first)
    trims.append((index, trim))
  }

  var hasTrims: Bool { !trims.isEmpty }

  /// Adds deletions whose reason is durable.
  func takeTrims(into group: inout CommitGroup) {
    let count = trims.prefix { $0.index <= durable }.count
    group.trims += trims.prefix(count).map(\.trim)
    trims.removeFirst(count)
  }

  /// The segments of the commit that was under way are on storage, and leave memory; one that was made anew meanwhile
  /// stays.
  func segmentsWritten() {
    for (slot, channel, page) in segmentsInFlight {
      guard case .steps(let rowPage, let segment) = page, state.isLoaded(slot),
        state[slot].number == channel, !dirty.isDirty(slot, other: page)
      else { continue }
      state.dropSegment(slot, rowPage, segment)
    }
    segmentsInFlight.removeAll(keepingCapacity: true)
  }

  /// Encodes pages that are due, as they are now. Nothing may be gathering: a page's index is that of the last closed
  /// batch, which is durable before the page is.
  ///
  /// - Returns: how many bytes were added.
  func addDuePages(to group: inout CommitGroup, budget: Int) -> Int {
    assert(!isGathering)
    var added = 0
    while added < budget {
      let entry = dirty.popDue { entry in
        loop.elapsedMilliseconds - entry.elapsed >= configuration.checkpointAgeMilliseconds
          || loggedBytes - entry.loggedBytes >= configuration.checkpointLogBytes
          || loop.memory.isPressed || purges.isPageDue(entry.since)
      }
      guard let entry else { break }
      guard let write = encode(entry) else { continue }
      added += write.bytes.readableBytes
      group.pages.append(write)
    }
    return added
  }

  /// The cut that has become possible, if it is worth its write.
  func takeCut(batchesMin: UInt64) -> CommitGroup.Cut? {
    guard !dirty.hasRecovered, tail.isEmpty else { return nil }
    var oldest = min(dirty.oldest ?? durable.next, deletions.oldest ?? durable.next)
    for ending in endings { oldest = min(oldest, ending.index) }
    let possible = LogIndex(min(oldest.rawValue - 1, durable.rawValue))
    let batchesMin = purges.isUnderWay ? 1 : batchesMin
    guard possible > cut, possible.rawValue - cut.rawValue >= batchesMin else { return nil }
    cut = possible
    return CommitGroup.Cut(shard: state.id, through: possible)
  }

  /// nil for a segment of steps that was trimmed before it was written.
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
        if segmentsInFlight.isEmpty { loop.writesSegments(self) }
        segmentsInFlight.append((slot, channel, entry.page))
      }
    } else if entry.page == .types {
      effects = state.typeEffects
    } else if case .users(let page) = entry.page {
      effects = state.userEffects(page)
    } else if case .outbox(let page) = entry.page {
      effects = state.outboxEffects(page)
    } else if entry.page == .index {
      effects = state.indexEffects
    } else if case .webhooks(let page) = entry.page {
      effects = state.webhookEffects(page)
    } else if entry.page == .tokens {
      effects = state.tokenEffects
    } else {
      let kept = sessions.records(
        elapsed: loop.elapsedMilliseconds,
        lifetimeMilliseconds: 2 * configuration.sessionLifetimeMilliseconds
      )
      effects =
        [.countersAssigned(nextChannel: state.nextChannel, time: state.time)]
        + (state.hasWideIDs ? [.idsWidened] : []) + kept.map(Effect.sessionAssigned)
    }
    var bytes = ByteBuffer()
    Page(index: closed, effects: effects).write(into: &bytes)
    let key = PageKey(shard: state.id, channel: channel, page: entry.page)
    return CommitGroup.PageWrite(key: key, cid: cid, bytes: bytes)
  }

  // MARK: Recovery

  /// Takes over the shard's own pages and indexes the log's tail by channel; channels' pages are read when they are
  /// asked for.
  private func recover(_ stored: StoredShard) throws(StorageError) {
    let id = state.id
    var included: [PageID: LogIndex] = [:]
    for (number, bytes) in stored.pages {
      let place = "shard \(id.rawValue), \(Self.name(number))"
      let page = try Self.page(bytes, place)
      included[number] = page.index
      try assign(page.effects, of: number, place)
    }
    let headIndex = included[.shardHead] ?? .zero
    let pagesIndex = included.values.max() ?? .zero
    var last: LogIndex?
    for (index, bytes) in stored.log {
      let place = "shard \(id.rawValue), log index \(index.rawValue)"
      let batch: LogBatch
      do { batch = try LogBatch(bytes.readableBytesSpan) } catch { throw .corrupt("\(place): \(error)") }
      guard batch.index == index else { throw .corrupt("\(place): holds batch \(batch.index.rawValue)") }
      if let last, index != last.next {
        throw .corrupt("\(place): follows \(last.rawValue), batches between them are missing")
      }
      if last == nil, index > max(headIndex, .zero).next {
        throw .corrupt("\(place): the batches after \(headIndex.rawValue), the head page's, are missing")
      }
      last = index
      state.assign(time: batch.time)
      if index > headIndex { for session in batch.sessions { sessions.assign(session) } }
      for effect in batch.effects {
        if case .channelDeleted(let number, let cid) = effect {
          endInTail(number, cid, at: index)
        } else if effect.channel != nil {
          if case .channelAssigned(_, let cid, _, _) = effect { deletions.isBack(cid) }
          tail.append(effect, at: index)
        } else if index > included[effect.page] ?? .zero {
          try checkFollows(effect, place)
          assignToShard(effect)
          dirty.touch(nil, effect.page, at: index, elapsed: 0, loggedBytes: 0, isRecovered: true)
        }
      }
    }
    if let last, pagesIndex > last {
      throw .corrupt("shard \(id.rawValue): its pages are ahead of its log, which ends at \(last.rawValue)")
    }
    durable = max(last ?? .zero, pagesIndex)
    closed = durable
    durableTime = state.time
    closedTime = state.time
    startTime = state.time
    cut = LogIndex((stored.log.first?.index.rawValue ?? durable.next.rawValue) - 1)
    if !stored.log.isEmpty {
      dirty.touch(nil, .shardHead, at: durable, elapsed: 0, loggedBytes: 0, isRecovered: true)
    }
  }

  private func assign(_ effects: [Effect], of page: PageID, _ place: String) throws(StorageError) {
    for effect in effects {
      guard effect.channel == nil, effect.page == page else {
        throw .corrupt("\(place): holds an effect of another page")
      }
      try checkFollows(effect, place)
      assignToShard(effect)
    }
  }

  /// A page of the shard's own, in words.
  private static func name(_ page: PageID) -> String {
    switch page {
    case .shardHead: "head page"
    case .types: "types page"
    case .users(let number): "users page \(number)"
    case .outbox(let number): "outbox page \(number)"
    case .index: "index page"
    case .webhooks(let number): "webhooks page \(number)"
    case .tokens: "tokens page"
    default: "page \(page)"
    }
  }

  /// Throws where assigning would trap: users are numbered in the order in which they come.
  private func checkFollows(_ effect: Effect, _ place: String) throws(StorageError) {
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
    guard follows else { throw .corrupt("\(place): a user's settings are out of their order") }
    if case .tokenRevoked(let revocation) = effect, revocation.version <= state.revokedTokens.version {
      throw .corrupt("\(place): the revocations of tokens are out of their order")
    }
    guard canBeOnItsWay(effect) else { throw .corrupt("\(place): a change of a membership that cannot be") }
  }

  private func assignToShard(_ effect: Effect) {
    switch effect {
    case .sessionAssigned(let record): sessions.assign(record)
    case .membershipQueued, .membershipsSent: recoverChange(effect)
    default: state.assign(effect)
    }
  }

  static func page(_ bytes: ByteBuffer, _ place: @autoclosure () -> String) throws(StorageError) -> Page {
    do { return try Page(bytes.readableBytesSpan) } catch { throw .corrupt("\(place()): \(error)") }
  }
}
