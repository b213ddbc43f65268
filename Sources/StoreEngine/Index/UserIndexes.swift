internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Users' indexes of channels, in their home shards (R13, R14). An index is stored like a channel: loaded on demand,
/// evicted when memory is short.
final class UserIndexes: ShardPart {
  /// Changes from one source shard.
  struct Inbox {
    let source: ShardID
    /// Changes that are not in the index yet, in rising order.
    private(set) var changes: Deque<Outbox.QueuedChange> = []
    /// Number of these. All inboxes are asked for it after each load, and asking the list counts a reference.
    private(set) var count = 0
    /// The index that is being loaded for the first change.
    var loading: ChannelReference?
    /// Number of leading changes whose indexes were looked up by ``UserIndexes/readAhead(_:_:)``.
    var readAhead = 0
    /// Number of the last accepted change.
    var accepted: UInt64
    /// Changes up to here are in the index, durably.
    var durable: UInt64

    mutating func append(_ change: Outbox.QueuedChange) {
      changes.append(change)
      count += 1
    }

    mutating func removeFirst() {
      changes.removeFirst()
      count -= 1
      readAhead = max(0, readAhead - 1)
    }
  }

  /// In the order of each shard's first delivery.
  private var inboxes: [Inbox] = []
  /// Number of changes in all inboxes.
  private var queuedCount = 0
  /// Users without an index on storage, for whom none was created since.
  private var absent: Set<[UInt8]> = []
  /// When to retry indexes that could not be read, in the loop's elapsed time.
  private var retryAt: Int64 = 0
  /// Consecutive failed reads, by index.
  private var failures: [[UInt8]: Int] = [:]
  /// Sources whose changes were applied in the open batch, and in the closed one.
  private var inOpenBatch: [(source: ShardID, through: UInt64)] = []
  private var inClosedBatch: [(source: ShardID, through: UInt64)] = []

  var isEmpty: Bool { queuedCount == 0 }

  private func record(_ source: ShardID, through number: UInt64) { inOpenBatch.append((source, number)) }

  func closeBatch() {
    inClosedBatch += inOpenBatch
    inOpenBatch.removeAll(keepingCapacity: true)
  }

  /// Take the changes that have become durable.
  func takeDurable() -> [(source: ShardID, through: UInt64)] {
    guard !inClosedBatch.isEmpty else { return [] }
    defer { inClosedBatch.removeAll(keepingCapacity: true) }
    for (source, through) in inClosedBatch {
      guard let position = inboxes.firstIndex(where: { $0.source == source }) else { continue }
      inboxes[position].durable = max(inboxes[position].durable, through)
    }
    return inClosedBatch
  }

  /// Failed reads after which an index is recreated empty.
  private static let failuresMax = 10

  /// Changes that one turn scans to load their indexes ahead of time.
  private static let scanMax = 256

  // MARK: Applying changes

  /// Receive changes from another shard. Each is accepted once and in order: duplicates are skipped, and changes
  /// behind a gap are left for the sender's retry.
  func receive(_ delivery: MembershipDelivery) {
    let position = inbox(of: delivery.from)
    guard let last = delivery.changes.last, delivery.after <= inboxes[position].accepted else {
      return
    }
    let durable = inboxes[position].durable
    if last.number <= durable {
      // The confirmation was lost.
      shard.loop.crossShard.confirm(MembershipConfirmation(to: delivery.from, from: shard.state.id, through: durable))
      return
    }
    for queued in delivery.changes where queued.number > inboxes[position].accepted {
      guard inboxes[position].count < 2 * shard.configuration.changesInFlightMax else { break }
      inboxes[position].append(queued)
      queuedCount += 1
      inboxes[position].accepted = queued.number
    }
    applyChanges()
  }

  private func inbox(of source: ShardID) -> Int {
    if let known = inboxes.firstIndex(where: { $0.source == source }) { return known }
    let received = shard.state.outbox.received(from: source)
    inboxes.append(Inbox(source: source, accepted: received, durable: received))
    return inboxes.count - 1
  }

  /// Apply the changes whose users' indexes are in memory, in order, and load the indexes that are needed next.
  func applyChanges() {
    guard !isEmpty else { return absent.removeAll() }
    var scanBudget = Self.scanMax
    var effects: [Effect] = []
    for position in inboxes.indices where inboxes[position].count > 0 {
      if let reference = inboxes[position].loading {
        guard !shard.loads.isInFlight(reference) else {
          // Nothing can be applied; this is asked after each load.
          if shard.loop.budget.changes > 0 { readAhead(position, &scanBudget) }
          continue
        }
        inboxes[position].loading = nil
      }
      var through: UInt64?
      while shard.loop.budget.changes > 0, let next = inboxes[position].changes.first, apply(next.change, &effects) {
        inboxes[position].removeFirst()
        queuedCount -= 1
        through = next.number
        shard.loop.budget.useChanges(1)
      }
      if let through {
        let source = inboxes[position].source
        // In the same batch as the changes that it confirms.
        shard.applyEffects([.shard(.membershipsReceived(from: source, through: through))], to: nil)
        record(source, through: through)
      }
      if shard.loop.budget.changes > 0 { readAhead(position, &scanBudget) }
    }
    if isEmpty {
      absent.removeAll()
    } else if shard.loop.budget.changes <= 0 {
      shard.loop.slices.queueForWork(shard)
    }
  }

  /// Apply a change to its user's index.
  ///
  /// - Parameter effects: buffer that all changes share.
  /// - Returns: false if the user's index must be loaded first.
  private func apply(_ change: MembershipChange, _ effects: inout [Effect]) -> Bool {
    let slot = indexSlot(of: change.user)
    if slot == nil, !isAbsent(change.user) { return false }
    effects.removeAll(keepingCapacity: true)
    shard.state.decideApplyMembership(change, slot, at: shard.advanceTime(), into: &effects)
    guard !effects.isEmpty else { return true }
    shard.applyEffects(effects, to: slot)
    shard.loop.counters.indexEntries += 1
    if slot == nil { absent.remove(Array(IndexName.text(of: change.user).utf8)) }
    return true
  }

  private func indexSlot(of user: String) -> ChannelSlot? {
    var user = user
    return user.withUTF8 { shard.state.index(of: $0.span.bytes) }
  }

  /// Return whether this user has no index, and no load is in flight that a new index would make stale.
  private func isAbsent(_ user: String) -> Bool {
    guard !absent.isEmpty || shard.deletions.hasDrops else { return false }
    let name = Array(IndexName.text(of: user).utf8)
    return (absent.contains(name) || shard.deletions.index(absent: name) != nil) && !shard.loads.isInFlight(.cid(name))
  }

  /// Load the indexes of the next changes. The first change is looked up whenever its index is not being loaded, since
  /// it blocks the others; these are looked up once.
  ///
  /// - Parameter scanBudget: number of changes behind the first one that may be looked up.
  private func readAhead(_ position: Int, _ scanBudget: inout Int) {
    guard shard.loop.elapsedMilliseconds >= retryAt else { return }
    let loadsMax = shard.configuration.indexLoadsMax
    if inboxes[position].loading == nil, let first = inboxes[position].changes.first {
      guard shard.loads.countForChanges < loadsMax else { return }
      inboxes[position].loading = load(first.change.user)
      inboxes[position].readAhead = max(1, inboxes[position].readAhead)
    }
    let end = min(inboxes[position].count, loadsMax)
    while inboxes[position].readAhead < end, scanBudget > 0, shard.loads.countForChanges < loadsMax {
      scanBudget -= 1
      _ = load(inboxes[position].changes[inboxes[position].readAhead].change.user)
      inboxes[position].readAhead += 1
    }
  }

  /// Load a user's index, unless it is in memory or known to be absent.
  private func load(_ user: String) -> ChannelReference? {
    guard indexSlot(of: user) == nil else { return nil }
    let name = Array(IndexName.text(of: user).utf8)
    guard !absent.contains(name), shard.deletions.index(absent: name) == nil else { return nil }
    let reference = ChannelReference.cid(name)
    shard.loads.loadForChanges(reference)
    return reference
  }

  // MARK: Reading

  /// Record the result of an index load for changes. A missing index is created with its first change.
  func recordAbsence(_ reference: ChannelReference) {
    guard case .cid(let name) = reference else { return }
    failures[name] = nil
    if shard.state.slot(named: name) == nil { absent.insert(name) }
  }

  /// Handle an index that has changes but cannot be read. A damaged index is recreated empty; its lost entries are
  /// missing until the index is rebuilt.
  ///
  /// - Parameter number: the channel number under which the index was found, if it was.
  func recordUnreadable(_ reference: ChannelReference, _ error: StorageError, number: ChannelNumber?) {
    guard case .cid(let name) = reference else { return }
    let count = failures[name, default: 0] + 1
    if case .failed = error, count < Self.failuresMax {
      failures[name] = count
      retryAt = shard.loop.elapsedMilliseconds + shard.configuration.changesRetryMilliseconds
      return
    }
    failures[name] = nil
    // The log's tail of this index can no longer be applied, and must not hold the log.
    if let number = shard.tail.number(of: name) ?? number { shard.tail.remove(number, cid: name) }
    absent.insert(name)
    shard.loop.driver.reportError(
      .corrupt(
        "shard \(shard.state.id.rawValue): a user's index is unreadable and was recreated empty; "
          + "run tidemark rebuild-index"
      )
    )
  }

  // MARK: Requests

  private static let sinceRange =
    "since: at most 7 days ago, within the last \(MembershipTable.deletionsMax) deletions of the user's channels"

  /// List a user's channels, by position.
  ///
  /// - Parameter wasLookedUp: the index was already looked up: it is in memory or does not exist.
  func listChannels(_ request: inout Request, wasLookedUp: Bool = false) throws(WireError) -> Outcome {
    let user = try request.fields.string()
    let fields = try ListChannelsRequest(&request.fields)
    let (flags, limit, cursor) = (fields.flags, fields.limit, fields.cursor)
    let since = flags & ListChannelsRequest.withDeleted == 0 ? nil : shard.events.logged(since: fields.since)
    guard Identifier.isUser(user) else {
      return .refused(.invalidField, "\(Identifier.userRange)")
    }
    guard flags <= 3 else { return .refused(.invalidField, "flags: 0 to 3") }
    guard (1...1_000).contains(limit) else {
      return .refused(.invalidField, "limit: 1 to 1000")
    }
    guard shard.isHome(user) else {
      return .refused(.wrongShard, "another shard is the user's home")
    }
    guard !shard.isRevoked(user, request) else { return shard.refused(.tokenRevoked, nil) }
    guard since.map(isKept) ?? true else { return .refused(.limitReached, Self.sinceRange) }
    guard let slot = shard.state.index(of: user) else {
      guard wasLookedUp || shard.deletions.isDeleted(IndexName.bytes(of: user).span.bytes) else {
        return shard.loads.wait(request, for: .cid(IndexName.bytes(of: user)))
      }
      return replyNoChannels(request, max(shard.dirty.usersLast, shard.deletions.last))
    }
    shard.recordUse(of: slot)
    guard since.map({ shard.state[slot].memberships.keepsDeletions(since: $0) }) ?? true else {
      return .refused(.limitReached, Self.sinceRange)
    }
    var effects: [Effect] = []
    shard.state.decideDropErasedIndex(slot, into: &effects)
    guard effects.isEmpty else {
      shard.applyEffects(effects, to: slot)
      return replyNoChannels(request, shard.deletions.last)
    }
    let page = positions(
      slot,
      from: cursor ?? 0,
      limit: Int(limit),
      withAll: flags & ListChannelsRequest.withAll != 0,
      since: since
    )
    return shard.reply(request, shard.replyTiming(max(shard.dirty.last(slot), shard.dirty.usersLast))) {
      buffer in
      buffer.writeChannelList(count: page.positions.count, next: page.next.map(UInt64.init)) { buffer in
        for position in page.positions {
          guard let entry = shard.state[slot].memberships[position] else { continue }
          ChannelEntryFields(
            cid: entry.cid,
            row: entry.row?.rawValue,
            isMember: entry.isMember,
            joinedAt: entry.joinedAt,
            deletedAt: since.map { entry.deletedAt < $0 ? .none : entry.deletedAt } ?? .none
          )
          .write(into: &buffer)
        }
      }
    }
  }

  private func replyNoChannels(_ request: borrowing Request, _ last: LogIndex) -> Outcome {
    shard.reply(request, shard.replyTiming(last)) { $0.writeChannelList(count: 0, next: nil) { _ in } }
  }

  /// Return the positions of the listed entries from `first` on. The page ends early after many entries that are not
  /// listed.
  ///
  /// - Parameter since: also lists entries of which a channel was deleted at or after this time.
  private func positions(
    _ slot: ChannelSlot,
    from first: UInt32,
    limit: Int,
    withAll: Bool,
    since: Timestamp?
  ) -> (positions: [UInt32], next: UInt32?) {
    var positions: [UInt32] = []
    var position = first
    var scanBudget = shard.configuration.sliceRows
    let end = shard.state[slot].memberships.positionCount
    while position < end {
      if scanBudget == 0 { return (positions, position) }
      scanBudget -= 1
      let isListed =
        shard.state[slot].memberships.isMember(position) || withAll && shard.state[slot].memberships.isKnown(position)
        || since.map { wasDeleted(slot, position, since: $0) } ?? false
      if isListed {
        if positions.count == limit { return (positions, position) }
        positions.append(position)
      }
      position += 1
    }
    return (positions, nil)
  }

  private func wasDeleted(_ slot: ChannelSlot, _ position: UInt32, since: Timestamp) -> Bool {
    let deletedAt = shard.state[slot].memberships.deletedAt(position)
    return deletedAt != .none && deletedAt >= since
  }

  /// Return whether tombstones of this time are still kept. A future time was handed out before the clock was put back.
  private func isKept(_ since: Timestamp) -> Bool {
    let now = shard.advanceTime()
    return since <= now && now.milliseconds - since.milliseconds <= MembershipTable.deletionsKeptMilliseconds
  }
}
