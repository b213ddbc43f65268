import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// A scan over channels, for a request or a change of a channel type. It loads channels that are not in memory, a few
/// at a time.
struct ChannelScan {
  enum Purpose {
    /// Collect the changes in each channel at or after a time (Proto/frames.md, subscribe).
    case changes(since: Timestamp)
    /// Send to watchers how others see a user's row since a time (announce_row).
    case row(of: [UInt8], at: Timestamp)
    /// Send the options of all watched channels of a type, which changed at a time.
    case options(ofType: [UInt8], at: Timestamp)
    /// Report expired receipts in watched channels, of which the first expired at `since`.
    case expiries(since: Timestamp)
  }

  /// Changes that were found in one channel.
  struct Found {
    let cid: [UInt8]
    /// *channel events*; empty if nothing has changed.
    var bytes: ByteBuffer
    var events: Int
    /// The channel's change count when it was scanned.
    var changes: UInt32
  }

  let purpose: Purpose
  /// A request waits for the walk.
  let isRequested: Bool
  /// A request waits for this ticket, if any does.
  var ticket: UInt32 = 0
  /// Start time, in the loop's elapsed time.
  var began: Int64 = 0
  /// Channels still to scan.
  var cids: Deque<[UInt8]> = []
  /// Of `options`: number of the next watched channel.
  var next = 0
  /// Channel loads in flight.
  var loading = 0
  private(set) var found: [Found] = []
  /// Number of events in ``found``, and their bytes.
  private(set) var events = 0
  private(set) var bytes = 0
  /// Last effect that the answer reveals.
  var last = LogIndex.zero
  /// Latest receipt expiry that the answer reveals; none if it reveals none.
  var expiry = Timestamp.none

  mutating func add(_ item: Found) {
    found.append(item)
    events += item.events
    bytes += item.bytes.readableBytes
  }

  /// Moves stale channels from the found ones back to those to scan.
  mutating func requeueStale(where isStale: (Found) -> Bool) {
    let all = found
    found = []
    (events, bytes) = (0, 0)
    for item in all {
      if isStale(item) { cids.append(item.cid) } else { add(item) }
    }
  }
}

/// The walks of a shard that are in progress.
final class ChannelScans: ShardPart {
  /// A channel load that a walk waits for.
  struct Place {
    var ticket: UInt32
    var cid: [UInt8]
  }

  private var walks: [UInt32: ChannelScan] = [:]
  private var ticket: UInt32 = 0
  /// Walks to resume in a later turn; the first has the next turn.
  private var postponed: Deque<UInt32> = []
  /// Changes of types whose walks have not started, in arrival order.
  private var unstarted: [ChannelScan] = []

  var hasUnstarted: Bool { !unstarted.isEmpty }

  private func nextTicket() -> UInt32 {
    ticket &+= 1
    return ticket
  }

  private func take(_ ticket: UInt32) -> ChannelScan? { walks.removeValue(forKey: ticket) }

  private func keep(_ walk: ChannelScan, _ ticket: UInt32) { walks[ticket] = walk }

  /// Time of the oldest change of a type, expiry or change of a user's privacy that is not sent to all watchers yet;
  /// none if there is none.
  var oldest: Timestamp {
    var oldest = Timestamp.none
    for walk in unstarted { Self.lower(&oldest, walk) }
    for walk in walks.values { Self.lower(&oldest, walk) }
    return oldest
  }

  private static func lower(_ oldest: inout Timestamp, _ walk: ChannelScan) {
    switch walk.purpose {
    case .options(_, let time), .row(_, let time), .expiries(let time):
      oldest = oldest == .none ? time : min(oldest, time)
    case .changes: break
    }
  }

  /// Maximum number of events in one answer; beyond it the gateway must fetch everything.
  static let changesMax = 1_024
  /// Maximum size of one answer in bytes, so that it fits into a frame.
  private static let changesBytesMax = 768 << 10
  /// Cost of scanning a channel besides its rows, in rows.
  private static let rowsPerLook = 64

  /// Begins a walk, and runs it as far as one turn has room.
  func begin(_ walk: ChannelScan) { begin(walk, nextTicket()) }

  /// Begins a walk that answers a request.
  func begin(_ walk: ChannelScan, for request: borrowing Request) -> Outcome {
    let ticket = nextTicket()
    let outcome = shard.waiting.add(request.header, request.lane, for: .walk(ticket))
    if case .waits = outcome { begin(walk, ticket) }
    return outcome
  }

  private func begin(_ walk: ChannelScan, _ ticket: UInt32) {
    var walk = walk
    walk.ticket = ticket
    walk.began = shard.loop.elapsedMilliseconds
    runSlice(walk, ticket)
  }

  /// Drops a walk whose request's connection is gone. Loads in flight are ignored when they end.
  func cancel(_ ticket: UInt32) { walks[ticket] = nil }

  func isRunning(_ ticket: UInt32) -> Bool { walks[ticket] != nil }

  /// Queues a walk for a type whose options change in the gathering batch.
  func announceOptions(ofType name: String) {
    unstarted.append(
      ChannelScan(purpose: .options(ofType: Array(name.utf8), at: shard.state.time), isRequested: false)
    )
  }

  /// Begins the queued walks for changed types.
  func startAnnouncements() {
    while !unstarted.isEmpty { begin(unstarted.removeFirst()) }
  }

  /// Resumes a walk that an earlier turn had no room for.
  func resume() {
    guard let ticket = postponed.popFirst() else { return }
    // Long queries may have used up this turn's rows.
    shard.loop.budget.allowShortRows()
    if let walk = take(ticket) { runSlice(walk, ticket) }
    if !postponed.isEmpty { shard.loop.slices.queueForWork(shard) }
  }

  private func runSlice(_ walk: consuming ChannelScan, _ ticket: UInt32) {
    var walk = walk
    // Without its request the walk is dropped: the client asks again on another connection.
    if walk.isRequested, !shard.waiting.hasWaiting(.walk(ticket)) { return }
    if case .changes = walk.purpose, isLate(walk) {
      return refuse(walk, .busy, retryAfterMilliseconds: 1_000, "the replay of changes timed out")
    }
    while true {
      // A walk with nothing left to scan finishes in this turn: a busy channel would be stale again in a later one.
      while walk.loading < shard.configuration.walkLoadsMax, hasNext(walk) {
        guard shard.loop.budget.rows > 0 else {
          keep(walk, ticket)
          return postpone(ticket)
        }
        guard let cid = nextChannel(&walk) else { break }
        guard examine(cid, &walk, ticket) else { return }
      }
      guard walk.loading == 0, walk.cids.isEmpty else { return keep(walk, ticket) }
      if case .options = walk.purpose, walk.next < shard.events.channelCount { continue }
      if requeueStaleChannels(&walk) { continue }
      break
    }
    finish(walk)
  }

  private func isLate(_ walk: borrowing ChannelScan) -> Bool {
    shard.loop.elapsedMilliseconds - walk.began > shard.configuration.walkMilliseconds
  }

  private func postpone(_ ticket: UInt32) {
    if !postponed.contains(ticket) { postponed.append(ticket) }
    shard.loop.slices.queueForWork(shard)
  }

  private func hasNext(_ walk: borrowing ChannelScan) -> Bool {
    guard case .options = walk.purpose else { return !walk.cids.isEmpty }
    return walk.next < shard.events.channelCount
  }

  private func nextChannel(_ walk: inout ChannelScan) -> [UInt8]? {
    guard case .options(let type, _) = walk.purpose else { return walk.cids.popFirst() }
    while walk.next < shard.events.channelCount, shard.loop.budget.rows > 0 {
      shard.loop.budget.useRows(1)
      walk.next += 1
      if let cid = shard.events.watchedChannel(walk.next - 1), cid.starts(with: type),
        cid[type.count] == UInt8(ascii: ":")
      {
        return cid
      }
    }
    return nil
  }

  /// Scans one channel, or loads it first.
  ///
  /// - Returns: false if the walk has ended, with a refusal or without an answer.
  private func examine(_ cid: [UInt8], _ walk: inout ChannelScan, _ ticket: UInt32) -> Bool {
    if let slot = shard.state.slot(of: cid.span.bytes) { return examine(slot, cid, &walk) }
    if shard.deletions.index(absent: cid) != nil {
      recordAbsence(cid, &walk)
      return true
    }
    let reference = ChannelReference.cid(cid)
    if !shard.loads.isInFlight(reference) {
      guard shard.loads.hasRoom || !walk.isRequested else {
        refuse(walk, .busy, retryAfterMilliseconds: 100, "too many channels are being loaded")
        return false
      }
      shard.loads.load(reference)
    }
    shard.loads.add(Place(ticket: ticket, cid: cid), to: reference)
    walk.loading += 1
    return true
  }

  /// - Returns: false if the walk has ended.
  private func examine(_ slot: ChannelSlot, _ cid: [UInt8], _ walk: inout ChannelScan) -> Bool {
    shard.loop.budget.useRows(Self.rowsPerLook)
    shard.state.refresh(slot)
    switch walk.purpose {
    case .changes(let since):
      walk.last = max(walk.last, shard.dirty.last(slot))
      guard !shard.state[slot].isBeingDeleted else {
        recordAbsence(cid, &walk)
        return true
      }
      // What the client knows under this name is from an earlier channel.
      let deletedAt = shard.state.isNew(slot, since: since) ? shard.state[slot].created : .none
      var left = shard.loop.budget.rows
      let events = shard.state.events(
        in: slot,
        since: since,
        limit: Self.changesMax - walk.events,
        statusesMax: shard.configuration.walkStatusesMax,
        left: &left
      )
      shard.loop.budget.useRows(shard.loop.budget.rows - left)
      guard let events, add(events, cid, slot, deletedAt: deletedAt, &walk)
      else {
        answerIncomplete(walk)
        return false
      }
      if events.contains(where: \.isReceipt) {
        walk.expiry = max(walk.expiry, shard.state.lastExpiry(in: slot))
      }
    case .row(let user, let changedAt):
      shard.loop.budget.useRows(shard.state[slot].rows.rowCount)
      guard shard.events.recordSettingsChange(of: user, in: slot, since: changedAt) else { return true }
      walk.last = max(walk.last, shard.dirty.last(slot))
    case .options(_, let changedAt):
      shard.loop.budget.useRows(shard.state[slot].rows.rowCount)
      shard.events.recordOptionsChange(in: slot, since: changedAt)
    case .expiries:
      shard.events.recordExpiries(slot)
    }
    return true
  }

  /// Records that a channel does not exist: it has no rows and no options.
  private func recordAbsence(_ cid: [UInt8], _ walk: inout ChannelScan) {
    shard.loop.budget.useRows(Self.rowsPerLook)
    guard case .changes = walk.purpose else { return }
    walk.last = max(walk.last, shard.deletions.last)
    _ = add([], cid, nil, deletedAt: shard.state.advance(clock: shard.loop.clock), &walk)
  }

  /// - Parameter deletedAt: time at which the channel, or an earlier one of that name, was found deleted; none if it
  ///   still exists.
  /// - Returns: false if the answer has become too large.
  private func add(
    _ events: [ChannelEvent],
    _ cid: [UInt8],
    _ slot: ChannelSlot?,
    deletedAt: Timestamp,
    _ walk: inout ChannelScan
  ) -> Bool {
    var bytes = ByteBuffer()
    var count = 0
    if deletedAt != .none || !events.isEmpty {
      var written = ByteBuffer()
      if deletedAt != .none {
        written.writeDeletedEvent(at: deletedAt)
        count = 1
      }
      if let slot {
        for event in events { count += written.writeLimitedEvent(event, slot, in: &shard.state) }
      }
      bytes.writeField(cid.span.bytes)
      bytes.writeVarint(count)
      bytes.writeBuffer(&written)
    }
    walk.add(
      ChannelScan.Found(
        cid: cid,
        bytes: bytes,
        events: count,
        changes: shard.events.changes(in: cid)
      )
    )
    return walk.events <= Self.changesMax && walk.bytes <= Self.changesBytesMax
  }

  /// Queues channels for another scan if they changed while others were read: event frames with these changes may have
  /// left already, and the answer must not revert them.
  ///
  /// - Returns: whether there are any.
  private func requeueStaleChannels(_ walk: inout ChannelScan) -> Bool {
    walk.requeueStale { $0.changes != shard.events.changes(in: $0.cid) }
    return !walk.cids.isEmpty
  }

  // MARK: Completion

  private func finish(_ walk: ChannelScan) {
    switch walk.purpose {
    case .changes:
      let told = shard.events.progressForReply()
      let last = max(walk.last, shard.dirty.typesLast, shard.dirty.usersLast)
      let found = walk.found.filter { $0.events > 0 }
      for request in shard.waiting.take(.walk(walk.ticket)) {
        let replyTiming = shard.replyTiming(last, revealingExpiryAt: walk.expiry, request.lane)
        shard.reply(request.header, max(told.replyTiming, replyTiming), request.lane) { buffer in
          buffer.writeTime(told.time)
          buffer.writeInteger(UInt8(1))
          buffer.writeVarint(found.count)
          for item in found { buffer.writeImmutableBuffer(item.bytes) }
        }
      }
    case .row:
      for request in shard.waiting.take(.walk(walk.ticket)) {
        let replyTiming = shard.replyTiming(max(walk.last, shard.dirty.usersLast))
        shard.reply(request.header, replyTiming, request.lane) { _ in }
      }
      shard.events.sendUnbatchedEvents()
    case .options, .expiries: shard.events.sendUnbatchedEvents()
    }
  }

  private func answerIncomplete(_ walk: ChannelScan) {
    for request in shard.waiting.take(.walk(walk.ticket)) {
      answerIncomplete(request.header, request.lane)
    }
  }

  /// Answers that the changes are too many or unknown, so that the gateway must fetch everything.
  @discardableResult
  func answerIncomplete(_ header: FrameHeader, _ lane: ReplyLane) -> Outcome {
    let (through, replyTiming) = shard.events.progressForReply()
    return shard.reply(header, replyTiming, lane) { buffer in
      buffer.writeTime(through)
      buffer.writeInteger(UInt8(0))
      buffer.writeVarint(0)
    }
  }

  /// Refuses the walk's request. Its subscriptions stay: another request of the connection may have relied on them
  /// meanwhile.
  private func refuse(
    _ walk: ChannelScan,
    _ code: ErrorCode,
    retryAfterMilliseconds: UInt32,
    _ detail: String
  ) {
    let refused = RefusedRequest(code, retryAfterMilliseconds: retryAfterMilliseconds, detail)
    for request in shard.waiting.take(.walk(walk.ticket)) {
      shard.refuse(request.header, refused, request.lane)
    }
  }

  // MARK: Results of reads

  /// Handles a finished or failed load of a channel that a walk waits for.
  func scanLoaded(_ place: ChannelScans.Place, isReadable: Bool) {
    guard var walk = take(place.ticket) else { return }
    walk.loading -= 1
    if let slot = shard.state.slot(of: place.cid.span.bytes) {
      if !examine(slot, place.cid, &walk) { return }
    } else if isReadable {
      recordAbsence(place.cid, &walk)
    } else if walk.isRequested {
      return refuse(walk, .unavailable, retryAfterMilliseconds: 1_000, "a channel cannot be read")
    }
    runSlice(walk, place.ticket)
  }
}
