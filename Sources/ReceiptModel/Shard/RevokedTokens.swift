/// The state of a token by its id (`jti`, RFC 7519 section 4.1.7): revoked until a time, or its revocation lifted.
package struct TokenRevocation: Hashable, Sendable {
  package var id: String
  /// The shard's time at which the revocation ends; none: the revocation was lifted.
  package var until: Timestamp
  /// Rises with each change of any token, so that a client that has the list up to a version can ask for the rest.
  package var version: UInt64

  package init(id: String, until: Timestamp, version: UInt64) {
    self.id = id
    self.until = until
    self.version = version
  }

  package static func == (a: Self, b: Self) -> Bool {
    a.version == b.version && a.until == b.until && a.id.isExactly(b.id)
  }
}

/// Individually revoked tokens, kept in ``shard`` for the whole store (Proto/frames.md, 0x46). An entry is effective
/// until a time of the shard (R20). The first change applied after that time removes it, so replay removes it at the
/// same point of the log.
package struct RevokedTokenTable: Sendable {
  /// The shard of every store that keeps the table.
  package static let shard = ShardID(0)
  /// Maximum number of tokens revoked at the same time.
  package static let countMax = 10_000
  /// Maximum time until a revocation ends, in milliseconds: ten years, including leap days.
  package static let lifetimeMax: Int64 = 3_660 * 86_400_000

  private var entries: [ExactText: TokenRevocation] = [:]
  /// By rising version; revocations whose entry was replaced or removed are skipped.
  private var order: [TokenRevocation] = []
  /// The newest lifted revocation.
  private var newestLifted: TokenRevocation?
  /// The earliest end of an entry.
  private var nextEnd = Timestamp(milliseconds: .max)
  /// The latest end of an entry that was removed from memory since the start.
  private var endedBefore = Timestamp.none

  init() {}

  /// The version of the last change.
  package private(set) var version: UInt64 = 0

  /// The version of the newest lifted revocation, the only lifted one that is kept. A client that has the list up to an
  /// earlier version must fetch all of it.
  package var liftedVersion: UInt64 { newestLifted?.version ?? 0 }

  /// Number of entries in memory, including expired ones.
  package var count: Int { entries.count }

  /// Return a token's effective revocation.
  package func revocation(of id: String, at time: Timestamp) -> TokenRevocation? {
    guard !entries.isEmpty, let entry = entries[ExactText(id)], entry.until > time else { return nil }
    return entry
  }

  /// Return whether one more token can be revoked. Searches for expired entries only if the table is full.
  package func hasRoom(at time: Timestamp) -> Bool {
    entries.count < Self.countMax || entries.values.contains { $0.until <= time }
  }

  /// Return the latest time at which an entry expired; none: no entry expired since the start.
  package func ended(at time: Timestamp) -> Timestamp {
    guard nextEnd <= time else { return endedBefore }
    var latest = endedBefore
    for entry in entries.values where entry.until <= time { latest = max(latest, entry.until) }
    return latest
  }

  /// Return at most `limit` effective revocations above a version, by rising version.
  package func revocations(after version: UInt64, at time: Timestamp, limit: Int) -> [TokenRevocation] {
    guard version < self.version else { return [] }
    var first = 0
    var end = order.count
    while first < end {
      let middle = (first + end) / 2
      if order[middle].version <= version { first = middle + 1 } else { end = middle }
    }
    var found: [TokenRevocation] = []
    while first < order.count, found.count < limit {
      if isCurrent(order[first]), order[first].until > time { found.append(order[first]) }
      first += 1
    }
    return found
  }

  // MARK: Deciding

  /// Why a token's revocation is refused.
  package enum Refusal: Error, Equatable {
    case endsInThePast
    case endsTooLate
    case limitReached
  }

  /// Revoke a token until a time. Does nothing if it is revoked until then already.
  package func decideRevoke(
    _ id: String,
    until: Timestamp,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    guard until > time else { throw .endsInThePast }
    guard until.milliseconds - time.milliseconds <= Self.lifetimeMax else { throw .endsTooLate }
    let current = revocation(of: id, at: time)
    guard current?.until != until else { return }
    guard current != nil || hasRoom(at: time) else { throw .limitReached }
    effects.append(.shard(.tokenRevoked(TokenRevocation(id: id, until: until, version: version + 1))))
  }

  /// Lift a token's revocation. Do nothing if it is not revoked.
  package func decideLift(_ id: String, at time: Timestamp, into effects: inout [Effect]) {
    guard revocation(of: id, at: time) != nil else { return }
    effects.append(.shard(.tokenRevoked(TokenRevocation(id: id, until: .none, version: version + 1))))
  }

  // MARK: Assignment

  /// Assign a change, whose version is higher than all before it.
  mutating func assign(_ revocation: TokenRevocation, at time: Timestamp) {
    version = revocation.version
    if nextEnd <= time { removeEnded(at: time) }
    if revocation.until == .none {
      entries[ExactText(revocation.id)] = nil
      newestLifted = revocation
    } else {
      entries[ExactText(revocation.id)] = revocation
      nextEnd = min(nextEnd, revocation.until)
      order.append(revocation)
    }
    // Each entry is in `order` once, besides skipped ones.
    if order.count > 2 * entries.count + 16 { order = order.filter { isCurrent($0) } }
  }

  private func isCurrent(_ revocation: TokenRevocation) -> Bool {
    entries[ExactText(revocation.id)]?.version == revocation.version
  }

  private mutating func removeEnded(at time: Timestamp) {
    endedBefore = ended(at: time)
    entries = entries.filter { $0.value.until > time }
    nextEnd = entries.values.map(\.until).min() ?? Timestamp(milliseconds: .max)
  }

  /// The effects that reproduce the page. They include the newest lifted revocation, for its version.
  var effects: [Effect] {
    var kept = order.filter { isCurrent($0) }
    if let newestLifted {
      kept.insert(newestLifted, at: kept.firstIndex { $0.version > newestLifted.version } ?? kept.count)
    }
    return kept.map { .shard(.tokenRevoked($0)) }
  }

  /// Size in bytes. Ids of more than 15 bytes are on the heap, and shared.
  package var byteCount: Int { heapBytes(order) + entries.capacity * 80 + entries.count * 64 }
}
