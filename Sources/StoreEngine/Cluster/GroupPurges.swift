/// Purges of a group (R16; docs/contribute/cluster-design.md, "Purges"): what an owner asks of all members, and what
/// this node does for it.
///
/// For a purge the owner makes a key, and appends a record of kind purge with it. Each member then removes what it has
/// logged before that record, destroys the older keys, and reports the record's position. A member that was restarted
/// has forgotten the record, or its storage is another node's by now: so the record is appended again until all have
/// reported. A pure state machine.
struct GroupPurges: Sendable {
  /// A purge record.
  struct Target: Hashable, Sendable {
    let position: RecordPosition
    let key: RecordKeyNumber

    init(_ record: GroupRecord) {
      position = record.position
      key = record.key
    }
  }

  private enum Round {
    case none
    /// Waits for a key that seals nothing yet. Becomes appending.
    case awaitsKey(from: RecordKeyNumber)
    /// The record is in flight: the first one, or a repetition. Becomes open.
    case appending(first: RecordPosition?)
    /// Waits for the members. Becomes none, or appending when a member takes long.
    case open(first: RecordPosition, repeatAt: BootTime)
  }

  /// This node's own work.
  private enum Work {
    case none
    /// A follower's loop writes pages and trims its log. Becomes destroying.
    case trimming(Target)
    /// Keys that are older than the record's are to be removed from storage. Becomes purging.
    case destroying(Target)
    /// The storage is being purged. Becomes none.
    case purging(Target)
  }

  /// The last purge record for which this process has purged the storage.
  private(set) var done = RecordPosition.zero
  private var work = Work.none
  /// A purge record that is followed, and came during the work for another one.
  private var next: Target?
  private var round = Round.none
  private var reported: [NodeID: RecordPosition] = [:]

  // MARK: The owner's round

  /// Begin a round: everything up to this record has to be removed.
  mutating func begin(after applied: RecordPosition) {
    round = .awaitsKey(from: RecordKeyNumber(applied.rawValue))
    if case .trimming = work { work = .none }
  }

  var hasRound: Bool {
    if case .none = round { false } else { true }
  }

  /// Whether a round waits for a key that is newer than this one.
  func needsKey(newerThan newest: RecordKeyNumber) -> Bool {
    if case .awaitsKey(let from) = round { newest < from } else { false }
  }

  /// Return whether a purge record with this key has to be appended now, and note that it is.
  ///
  /// - Returns: the round's first record, zero for the first one; nil: none has to be appended.
  mutating func takeAppend(_ key: RecordKeyNumber, at now: BootTime) -> RecordPosition? {
    switch round {
    case .awaitsKey(let from) where key >= from:
      round = .appending(first: nil)
      return .zero
    case .open(let first, let repeatAt) where repeatAt <= now:
      round = .appending(first: first)
      return first
    case .none, .awaitsKey, .appending, .open: return nil
    }
  }

  /// Note that the owner's record is in the log. The first one of a round is work for this node too.
  mutating func appended(_ record: GroupRecord, at now: BootTime, _ limits: ClusterLimits) {
    guard case .appending(let first) = round else { return }
    round = .open(first: first ?? record.position, repeatAt: now.adding(milliseconds: limits.purgeMilliseconds))
    if first == nil { work = .destroying(Target(record)) }
  }

  mutating func reported(_ position: RecordPosition, by member: NodeID) { reported[member] = position }

  /// Return whether all members have purged, and end the round then.
  mutating func endIfDone(_ members: [NodeID], node: NodeID) -> Bool {
    guard case .open(let first, repeatAt: _) = round, done >= first,
      members.allSatisfy({ $0 == node || reported[$0] ?? .zero >= first })
    else { return false }
    round = .none
    return true
  }

  // MARK: This node's work

  /// Note a purge record of the owner that is followed. Return whether the loop has to trim its log for it now.
  ///
  /// - Parameter first: the round's first record; zero: this one. A repetition is for members that lack that one.
  mutating func followed(_ record: GroupRecord, first: RecordPosition) -> Bool {
    if first != .zero, (target?.position ?? done) >= first { return false }
    switch work {
    case .none:
      work = .trimming(Target(record))
      return true
    case .trimming, .destroying, .purging:
      next = Target(record)
      return false
    }
  }

  /// The follower's loop has trimmed its log.
  mutating func trimmed() {
    if case .trimming(let target) = work { work = .destroying(target) }
  }

  /// The record for which this node works.
  private var target: Target? {
    switch work {
    case .none: nil
    case .trimming(let target), .destroying(let target), .purging(let target): target
    }
  }

  /// Whether storage has what a purge record removes.
  var isUnderWay: Bool { target != nil }

  /// The record before which keys have to be destroyed now.
  var destroying: Target? {
    if case .destroying(let target) = work { target } else { nil }
  }

  /// The keys are destroyed, and the purge of the storage begins.
  mutating func storageBegan() {
    if case .destroying(let target) = work { work = .purging(target) }
  }

  /// The purge of the storage has ended. Return whether the loop has to trim its log for the next record.
  mutating func storageEnded() -> Bool {
    guard case .purging(let target) = work else { return false }
    done = target.position
    work = next.map { .trimming($0) } ?? .none
    defer { next = nil }
    return next != nil
  }
}
