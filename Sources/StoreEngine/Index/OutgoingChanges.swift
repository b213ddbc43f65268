internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// A reply that waits until its membership changes are in the index, so that a client that lists its channels
/// afterwards sees them.
struct DeferredReply {
  /// Identifies the reply among those that requests wait for.
  let waitID: UInt32
  var bytes: ByteBuffer
  /// Last effect that the reply reveals.
  var index: LogIndex
  /// Numbers of the changes that the reply waits for.
  var changes: ClosedRange<UInt64>
  /// When the wait began, in the loop's elapsed time.
  var since: Int64
  /// The reply must not leave early: the request is refused on timeout.
  var isStrict: Bool
}

/// Outgoing membership changes (R13, R14), and the replies that wait for them.
final class OutgoingChanges: ShardPart {
  /// Delivery state towards one shard.
  struct Sending {
    let target: ShardID
    /// Changes up to here were sent.
    var sentThrough: UInt64
    /// Changes up to here are in the index.
    var confirmed: UInt64
    /// Time of the last send or confirmation, in the loop's elapsed time.
    var lastActivityAt: Int64
  }

  /// One for each shard with changes that are not yet logged as confirmed.
  private var sendings: [Sending] = []
  /// Changes up to here are durable, and may be sent.
  private var durable: UInt64 = 0
  /// Changes up to here are in closed batches.
  private var closed: UInt64 = 0
  private var loggedAt: Int64 = 0
  /// In arrival order.
  private var deferred: Deque<DeferredReply> = []
  /// Wait id of the last deferred reply.
  private var lastWaitID: UInt32 = 0

  /// Send the outbox again.
  override func beginToServe() {
    durable = shard.state.outbox.last
    closed = durable
  }

  /// Drop the deferred replies.
  override func stop() { deferred = [] }

  /// Record the last change of the batch that was closed.
  func batchClosed(through number: UInt64) { closed = number }

  /// Confirmed changes after which the confirmation is logged at once.
  private static let unloggedMax = 16_384

  // MARK: Replies

  /// Reply to a command that may have queued membership changes. The reply leaves when the changes are in the index,
  /// or after `indexWaitMilliseconds` (a second by default).
  func replyWhenIndexed(
    _ request: borrowing Request,
    _ slot: ChannelSlot,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    return replyWhenIndexed(request, shard.lastEffect(slot), fields)
  }

  /// - Parameter index: last effect that the reply reveals.
  func replyWhenIndexed(
    _ request: borrowing Request,
    _ index: LogIndex,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    assert(request.isBegun)
    return replyWhenIndexed(request.header, request.lane, index, after: request.outboxBefore, fields)
  }

  /// - Parameter before: number of the last membership change that the reply does not wait for.
  func replyWhenIndexed(
    _ header: FrameHeader,
    _ lane: ReplyLane,
    _ index: LogIndex,
    after before: UInt64,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    guard shard.state.outbox.last > before, shard.configuration.indexWaitMilliseconds > 0,
      !shard.waiting.isFull(.index(0))
    else { return shard.reply(header, shard.replyTiming(index), lane, fields) }
    return deferReply(header, lane, index, before + 1...shard.state.outbox.last, isStrict: false, fields)
  }

  /// Reply only when all membership changes queued before are in the index, so that a client that lists a user's
  /// channels afterwards sees all of them. Answers `busy` on timeout.
  ///
  /// - Parameter index: last effect that the reply reveals.
  func replyWhenAllIndexed(
    _ request: borrowing Request,
    _ index: LogIndex,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    let last = shard.state.outbox.last
    guard last > 0, shard.configuration.indexWaitMilliseconds > 0, !areConfirmed(through: last) else {
      return shard.reply(request, shard.replyTiming(index), fields)
    }
    return deferReply(request.header, request.lane, index, 1...last, isStrict: true, fields)
  }

  /// - Parameter isStrict: refuse the request on timeout instead of replying early.
  private func deferReply(
    _ header: FrameHeader,
    _ lane: ReplyLane,
    _ index: LogIndex,
    _ changes: ClosedRange<UInt64>,
    isStrict: Bool,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    var bytes = ByteBuffer()
    let start = bytes.beginFrame(header.reply)
    fields(&bytes)
    bytes.endFrame(start)
    lastWaitID &+= 1
    deferred.append(
      DeferredReply(
        waitID: lastWaitID,
        bytes: bytes,
        index: index,
        changes: changes,
        since: shard.loop.elapsedMilliseconds,
        isStrict: isStrict
      )
    )
    return shard.waiting.add(header, lane, for: .index(lastWaitID))
  }

  private static var refusedUnindexed: RefusedRequest {
    RefusedRequest(.busy, retryAfterMilliseconds: 100, "membership changes are still being indexed")
  }

  /// Refuses a command because the outbox is full: it would queue more changes.
  static var refusedFull: Outcome {
    .refused(.busy, retryAfterMilliseconds: 100, "too many membership changes are still being indexed")
  }

  /// Release deferred replies whose changes are in the index.
  private func sendDeferred() {
    guard !deferred.isEmpty else { return }
    // Per target shard, its first change that is not confirmed.
    let open = sendings.compactMap { sending -> (sending: OutgoingChanges.Sending, first: UInt64)? in
      let next = shard.state.outbox.changes(for: sending.target, after: sending.confirmed, through: .max, limit: 1)
      return next.first.map { (sending, $0.number) }
    }
    let least = open.map(\.first).min() ?? .max
    deferred.removeAll { item in
      if item.changes.upperBound >= least {
        let isOpen = open.contains { sending, first in
          let start = max(first, item.changes.lowerBound)
          return start <= item.changes.upperBound
            && shard.state.outbox.count(for: sending.target, after: start - 1, through: item.changes.upperBound) > 0
        }
        if isOpen { return false }
      }
      release(item)
      return true
    }
  }

  private func release(_ item: DeferredReply) {
    for request in shard.waiting.take(.index(item.waitID)) {
      let replyTiming = shard.replyTiming(item.index)
      let refusable = request.header.kind.isCommand ? nil : request.header
      if request.lane.add(replyTiming, refusable: refusable, { $0.writeImmutableBuffer(item.bytes) }) {
        shard.loop.replies.record(request.lane, replyTiming)
      }
    }
  }

  /// Drop a deferred reply whose connection is gone.
  func cancel(_ waitID: UInt32) { deferred.removeAll { $0.waitID == waitID } }

  // MARK: Sending

  /// Send changes that have become durable, and confirm applied ones.
  func committed() {
    durable = closed
    for (source, through) in shard.indexes.takeDurable() {
      shard.loop.crossShard.confirm(MembershipConfirmation(to: source, from: shard.state.id, through: through))
    }
    sendChanges()
  }

  /// Send durable changes that were not sent yet, up to the in-flight limit.
  private func sendChanges() {
    for target in shard.takeQueuedTargets() where !sendings.contains(where: { $0.target == target }) {
      let confirmed = shard.state.outbox.confirmed(by: target)
      sendings.append(
        OutgoingChanges.Sending(target: target, sentThrough: confirmed, confirmed: confirmed, lastActivityAt: 0)
      )
    }
    for position in sendings.indices { send(position) }
  }

  private func send(_ position: Int) {
    let sending = sendings[position]
    guard sending.sentThrough < durable else { return }
    let underWay = shard.state.outbox.count(for: sending.target, after: sending.confirmed, through: sending.sentThrough)
    let changes = shard.state.outbox.changes(
      for: sending.target,
      after: sending.sentThrough,
      through: durable,
      limit: shard.configuration.changesInFlightMax - underWay
    )
    guard let last = changes.last else { return }
    if underWay == 0 { sendings[position].lastActivityAt = shard.loop.elapsedMilliseconds }
    sendings[position].sentThrough = last.number
    shard.loop.crossShard.deliver(
      MembershipDelivery(from: shard.state.id, to: sending.target, after: sending.sentThrough, changes: changes)
    )
  }

  /// Handle a confirmation of another shard. Call ``confirmationsReceived()`` after the last one that arrived
  /// together.
  ///
  /// - Returns: false for a duplicate.
  func confirmed(_ confirmation: MembershipConfirmation) -> Bool {
    guard confirmation.through <= durable,
      let position = sendings.firstIndex(where: { $0.target == confirmation.from }),
      confirmation.through > sendings[position].confirmed
    else { return false }
    sendings[position].confirmed = confirmation.through
    sendings[position].sentThrough = max(sendings[position].sentThrough, confirmation.through)
    sendings[position].lastActivityAt = shard.loop.elapsedMilliseconds
    let target = confirmation.from
    let unlogged = shard.state.outbox.count(
      for: target,
      after: shard.state.outbox.confirmed(by: target),
      through: confirmation.through
    )
    if unlogged >= Self.unloggedMax { logConfirmed() } else { send(position) }
    return true
  }

  /// Handle the end of a group of confirmations: release deferred replies, and resume a rebuild, a deletion or a
  /// purge.
  func confirmationsReceived() {
    sendDeferred()
    shard.purges.resume()
    if shard.indexRebuild.isRunning || shard.deletions.hasSliced { shard.resumeIndexWork() }
  }

  /// Log the confirmed changes; the outbox then drops them.
  func logConfirmed() {
    loggedAt = shard.loop.elapsedMilliseconds
    var effects: [Effect] = []
    for sending in sendings where sending.confirmed > shard.state.outbox.confirmed(by: sending.target) {
      effects.append(.shard(.membershipsConfirmed(by: sending.target, through: sending.confirmed)))
    }
    guard !effects.isEmpty else { return }
    shard.applyEffects(effects, to: nil)
    sendings.removeAll { !shard.state.outbox.hasChanges(for: $0.target, after: $0.confirmed) }
    sendChanges()
  }

  /// Run timed work: resend unconfirmed changes, log confirmed ones, and time out deferred replies.
  func tick() {
    let now = shard.loop.elapsedMilliseconds
    for position in sendings.indices {
      let sending = sendings[position]
      guard sending.sentThrough > sending.confirmed,
        now - sending.lastActivityAt >= shard.configuration.changesRetryMilliseconds
      else { continue }
      sendings[position].sentThrough = sending.confirmed
    }
    sendChanges()
    if now - loggedAt >= shard.configuration.changesLoggedMilliseconds { logConfirmed() }
    // In arrival order, except for strict replies, which have a longer timeout.
    deferred.removeAll { item in
      let limit =
        !item.isStrict ? shard.configuration.indexWaitMilliseconds : shard.configuration.indexWaitStrictMilliseconds
      guard now - item.since >= limit else { return false }
      if item.isStrict {
        for request in shard.waiting.take(.index(item.waitID)) {
          shard.refuse(request.header, Self.refusedUnindexed, request.lane)
        }
      } else {
        release(item)
      }
      return true
    }
  }

  /// Return whether all changes up to this number are in the index.
  func areConfirmed(through number: UInt64) -> Bool {
    durable >= number
      && sendings.allSatisfy {
        shard.state.outbox.count(for: $0.target, after: $0.confirmed, through: number) == 0
      }
  }

  // MARK: Recovery

  /// Return whether a queued change that was read back is valid.
  func isValid(_ number: UInt64, _ change: MembershipChange) -> Bool {
    number <= Outbox.numberMax && ShardEngine.isValid(change.user, Identifier.isUser)
      && change.membership.cid.utf8.count <= Identifier.cidLengthMax
  }

  /// Return whether the progress of changes to or from another shard, as it was read back, is valid.
  func isValid(_ number: UInt64, of other: ShardID) -> Bool {
    Int(other.rawValue) < shard.shardCount && number <= Outbox.numberMax
  }

  /// Restore a queued change. If it is confirmed, its page is rewritten.
  func recoverQueued(_ number: UInt64, _ change: MembershipChange) {
    let isConfirmed = number <= shard.state.outbox.confirmed(by: shard.state.outbox.target(of: change.user))
    shard.assignRecovered(.membershipQueued(number, change))
    if isConfirmed { rewrite([PageID.outboxPage(of: number)]) }
  }

  /// Restore which changes a shard has confirmed. Their pages are rewritten.
  func recoverConfirmed(by target: ShardID, through number: UInt64) {
    let pages = shard.state.outbox.pages(for: target, through: number)
    shard.assignRecovered(.membershipsConfirmed(by: target, through: number))
    rewrite(pages)
  }

  /// Mark pages with confirmed changes dirty: they may name a user who was erased since.
  private func rewrite(_ pages: [UInt32]) {
    for page in pages { shard.touchRecoveredShardPage(.outbox(page), LogIndex(1)) }
  }
}
