internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The scans of a shard that are in progress.
final class ChannelScans: ShardPart {
  /// A channel load that a scan waits for.
  struct PendingLoad {
    var scanID: UInt32
    var cid: [UInt8]
  }

  private var scans: [UInt32: ChannelScan] = [:]
  /// Id of the last scan.
  private var lastScanID: UInt32 = 0
  /// Scans to resume in a later turn; the first has the next turn.
  private var postponed: Deque<UInt32> = []
  /// Changes of types whose scans have not started, in arrival order.
  private var unstarted: [ChannelScan] = []

  var hasUnstarted: Bool { !unstarted.isEmpty }

  private func nextScanID() -> UInt32 {
    lastScanID &+= 1
    return lastScanID
  }

  private func take(_ scanID: UInt32) -> ChannelScan? { scans.removeValue(forKey: scanID) }

  private func keep(_ scan: ChannelScan) { scans[scan.scanID] = scan }

  /// Time of the oldest change of a type, expiry or change of a user's privacy that is not sent to all watchers yet;
  /// none if there is none.
  var oldest: Timestamp {
    var oldest = Timestamp.none
    for scan in unstarted { Self.lower(&oldest, scan) }
    for scan in scans.values { Self.lower(&oldest, scan) }
    return oldest
  }

  private static func lower(_ oldest: inout Timestamp, _ scan: ChannelScan) {
    switch scan.purpose {
    case .options(_, let time), .row(_, let time), .expiries(let time):
      oldest = oldest == .none ? time : min(oldest, time)
    case .changes: break
    }
  }

  /// Maximum number of events in one reply; beyond it the gateway must fetch everything.
  static let changesMax = 1_024
  /// Maximum size of one reply in bytes, so that it fits into a frame.
  private static let changesBytesMax = 768 << 10
  /// Cost of scanning a channel besides its rows, in rows.
  private static let rowsPerChannel = 64

  /// Begin a scan, and run it as far as one turn has room.
  func begin(_ scan: ChannelScan) { begin(scan, nextScanID()) }

  /// Begin a scan that answers a request.
  func begin(_ scan: ChannelScan, for request: borrowing Request) -> Outcome {
    let scanID = nextScanID()
    let outcome = shard.waiting.add(request.header, request.lane, for: .scan(scanID))
    if case .waits = outcome { begin(scan, scanID) }
    return outcome
  }

  private func begin(_ scan: ChannelScan, _ scanID: UInt32) {
    var scan = scan
    scan.scanID = scanID
    scan.began = shard.loop.elapsedMilliseconds
    runSlice(scan)
  }

  /// Drop a scan whose request's connection is gone. Loads in flight are ignored when they end.
  func cancel(_ scanID: UInt32) { scans[scanID] = nil }

  func isRunning(_ scanID: UInt32) -> Bool { scans[scanID] != nil }

  /// Queue a scan for a type whose options change in the open batch.
  func announceOptions(ofType name: String) {
    unstarted.append(ChannelScan(purpose: .options(ofType: Array(name.utf8), at: shard.state.time), isRequested: false))
  }

  /// Begin the queued scans for changed types.
  func startAnnouncements() {
    while !unstarted.isEmpty { begin(unstarted.removeFirst()) }
  }

  /// Resume a scan that an earlier turn had no room for.
  func resume() {
    guard let scanID = postponed.popFirst() else { return }
    // Long queries may have used up this turn's rows.
    shard.loop.budget.allowShortRows()
    if let scan = take(scanID) { runSlice(scan) }
    if !postponed.isEmpty { shard.loop.slices.queueForWork(shard) }
  }

  private func runSlice(_ scan: consuming ChannelScan) {
    var scan = scan
    // Without its request the scan is dropped: the client asks again on another connection.
    if scan.isRequested, !shard.waiting.hasWaiting(.scan(scan.scanID)) { return }
    if case .changes = scan.purpose, isLate(scan) {
      return refuse(scan, .busy, retryAfterMilliseconds: 1_000, "the replay of changes timed out")
    }
    while true {
      // A scan with nothing left to scan finishes in this turn: a busy channel would be stale again in a later one.
      while scan.loading < shard.configuration.scanLoadsMax, hasNext(scan) {
        guard shard.loop.budget.rows > 0 else {
          keep(scan)
          return postpone(scan.scanID)
        }
        guard let cid = nextChannel(&scan) else { break }
        guard examine(cid, &scan) else { return }
      }
      guard scan.loading == 0, scan.cids.isEmpty else { return keep(scan) }
      if case .options = scan.purpose, scan.next < shard.events.channelCount { continue }
      if requeueStaleChannels(&scan) { continue }
      break
    }
    finish(scan)
  }

  private func isLate(_ scan: borrowing ChannelScan) -> Bool {
    shard.loop.elapsedMilliseconds - scan.began > shard.configuration.scanMilliseconds
  }

  private func postpone(_ scanID: UInt32) {
    if !postponed.contains(scanID) { postponed.append(scanID) }
    shard.loop.slices.queueForWork(shard)
  }

  private func hasNext(_ scan: borrowing ChannelScan) -> Bool {
    guard case .options = scan.purpose else { return !scan.cids.isEmpty }
    return scan.next < shard.events.channelCount
  }

  private func nextChannel(_ scan: inout ChannelScan) -> [UInt8]? {
    guard case .options(let type, _) = scan.purpose else { return scan.cids.popFirst() }
    while scan.next < shard.events.channelCount, shard.loop.budget.rows > 0 {
      shard.loop.budget.useRows(1)
      scan.next += 1
      if let cid = shard.events.watchedChannel(scan.next - 1), cid.starts(with: type),
        cid[type.count] == UInt8(ascii: ":")
      {
        return cid
      }
    }
    return nil
  }

  /// Scan one channel, or load it first.
  ///
  /// - Returns: false if the scan has ended, with a refusal or without a reply.
  private func examine(_ cid: [UInt8], _ scan: inout ChannelScan) -> Bool {
    if let slot = shard.state.slot(of: cid.span.bytes) { return examine(slot, cid, &scan) }
    if shard.deletions.index(absent: cid) != nil {
      recordAbsence(cid, &scan)
      return true
    }
    let reference = ChannelReference.cid(cid)
    if !shard.loads.isInFlight(reference) {
      guard shard.loads.hasRoom || !scan.isRequested else {
        refuse(scan, .busy, retryAfterMilliseconds: 100, "too many channels are being loaded")
        return false
      }
      shard.loads.load(reference)
    }
    shard.loads.add(.scan(PendingLoad(scanID: scan.scanID, cid: cid)), to: reference)
    scan.loading += 1
    return true
  }

  /// - Returns: false if the scan has ended.
  private func examine(_ slot: ChannelSlot, _ cid: [UInt8], _ scan: inout ChannelScan) -> Bool {
    shard.loop.budget.useRows(Self.rowsPerChannel)
    guard !shard.state[slot].isBeingDeleted else {
      scan.last = max(scan.last, shard.dirty.last(slot))
      recordAbsence(cid, &scan)
      return true
    }
    shard.refresh(slot)
    switch scan.purpose {
    case .changes(let since):
      scan.last = max(scan.last, shard.dirty.last(slot))
      // What the client knows under this name is from an earlier channel.
      let deletedAt = shard.state.isNew(slot, since: since) ? shard.state[slot].created : .none
      let events = shard.channelEvents(in: slot, since: since, limit: Self.changesMax - scan.events)
      guard let events, add(events, cid, slot, deletedAt: deletedAt, &scan) else {
        replyIncomplete(scan)
        return false
      }
      if events.contains(where: \.isAcknowledgement) {
        scan.expiry = max(scan.expiry, shard.state[slot].lastExpiry(through: shard.state.time))
      }
    case .row(let user, let changedAt):
      shard.loop.budget.useRows(shard.state[slot].rows.rowCount)
      let changed = shard.applySettingsChange(of: user.span.bytes, in: slot)
      if shard.feed.isOn { shard.feed.recordSettingsChange(of: user.span.bytes, in: slot, changed) }
      guard shard.events.recordSettingsChange(of: user, in: slot, changed, since: changedAt) else { return true }
      scan.last = max(scan.last, shard.dirty.last(slot))
    case .options(_, let changedAt):
      shard.loop.budget.useRows(shard.state[slot].rows.rowCount)
      shard.events.recordOptionsChange(in: slot, since: changedAt)
    case .expiries: shard.events.recordExpiries(slot)
    }
    return true
  }

  /// Record that a channel does not exist: it has no rows and no options.
  private func recordAbsence(_ cid: [UInt8], _ scan: inout ChannelScan) {
    shard.loop.budget.useRows(Self.rowsPerChannel)
    guard case .changes = scan.purpose else { return }
    scan.last = max(scan.last, shard.deletions.last)
    _ = add([], cid, nil, deletedAt: shard.advanceTime(), &scan)
  }

  /// - Parameter deletedAt: time at which the channel, or an earlier one of that name, was found deleted; none if it
  ///   still exists.
  /// - Returns: false if the reply has become too large.
  private func add(
    _ events: [ChannelEvent],
    _ cid: [UInt8],
    _ slot: ChannelSlot?,
    deletedAt: Timestamp,
    _ scan: inout ChannelScan
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
        for event in events { count += written.writeLimitedEvent(event, slot, in: shard.state) }
      }
      bytes.writeField(cid.span.bytes)
      bytes.writeVarint(count)
      bytes.writeBuffer(&written)
    }
    scan.add(ChannelScan.Found(cid: cid, bytes: bytes, events: count, changes: shard.events.changes(in: cid)))
    return scan.events <= Self.changesMax && scan.bytes <= Self.changesBytesMax
  }

  /// Queue channels for another scan if they changed while others were read: event frames with these changes may have
  /// left already, and the reply must not revert them.
  ///
  /// - Returns: whether there are any.
  private func requeueStaleChannels(_ scan: inout ChannelScan) -> Bool {
    scan.requeueStale { $0.changes != shard.events.changes(in: $0.cid) }
    return !scan.cids.isEmpty
  }

  // MARK: Completion

  private func finish(_ scan: ChannelScan) {
    switch scan.purpose {
    case .changes:
      let progress = shard.events.progressForReply()
      let last = max(scan.last, shard.dirty.typesLast, shard.dirty.usersLast)
      let found = scan.found.filter { $0.events > 0 }
      for request in shard.waiting.take(.scan(scan.scanID)) {
        // It may have waited for long, and its reply may be large.
        if let refused = shard.refusalForUnreadReplies(request.lane) {
          shard.refuse(request.header, refused, request.lane)
          continue
        }
        let replyTiming = shard.replyTiming(last, revealingExpiryAt: scan.expiry, request.lane)
        shard.reply(request.header, max(progress.replyTiming, replyTiming), request.lane) { buffer in
          SubscribedFields.write(through: progress.time, isComplete: true, channelCount: found.count, into: &buffer)
          for item in found { buffer.writeImmutableBuffer(item.bytes) }
        }
      }
    case .row:
      for request in shard.waiting.take(.scan(scan.scanID)) {
        let replyTiming = shard.replyTiming(max(scan.last, shard.dirty.usersLast))
        shard.reply(request.header, replyTiming, request.lane) { _ in }
      }
      shard.events.sendUnbatchedEvents()
    case .options, .expiries: shard.events.sendUnbatchedEvents()
    }
  }

  private func replyIncomplete(_ scan: ChannelScan) {
    for request in shard.waiting.take(.scan(scan.scanID)) {
      replyIncomplete(request.header, request.lane)
    }
  }

  /// Answer that the changes are too many or unknown, so that the gateway must fetch everything.
  @discardableResult
  func replyIncomplete(_ header: FrameHeader, _ lane: ReplyLane) -> Outcome {
    let (through, replyTiming) = shard.events.progressForReply()
    return shard.reply(header, replyTiming, lane) {
      SubscribedFields(through: through, isComplete: false).write(into: &$0)
    }
  }

  /// Refuse the scan's request. Its subscriptions stay: another request of the connection may have relied on them
  /// meanwhile.
  private func refuse(_ scan: ChannelScan, _ code: ErrorCode, retryAfterMilliseconds: UInt32, _ detail: String) {
    let refused = RefusedRequest(code, retryAfterMilliseconds: retryAfterMilliseconds, detail)
    for request in shard.waiting.take(.scan(scan.scanID)) {
      shard.refuse(request.header, refused, request.lane)
    }
  }

  // MARK: Results of reads

  /// Handle a finished or failed load of a channel that a scan waits for.
  func loaded(_ pending: PendingLoad, isReadable: Bool) {
    guard var scan = take(pending.scanID) else { return }
    scan.loading -= 1
    if let slot = shard.state.slot(of: pending.cid.span.bytes) {
      if !examine(slot, pending.cid, &scan) { return }
    } else if isReadable {
      recordAbsence(pending.cid, &scan)
    } else if scan.isRequested {
      return refuse(scan, .unavailable, retryAfterMilliseconds: 1_000, "a channel cannot be read")
    }
    runSlice(scan)
  }
}

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
    /// Report expired acknowledgement requests in watched channels, of which the first expired at `since`.
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
  /// A request waits for the scan.
  let isRequested: Bool
  /// Identifies the scan, also to a request that waits for it.
  var scanID: UInt32 = 0
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
  /// Last effect that the reply reveals.
  var last = LogIndex.zero
  /// Latest acknowledgement request expiry that the reply reveals; none if it reveals none.
  var expiry = Timestamp.none

  mutating func add(_ item: Found) {
    found.append(item)
    events += item.events
    bytes += item.bytes.readableBytes
  }

  /// Move stale channels from the found ones back to those to scan.
  mutating func requeueStale(where isStale: (Found) -> Bool) {
    let all = found
    found = []
    (events, bytes) = (0, 0)
    for item in all {
      if isStale(item) { cids.append(item.cid) } else { add(item) }
    }
  }
}
