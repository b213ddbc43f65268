internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// All waiting requests of a shard: their limits, their order, and their cancellation.
final class WaitingRequests: ShardPart {
  /// Requests that run in slices; the first has the next one.
  private var slices: Deque<WaitingRequest> = []
  /// Postponed requests, in the order of their postponement; those of one channel in arrival order.
  private var postponed: Deque<WaitingRequest> = []
  /// Number of postponed requests by the hash of their cid.
  private var postponedHashes: [UInt64: Int] = [:]
  /// Requests that wait for anything else, in arrival order by reason.
  private var others: [WaitReason: Deque<WaitingRequest>] = [:]
  /// Number of requests by kind of reason.
  private var counts = [Int](repeating: 0, count: WaitReason.Kind.allCases.count)

  /// Number of the last request that waited.
  private var lastNumber: UInt64 = 0

  /// Maximum number of requests per deletion; a repeat comes on another connection.
  private static let perDeletionMax = 64

  var isEmpty: Bool { counts.allSatisfy { $0 == 0 } }
  @inline(__always)
  var hasSlices: Bool { !slices.isEmpty }
  @inline(__always)
  var hasPostponed: Bool { !postponed.isEmpty }

  func count(_ kind: WaitReason.Kind) -> Int { counts[kind.rawValue] }

  /// Number of steps that the waiting requests keep.
  var keptSteps: Int {
    var kept = slices.reduce(0) { $0 + $1.attempt.segments.stepCount }
    for (reason, requests) in others where reason.kind == .steps {
      kept += requests.reduce(0) { $0 + $1.attempt.segments.stepCount }
    }
    return kept
  }

  /// Return whether a request about this channel runs in slices.
  func isSliced(_ slot: ChannelSlot) -> Bool { slices.contains { $0.slot == slot } }

  /// Return whether an erasure of this user in this channel has begun to apply effects.
  func isErasing(_ user: String, in slot: ChannelSlot) -> Bool {
    slices.contains { $0.isErasing(user, in: slot) }
  }

  /// Return whether a request about this channel is postponed.
  func hasPostponed(of cid: RawSpan) -> Bool {
    guard postponedHashes[StableHash.hash(cid)] != nil else { return false }
    return postponed.contains { cid.equals($0.cid.span.bytes) }
  }

  // MARK: Bounds

  /// Refuse another request if too many wait for the same; nil if it may wait.
  func refusal(for reason: WaitReason) -> Outcome? {
    // Only these may wait so long that their connection ends without being closed here.
    if isFull(reason), reason.kind == .slice || reason.kind == .deletion { dropClosed() }
    return isFull(reason) ? .refused(.busy, retryAfterMilliseconds: 100, Self.detail(reason.kind)) : nil
  }

  func isFull(_ reason: WaitReason) -> Bool {
    let configuration = shard.configuration
    return switch reason {
    case .load, .deletion: others[reason]?.count ?? 0 >= limit(reason)
    default: count(reason.kind) >= limit(reason)
    }

    func limit(_ reason: WaitReason) -> Int {
      switch reason {
      case .load: configuration.waitingPerLoadMax
      case .steps: configuration.stepReadsMax
      case .slice: configuration.slicedQueriesMax
      case .postponed: configuration.postponedMax
      case .index: configuration.indexWaitersMax
      case .deletion: Self.perDeletionMax
      case .unread: configuration.unreadRequestsMax
      case .scan: configuration.scanRequestsMax
      case .ledger: configuration.erasuresMax
      case .feed, .feedRead: configuration.feedReadersMax
      }
    }
  }

  private static func detail(_ kind: WaitReason.Kind) -> String {
    switch kind {
    case .load: "too many requests wait for this channel"
    case .steps: "too many steps are being read"
    case .slice, .postponed: "too many long requests"
    case .index: "membership changes are still being indexed"
    case .deletion: "a channel of this name is being deleted"
    case .unread: "too many requests for unread counts"
    case .scan: "too many channel scans in progress"
    case .ledger: "too many erasures"
    case .feed, .feedRead: "too many readers of the feed"
    }
  }

  // MARK: Waiting

  /// Let a request wait that is then performed again, or refuse it if too many do.
  ///
  /// - Parameters:
  ///   - progress: progress of a request that runs in slices.
  func add(
    _ request: borrowing Request,
    for reason: WaitReason,
    progress: RequestAttempt.Progress? = nil
  ) -> Outcome {
    assert(reason.performsAgain)
    if let refusal = refusal(for: reason) { return refusal }
    var payload = ByteBuffer()
    payload.writeRaw(request.payload)
    if let counter = request.counter { shard.sessions.recordWaiting(counter, request.lane) }
    var attempt = request.attempt ?? RequestAttempt()
    attempt.progress = progress
    if attempt.number == 0 {
      lastNumber += 1
      attempt.number = lastNumber
    }
    let waiting = WaitingRequest(
      header: request.header,
      payload: payload,
      lane: request.lane,
      counter: request.counter,
      reason: reason,
      attempt: attempt
    )
    counts[reason.kind.rawValue] += 1
    switch reason {
    case .slice:
      shard.loop.driver.noteDecision(.slice(request.header, request.lane))
      slices.append(waiting)
      shard.loop.slices.queueForSlices(shard)
    case .postponed(let cid):
      shard.loop.driver.noteDecision(.postpone(request.header, request.lane))
      // A request that has waited for its channel's load goes before those of the channel that arrived later.
      let later = postponed.firstIndex { $0.number > waiting.number && $0.cid == cid }
      postponed.insert(waiting, at: later ?? postponed.endIndex)
      postponedHashes[StableHash.hash(cid.span.bytes), default: 0] += 1
      shard.loop.slices.queueForPostponed(shard)
    default: others[reason, default: []].append(waiting)
    }
    return .waits(reason)
  }

  /// Let a request wait that only waits for its reply, or refuse it if too many do.
  func add(_ header: FrameHeader, _ lane: ReplyLane, for reason: WaitReason) -> Outcome {
    assert(!reason.performsAgain)
    if let refusal = refusal(for: reason) { return refusal }
    lastNumber += 1
    var attempt = RequestAttempt()
    attempt.number = lastNumber
    let waiting = WaitingRequest(
      header: header,
      payload: ByteBuffer(),
      lane: lane,
      counter: nil,
      reason: reason,
      attempt: attempt
    )
    counts[reason.kind.rawValue] += 1
    others[reason, default: []].append(waiting)
    return .waits(reason)
  }

  /// Take the requests that wait for this, in arrival order, without those whose connection is gone.
  func take(_ reason: WaitReason) -> [WaitingRequest] {
    guard let requests = others.removeValue(forKey: reason) else { return [] }
    counts[reason.kind.rawValue] -= requests.count
    return requests.filter { request in
      if request.lane.isClosed { shard.sessions.recordDrop(request) }
      return !request.lane.isClosed
    }
  }

  /// Return whether any request waits for this.
  func hasWaiting(_ reason: WaitReason) -> Bool { others[reason] != nil }

  /// Run one slice of the request that has waited longest.
  func runSlice() {
    while let next = slices.popFirst() {
      counts[WaitReason.Kind.slice.rawValue] -= 1
      guard !next.lane.isClosed else {
        shard.sessions.recordDrop(next)
        continue
      }
      return shard.resume(next)
    }
  }

  /// Perform the request that was postponed first.
  func performPostponed() {
    guard let next = postponed.popFirst() else { return }
    forgetPostponed(next)
    if next.lane.isClosed { shard.sessions.recordDrop(next) } else { shard.resume(next) }
  }

  /// Count a request that is postponed no more.
  private func forgetPostponed(_ request: WaitingRequest) {
    counts[WaitReason.Kind.postponed.rawValue] -= 1
    let hash = StableHash.hash(request.cid.span.bytes)
    let remaining = postponedHashes[hash, default: 0] - 1
    postponedHashes[hash] = remaining > 0 ? remaining : nil
  }

  /// Refuse the sliced queries about a channel that is being deleted; their progress is of no use for another channel.
  /// Erasures of users in it are completed by the deletion.
  func refuseSliced(_ slot: ChannelSlot) {
    guard hasSlices else { return }
    let refusal = RefusedRequest(.channelNotFound, "", .afterNextCommit)
    for query in slices where query.slot == slot && query.counter == nil && !query.lane.isClosed {
      shard.refuse(query.header, refusal, query.lane)
    }
    slices.removeAll { $0.slot == slot && $0.counter == nil }
    counts[WaitReason.Kind.slice.rawValue] = slices.count
    for index in slices.indices where slices[index].slot == slot { slices[index].attempt.progress = nil }
  }

  // MARK: Cancellation

  /// Drop the requests of a connection that is gone.
  override func close(_ lane: ReplyLane) {
    guard !isEmpty else { return }
    removeAll { $0.lane === lane }
  }

  /// Drop the requests of all connections that are gone.
  private func dropClosed() { removeAll { $0.lane.isClosed } }

  private func removeAll(where isGone: (WaitingRequest) -> Bool) {
    let gonePostponed = postponed.filter(isGone)
    var gone = slices.filter(isGone) + gonePostponed
    slices.removeAll(where: isGone)
    counts[WaitReason.Kind.slice.rawValue] = slices.count
    postponed.removeAll(where: isGone)
    for request in gonePostponed { forgetPostponed(request) }
    for (reason, requests) in others where requests.contains(where: isGone) {
      let remaining = requests.filter { !isGone($0) }
      counts[reason.kind.rawValue] -= requests.count - remaining.count
      others[reason] = remaining.isEmpty ? nil : remaining
      gone += requests.filter(isGone)
      switch reason {
      case .unread(let requestID): shard.unreadQueries.cancel(requestID)
      case .scan(let scanID): shard.scans.cancel(scanID)
      case .index(let waitID): shard.outgoing.cancel(waitID)
      case .load, .steps, .slice, .postponed, .ledger, .deletion, .feed, .feedRead: break
      }
    }
    // The dictionary has no order, and the log must not depend on chance.
    for request in gone.sorted(by: { $0.number < $1.number }) { shard.sessions.recordDrop(request) }
    if !gone.isEmpty { shard.loads.cancelUnwanted() }
  }

  /// Drop all requests unanswered.
  override func stop() {
    slices = []
    postponed = []
    postponedHashes = [:]
    others = [:]
    counts = [Int](repeating: 0, count: counts.count)
  }
}

/// The reason why a request waits.
enum WaitReason: Hashable {
  /// Its channel is loaded, or the name of a ticket's channel is looked up.
  case load(ChannelReference)
  /// This read of steps.
  case steps(UInt32)
  /// Its next slice.
  case slice(ChannelSlot)
  /// A later slice, because the request is wide or another one of its channel is postponed. The cid is empty if the
  /// request is about no single channel.
  case postponed(cid: [UInt8])
  /// The ledger records the erasure of a user.
  case ledger(UInt32)
  /// Membership changes reach the users' indexes.
  case index(UInt32)
  /// The channel in this slot is deleted.
  case deletion(ChannelSlot)
  /// Peeks and loads for unread counts.
  case unread(UInt32)
  /// A scan over channels.
  case scan(UInt32)
  /// Records of the feed.
  case feed
  /// A read of the feed from storage, from this record on.
  case feedRead(UInt64)

  /// A reason without its details.
  enum Kind: Int, CaseIterable {
    case load, steps, slice, postponed, ledger, index, deletion, unread, scan, feed, feedRead
  }

  var kind: Kind {
    switch self {
    case .load: .load
    case .steps: .steps
    case .slice: .slice
    case .postponed: .postponed
    case .ledger: .ledger
    case .index: .index
    case .deletion: .deletion
    case .unread: .unread
    case .scan: .scan
    case .feed: .feed
    case .feedRead: .feedRead
    }
  }

  /// Whether the request is performed again at the end of the wait; otherwise it only waits for its reply.
  var performsAgain: Bool {
    switch kind {
    case .load, .steps, .slice, .postponed, .ledger, .feed, .feedRead: true
    case .index, .deletion, .unread, .scan: false
    }
  }
}

/// A request that waits, with its bytes if it is performed again.
struct WaitingRequest {
  /// Rises with every request that waits. A request that waits again keeps its number.
  var number: UInt64 { attempt.number }
  let header: FrameHeader
  /// The whole payload, including the bytes after its fields; empty if the request only waits for its reply.
  let payload: ByteBuffer
  let lane: ReplyLane
  /// Counter of a command that was not applied; nil for a query.
  let counter: UInt64?
  let reason: WaitReason
  var attempt: RequestAttempt

  /// The channel of a request that runs in slices, which must stay in memory because rows are identified by number.
  var slot: ChannelSlot? {
    if case .slice(let slot) = reason { slot } else { nil }
  }

  /// The channel of a postponed request; empty if the request is about no single channel.
  var cid: [UInt8] {
    if case .postponed(let cid) = reason { cid } else { [] }
  }

  func isErasing(_ other: String, in channel: ChannelSlot) -> Bool {
    guard slot == channel, !lane.isClosed, case .erase(_, let user, true)? = attempt.progress else {
      return false
    }
    return user.isExactly(other)
  }
}
