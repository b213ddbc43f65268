import DequeModule
import NIOCore
package import ReceiptModel
import ReceiptWire

/// A channel that is being read from storage, and the requests that wait for it. They hold up no other channel.
struct ChannelLoad {
  /// A request that waits, with its bytes.
  struct Waiting {
    var header: FrameHeader
    var payload: ByteBuffer
    var lane: ReplyLane
    /// The command's; nil for a query.
    var counter: UInt64?
  }

  /// The read that was asked for. Another one for the same channel may still be under way, from before it was in memory
  /// and let go: what that one brings is old, and is passed over.
  let ticket: UInt32
  var waiting: [Waiting] = []
  /// A user's index, for which there are changes.
  var isForChanges = false
  /// Read for its name only: what it brings is not taken in.
  var isForName = false
  /// Requests for unread counts that wait for it too.
  var unread: [UnreadRequest.Place] = []
  /// Walks that come to it.
  var walks: [ChannelWalks.Place] = []
}

/// What to read from storage, asked of whoever drives the loop.
package struct LoadRequest: Hashable, Sendable {
  package var shard: ShardID
  package var channel: ChannelReference
  /// Tells reads of one channel apart; handed back with what was read.
  package var ticket: UInt32
  /// No request waits for it: those that requests wait for go before it.
  package var isBehind = false
}

/// The effects of the log's tail whose channels are not in memory: indexed at recovery, applied as their channels load.
struct LogTail: ~Copyable {
  private var effects: [ChannelNumber: [(index: LogIndex, effect: Effect)]] = [:]
  /// Channels created in the tail are not found on storage by their cid yet.
  private var numbers: [[UInt8]: ChannelNumber] = [:]
  private var order: Deque<ChannelNumber> = []

  var isEmpty: Bool { effects.isEmpty }
  var count: Int { effects.count }

  mutating func append(_ effect: Effect, at index: LogIndex) {
    guard let channel = effect.channel else { return }
    if effects[channel] == nil { order.append(channel) }
    effects[channel, default: []].append((index, effect))
    if case .channelAssigned(_, let cid, _, _) = effect { numbers[Array(cid.utf8)] = channel }
  }

  func number(of cid: [UInt8]) -> ChannelNumber? { numbers[cid] }

  /// The next channel that should be loaded so that its pages can be written and the log cut.
  mutating func next() -> ChannelNumber? {
    while let channel = order.popFirst() {
      if effects[channel] != nil { return channel }
    }
    return nil
  }

  /// Channels that could not be read; they are tried again later, since they hold the log.
  private var postponed: [ChannelNumber] = []
  var hasPostponed: Bool { !postponed.isEmpty }

  mutating func postpone(_ channel: ChannelNumber) { postponed.append(channel) }

  mutating func retryPostponed() {
    order.append(contentsOf: postponed)
    postponed = []
  }

  func effects(of channel: ChannelNumber) -> [(index: LogIndex, effect: Effect)] { effects[channel] ?? [] }

  func hasEffects(on channel: ChannelNumber) -> Bool { effects[channel] != nil }

  mutating func remove(_ channel: ChannelNumber, cid: [UInt8]) {
    if numbers[cid] == channel { numbers[cid] = nil }
    effects[channel] = nil
  }

  /// The cid and head of a channel that was created in the tail.
  func head(of channel: ChannelNumber) -> (cid: String, created: Timestamp, own: OptionPatch)? {
    for (_, effect) in effects[channel] ?? [] {
      if case .channelAssigned(_, let cid, let created, let own) = effect { return (cid, created, own) }
    }
    return nil
  }
}

extension ShardEngine {
  /// Lets a request wait for its channel, and asks for the channel if nobody has yet.
  func wait(_ header: FrameHeader, _ payload: RawSpan, cid: RawSpan, lane: ReplyLane) throws(WireError) {
    let reference = ChannelReference.cid(cid.withUnsafeBytes { Array($0) })
    try wait(header, payload, for: reference, lane)
  }

  /// Lets a request wait for a channel, or, where a ticket names it by its number, first for its name.
  func wait(
    _ header: FrameHeader,
    _ payload: RawSpan,
    for reference: ChannelReference,
    _ lane: ReplyLane
  ) throws(WireError) {
    var counter: UInt64?
    if header.kind.isCommand {
      var reader = FieldReader(payload)
      if header.kind != .redeemTicket { _ = try reader.string() }
      counter = try Self.counter(&reader)
    }
    if loads[reference] == nil {
      guard loads.count - incoming.loads < configuration.loadsMax else {
        refuseUndecided(header, counter, .busy, 100, "too many channels are being loaded", lane)
        return
      }
      load(storageReference(reference), as: reference)
    }
    guard loads[reference]!.waiting.count < configuration.waitingPerLoadMax else {
      refuseUndecided(header, counter, .busy, 100, "too many requests wait for this channel", lane)
      return
    }
    if let counter {
      let session = sessionPosition(lane)
      if !sessions.covers(counter, at: session) { sessions.waits(counter, at: session) }
    }
    var bytes = ByteBuffer()
    bytes.writeRaw(payload)
    loads[reference]!.waiting.append(
      ChannelLoad.Waiting(header: header, payload: bytes, lane: lane, counter: counter)
    )
  }

  /// - Parameter isBehind: no request waits for it.
  func load(
    _ channel: ChannelReference,
    as reference: ChannelReference,
    isForName: Bool = false,
    isBehind: Bool = false
  ) {
    loadTicket &+= 1
    loads[reference] = ChannelLoad(ticket: loadTicket, isForName: isForName)
    var request = LoadRequest(shard: state.id, channel: channel, ticket: loadTicket)
    request.isBehind = isBehind
    loop.load(request, as: reference)
  }

  /// Whether this read is still wanted.
  func awaits(_ request: LoadRequest, as reference: ChannelReference) -> Bool {
    loads[reference]?.ticket == request.ticket
  }

  /// Refuses a request that was not looked at; sent again it is taken up.
  func refuseUndecided(
    _ header: FrameHeader,
    _ counter: UInt64?,
    _ code: ErrorCode,
    _ retryAfterMilliseconds: UInt32,
    _ detail: String,
    _ lane: ReplyLane
  ) {
    if let counter {
      let session = sessionPosition(lane)
      sessions.refused(counter, at: session)
    }
    refuse(header, code, retryAfterMilliseconds: retryAfterMilliseconds, detail, lane)
  }

  /// A channel that was created in the log's tail is on storage, if at all, under its number only.
  func storageReference(_ reference: ChannelReference) -> ChannelReference {
    if case .cid(let cid) = reference, let number = tail.number(of: cid) { return .number(number) }
    return reference
  }

  /// Asks for channels of the log's tail that nobody has asked for, so that the log can be cut.
  func drainTail(inFlightMax: Int) {
    if tail.hasPostponed, loop.elapsedMilliseconds >= tailRetryAt { tail.retryPostponed() }
    while tailLoads < inFlightMax, let number = tail.next() {
      tailLoads += 1
      load(.number(number), as: .number(number), isBehind: true)
    }
  }

  /// Takes a channel in from what was read, then carries out what waited for it.
  func loaded(
    _ request: LoadRequest,
    as reference: ChannelReference,
    _ result: Result<StoredChannel?, StorageError>
  ) {
    guard awaits(request, as: reference), let load = takeLoad(reference) else { return }
    defer { goOnWithIndexes(isAfterRead: true) }
    if load.isForName { return nameRead(reference, result) }
    if case .head(let number) = reference { return headRead(number, result, load.waiting) }
    var waiting = load.waiting
    var unread = load.unread
    var walking = load.walks
    do throws(StorageError) {
      let slot: ChannelSlot?
      switch result {
      case .success(let stored): slot = try install(stored, reference)
      case .failure(let error): throw error
      }
      if case .number = reference {
        tailLoads -= 1
        // Requests that wait for it by name go first: those that come in from here on find it in memory.
        if let slot, let named = takeLoad(.cid(state[slot].cid)) {
          waiting = named.waiting
          unread = named.unread
          walking = named.walks
        }
      } else if load.isForChanges {
        noteAbsent(reference)
      }
    } catch {
      if case .number(let number) = reference {
        tailLoads -= 1
        tail.postpone(number)
        tailRetryAt = loop.elapsedMilliseconds + configuration.tailRetryMilliseconds
      }
      loop.reports(error)
      for item in waiting { refuseUnread(item) }
      for place in unread { unreadLoaded(place, isReadable: false) }
      for place in walking { walkLoaded(place, isReadable: false) }
      if load.isForChanges { indexUnreadable(reference, error, number: (try? result.get())?.number) }
      rebuildUnreadable(reference, error)
      return
    }
    for (place, item) in waiting.enumerated() {
      // Its connection is gone: it is sent again on another, where it may have been refused already. Applied here it
      // would be after that.
      guard !item.lane.isClosed else {
        noteDropped(item)
        continue
      }
      do {
        if place > 0, try postpones(item.header, item.payload.readableBytesSpan, item.lane) { continue }
        try perform(item.header, item.payload.readableBytesSpan, item.lane)
      } catch {
        item.lane.fail(error)
      }
    }
    for place in unread { unreadLoaded(place, isReadable: true) }
    for place in walking { walkLoaded(place, isReadable: true) }
  }

  /// A load that is not under way any more.
  private func takeLoad(_ reference: ChannelReference) -> ChannelLoad? {
    guard let load = loads.removeValue(forKey: reference) else { return nil }
    if load.isForChanges { incoming.loads -= 1 }
    return load
  }

  func refuseUnread(_ item: ChannelLoad.Waiting) {
    refuseUndecided(item.header, item.counter, .unavailable, 1000, "the channel cannot be read", item.lane)
  }

  func noteDropped(_ item: ChannelLoad.Waiting) {
    if let counter = item.counter { sessions.refused(counter, at: sessionPosition(item.lane)) }
  }

  /// - Returns: the channel's slot, where it was taken in now.
  private func install(
    _ stored: StoredChannel?,
    _ reference: ChannelReference
  ) throws(StorageError) -> ChannelSlot? {
    // A channel of the tail that was asked for by name meanwhile, and is in memory with its tail.
    if case .number(let asked) = reference, tail.effects(of: asked).isEmpty { return nil }
    var number: ChannelNumber
    if let stored {
      number = stored.number
    } else {
      switch reference {
      case .number(let asked), .head(let asked): number = asked
      case .cid(let cid):
        guard let created = tail.number(of: cid) else { return nil }
        number = created
      }
    }
    let place = "shard \(state.id.rawValue), channel \(number.rawValue)"
    var pages: [(page: PageID, content: Page)] = []
    for (page, bytes) in stored?.pages ?? [] {
      let content = try Self.page(bytes, "\(place), page \(page)")
      guard content.index <= closed else {
        throw .corrupt(
          "\(place), page \(page): of log index \(content.index.rawValue), which is not written yet"
        )
      }
      pages.append((page, content))
    }
    var head = tail.head(of: number)
    if case .channelAssigned(_, let cid, let created, let own)? = pages.first?.content.effects.first {
      head = (cid, created, own)
    }
    guard let head else {
      // Nothing on storage and nothing in the tail: somebody else has taken it in already.
      if stored == nil, tail.effects(of: number).isEmpty { return nil }
      throw .corrupt("\(place): the head page is missing")
    }
    let cid = Array(head.cid.utf8)
    if case .cid(let asked) = reference, asked != cid {
      throw .corrupt("\(place): was found under another cid than its own")
    }
    guard state.slot(named: cid) == nil else { return nil }
    let content = try LoadedContent(number, pages, tail.effects(of: number), place)
    // To assign four effects takes as long as to put one member.
    loop.entriesLeft -= 1 + content.effects.count / 4
    let begun = tail.effects(of: number).first { $0.effect == .deletionBegun(number) }?.index
    let slot = state.insert(number, cid: head.cid, created: head.created, own: head.own)
    dirty.insert(slot)
    clock.insert(slot)
    peekWatches.entered(cid)
    let isWatched = subscriptions.entered(cid, slot)
    tail.remove(number, cid: cid)
    for effect in content.effects { state.assign(effect, to: slot) }
    for (page, index) in content.newer {
      dirty.touch(slot, page, at: index, elapsed: 0, loggedBytes: 0, isRecovered: true)
    }
    if isWatched, let number = subscriptions.number(in: slot) { findExpiry(number, slot) }
    if state[slot].isEnding { resumeEnding(slot, at: begun ?? closed) }
    return slot
  }
}

/// What a channel is made of: page by page its effects, then those of the tail that are addressed to it and newer.
/// Pages do not depend on each other, but a segment has to be whole before the next one begins.
private struct LoadedContent {
  private(set) var effects: [Effect] = []
  /// Pages that have effects in the log only, and the place of each such effect.
  private(set) var newer: [(page: PageID, index: LogIndex)] = []
  private var rows: UInt32 = 0
  private var newest: UInt32 = 0
  /// The highest position that a row names.
  private var named: UInt32 = 0
  private var threads = ThreadContents()
  /// The messages up to here are gone.
  private var truncated: UInt32 = 0
  /// Pages of a user's index: there is none without those before it.
  private var membershipPages: UInt32 = 0

  /// Throws where the effects cannot follow each other: assigning them would trap.
  init(
    _ number: ChannelNumber,
    _ pages: [(page: PageID, content: Page)],
    _ tail: [(index: LogIndex, effect: Effect)],
    _ place: String
  ) throws(StorageError) {
    var tails: [PageID: [(index: LogIndex, effect: Effect)]] = [:]
    for item in tail { tails[item.effect.page, default: []].append(item) }
    var contents: [PageID: Page] = [:]
    for (page, content) in pages { contents[page] = content }
    for page in Set(contents.keys).union(tails.keys).sorted(by: { $0.sortKey < $1.sortKey }) {
      let included = contents[page]?.index ?? .zero
      if case .memberships(let number) = page {
        guard number == membershipPages else {
          throw .corrupt("\(place), page \(page): the one before it is missing")
        }
        membershipPages += 1
      }
      for effect in contents[page]?.effects ?? [] {
        guard effect.channel == number, effect.page == page, follows(effect) else {
          throw .corrupt("\(place), page \(page): an effect that has no place there")
        }
        effects.append(effect)
      }
      for (index, effect) in tails[page] ?? [] where index > included {
        guard follows(effect) else {
          throw .corrupt("\(place), page \(page), log index \(index.rawValue): what it builds on is missing")
        }
        effects.append(effect)
        newer.append((page, index))
      }
      // A segment may have been written and its channel's head not yet.
      for (index, effect) in tails[page] ?? [] where effect.changesMessageCounts {
        if index > contents[.head]?.index ?? .zero { newer.append((.head, index)) }
      }
    }
    for (index, effect) in tail { noteEmptied(by: effect, at: index, contents) }
    guard truncated <= newest else {
      throw .corrupt("\(place): truncated up to message \(truncated), there are \(newest)")
    }
    guard named <= newest else {
      throw .corrupt("\(place): a row names message \(named), there are \(newest)")
    }
    if let parent = threads.firstBroken {
      throw .corrupt("\(place), thread of message \(parent.rawValue): a row names a reply that is not there")
    }
  }

  /// A message that is gone takes its acknowledgements with it: their page may be older than the one that says so, and
  /// has to be written again.
  private mutating func noteEmptied(by effect: Effect, at index: LogIndex, _ contents: [PageID: Page]) {
    func isStale(_ page: PageID) -> Bool {
      contents[page].map { $0.index < index && !$0.effects.isEmpty } ?? false
    }
    switch effect {
    case .messageDeleted(_, let sequence, _):
      if isStale(.receipts(sequence)) { newer.append((.receipts(sequence), index)) }
    case .truncated(_, let through, _):
      for page in contents.keys.sorted(by: { $0.sortKey < $1.sortKey }) where isStale(page) {
        if case .receipts(let sequence) = page, sequence <= through { newer.append((page, index)) }
      }
    default: break
    }
  }

  private mutating func follows(_ effect: Effect) -> Bool {
    switch effect {
    case .channelAssigned, .optionsChanged, .messageCountsAssigned, .segmentsNoted, .deletionBegun:
      return true
    case .truncated(_, let through, _):
      // The segments come later.
      truncated = max(truncated, through.rawValue)
      return true
    case .rowErased(_, let row, _):
      return row.rawValue < rows
    case .senderErased(_, let sequence):
      return sequence.rawValue <= newest
    case .rowAssigned(_, let row, let record):
      guard row.rawValue <= rows, record.hasLeft || !record.user.isEmpty else { return false }
      rows = max(rows, row.rawValue + 1)
      named = max(named, record.joined.rawValue, record.read.rawValue, record.delivered.rawValue)
      named = max(named, record.marker?.rawValue ?? 0)
      return true
    case .readMoved(_, let row, let sequence, _, _), .deliveredMoved(_, let row, let sequence, _, _),
      .deliveredAcked(_, let row, let sequence, _, _, _),
      .acknowledgedThrough(_, let row, let sequence):
      named = max(named, sequence.rawValue)
      return row.rawValue < rows
    case .markerAssigned(_, let row, let marker, _, _):
      named = max(named, marker?.rawValue ?? 0)
      return row.rawValue < rows
    case .rowLeft(_, let row, _), .roleAssigned(_, let row, _), .muteAssigned(_, let row, _),
      .unreadFlagAssigned(_, let row, _, _, _):
      return row.rawValue < rows
    case .messageAssigned(_, let sequence, let record):
      guard sequence.rawValue <= newest || sequence.rawValue - 1 == newest else { return false }
      guard record.id.utf8.count <= Identifier.messageLengthMax else { return false }
      newest = max(newest, sequence.rawValue)
      return true
    case .messageDeleted(_, let sequence, _):
      return sequence.rawValue <= newest
    case .acknowledged(_, let sequence, let acknowledgement):
      return sequence.rawValue <= newest && acknowledgement.row.rawValue < rows
    case .acknowledgementForgotten(_, let sequence, let row):
      return sequence.rawValue <= newest && row.rawValue < rows
    case .stepTailCut(_, let rowPage, _):
      return rowPage * PageID.rowsPerPage < rows
    case .stepsTrimmed(_, let rowPage, let first):
      return rowPage * PageID.rowsPerPage < rows && first < StepTable.segmentsMax
    case .stepTailAssigned(_, let rowPage, let record):
      return rowPage * PageID.rowsPerPage < rows && record.isWhole
    case .stepsSealed(_, let rowPage, let segment, let bytes):
      return rowPage * PageID.rowsPerPage < rows && segment < StepTable.segmentsMax
        && StepBytes.areWhole(bytes)
    case .inThread(let parent, let effect):
      return parent.rawValue <= newest && threads.follows(effect, parent)
    case .membershipAssigned(_, let place, let membership):
      return place < MembershipTable.placesMax && membership.cid.utf8.count <= Identifier.cidLengthMax
        && (membership.row != nil || !membership.isMember)
    case .membershipRemoved(_, let place):
      return place < MembershipTable.placesMax
    case .channelTypeAssigned, .typeSettled, .userAssigned, .userSettled, .userErased, .countersAssigned,
      .sessionAssigned, .channelDeleted, .membershipQueued, .membershipsSent, .membershipsTaken,
      .indexEpochAssigned, .webhookNoted, .tokenRevoked, .idsWidened:
      return false
    }
  }
}

extension PageID {
  /// Head, rows, segments, receipts, memberships, threads, steps, each in rising order: the order of the keys on
  /// storage, and of assignment.
  package var sortKey: UInt64 {
    switch self {
    case .head: 0
    case .rows(let number): 1 << 32 | UInt64(number)
    case .segment(let number): 2 << 32 | UInt64(number)
    case .types: 3 << 32
    case .shardHead: 4 << 32
    case .receipts(let sequence): 5 << 32 | UInt64(sequence.rawValue)
    case .users(let number): 7 << 32 | UInt64(number)
    case .outbox(let number): 8 << 32 | UInt64(number)
    case .index: 9 << 32
    case .memberships(let number): 10 << 32 | UInt64(number)
    case .webhooks(let number): 11 << 32 | UInt64(number)
    case .tokens: 12 << 32
    // A thread's pages are together, rows first.
    case .threadRows(let parent, let number): 1 << 56 | UInt64(parent.rawValue) << 24 | UInt64(number)
    case .threadSegment(let parent, let number):
      1 << 56 | UInt64(parent.rawValue) << 24 | Self.threadSegmentBit | UInt64(number)
    // Behind all pages that are read with a channel.
    case .steps(let rowPage, let segment): 2 << 56 | UInt64(rowPage) << 32 | UInt64(segment)
    }
  }

  private static let threadSegmentBit: UInt64 = 1 << 23

  /// The keys of all threads' pages.
  package static let threadSortKeys: Range<UInt64> = 1 << 56..<2 << 56

  /// Whether it is a segment of steps, which is not read with its channel.
  package var isOfSteps: Bool {
    if case .steps = self { return true }
    return false
  }

  /// Whether it is one of the shard's own, not a channel's.
  package var isOfShard: Bool {
    switch self {
    case .types, .shardHead, .users, .index, .tokens: true
    case .outbox(let number): UInt64(number) < Self.outboxPages
    case .webhooks(let number): number < Self.webhookPages
    case .head, .rows, .segment, .receipts, .steps, .threadRows, .threadSegment, .memberships: false
    }
  }
  /// Whether it is a page of a thread.
  package var isOfThread: Bool { Self.threadSortKeys.contains(sortKey) }

  /// The page of a key made with ``sortKey``.
  package init?(sortKey: UInt64) {
    let number = UInt32(truncatingIfNeeded: sortKey)
    switch sortKey >> 56 {
    case 0: break
    case 1:
      let parent = SequenceNumber(UInt32(truncatingIfNeeded: sortKey >> 24))
      let page = number & UInt32(Self.threadSegmentBit - 1)
      self =
        sortKey & Self.threadSegmentBit == 0 ? .threadRows(parent, page) : .threadSegment(parent, page)
      return
    case 2 where sortKey >> 48 & 0xFF == 0:
      self = .steps(UInt32(sortKey >> 32 & 0xFFFF), number)
      return
    default: return nil
    }
    switch sortKey >> 32 {
    case 0 where number == 0: self = .head
    case 1: self = .rows(number)
    case 2: self = .segment(number)
    case 3 where number == 0: self = .types
    case 4 where number == 0: self = .shardHead
    case 5: self = .receipts(SequenceNumber(number))
    case 7: self = .users(number)
    case 8: self = .outbox(number)
    case 9 where number == 0: self = .index
    case 10: self = .memberships(number)
    case 11: self = .webhooks(number)
    case 12 where number == 0: self = .tokens
    default: return nil
    }
  }
}
