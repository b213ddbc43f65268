/// What is known of a token by its id (`jti`, RFC 7519 section 4.1.7): revoked until a time, or taken back.
package struct TokenRevocation: Hashable, Sendable {
  package var id: String
  /// The shard's time from which on the token is not revoked any more; none: the revocation was taken back.
  package var until: Timestamp
  /// Rises with each change of any token, so that somebody who knows the list up to a version can ask for the rest.
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

/// Tokens that are revoked one by one, which one shard of the store keeps for all (Proto/frames.md, 0x46). An entry is
/// in force until a time of the shard (R20). The first change applied after that
/// time removes it, so replay removes it at the same point of the log.
package struct RevokedTokenTable: Sendable {
  /// Tokens that are revoked at the same time.
  package static let countMax = 10_000
  /// How far ahead a revocation may end, in milliseconds: ten years, leap days included.
  package static let lifetimeMax: Int64 = 3_660 * 86_400_000

  private var entries: [ExactText: TokenRevocation] = [:]
  /// By rising version; one whose entry has another version by now, or is gone, is passed over.
  private var order: [TokenRevocation] = []
  /// The newest revocation that was taken back.
  private var takenBack: TokenRevocation?
  /// The earliest end among the entries.
  private var nextEnd = Timestamp(milliseconds: .max)
  /// The latest end of an entry that has left memory since the start.
  private var endedBefore = Timestamp.none

  init() {}

  /// Of the last change.
  package private(set) var version: UInt64 = 0

  /// Somebody who knows the list up to an earlier version has to ask for all of it: of what was taken back only the
  /// newest is kept.
  package var takenBackVersion: UInt64 { takenBack?.version ?? 0 }

  /// Entries in memory, also those whose time is over.
  package var count: Int { entries.count }

  /// A token's revocation that is in force.
  package func revocation(of id: String, at time: Timestamp) -> TokenRevocation? {
    guard !entries.isEmpty, let entry = entries[ExactText(id)], entry.until > time else { return nil }
    return entry
  }

  /// Whether one more token may be revoked. Those whose time is over are looked for only where there are too many.
  package func hasRoom(at time: Timestamp) -> Bool {
    entries.count < Self.countMax || entries.values.contains { $0.until <= time }
  }

  /// The latest time at which an entry has ended; none: there was none since the start.
  package func ended(at time: Timestamp) -> Timestamp {
    guard nextEnd <= time else { return endedBefore }
    var latest = endedBefore
    for entry in entries.values where entry.until <= time { latest = max(latest, entry.until) }
    return latest
  }

  /// Up to so many revocations in force of a higher version, by rising version.
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

  /// Assigns a change, which has a higher version than all before it.
  mutating func assign(_ revocation: TokenRevocation, at time: Timestamp) {
    version = revocation.version
    if nextEnd <= time { removeEnded(at: time) }
    if revocation.until == .none {
      entries[ExactText(revocation.id)] = nil
      takenBack = revocation
    } else {
      entries[ExactText(revocation.id)] = revocation
      nextEnd = min(nextEnd, revocation.until)
      order.append(revocation)
    }
    // Each entry stands in it once beside what is passed over.
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

  /// The effects that make the page. The newest that was taken back is among them, for its version.
  var effects: [Effect] {
    var kept = order.filter { isCurrent($0) }
    if let takenBack {
      kept.insert(takenBack, at: kept.firstIndex { $0.version > takenBack.version } ?? kept.count)
    }
    return kept.map { .tokenRevoked($0) }
  }

  /// What it occupies, in bytes: ids of more than 15 bytes are on the heap, and shared.
  package var byteCount: Int { heapBytes(order) + entries.capacity * 80 + entries.count * 64 }
}
