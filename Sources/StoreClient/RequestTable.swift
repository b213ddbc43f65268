internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Table of unanswered requests and the bytes they were written in. It is a pure state machine: time is a count of
/// ticks, and frames leave as the buffers that its functions return.
///
/// A request's slot is the lower half of its correlation id. The slots form a list in order of issue, and written
/// requests always come first in it. "Sent", "sent on this connection" and "not sent yet" are therefore two positions
/// in that order (``WriteProgress``), and a deadline sweep visits only the requests that are due.
///
/// A request is encoded once, at the end of the open batch; a flush closes the batch and writes it whole. Batches are
/// retained for a resend until the last of their requests is done. Bytes are copied only after a lost connection.
struct RequestTable: ~Copyable {
  private var slots = RequestSlots()
  private var progress = WriteProgress()
  private var batches = RequestBatches()
  /// Whether the bytes of unsent requests must be encoded again: some of them were dropped, or the shard
  /// count was unknown.
  private var unsentIsStale = false
  /// Whether a request may be due before an older one: it was moved from another node's table.
  private var hasMovedDeadlines = false

  /// Maximum number of pending requests: the lower of the client's and the store's limit.
  private(set) var limit: Int
  /// Shard count of the store; 0 until known.
  private(set) var shardCount = 0
  /// The store's frame limit.
  private(set) var frameLengthMax = FrameHeader.lengthLimitDefault
  /// Ticks so far, wrapping. They are counted rather than taken from a clock: a stall of the loop does not expire
  /// requests, and a request need not read the clock.
  private var ticks: UInt32 = 0
  private let deadlineTicks: UInt32
  /// What was counted so far; gauges are 0.
  var counted = StoreClientStats()

  /// - Parameters:
  ///   - limit: 1 to ``StoreClientLimits/requestsMax``.
  ///   - deadlineTicks: timeout of a request, in ticks.
  init(limit: Int, deadlineTicks: UInt32) {
    self.limit = min(max(limit, 1), StoreClientLimits.requestsMax)
    self.deadlineTicks = deadlineTicks
  }

  /// What was counted, with the gauges of now.
  var stats: StoreClientStats {
    var stats = counted
    stats.inFlight = count
    stats.retainedBytes = retainedBytes
    return stats
  }

  /// Number of unanswered requests.
  var count: Int { slots.count }

  /// Bytes of the batches that are retained for a resend.
  var retainedBytes: Int { batches.retainedBytes }

  // MARK: - New requests

  /// Whether the window and the retained bytes have room for one more request.
  var hasRoom: Bool { slots.usedCount < limit && batches.hasRoom }

  /// Return whether there is room for `count` more requests by number, and for one by bytes. An empty table has room
  /// for any count.
  func hasRoom(for count: Int) -> Bool {
    let taken = slots.usedCount
    return hasRoom && (taken + count <= limit || taken == 0)
  }

  /// Encode and queue one request.
  ///
  /// - Parameters:
  ///   - shard: nil to derive it from `name`, a cid.
  ///   - name: the first field; nil if the kind has none.
  ///   - issued: value written after the fields, in seconds; nil: omitted.
  ///   - thread: value written between the fields and `issued`, not empty; nil: omitted.
  ///   - counters: the session's, from which a command takes the next one.
  mutating func append(
    _ kind: FrameKind,
    shard: ShardID?,
    name: RawSpan?,
    tag: UInt64,
    issued: UInt32? = nil,
    thread: RawSpan? = nil,
    counters: inout CommandCounters,
    _ fields: (inout ByteBuffer) -> Void
  ) -> AppendResult {
    guard hasRoom else { return .busy }
    var target = shard ?? ShardID(0)
    if shard == nil, let name {
      if shardCount > 0 { target = .owning(name, count: shardCount) } else { unsentIsStale = true }
    }
    let counter = kind.isCommand ? counters.next : 0
    var flags = FrameHeader.Flags()
    if issued != nil { flags = flags.union(.issued) }
    if thread != nil { flags = flags.union(.thread) }
    let length = batches.encode(
      FrameHeader(kind, flags: flags, shard: target, correlation: slots.nextCorrelation()),
      name: name,
      counter: counter,
      thread: thread,
      issued: issued,
      fields
    )
    let countedLength = length - FrameHeader.lengthFieldByteCount
    guard countedLength <= Int(frameLengthMax) else {
      batches.discard(length)
      return .tooLarge(countedLength)
    }
    if kind.isCommand { counters.advance() }
    var request = RequestSlot()
    request.tag = tag
    request.counter = counter
    request.frame = batches.retain(length, issue: slots.nextIssue)
    request.deadlineTick = ticks &+ deadlineTicks
    request.kind = kind
    request.isRouted = shard == nil && name != nil
    progress.appended(slots.append(request))
    batches.closeIfFull()
    return .queued
  }

  enum AppendResult: Equatable {
    case queued
    /// The window is full; nothing was done.
    case busy
    /// The frame's length field would have this value, above the store's limit; nothing was done.
    case tooLarge(Int)
  }

  // MARK: - Replies

  enum ReplyAction: Equatable {
    case deliver(tag: UInt64)
    /// The request was dropped earlier.
    case late
    /// No request matches the reply.
    case unmatched
  }

  mutating func replied(_ header: FrameHeader) -> ReplyAction {
    guard let (index, slot) = slots.find(header.correlation), progress.isOnWire(slot),
      header.kind == .error || header.isReply && header.kind == slot.kind
    else { return .unmatched }
    switch slot.state {
    case .free: return .unmatched
    case .waiting:
      progress.answered()
      counted.replies &+= 1
      remove(index, slot)
      return .deliver(tag: slot.tag)
    case .abandoned:
      progress.answered()
      counted.repliesLate &+= 1
      slots.removeAbandoned(index)
      return .late
    }
  }

  // MARK: - Dropped requests

  struct FailedRequest: Equatable {
    var tag: UInt64
    var failure: StoreFailure
  }

  /// Advance by one tick. Drops the requests whose deadline has passed, oldest first.
  mutating func tick() -> [FailedRequest] {
    ticks &+= 1
    var failed: [FailedRequest] = []
    if slots.count == 0 { hasMovedDeadlines = false }
    var index = slots.head
    while index != RequestSlot.none {
      let slot = slots[index]
      if Int32(bitPattern: ticks &- slot.deadlineTick) >= 0 {
        counted.timeouts &+= 1
        failed.append(drop(index))
      } else if !hasMovedDeadlines {
        break
      }
      index = slot.next
    }
    return failed
  }

  /// End the session: drop commands that were sent. All other requests continue in the new session. Requires that no
  /// connection is open.
  ///
  /// - Parameter counters: of the new session.
  mutating func endSession(counters: inout CommandCounters) -> [FailedRequest] {
    var failed: [FailedRequest] = []
    var index = slots.head
    while index != RequestSlot.none {
      let slot = slots[index]
      if slot.isCommand, progress.wasSent(slot) { failed.append(drop(index)) }
      index = slot.next
    }
    rewriteUnsent(counters: &counters, inNewSession: true)
    // Queries that were sent are among them: frames are copied, so that these get the resend flag.
    batches.close()
    return failed
  }

  /// Drop all requests, oldest first, and accept no more.
  mutating func close() -> [FailedRequest] {
    limit = 0
    var failed: [FailedRequest] = []
    while slots.head != RequestSlot.none { failed.append(drop(slots.head)) }
    return failed
  }

  /// Drop one request. Its failure depends on its kind and on whether it was sent.
  private mutating func drop(_ index: UInt32) -> FailedRequest {
    let slot = slots[index]
    let wasSent = progress.wasSent(slot)
    let failed = FailedRequest(tag: slot.tag, failure: wasSent && slot.isCommand ? .outcomeUnknown : .unavailable)
    if progress.isOnWire(slot) {
      slots.abandon(index, of: batches.shard(of: slot.frame))
      progress.removed(index, next: slot.next)
      batches.release(slot.frame)
    } else {
      // Its bytes are in a batch that must not be written whole now.
      if !wasSent || slot.wasSentElsewhere { unsentIsStale = true }
      remove(index, slot)
    }
    return failed
  }

  @inline(__always)
  private mutating func remove(_ index: UInt32, _ slot: RequestSlot) {
    slots.remove(index)
    progress.removed(index, next: slot.next)
    batches.release(slot.frame)
  }

  // MARK: - Connections

  /// Route the requests by this number of shards from now on.
  mutating func setShardCount(_ count: Int) {
    guard shardCount != count else { return }
    shardCount = count
    if slots.count > 0 { unsentIsStale = true }
  }

  /// Start using a connection whose handshake is done: unanswered requests will be sent again.
  ///
  /// - Parameters:
  ///   - shardCount: shard count of the store.
  ///   - limit: the lower of the client's limit and the store's window.
  /// - Returns: dropped requests whose frames exceed this store's limit.
  mutating func connectionOpened(shardCount: Int, limit: Int, frameLengthMax: UInt32) -> [FailedRequest] {
    setShardCount(shardCount)
    self.limit = min(max(limit, 1), StoreClientLimits.requestsMax)
    var failed: [FailedRequest] = []
    if frameLengthMax < self.frameLengthMax {
      var index = slots.head
      while index != RequestSlot.none {
        let slot = slots[index]
        if slot.frame.length - UInt32(FrameHeader.lengthFieldByteCount) > frameLengthMax {
          failed.append(drop(index))
        }
        index = slot.next
      }
    }
    self.frameLengthMax = min(frameLengthMax, FrameHeader.lengthLimitDefault)
    return failed
  }

  /// Reset the connection's state; replies to requests sent on it can no longer arrive.
  mutating func connectionLost() {
    slots.removeAllAbandoned()
    progress.connectionLost(head: slots.head)
  }
}

// MARK: - Writes

/// Bytes that a flush writes, and bytes that are resent.
extension RequestTable {
  /// Size of the open batch in bytes.
  var queuedBytes: Int { batches.queuedBytes }

  /// Whether requests of closed batches have not been written on this connection: the window had no room for them.
  var hasDelayedRequests: Bool { progress.cursor != RequestSlot.none && !batches.isOpen }

  /// Number of requests written on this connection that the store has not answered.
  var onWire: Int { progress.onWire }

  /// Return the next bytes to write, or nil when there are none. Call it until it returns nil.
  ///
  /// Usually this is the open batch, whole and uncopied. After a lost connection, or if the window is full, frames are
  /// copied one by one. Frames that were written before get the resend flag.
  mutating func nextWrite() -> ByteBuffer? {
    let cursor = progress.cursor
    if cursor == RequestSlot.none { return nil }
    if !unsentIsStale, batches.isOpen, slots[cursor].issue == batches.openFirstIssue,
      progress.onWire + batches.openCount <= limit
    {
      let count = batches.openCount
      let buffer = batches.close()
      progress.wroteRest(count, nextIssue: slots.nextIssue)
      counted.requestsSent &+= UInt64(count)
      return buffer
    }
    return copiedWrite()
  }

  private mutating func copiedWrite() -> ByteBuffer? {
    if unsentIsStale { rewriteUnsent() }
    batches.close()
    var out = ByteBuffer()
    while progress.cursor != RequestSlot.none, progress.onWire < limit,
      out.writerIndex < StoreClientLimits.batchBytesMax
    {
      let slot = slots[progress.cursor]
      let start = out.writerIndex
      batches.copy(slot.frame, to: &out)
      if progress.wrote(slot) {
        counted.requestsSent &+= 1
      } else {
        out.setResendFlag(ofFrameAt: start)
        counted.resends &+= 1
      }
    }
    return out.readableBytes > 0 ? out : nil
  }

  /// Encode unsent requests again: their shards must match the known shard count. Queries sent on a lost connection are
  /// encoded again too: the store may have another shard count.
  private mutating func rewriteUnsent() {
    var unused = CommandCounters()
    rewriteUnsent(counters: &unused, inNewSession: false)
  }

  /// - Parameter counters: of the new session, in which each command gets another counter.
  private mutating func rewriteUnsent(counters: inout CommandCounters, inNewSession: Bool) {
    unsentIsStale = false
    batches.close()
    var index = progress.cursor
    while index != RequestSlot.none {
      let slot = slots[index]
      if !slot.isCommand || !progress.wasSent(slot) {
        var counter = slot.counter
        if slot.isCommand, inNewSession {
          counter = counters.next
          counters.advance()
        }
        let frame = batches.rewrite(
          slot.frame,
          issue: slot.issue,
          hasName: slot.kind.traits.contains(.named),
          counter: counter,
          shardCount: slot.isRouted ? shardCount : 0
        )
        slots.setFrame(index, frame, counter: counter)
        batches.closeIfFull()
      }
      index = slot.next
    }
  }
}

// MARK: - Moves between nodes

/// A request that leaves the table of one node for that of another, because its shard has another owner.
struct MovedRequest {
  /// The whole frame. Its correlation id is of the table that it left.
  fileprivate var frame: ByteBuffer
  fileprivate var slot: RequestSlot
  /// Ticks until its deadline; 0 or less: it has passed.
  fileprivate var ticksLeft: Int32
  /// The shard in its frame.
  let shard: ShardID
}

/// Moves keep the order of a shard's requests, and the counters of its commands: the new owner knows from the session's
/// record which of them the old one has applied.
extension RequestTable {
  /// Remove the requests of some shards, oldest first. Replies to those that are on the wire may still arrive, and are
  /// ignored. Requires a known shard count.
  mutating func removeAll(where leaves: (ShardID) -> Bool) -> [MovedRequest] {
    if unsentIsStale { rewriteUnsent() }
    batches.close()
    var moved: [MovedRequest] = []
    var index = slots.head
    while index != RequestSlot.none {
      let slot = slots[index]
      let next = slot.next
      let shard = batches.shard(of: slot.frame)
      if leaves(shard) {
        var request = MovedRequest(
          frame: ByteBuffer(),
          slot: slot,
          ticksLeft: Int32(bitPattern: slot.deadlineTick &- ticks),
          shard: shard
        )
        batches.copy(slot.frame, to: &request.frame)
        request.slot.wasSentElsewhere = progress.wasSent(slot)
        moved.append(request)
        if progress.isOnWire(slot) {
          slots.abandon(index, of: shard)
          progress.removed(index, next: next)
          batches.release(slot.frame)
        } else {
          remove(index, slot)
        }
      }
      index = next
    }
    return moved
  }

  /// Free the places in the window of dropped requests whose shards the node has lost: it does not answer them.
  mutating func removeAbandoned(where isLost: (ShardID) -> Bool) {
    for _ in 0..<slots.removeAbandoned(where: isLost) { progress.answered() }
  }

  /// Queue a request of another node's table behind all others. It is sent even if the window is full for new ones.
  ///
  /// - Returns: its failure, if no slot is free.
  mutating func append(_ moved: MovedRequest) -> FailedRequest? {
    guard slots.usedCount < StoreClientLimits.requestsMax, limit > 0 else {
      let isUnknown = moved.slot.wasSentElsewhere && moved.slot.isCommand
      return FailedRequest(tag: moved.slot.tag, failure: isUnknown ? .outcomeUnknown : .unavailable)
    }
    var request = RequestSlot()
    request.tag = moved.slot.tag
    request.counter = moved.slot.counter
    request.frame = batches.append(
      moved.frame,
      correlation: slots.nextCorrelation(),
      isResend: moved.slot.wasSentElsewhere,
      issue: slots.nextIssue
    )
    request.deadlineTick = ticks &+ UInt32(bitPattern: moved.ticksLeft)
    request.kind = moved.slot.kind
    request.isRouted = moved.slot.isRouted
    request.wasSentElsewhere = moved.slot.wasSentElsewhere
    progress.appended(slots.append(request))
    batches.closeIfFull()
    hasMovedDeadlines = true
    return nil
  }
}

// MARK: - Invariants

extension RequestTable {
  /// Check the invariants that hold between any two events. Tests call it after each event; it visits everything.
  func checkInvariants() {
    let cursor = progress.cursor
    var onWire = 0
    var lastCounters: [ShardID: UInt64] = [:]
    var seenCursor = cursor == RequestSlot.none
    var frames: [BatchedFrame] = []
    slots.checkInvariants { index, slot in
      if index == cursor {
        precondition(!progress.isOnWire(slot), "the cursor points at a request already written on this connection")
        seenCursor = true
      }
      precondition(
        progress.isOnWire(slot) == (!seenCursor || cursor == RequestSlot.none),
        "what is written comes first"
      )
      if slot.counter > 0, !unsentIsStale {
        let shard = batches.shard(of: slot.frame)
        precondition(slot.counter > lastCounters[shard] ?? 0, "the counters of a shard rise")
        lastCounters[shard] = slot.counter
      }
      if progress.isOnWire(slot) { onWire += 1 }
      frames.append(slot.frame)
    }
    precondition(seenCursor)
    precondition(onWire + slots.abandonedCount == progress.onWire)
    progress.checkInvariants()
    batches.checkInvariants(frames)
  }
}
