import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// Changes of memberships that come into this shard, for users whose home it is.
struct IncomingChanges {
  /// What has come from one shard.
  struct Inbox {
    let source: ShardID
    /// Not in the index yet, in rising order.
    var changes: Deque<Outbox.QueuedChange> = []
    /// The last change that was let in.
    var accepted: UInt64
    /// Changes up to here are in the index, durably.
    var durable: UInt64
  }

  /// In the order in which the shards first sent something.
  var inboxes: [Inbox] = []
  /// Users of whom storage has no index, and nothing was made since.
  var absent: Set<[UInt8]> = []
  /// Indexes that are being read.
  var loads = 0
  /// Indexes that could not be read are read again then, in the loop's elapsed time.
  var retryAt: Int64 = 0
  /// How often an index could not be read, one after the other.
  var failures: [[UInt8]: Int] = [:]
  /// What was taken in the batch that gathers, and in the one that is closed.
  private var gathering: [(source: ShardID, through: UInt64)] = []
  private var closed: [(source: ShardID, through: UInt64)] = []

  var isEmpty: Bool { inboxes.allSatisfy(\.changes.isEmpty) }

  mutating func note(_ source: ShardID, through number: UInt64) { gathering.append((source, number)) }

  mutating func closeBatch() {
    closed += gathering
    gathering.removeAll(keepingCapacity: true)
  }

  /// What has become durable.
  mutating func takeDurable() -> [(source: ShardID, through: UInt64)] {
    guard !closed.isEmpty else { return [] }
    defer { closed.removeAll(keepingCapacity: true) }
    for (source, through) in closed {
      guard let position = inboxes.firstIndex(where: { $0.source == source }) else { continue }
      inboxes[position].durable = max(inboxes[position].durable, through)
    }
    return closed
  }
}

/// Users' indexes of channels, in their home shards (R13, R14). An index is kept as a channel is: read when it is
/// needed, let go when memory is short.
extension ShardEngine {
  /// Times that an index cannot be read before it is begun anew.
  private static let failuresMax = 10

  /// Changes that are looked at in one turn to have indexes read before it is their turn.
  private static let looksMax = 256

  // MARK: Taking changes

  /// Changes have come from a shard. Each is taken once and in order: what is known already is passed over, and what
  /// would leave a gap is left to be sent again.
  func take(_ delivery: MembershipDelivery) {
    let position = inbox(of: delivery.from)
    guard let last = delivery.changes.last, delivery.after <= incoming.inboxes[position].accepted else {
      return
    }
    let durable = incoming.inboxes[position].durable
    if last.number <= durable {
      // The acknowledgement was lost.
      loop.acknowledge(MembershipAcknowledgement(to: delivery.from, from: state.id, through: durable))
      return
    }
    for queued in delivery.changes where queued.number > incoming.inboxes[position].accepted {
      guard incoming.inboxes[position].changes.count < 2 * configuration.changesUnderWayMax else { break }
      incoming.inboxes[position].changes.append(queued)
      incoming.inboxes[position].accepted = queued.number
    }
    takeChanges()
  }

  private func inbox(of source: ShardID) -> Int {
    if let known = incoming.inboxes.firstIndex(where: { $0.source == source }) { return known }
    let taken = state.outbox.taken(from: source)
    incoming.inboxes.append(IncomingChanges.Inbox(source: source, accepted: taken, durable: taken))
    return incoming.inboxes.count - 1
  }

  /// Goes on with changes that wait, with a rebuild and with channels that are being deleted, as far as there is room
  /// before the next slice.
  ///
  /// - Parameter isAfterRead: something was read, and where memory is short it leaves again with the end of the turn:
  ///   one step is made in any case.
  func goOnWithIndexes(isAfterRead: Bool = false) {
    if !incoming.isEmpty {
      if isAfterRead { loop.changesLeft = max(loop.changesLeft, 1) }
      takeChanges()
    }
    if rebuild != nil {
      if isAfterRead { loop.changesLeft = max(loop.changesLeft, 1) }
      goOnRebuilding()
    }
    if !endings.isEmpty { goOnEnding() }
  }

  /// Time has passed.
  func tickIndexes() {
    tickOutgoing()
    goOnWithIndexes()
  }

  /// Takes the changes whose users' indexes are in memory, in order, and has those read that come next.
  private func takeChanges() {
    var looks = Self.looksMax
    for position in incoming.inboxes.indices {
      var through: UInt64?
      while loop.changesLeft > 0, let next = incoming.inboxes[position].changes.first, apply(next.change) {
        incoming.inboxes[position].changes.removeFirst()
        through = next.number
        loop.changesLeft -= 1
      }
      if let through {
        let source = incoming.inboxes[position].source
        // In the same batch as what it says is in the index.
        effects.removeAll(keepingCapacity: true)
        effects.append(.membershipsTaken(from: source, through: through))
        carryOut(nil, session: nil)
        incoming.note(source, through: through)
      }
      if loop.changesLeft > 0 { readAhead(position, &looks) }
    }
    if incoming.isEmpty {
      incoming.absent.removeAll()
    } else if loop.changesLeft <= 0 {
      loop.works(self)
    }
  }

  /// - Returns: false where the user's index has to be read first.
  private func apply(_ change: MembershipChange) -> Bool {
    let slot = indexSlot(of: change.user)
    if slot == nil, !isAbsent(change.user) { return false }
    effects.removeAll(keepingCapacity: true)
    state.decideTake(change, slot, at: state.advance(clock: loop.clock), into: &effects)
    guard !effects.isEmpty else { return true }
    carryOut(slot, session: nil)
    loop.counters.indexEntries += 1
    if slot == nil { incoming.absent.remove(Array(IndexName.text(of: change.user).utf8)) }
    return true
  }

  private func indexSlot(of user: String) -> ChannelSlot? {
    var user = user
    return user.withUTF8 { state.index(of: $0.span.bytes) }
  }

  /// Whether there is no index of this user, nor a read under way that would be old if one were made now.
  private func isAbsent(_ user: String) -> Bool {
    guard !incoming.absent.isEmpty || !deletions.isEmpty else { return false }
    let name = Array(IndexName.text(of: user).utf8)
    return (incoming.absent.contains(name) || deletions.index(absent: name) != nil)
      && loads[.cid(name)] == nil
  }

  /// - Parameter looks: changes that may be looked at; the first of all is in any case, since it holds up the others.
  private func readAhead(_ position: Int, _ looks: inout Int) {
    guard loop.elapsedMilliseconds >= incoming.retryAt else { return }
    for (place, queued) in incoming.inboxes[position].changes.prefix(configuration.indexLoadsMax).enumerated()
    {
      guard incoming.loads < configuration.indexLoadsMax else { return }
      guard place == 0 || looks > 0 else { return }
      looks -= 1
      let user = queued.change.user
      if indexSlot(of: user) != nil { continue }
      let name = Array(IndexName.text(of: user).utf8)
      if incoming.absent.contains(name) || deletions.index(absent: name) != nil { continue }
      let reference = ChannelReference.cid(name)
      if loads[reference] == nil { load(storageReference(reference), as: reference, isBehind: true) }
      guard loads[reference]?.isForChanges == false else { continue }
      loads[reference]?.isForChanges = true
      incoming.loads += 1
    }
  }

  // MARK: Reading

  /// An index was looked for, for changes; where there is none it is made with the first of them.
  func noteAbsent(_ reference: ChannelReference) {
    guard case .cid(let name) = reference else { return }
    incoming.failures[name] = nil
    if state.slot(named: name) == nil { incoming.absent.insert(name) }
  }

  /// An index for which there are changes cannot be read. One that is damaged is begun anew: what is not in it is
  /// missing until the index is rebuilt.
  ///
  /// - Parameter number: what it was found under, where it was.
  func indexUnreadable(_ reference: ChannelReference, _ error: StorageError, number: ChannelNumber?) {
    guard case .cid(let name) = reference else { return }
    let failures = incoming.failures[name, default: 0] + 1
    if case .failed = error, failures < Self.failuresMax {
      incoming.failures[name] = failures
      incoming.retryAt = loop.elapsedMilliseconds + configuration.changesRetryMilliseconds
      return
    }
    incoming.failures[name] = nil
    // What the log has of it cannot be taken in any more, and does not hold the log.
    if let number = tail.number(of: name) ?? number { tail.remove(number, cid: name) }
    incoming.absent.insert(name)
    loop.reports(
      .corrupt(
        "shard \(state.id.rawValue): an index of a user's channels is begun anew; run tidemark rebuild-index"
      )
    )
  }

  // MARK: Requests

  /// The flag of list_channels that asks for what was deleted.
  private static let withDeleted: UInt64 = 2
  private static let sinceRange =
    "since: at most 7 days ago, and \(MembershipTable.deletionsMax) deletions of a user's channels"

  /// Channels of a user, by place.
  ///
  /// - Parameter isLookedFor: the index is in memory, or there is none.
  func listChannels(
    _ header: FrameHeader,
    _ payload: RawSpan,
    _ lane: ReplyLane,
    isLookedFor: Bool = false
  ) throws(WireError) {
    var reader = FieldReader(payload.extracting(first: try takeIssued(header, payload)))
    let user = try reader.string()
    let flags = try reader.varint()
    let limit = try reader.varint()
    let cursor = try reader.optional32()
    let since = flags & Self.withDeleted == 0 ? nil : logged(since: try reader.time())
    try reader.end()
    guard Identifier.isUser(user) else { return refuse(header, .invalidField, Self.userRange, lane) }
    guard flags <= 3 else { return refuse(header, .invalidField, "flags: 0 to 3", lane) }
    guard (1...1_000).contains(limit) else {
      return refuse(header, .invalidField, "limit: 1 to 1000", lane)
    }
    guard isHome(user) else {
      return refuse(header, .wrongShard, "another shard is the user's home", lane)
    }
    guard !isRevoked(user) else { return refuse(header, .tokenRevoked, nil, lane) }
    guard since.map(isKept) ?? true else { return refuse(header, .limitReached, Self.sinceRange, lane) }
    guard let slot = state.index(of: user) else {
      guard isLookedFor || isDeleted(IndexName.bytes(of: user).span.bytes) else {
        return try wait(header, payload, for: .cid(IndexName.bytes(of: user)), lane)
      }
      return replyNoChannels(header, max(dirty.usersLast, deletions.last), lane)
    }
    clock.touch(slot)
    guard since.map({ state[slot].memberships.keepsDeletions(since: $0) }) ?? true else {
      return refuse(header, .limitReached, Self.sinceRange, lane)
    }
    effects.removeAll(keepingCapacity: true)
    state.decideForgetErased(slot, into: &effects)
    guard effects.isEmpty else {
      carryOut(slot, session: nil)
      return replyNoChannels(header, deletions.last, lane)
    }
    let page = places(slot, from: cursor ?? 0, limit: Int(limit), withAll: flags & 1 != 0, since: since)
    reply(header, departure(max(dirty.last(slot), dirty.usersLast)), lane) { buffer in
      buffer.writeVarint(page.places.count)
      for place in page.places {
        guard let entry = state[slot].memberships[place] else { continue }
        ChannelEntryFields(
          cid: entry.cid,
          row: entry.row?.rawValue,
          isMember: entry.isMember,
          joinedAt: entry.joinedAt,
          deletedAt: since.map { entry.deletedAt < $0 ? .none : entry.deletedAt } ?? .none
        )
        .write(into: &buffer)
      }
      buffer.writeOptional(page.next.map(UInt64.init))
    }
  }

  private func replyNoChannels(_ header: FrameHeader, _ last: LogIndex, _ lane: ReplyLane) {
    reply(header, departure(last), lane) { buffer in
      buffer.writeVarint(0)
      buffer.writeOptional(nil)
    }
  }

  /// The places of entries from one on. Where there are many between them that are not asked for, the page ends early.
  ///
  /// - Parameter since: those of whose name a channel was deleted at or after this are among them.
  private func places(
    _ slot: ChannelSlot,
    from first: UInt32,
    limit: Int,
    withAll: Bool,
    since: Timestamp?
  ) -> (places: [UInt32], next: UInt32?) {
    var places: [UInt32] = []
    var place = first
    var looks = configuration.sliceRows
    let end = state[slot].memberships.placeCount
    while place < end {
      if looks == 0 { return (places, place) }
      looks -= 1
      let isListed =
        state[slot].memberships.isMember(place) || withAll && state[slot].memberships.isKnown(place)
        || since.map { wasDeleted(slot, place, since: $0) } ?? false
      if isListed {
        if places.count == limit { return (places, place) }
        places.append(place)
      }
      place += 1
    }
    return (places, nil)
  }

  private func wasDeleted(_ slot: ChannelSlot, _ place: UInt32, since: Timestamp) -> Bool {
    let deletedAt = state[slot].memberships.deletedAt(place)
    return deletedAt != .none && deletedAt >= since
  }

  /// Whether what was deleted at a time is kept still. A time that is to come was given out before the clock was put
  /// back.
  private func isKept(_ since: Timestamp) -> Bool {
    let now = state.advance(clock: loop.clock)
    return since <= now
      && now.milliseconds - since.milliseconds <= MembershipTable.deletionsKeptMilliseconds
  }
}
