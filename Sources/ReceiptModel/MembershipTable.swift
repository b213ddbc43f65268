/// A user's index of channels (R13, R14): every channel that knows their id, at a place that it keeps while it is
/// there. Places are given again, the one that came free last first.
///
/// Of channels that were deleted it keeps when that was, for those who were away (DESIGN.md section 3, "Events"): in a
/// tombstone, or with the channel that has the name since. It is kept for
/// ``deletionsKeptMilliseconds``, and of at most ``deletionsMax`` channels.
package struct MembershipTable: ~Copyable, Sendable {
  /// What is kept of one entry, whose cid is in `bytes`.
  private struct Entry {
    /// 0: the place is free.
    var channel: UInt64
    var joinedAt: Int64
    var epoch: UInt64
    var deletedAt: Int64
    var offset: UInt32
    /// The row and one more; 0: none.
    var row: UInt32
    var length: UInt16
    var isMember: Bool
    var isGone: Bool

    static let vacant = Entry(
      channel: 0,
      joinedAt: 0,
      epoch: 0,
      deletedAt: 0,
      offset: 0,
      row: 0,
      length: 0,
      isMember: false,
      isGone: false
    )
  }

  /// When a channel of the name at a place was deleted.
  package struct Deletion: Hashable, Comparable, Sendable {
    package var at: Timestamp
    package var place: UInt32

    package static func < (a: Deletion, b: Deletion) -> Bool { (a.at, a.place) < (b.at, b.place) }
  }

  /// Channels that one user can have; further ones are not noted.
  package static let placesMax: UInt32 = 1 << 22
  /// Deletions that are kept at most; the oldest gives way. More than so many events are in no answer to what has
  /// changed.
  package static let deletionsMax = 1_024
  /// What was deleted is told so far back: 7 days.
  package static let deletionsKeptMilliseconds: Int64 = 7 * 86_400_000

  private var entries: [Entry] = []
  /// The cids, and those of entries that are gone until there are too many.
  private var bytes: [UInt8] = []
  private var deadBytes = 0
  private var index = HashIndex()
  /// Free places, the next one to be given last. One that was given out of its turn, when pages are read back, may
  /// stand before it still.
  private var free: [UInt32] = []
  /// The deletions that are kept, the oldest first.
  package private(set) var deletions: [Deletion] = []
  private var goneCount = 0

  init() {}

  /// Entries, tombstones among them.
  package var count: Int { index.count }
  /// Channels that know the user.
  package var knownCount: Int { index.count - goneCount }
  /// Places, free ones included.
  package var placeCount: UInt32 { UInt32(entries.count) }

  /// What it occupies, in bytes.
  var byteCount: Int {
    entries.isEmpty
      ? 0
      : heapBytes(entries) + heapBytes(bytes) + heapBytes(free) + heapBytes(deletions)
        + index.byteCount
  }

  /// Where a channel stands.
  package func place(of cid: RawSpan) -> UInt32? {
    index.find(StableHash.hash(cid)) { self.cid($0).isEqual(to: cid) }
  }

  /// Where a channel stands.
  package func place(of cid: String) -> UInt32? {
    var cid = cid
    return cid.withUTF8 { place(of: $0.span.bytes) }
  }

  /// The place that a new entry gets; nil: there is no room.
  package var nextPlace: UInt32? {
    if let place = free.last { return place }
    return placeCount < Self.placesMax ? placeCount : nil
  }

  /// The entry at a place; nil where there is none.
  package subscript(place: UInt32) -> Membership? {
    guard place < placeCount, entries[Int(place)].channel != 0 else { return nil }
    let entry = entries[Int(place)]
    return Membership(
      cid: cid(place).withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
      channel: ChannelNumber(entry.channel),
      row: entry.row == 0 ? nil : MemberOrdinal(entry.row - 1),
      isMember: entry.isMember,
      joinedAt: Timestamp(milliseconds: entry.joinedAt),
      epoch: entry.epoch,
      deletedAt: Timestamp(milliseconds: entry.deletedAt),
      isGone: entry.isGone
    )
  }

  /// Whether there is an entry, of a channel that the user is a member of now.
  package func isMember(_ place: UInt32) -> Bool { entries[Int(place)].isMember }

  /// Whether there is an entry, of a channel that knows the user now.
  package func isKnown(_ place: UInt32) -> Bool { isTaken(place) && !entries[Int(place)].isGone }

  /// When a channel of the name of an entry was deleted; none: none was, as far as is kept.
  package func deletedAt(_ place: UInt32) -> Timestamp {
    Timestamp(milliseconds: entries[Int(place)].deletedAt)
  }

  /// Whether everything that was deleted at or after a time is told by what is kept.
  package func keepsDeletions(since time: Timestamp) -> Bool {
    guard deletions.count >= Self.deletionsMax, let oldest = deletions.first else { return true }
    return time > oldest.at
  }

  /// Whether there is an entry, or a tombstone.
  package func isTaken(_ place: UInt32) -> Bool { entries[Int(place)].channel != 0 }

  /// The epoch of an entry.
  package func epoch(_ place: UInt32) -> UInt64 { entries[Int(place)].epoch }

  @_lifetime(borrow self)
  private borrowing func cid(_ place: UInt32) -> RawSpan {
    let entry = entries[Int(place)]
    let start = Int(entry.offset)
    return bytes.span.bytes.extracting(start..<start + Int(entry.length))
  }

  // MARK: Assignment

  /// Assigns an entry, to a place that is free or its own; free places before it come to be.
  mutating func assign(_ place: UInt32, _ membership: Membership) {
    while placeCount <= place {
      if placeCount < place { free.append(placeCount) }
      entries.append(.vacant)
    }
    let position = Int(place)
    var text = membership.cid
    text.withUTF8 { name in
      let isSame = isTaken(place) && cid(place).isEqual(to: name.span.bytes)
      if isSame { return }
      // Damage only: two entries of one channel, or another one in a place that is taken.
      if let other = self.place(of: name.span.bytes) { remove(other) }
      if isTaken(place) { remove(place) }
      makeRoom(name.count)
      entries[position].offset = UInt32(bytes.count)
      entries[position].length = UInt16(name.count)
      bytes.append(contentsOf: name)
      index.insert(StableHash.hash(name.span.bytes), place)
    }
    forgetDeletion(place)
    if membership.deletedAt != .none { keep(Deletion(at: membership.deletedAt, place: place)) }
    goneCount += (membership.isGone ? 1 : 0) - (entries[position].isGone ? 1 : 0)
    entries[position].deletedAt = membership.deletedAt.milliseconds
    entries[position].isGone = membership.isGone
    entries[position].channel = membership.channel.rawValue
    entries[position].joinedAt = membership.joinedAt.milliseconds
    entries[position].epoch = membership.epoch
    entries[position].row = membership.row.map { $0.rawValue + 1 } ?? 0
    entries[position].isMember = membership.isMember
    trimFree()
  }

  /// Takes an entry out; its place is free.
  mutating func remove(_ place: UInt32) {
    guard place < placeCount, isTaken(place) else { return }
    index.remove(StableHash.hash(cid(place)), place)
    deadBytes += Int(entries[Int(place)].length)
    forgetDeletion(place)
    if entries[Int(place)].isGone { goneCount -= 1 }
    entries[Int(place)] = .vacant
    free.append(place)
  }

  // They mostly come in the order of time.
  private mutating func keep(_ deletion: Deletion) {
    var place = deletions.count
    while place > 0, deletions[place - 1] > deletion { place -= 1 }
    deletions.insert(deletion, at: place)
  }

  private mutating func forgetDeletion(_ place: UInt32) {
    let known = Deletion(at: deletedAt(place), place: place)
    guard known.at != .none, let position = deletions.firstIndex(of: known) else { return }
    deletions.remove(at: position)
  }

  private mutating func trimFree() {
    while let last = free.last, isTaken(last) { free.removeLast() }
  }

  /// Moves the cids together where more than half of them are of entries that are gone.
  private mutating func makeRoom(_ count: Int) {
    guard deadBytes > 1_024, deadBytes > bytes.count / 2 else { return }
    var kept: [UInt8] = []
    kept.reserveCapacity(bytes.count - deadBytes + count)
    for position in entries.indices where entries[position].channel != 0 {
      let start = Int(entries[position].offset)
      entries[position].offset = UInt32(kept.count)
      kept.append(contentsOf: bytes[start..<start + Int(entries[position].length)])
    }
    bytes = kept
    deadBytes = 0
  }

  // MARK: Pages

  func effects(of page: UInt32, number: ChannelNumber) -> [Effect] {
    let first = min(page * PageID.membershipsPerPage, placeCount)
    let end = min(first + PageID.membershipsPerPage, placeCount)
    return (first..<end).compactMap { place in
      self[place].map { .membershipAssigned(number, place: place, $0) }
    }
  }

  #if DEBUG
    func checkInvariants() -> String? {
      var taken = 0
      var living = 0
      for place in 0..<placeCount where isTaken(place) {
        taken += 1
        living += Int(entries[Int(place)].length)
        if self.place(of: cid(place)) != place { return "membership \(place): not found by its cid" }
        if entries[Int(place)].isMember, entries[Int(place)].row == 0 {
          return "membership \(place): a member without a row"
        }
        if entries[Int(place)].isGone, isMember(place) || deletedAt(place) == .none {
          return "membership \(place): no tombstone"
        }
      }
      let kept = (0..<placeCount).filter { isTaken($0) && deletedAt($0) != .none }
        .map { Deletion(at: deletedAt($0), place: $0) }
      if kept.sorted() != deletions { return "the deletions that are kept are not those of the entries" }
      let gone = (0..<placeCount).count { isTaken($0) && !isKnown($0) }
      if gone != goneCount { return "\(gone) tombstones, \(goneCount) are counted" }
      if taken != count { return "\(taken) memberships, \(count) are found by their cids" }
      if living + deadBytes != bytes.count { return "the cids of memberships are not those counted" }
      if let last = free.last, isTaken(last) {
        return "membership \(last): is taken, and would be given next"
      }
      let vacant = Set(free.filter { !isTaken($0) })
      return vacant.count == entries.count - taken ? nil : "a free place of memberships is lost"
    }
  #endif
}
