import DequeModule
import NIOCore
package import ReceiptModel
import ReceiptWire

/// Changes of memberships on their way from a channel's shard to their users' home shard.
package struct MembershipDelivery: Hashable, Sendable {
  package var from: ShardID
  package var to: ShardID
  /// The number of the change for this shard that comes before these; 0: there was none.
  package var after: UInt64
  /// In rising order; durable where they come from.
  package var changes: [Outbox.QueuedChange]
}

/// Changes that are in the index, durably.
package struct MembershipAcknowledgement: Hashable, Sendable {
  /// The shard that sent the changes.
  package var to: ShardID
  /// The shard that has taken them.
  package var from: ShardID
  /// Up to here, of those for that shard.
  package var through: UInt64
}

/// A reply that waits until its changes of memberships are in the index: whoever asks for their channels after it finds
/// what it says.
struct HeldReply {
  var lane: ReplyLane
  var bytes: ByteBuffer
  /// The last effect that it tells of.
  var index: LogIndex
  /// Its changes.
  var changes: ClosedRange<UInt64>
  /// In the loop's elapsed time.
  var since: Int64
  /// Of a request that may not be answered before: it is refused where that takes too long. Nil: the reply leaves then
  /// all the same.
  var refused: FrameHeader?
}

/// What a shard does to bring its changes of memberships to their users' home shards. That they are sent and
/// acknowledged is not logged at once: after a start they are sent again from where the log says.
struct OutgoingChanges {
  /// What was sent to one shard.
  struct Sending {
    let target: ShardID
    /// Changes up to here were sent.
    var asked: UInt64
    /// Changes up to here are in the index.
    var acknowledged: UInt64
    /// When something was sent or acknowledged last, in the loop's elapsed time.
    var askedAt: Int64
  }

  /// To each shard for which something is not logged as taken.
  var sendings: [Sending] = []
  /// Changes up to here are durable, and may leave.
  private(set) var durable: UInt64 = 0
  /// Changes up to here are in batches that are closed.
  var closed: UInt64 = 0
  var loggedAt: Int64 = 0
  /// The highest number before the command at hand.
  var before: UInt64 = 0
  /// In the order in which they came.
  var held: Deque<HeldReply> = []

  mutating func recovered(through number: UInt64) {
    durable = number
    closed = number
  }

  mutating func committed() { durable = closed }
}

/// Changes of memberships that leave this shard (R13, R14).
extension ShardEngine {
  /// Acknowledged changes that are kept at most before it is logged that they were taken.
  private static let unloggedMax = 16_384

  // MARK: Replies

  /// A reply to a command that may have queued changes of memberships: it leaves when these are in the index, or after
  /// a second at the latest.
  func replyIndexed(
    _ header: FrameHeader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    replyIndexed(header, lastEffect(slot), lane, fields)
  }

  /// - Parameter index: the last effect that the reply tells of.
  func replyIndexed(
    _ header: FrameHeader,
    _ index: LogIndex,
    _ lane: ReplyLane,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    guard state.outbox.last > outgoing.before, configuration.heldMilliseconds > 0,
      outgoing.held.count < configuration.heldMax
    else { return reply(header, departure(index), lane, fields) }
    hold(header, index, lane, outgoing.before + 1...state.outbox.last, isStrict: false, fields)
  }

  /// A reply that may leave only when everything that was queued before it is in the index: whoever asks for a user's
  /// channels after it finds all of them. It is `busy` where that takes too long.
  ///
  /// - Parameter index: the last effect that the reply tells of.
  func replyWhenTaken(
    _ header: FrameHeader,
    _ index: LogIndex,
    _ lane: ReplyLane,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let last = state.outbox.last
    guard last > 0, configuration.heldMilliseconds > 0, !areTaken(through: last) else {
      return reply(header, departure(index), lane, fields)
    }
    guard outgoing.held.count < configuration.heldMax else { return refuseHeld(header, lane) }
    hold(header, index, lane, 1...last, isStrict: true, fields)
  }

  /// - Parameter isStrict: it is refused where these changes take too long, and does not leave before them.
  private func hold(
    _ header: FrameHeader,
    _ index: LogIndex,
    _ lane: ReplyLane,
    _ changes: ClosedRange<UInt64>,
    isStrict: Bool,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    var bytes = ByteBuffer()
    let start = bytes.beginFrame(
      FrameHeader(header.kind.reply, shard: header.shard, correlation: header.correlation)
    )
    fields(&bytes)
    bytes.endFrame(start)
    outgoing.held.append(
      HeldReply(
        lane: lane,
        bytes: bytes,
        index: index,
        changes: changes,
        since: loop.elapsedMilliseconds,
        refused: isStrict ? header : nil
      )
    )
  }

  private func refuseHeld(_ header: FrameHeader, _ lane: ReplyLane) {
    refuse(
      header,
      .busy,
      retryAfterMilliseconds: 100,
      "changes of memberships are on their way to the index",
      lane
    )
  }

  /// Too many changes are on their way: nothing is made that would queue more.
  func refuseFull(_ header: FrameHeader, _ command: CommandPlace, _ lane: ReplyLane) {
    noteRefused(command)
    refuse(
      header,
      .busy,
      retryAfterMilliseconds: 100,
      "too many changes of memberships are on their way to the index",
      lane
    )
  }

  /// Lets replies go whose changes are in the index.
  private func releaseHeld() {
    guard !outgoing.held.isEmpty else { return }
    // Of each shard the first change that it has not acknowledged.
    let open = outgoing.sendings.compactMap { sending -> (sending: OutgoingChanges.Sending, first: UInt64)? in
      let next = state.outbox.changes(
        for: sending.target,
        after: sending.acknowledged,
        through: .max,
        limit: 1
      )
      return next.first.map { (sending, $0.number) }
    }
    let least = open.map(\.first).min() ?? .max
    outgoing.held.removeAll { item in
      if item.changes.upperBound >= least {
        let isOpen = open.contains { sending, first in
          let start = max(first, item.changes.lowerBound)
          return start <= item.changes.upperBound
            && state.outbox.count(for: sending.target, after: start - 1, through: item.changes.upperBound) > 0
        }
        if isOpen { return false }
      }
      release(item)
      return true
    }
  }

  private func release(_ item: HeldReply) {
    guard !item.lane.isClosed else { return }
    let departure = departure(item.index)
    if item.lane.add(departure, { $0.writeImmutableBuffer(item.bytes) }) { loop.note(item.lane, departure) }
  }

  // MARK: Sending

  /// What was closed is durable: changes may leave, and be acknowledged.
  func memberChangesDurable() {
    outgoing.committed()
    for (source, through) in incoming.takeDurable() {
      loop.acknowledge(MembershipAcknowledgement(to: source, from: state.id, through: through))
    }
    sendChanges()
  }

  /// Sends what is durable and was not sent, as much as may be under way.
  private func sendChanges() {
    for target in state.takeQueued() where !outgoing.sendings.contains(where: { $0.target == target }) {
      let sent = state.outbox.sent(to: target)
      outgoing.sendings.append(
        OutgoingChanges.Sending(target: target, asked: sent, acknowledged: sent, askedAt: 0)
      )
    }
    for position in outgoing.sendings.indices { send(position) }
  }

  private func send(_ position: Int) {
    let sending = outgoing.sendings[position]
    guard sending.asked < outgoing.durable else { return }
    let underWay = state.outbox.count(
      for: sending.target,
      after: sending.acknowledged,
      through: sending.asked
    )
    let changes = state.outbox.changes(
      for: sending.target,
      after: sending.asked,
      through: outgoing.durable,
      limit: configuration.changesUnderWayMax - underWay
    )
    guard let last = changes.last else { return }
    if underWay == 0 { outgoing.sendings[position].askedAt = loop.elapsedMilliseconds }
    outgoing.sendings[position].asked = last.number
    loop.deliver(
      MembershipDelivery(from: state.id, to: sending.target, after: sending.asked, changes: changes)
    )
  }

  /// Another shard has taken changes. Of those that come together the last is followed by ``wereAcknowledged()``.
  ///
  /// - Returns: false where that was known.
  func acknowledged(_ acknowledgement: MembershipAcknowledgement) -> Bool {
    guard acknowledgement.through <= outgoing.durable,
      let position = outgoing.sendings.firstIndex(where: { $0.target == acknowledgement.from }),
      acknowledgement.through > outgoing.sendings[position].acknowledged
    else { return false }
    outgoing.sendings[position].acknowledged = acknowledgement.through
    outgoing.sendings[position].asked = max(outgoing.sendings[position].asked, acknowledgement.through)
    outgoing.sendings[position].askedAt = loop.elapsedMilliseconds
    let target = acknowledgement.from
    let unlogged = state.outbox.count(
      for: target,
      after: state.outbox.sent(to: target),
      through: acknowledgement.through
    )
    if unlogged >= Self.unloggedMax { logSent() } else { send(position) }
    return true
  }

  /// Others have taken changes: replies that waited for them leave, and a rebuild or a deletion has room for more.
  func wereAcknowledged() {
    releaseHeld()
    goOnWithPurge()
    if rebuild != nil || !endings.isEmpty { goOnWithIndexes() }
  }

  /// Logs what was taken; from then on it is not kept.
  func logSent() {
    outgoing.loggedAt = loop.elapsedMilliseconds
    effects.removeAll(keepingCapacity: true)
    for sending in outgoing.sendings where sending.acknowledged > state.outbox.sent(to: sending.target) {
      effects.append(.membershipsSent(to: sending.target, through: sending.acknowledged))
    }
    guard !effects.isEmpty else { return }
    carryOut(nil, session: nil)
    outgoing.sendings.removeAll { !state.outbox.hasChanges(for: $0.target, after: $0.acknowledged) }
    sendChanges()
  }

  /// Time has passed: what is not acknowledged is sent again, what is, is logged, and replies that have waited long
  /// enough leave.
  func tickOutgoing() {
    let now = loop.elapsedMilliseconds
    for position in outgoing.sendings.indices {
      let sending = outgoing.sendings[position]
      guard sending.asked > sending.acknowledged,
        now - sending.askedAt >= configuration.changesRetryMilliseconds
      else { continue }
      outgoing.sendings[position].asked = sending.acknowledged
    }
    sendChanges()
    if now - outgoing.loggedAt >= configuration.changesLoggedMilliseconds { logSent() }
    // In the order in which they came, but for those that may not be answered yet.
    outgoing.held.removeAll { item in
      let limit =
        item.refused == nil ? configuration.heldMilliseconds : configuration.heldStrictlyMilliseconds
      guard now - item.since >= limit else { return false }
      if let header = item.refused, !item.lane.isClosed {
        refuseHeld(header, item.lane)
      } else {
        release(item)
      }
      return true
    }
  }

  /// Whether all changes up to here are in the index.
  func areTaken(through number: UInt64) -> Bool {
    outgoing.durable >= number
      && outgoing.sendings.allSatisfy {
        state.outbox.count(for: $0.target, after: $0.acknowledged, through: number) == 0
      }
  }

  // MARK: Recovery

  /// Whether an effect that is read back can be of the outbox or the index; true for others.
  func canBeOnItsWay(_ effect: Effect) -> Bool {
    switch effect {
    case .membershipQueued(let number, let change):
      number <= Outbox.numberMax && Self.isValid(change.user, Identifier.isUser)
        && change.membership.cid.utf8.count <= Identifier.cidLengthMax
    case .membershipsSent(let shard, let number), .membershipsTaken(let shard, let number):
      Int(shard.rawValue) < shardCount && number <= Outbox.numberMax
    default: true
    }
  }

  /// Assigns an effect of the outbox that is read back. A page that keeps changes that were taken is written again: it
  /// may name somebody who was erased since.
  func recoverChange(_ effect: Effect) {
    var pages: [UInt32] = []
    switch effect {
    case .membershipQueued(let number, let change):
      let sent = state.outbox.sent(to: state.outbox.target(of: change.user))
      if number <= sent { pages = [PageID.outboxPage(of: number)] }
    case .membershipsSent(let shard, let number):
      pages = state.outbox.pages(for: shard, through: number)
    default: break
    }
    state.assign(effect)
    for page in pages {
      dirty.touch(nil, .outbox(page), at: LogIndex(1), elapsed: 0, loggedBytes: 0, isRecovered: true)
    }
  }
}
