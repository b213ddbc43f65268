/// A user's membership in one channel, as stored in the user's index. An ended membership stays while the channel still
/// knows the user's name.
package struct Membership: Hashable, Sendable {
  package var cid: String
  /// The channel's incarnation.
  package var channel: ChannelNumber
  /// The user's last row in the channel; nil: never a member, only a sender.
  package var row: MemberOrdinal?
  package var isMember: Bool
  package var joinedAt: Timestamp
  /// The epoch of the change that assigned this entry. After a rebuild, entries with an older epoch are wrong.
  package var epoch: UInt64
  /// When the user ceased to be a member of a deleted channel of this name, by the channel shard's time: at its
  /// deletion, or earlier by leaving. None: no such channel, or the time is no longer kept.
  package var deletedAt: Timestamp
  /// A tombstone: no channel of this name knows the user any more. It is not a membership, and is kept to replay the
  /// removal to clients that were away.
  package var isGone: Bool

  package init(
    cid: String,
    channel: ChannelNumber,
    row: MemberOrdinal?,
    isMember: Bool,
    joinedAt: Timestamp,
    epoch: UInt64 = 0,
    deletedAt: Timestamp = .none,
    isGone: Bool = false
  ) {
    self.cid = cid
    self.channel = channel
    self.row = row
    self.isMember = isMember
    self.joinedAt = joinedAt
    self.epoch = epoch
    self.deletedAt = deletedAt
    self.isGone = isGone
  }

  /// Return the tombstone that replaces this entry once no channel of its name knows the user.
  func tombstone(at time: Timestamp) -> Membership {
    Membership(
      cid: cid,
      channel: channel,
      row: nil,
      isMember: false,
      joinedAt: .none,
      epoch: epoch,
      deletedAt: time,
      isGone: true
    )
  }
}

/// A membership change that a channel's shard sends to a user's home shard.
package struct MembershipChange: Hashable, Sendable {
  package var user: String
  /// The entry that the index must hold.
  package var membership: Membership
  /// The channel no longer knows the user. Either the channel was deleted, and `membership` says when the user's
  /// membership ended, or the user was erased there.
  package var isGone: Bool

  package init(user: String, _ membership: Membership, isGone: Bool = false) {
    self.user = user
    self.membership = membership
    self.isGone = isGone
  }
}

/// A user's channel index (R13, R14). Contains every channel that knows the user's id, at a position that does not
/// change while the entry exists. Free positions are reused, the last freed first.
///
/// For deleted channels it keeps the time of the deletion, for clients that were away (docs/contribute/architecture.md,
/// "Events"): in a tombstone, or with a later channel of the same name. Deletions are kept for
/// ``deletionsKeptMilliseconds``, and for at most ``deletionsMax`` channels.
package struct MembershipTable: ~Copyable, Sendable {
  /// One entry; its cid is in `bytes`.
  private struct Entry {
    /// 0: the position is free.
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

  /// The deletion of a channel whose name has this position.
  package struct Deletion: Hashable, Comparable, Sendable {
    package var at: Timestamp
    package var position: UInt32

    package static func < (a: Deletion, b: Deletion) -> Bool { (a.at, a.position) < (b.at, b.position) }
  }

  /// Maximum number of channels of one user; further ones are not recorded.
  package static let positionsMax: UInt32 = 1 << 22
  /// Maximum number of kept deletions; the oldest is dropped. A resume reply never has more events than this.
  package static let deletionsMax = 1_024
  /// How long deletions are reported: 7 days.
  package static let deletionsKeptMilliseconds: Int64 = 7 * 86_400_000

  private var entries: [Entry] = []
  /// The cids. Removed entries' cids stay until there are too many of them.
  private var bytes: [UInt8] = []
  private var deadBytes = 0
  private var index = HashIndex()
  /// Free positions; the next to assign is the last. May still contain a position that was assigned out of order when
  /// pages were read back.
  private var free: [UInt32] = []
  /// The kept deletions, oldest first.
  package private(set) var deletions: [Deletion] = []
  private var goneCount = 0

  init() {}

  /// Number of entries, including tombstones.
  package var count: Int { index.count }
  /// Number of channels that know the user.
  package var knownCount: Int { index.count - goneCount }
  /// Number of positions, including free ones.
  package var positionCount: UInt32 { UInt32(entries.count) }

  /// Size in bytes.
  var byteCount: Int {
    entries.isEmpty
      ? 0 : heapBytes(entries) + heapBytes(bytes) + heapBytes(free) + heapBytes(deletions) + index.byteCount
  }

  /// Return the position of a channel.
  package func position(of cid: RawSpan) -> UInt32? {
    index.find(StableHash.hash(cid)) { self.cid($0).equals(cid) }
  }

  /// Return the position of a channel.
  package func position(of cid: String) -> UInt32? {
    var cid = cid
    return cid.withUTF8 { position(of: $0.span.bytes) }
  }

  /// The position for a new entry; nil: the table is full.
  package var nextPosition: UInt32? {
    if let position = free.last { return position }
    return positionCount < Self.positionsMax ? positionCount : nil
  }

  /// The entry at a position; nil if the position is free.
  package subscript(position: UInt32) -> Membership? {
    guard position < positionCount, entries[Int(position)].channel != 0 else { return nil }
    let entry = entries[Int(position)]
    return Membership(
      cid: cid(position).withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
      channel: ChannelNumber(entry.channel),
      row: entry.row == 0 ? nil : MemberOrdinal(entry.row - 1),
      isMember: entry.isMember,
      joinedAt: Timestamp(milliseconds: entry.joinedAt),
      epoch: entry.epoch,
      deletedAt: Timestamp(milliseconds: entry.deletedAt),
      isGone: entry.isGone
    )
  }

  /// Return whether there is an entry of a channel that the user is a member of.
  package func isMember(_ position: UInt32) -> Bool { entries[Int(position)].isMember }

  /// Return whether there is an entry of a channel that knows the user.
  package func isKnown(_ position: UInt32) -> Bool { isOccupied(position) && !entries[Int(position)].isGone }

  /// Return when an earlier channel of an entry's name was deleted; none: never, or no longer kept.
  package func deletedAt(_ position: UInt32) -> Timestamp {
    Timestamp(milliseconds: entries[Int(position)].deletedAt)
  }

  /// Return whether all deletions at or after a time are kept.
  package func keepsDeletions(since time: Timestamp) -> Bool {
    guard deletions.count >= Self.deletionsMax, let oldest = deletions.first else { return true }
    return time > oldest.at
  }

  /// Return whether there is an entry, or a tombstone.
  package func isOccupied(_ position: UInt32) -> Bool { entries[Int(position)].channel != 0 }

  /// Return the epoch of an entry.
  package func epoch(_ position: UInt32) -> UInt64 { entries[Int(position)].epoch }

  @_lifetime(borrow self)
  private borrowing func cid(_ position: UInt32) -> RawSpan {
    let entry = entries[Int(position)]
    let start = Int(entry.offset)
    return bytes.span.bytes.extracting(start..<start + Int(entry.length))
  }

  // MARK: Assignment

  /// Assign an entry to a free position or to its own; create free positions before it as needed.
  mutating func assign(_ position: UInt32, _ membership: Membership) {
    while positionCount <= position {
      if positionCount < position { free.append(positionCount) }
      entries.append(.vacant)
    }
    var text = membership.cid
    text.withUTF8 { name in
      let isSame = isOccupied(position) && cid(position).equals(name.span.bytes)
      if isSame { return }
      // Only for damaged data: two entries of one channel, or another channel in a taken position.
      if let other = self.position(of: name.span.bytes) { remove(other) }
      if isOccupied(position) { remove(position) }
      makeRoom(name.count)
      entries[Int(position)].offset = UInt32(bytes.count)
      entries[Int(position)].length = UInt16(name.count)
      bytes.append(contentsOf: name)
      index.insert(StableHash.hash(name.span.bytes), position)
    }
    forgetDeletion(position)
    if membership.deletedAt != .none { keep(Deletion(at: membership.deletedAt, position: position)) }
    goneCount += (membership.isGone ? 1 : 0) - (entries[Int(position)].isGone ? 1 : 0)
    entries[Int(position)].deletedAt = membership.deletedAt.milliseconds
    entries[Int(position)].isGone = membership.isGone
    entries[Int(position)].channel = membership.channel.rawValue
    entries[Int(position)].joinedAt = membership.joinedAt.milliseconds
    entries[Int(position)].epoch = membership.epoch
    entries[Int(position)].row = membership.row.map { $0.rawValue + 1 } ?? 0
    entries[Int(position)].isMember = membership.isMember
    trimFree()
  }

  /// Remove an entry and free its position.
  mutating func remove(_ position: UInt32) {
    guard position < positionCount, isOccupied(position) else { return }
    index.remove(StableHash.hash(cid(position)), position)
    deadBytes += Int(entries[Int(position)].length)
    forgetDeletion(position)
    if entries[Int(position)].isGone { goneCount -= 1 }
    entries[Int(position)] = .vacant
    free.append(position)
  }

  // Deletions mostly come in order of time.
  private mutating func keep(_ deletion: Deletion) {
    var index = deletions.count
    while index > 0, deletions[index - 1] > deletion { index -= 1 }
    deletions.insert(deletion, at: index)
  }

  private mutating func forgetDeletion(_ position: UInt32) {
    let known = Deletion(at: deletedAt(position), position: position)
    guard known.at != .none, let position = deletions.firstIndex(of: known) else { return }
    deletions.remove(at: position)
  }

  private mutating func trimFree() {
    while let last = free.last, isOccupied(last) { free.removeLast() }
  }

  /// Compact the cids if more than half of the bytes belong to removed entries.
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
    let first = min(page * PageID.membershipsPerPage, positionCount)
    let end = min(first + PageID.membershipsPerPage, positionCount)
    return (first..<end).compactMap { position in
      self[position].map { .channel(number, .membershipAssigned(position: position, $0)) }
    }
  }

  #if DEBUG
    func checkInvariants() -> String? {
      var taken = 0
      var living = 0
      for position in 0..<positionCount where isOccupied(position) {
        taken += 1
        living += Int(entries[Int(position)].length)
        if self.position(of: cid(position)) != position {
          return "membership \(position): not found by its cid"
        }
        if entries[Int(position)].isMember, entries[Int(position)].row == 0 {
          return "membership \(position): a member without a row"
        }
        if entries[Int(position)].isGone, isMember(position) || deletedAt(position) == .none {
          return "membership \(position): no tombstone"
        }
      }
      let kept = (0..<positionCount).filter { isOccupied($0) && deletedAt($0) != .none }
        .map { Deletion(at: deletedAt($0), position: $0) }
      if kept.sorted() != deletions { return "the kept deletions differ from those of the entries" }
      let gone = (0..<positionCount).count { isOccupied($0) && !isKnown($0) }
      if gone != goneCount { return "\(gone) tombstones, \(goneCount) are counted" }
      if taken != count { return "\(taken) memberships, \(count) are found by their cids" }
      if living + deadBytes != bytes.count { return "the cids of memberships are not those counted" }
      if let last = free.last, isOccupied(last) {
        return "membership \(last): is taken, but is the next free position"
      }
      let vacant = Set(free.filter { !isOccupied($0) })
      return vacant.count == entries.count - taken ? nil : "a free position is missing from the free list"
    }
  #endif
}
