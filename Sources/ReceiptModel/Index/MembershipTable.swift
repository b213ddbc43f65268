/// A user's channel index (R13, R14). Contains every channel that knows the user's id, at a place that does not change
/// while the entry exists. Free places are reused, the last freed first.
///
/// For deleted channels it keeps the time of the deletion, for clients that were away (docs/architecture.md, "Events"):
/// in a tombstone, or with a later channel of the same name. Deletions are kept for ``deletionsKeptMilliseconds``, and
/// for at most ``deletionsMax`` channels.
package struct MembershipTable: ~Copyable, Sendable {
  /// One entry; its cid is in `bytes`.
  private struct Entry {
    /// 0: the place is free.
    var channel: UInt64
    var joinedAt: Int64
    var epoch: UInt64
    var deletedAt: Int64
    var offset: UInt32
    /// 1 + the row; 0: none.
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

  /// The deletion of a channel whose name has this place.
  package struct Deletion: Hashable, Comparable, Sendable {
    package var at: Timestamp
    package var place: UInt32

    package static func < (a: Deletion, b: Deletion) -> Bool { (a.at, a.place) < (b.at, b.place) }
  }

  /// Maximum number of channels of one user; further ones are not recorded.
  package static let placesMax: UInt32 = 1 << 22
  /// Maximum number of kept deletions; the oldest is dropped. A resume reply never has more events than this.
  package static let deletionsMax = 1_024
  /// How long deletions are reported: 7 days.
  package static let deletionsKeptMilliseconds: Int64 = 7 * 86_400_000

  private var entries: [Entry] = []
  /// The cids. Removed entries' cids stay until there are too many of them.
  private var bytes: [UInt8] = []
  private var deadBytes = 0
  private var index = HashIndex()
  /// Free places; the next to assign is the last. May still contain a place that was assigned out of order when pages
  /// were read back.
  private var free: [UInt32] = []
  /// The kept deletions, oldest first.
  package private(set) var deletions: [Deletion] = []
  private var goneCount = 0

  init() {}

  /// Number of entries, including tombstones.
  package var count: Int { index.count }
  /// Number of channels that know the user.
  package var knownCount: Int { index.count - goneCount }
  /// Number of places, including free ones.
  package var placeCount: UInt32 { UInt32(entries.count) }

  /// Size in bytes.
  var byteCount: Int {
    entries.isEmpty
      ? 0
      : heapBytes(entries) + heapBytes(bytes) + heapBytes(free) + heapBytes(deletions)
        + index.byteCount
  }

  /// The place of a channel.
  package func place(of cid: RawSpan) -> UInt32? {
    index.find(StableHash.hash(cid)) { self.cid($0).isEqual(to: cid) }
  }

  /// The place of a channel.
  package func place(of cid: String) -> UInt32? {
    var cid = cid
    return cid.withUTF8 { place(of: $0.span.bytes) }
  }

  /// The place for a new entry; nil: the table is full.
  package var nextPlace: UInt32? {
    if let place = free.last { return place }
    return placeCount < Self.placesMax ? placeCount : nil
  }

  /// The entry at a place; nil if the place is free.
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

  /// Whether there is an entry of a channel that the user is a member of.
  package func isMember(_ place: UInt32) -> Bool { entries[Int(place)].isMember }

  /// Whether there is an entry of a channel that knows the user.
  package func isKnown(_ place: UInt32) -> Bool { isOccupied(place) && !entries[Int(place)].isGone }

  /// When an earlier channel of an entry's name was deleted; none: never, or no longer kept.
  package func deletedAt(_ place: UInt32) -> Timestamp {
    Timestamp(milliseconds: entries[Int(place)].deletedAt)
  }

  /// Whether all deletions at or after a time are kept.
  package func keepsDeletions(since time: Timestamp) -> Bool {
    guard deletions.count >= Self.deletionsMax, let oldest = deletions.first else { return true }
    return time > oldest.at
  }

  /// Whether there is an entry, or a tombstone.
  package func isOccupied(_ place: UInt32) -> Bool { entries[Int(place)].channel != 0 }

  /// The epoch of an entry.
  package func epoch(_ place: UInt32) -> UInt64 { entries[Int(place)].epoch }

  @_lifetime(borrow self)
  private borrowing func cid(_ place: UInt32) -> RawSpan {
    let entry = entries[Int(place)]
    let start = Int(entry.offset)
    return bytes.span.bytes.extracting(start..<start + Int(entry.length))
  }

  // MARK: Assignment

  /// Assigns an entry to a free place or to its own; creates free places before it as needed.
  mutating func assign(_ place: UInt32, _ membership: Membership) {
    while placeCount <= place {
      if placeCount < place { free.append(placeCount) }
      entries.append(.vacant)
    }
    let position = Int(place)
    var text = membership.cid
    text.withUTF8 { name in
      let isSame = isOccupied(place) && cid(place).isEqual(to: name.span.bytes)
      if isSame { return }
      // Only for damaged data: two entries of one channel, or another channel in a taken place.
      if let other = self.place(of: name.span.bytes) { remove(other) }
      if isOccupied(place) { remove(place) }
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

  /// Removes an entry and frees its place.
  mutating func remove(_ place: UInt32) {
    guard place < placeCount, isOccupied(place) else { return }
    index.remove(StableHash.hash(cid(place)), place)
    deadBytes += Int(entries[Int(place)].length)
    forgetDeletion(place)
    if entries[Int(place)].isGone { goneCount -= 1 }
    entries[Int(place)] = .vacant
    free.append(place)
  }

  // Deletions mostly come in order of time.
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
    while let last = free.last, isOccupied(last) { free.removeLast() }
  }

  /// Compacts the cids if more than half of the bytes belong to removed entries.
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
      self[place].map { .channel(number, .membershipAssigned(place: place, $0)) }
    }
  }

  #if DEBUG
    func checkInvariants() -> String? {
      var taken = 0
      var living = 0
      for place in 0..<placeCount where isOccupied(place) {
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
      let kept = (0..<placeCount).filter { isOccupied($0) && deletedAt($0) != .none }
        .map { Deletion(at: deletedAt($0), place: $0) }
      if kept.sorted() != deletions { return "the kept deletions differ from those of the entries" }
      let gone = (0..<placeCount).count { isOccupied($0) && !isKnown($0) }
      if gone != goneCount { return "\(gone) tombstones, \(goneCount) are counted" }
      if taken != count { return "\(taken) memberships, \(count) are found by their cids" }
      if living + deadBytes != bytes.count { return "the cids of memberships are not those counted" }
      if let last = free.last, isOccupied(last) {
        return "membership \(last): is taken, but is the next free place"
      }
      let vacant = Set(free.filter { !isOccupied($0) })
      return vacant.count == entries.count - taken ? nil : "a free place is missing from the free list"
    }
  #endif
}
