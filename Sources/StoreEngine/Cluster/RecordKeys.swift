/// The record keys of a group on one node: which ones it has, which one seals, and when another one is made or fetched
/// (docs/contribute/cluster-design.md, "Record keys").
///
/// An owner makes a key when it is promoted, each hour, and for each purge. It uses the key once the members have
/// stored it, and until then the one in use. Members learn from claims and reports that there is another key, and
/// fetch it. A pure state machine.
package struct RecordKeys: Sendable {
  /// The owner's part.
  private struct Owner: Sendable {
    /// The first key that it has made; members have those from here on from it alone. Nil: none yet.
    var first: RecordKeyNumber?
    /// When it makes the next key; ``BootTime/never`` while one is made.
    var dueAt: BootTime
    /// Until when the newest key waits for all members. Later enough of them suffice.
    var waitsUntil: BootTime
    /// When it reports, to learn of members that have its newest key; ``BootTime/never`` once they have.
    var reportAt: BootTime
    /// How many of these reports are left. Later, those of each second have to do.
    var reportsLeft = 0
  }

  /// A key that a record needs and the node does not have.
  private struct Missing: Sendable {
    let number: RecordKeyNumber
    /// Nodes that have a newer key and not this one.
    var deniedBy: Set<NodeID> = []
    /// How many times each node has not answered.
    var failures: [NodeID: Int] = [:]
  }

  /// How many reports an owner makes for each key, and how many times a node is asked in vain.
  private static let reportsMax = 25
  private static let failuresMax = 5

  private let node: NodeID
  /// The keys in local storage, by rising number.
  package private(set) var stored: [RecordKey]
  /// Whether keys are being written to local storage, or fetched. One at a time.
  private(set) var isStoring = false
  private var isFetching = false
  /// The node whose keys were fetched last.
  private var lastSource = NodeID.none
  /// The newest key of each node, by its latest report.
  private var reported: [NodeID: RecordKeyNumber] = [:]
  /// The keys of the applied records, each with the first record that has it; never empty. Records that are trimmed
  /// need no key.
  private var uses: [(key: RecordKeyNumber, since: RecordPosition)]
  private var missing: Missing?
  /// A node that has claimed the group, and makes a key with this number or a higher one.
  private var expected: (number: RecordKeyNumber, from: NodeID, askAt: BootTime, triesLeft: Int)?
  private var owner: Owner?

  /// - Parameters:
  ///   - stored: the keys in local storage.
  ///   - applied: the last record in local storage.
  package init(node: NodeID, stored: [RecordKey], applied: LogCursor) {
    self.node = node
    self.stored = stored.sorted { $0.number < $1.number }
    uses = [(applied.key, applied.position.next)]
    // Which records need the older ones is not known any more.
    if let oldest = self.stored.first?.number, oldest < applied.key { uses.insert((oldest, .zero), at: 0) }
  }

  /// The newest key in local storage.
  package var newest: RecordKeyNumber { stored.last?.number ?? .none }

  package func key(_ number: RecordKeyNumber) -> RecordKey? { stored.first { $0.number == number } }

  /// The key that a record needs and the node does not have.
  package var missingKey: RecordKeyNumber? { missing?.number }

  // MARK: Records

  /// Return the first of these records that is not applied and that the node cannot read, and note that its key is
  /// missing.
  mutating func firstUnreadable(_ records: [GroupRecord], after applied: RecordPosition) -> Int? {
    let index = records.firstIndex { $0.position > applied && $0.kind.isSealed && key($0.key) == nil }
    if let index, missing?.number != records[index].key { missing = Missing(number: records[index].key) }
    return index
  }

  mutating func applied(_ record: GroupRecord, at now: BootTime, _ limits: ClusterLimits) {
    if record.key != uses[uses.count - 1].key { uses.append((record.key, record.position)) }
    guard case .claim(let claimer) = record.kind else { return }
    let number = RecordKeyNumber(record.position.rawValue)
    let askAt = now.adding(milliseconds: limits.keyFetchMilliseconds)
    expected = nil
    if claimer != node { expected = (number: number, from: claimer, askAt: askAt, triesLeft: Self.reportsMax) }
  }

  // MARK: Sealing

  mutating func promoted(at now: BootTime) {
    owner = Owner(first: nil, dueAt: now, waitsUntil: now, reportAt: .never)
  }

  mutating func yielded() { owner = nil }

  /// Return the key that seals the next commit; nil: too few members have one.
  ///
  /// Members report their newest key alone. If its number is not below that of a key which this node has made as the
  /// owner, they have that key. The key in use was stored by enough members before its first use.
  ///
  /// - Parameter members: the group's set.
  func sealing(_ members: [NodeID], at now: BootTime, _ limits: ClusterLimits) -> RecordKey? {
    guard let owner else { return nil }
    let inUse = key(uses[uses.count - 1].key)
    guard let first = owner.first else { return inUse }
    for key in stored.reversed() where key.number >= first && key.number > uses[uses.count - 1].key {
      let count = members.count { $0 == node || (reported[$0] ?? .none) >= key.number }
      if count == members.count { return key }
      // The one in use does as well for a while: nobody lags then.
      let waits = key.number == newest && now < owner.waitsUntil && inUse != nil
      if count >= min(limits.membersMin, members.count), !waits { return key }
    }
    return inUse
  }

  /// Make a key as soon as possible.
  mutating func requestKey(at now: BootTime) {
    if let dueAt = owner?.dueAt, dueAt != .never { owner?.dueAt = now }
  }

  /// Return the number of a key that has to be made now, and stored with those that stay (``beginStoring(_:first:)``).
  ///
  /// - Parameter applied: the last record that is committed.
  mutating func numberIfDue(after applied: RecordPosition, at now: BootTime) -> RecordKeyNumber? {
    guard !isStoring, let dueAt = owner?.dueAt, dueAt <= now, applied.rawValue > newest.rawValue else { return nil }
    isStoring = true
    owner?.dueAt = .never
    return RecordKeyNumber(applied.rawValue)
  }

  /// Return whether the owner has to report now: members have to learn of its newest key, and it of theirs.
  mutating func takeReport(_ members: [NodeID], at now: BootTime, _ limits: ClusterLimits) -> Bool {
    guard let owner, owner.reportAt <= now else { return false }
    let newest = newest
    let isSpread = members.allSatisfy { $0 == node || (reported[$0] ?? .none) >= newest }
    guard !isSpread, owner.reportsLeft > 0 else {
      self.owner?.reportAt = .never
      return false
    }
    self.owner?.reportsLeft -= 1
    self.owner?.reportAt = now.adding(milliseconds: limits.keyFetchMilliseconds)
    return true
  }

  /// When ``sourceIfDue(at:_:)`` or ``takeReport(_:at:_:)`` are due.
  var deadline: BootTime {
    if let owner { return owner.reportAt }
    // A missing key is asked for after reports.
    return isFetching || isStoring || missing != nil ? .never : expected?.askAt ?? .never
  }

  // MARK: Keys of other nodes

  /// Note the newest key that a node has reported.
  mutating func reported(_ number: RecordKeyNumber, by other: NodeID) { reported[other] = number }

  /// Return the node whose keys are to be fetched; nil: no node has another one. Nodes are asked in turn, since one
  /// that has left the group may still report keys that it has no longer.
  mutating func sourceIfDue(at now: BootTime, _ limits: ClusterLimits) -> NodeID? {
    guard !isFetching, !isStoring, owner == nil else { return nil }
    if missing == nil, let expected, expected.askAt <= now {
      // Later, reports have to do.
      self.expected = expected.triesLeft > 1 ? expected : nil
      self.expected?.triesLeft -= 1
      isFetching = true
      return expected.from
    }
    let sorted = sources.sorted()
    guard let source = sorted.first(where: { $0 > lastSource }) ?? sorted.first else { return nil }
    isFetching = true
    lastSource = source
    return source
  }

  /// The nodes that may have a key which this node lacks.
  private var sources: [NodeID] {
    reported.keys.filter { other in
      guard other != node, let number = reported[other] else { return false }
      return number > newest || number >= missing?.number ?? RecordKeyNumber(.max)
    }
  }

  /// Add another node's keys.
  ///
  /// - Parameter keys: nil: the node has not answered.
  /// - Returns: the keys to store; nil: nothing is new.
  mutating func fetched(
    _ keys: [RecordKey]?,
    from source: NodeID,
    at now: BootTime,
    _ limits: ClusterLimits
  ) -> [RecordKey]? {
    isFetching = false
    expected?.askAt = now.adding(milliseconds: limits.keyFetchMilliseconds)
    guard let keys else {
      missing?.failures[source, default: 0] += 1
      return nil
    }
    if let number = missing?.number, !keys.contains(where: { $0.number == number }),
      keys.contains(where: { $0.number > number })
    {
      missing?.deniedBy.insert(source)
    }
    // Older keys may have been destroyed here.
    let new = keys.filter { $0.number >= uses[0].key && key($0.number) == nil }
    guard !isStoring, !new.isEmpty else { return nil }
    isStoring = true
    return stored + new
  }

  /// The missing key, if it was destroyed: a node has denied it, and no node is left that may have it and answers.
  var destroyedKey: RecordKeyNumber? {
    guard let missing, !missing.deniedBy.isEmpty, key(missing.number) == nil else { return nil }
    let isLeft = reported.contains { other, number in
      other != node && number >= missing.number && !missing.deniedBy.contains(other)
        && (missing.failures[other] ?? 0) < Self.failuresMax
    }
    return isLeft ? nil : missing.number
  }

  // MARK: Storing

  /// Return the keys to store with a new one: those that records in the log may still need.
  ///
  /// - Parameter first: first position of the log.
  mutating func beginStoring(_ new: RecordKey, first: RecordPosition) -> [RecordKey] {
    while uses.count > 1, uses[1].since <= first { uses.removeFirst() }
    return stored.filter { $0.number >= uses[0].key } + [new]
  }

  /// Return the keys to store so that older ones are destroyed; nil: there are none.
  mutating func beginDestroying(before number: RecordKeyNumber) -> [RecordKey]? {
    guard stored.contains(where: { $0.number < number }) else { return nil }
    isStoring = true
    uses.removeAll { $0.key < number }
    if uses.isEmpty { uses = [(number, .zero)] }
    return stored.filter { $0.number >= number }
  }

  /// These keys are in local storage now, and no others.
  mutating func stored(_ keys: [RecordKey], at now: BootTime, _ limits: ClusterLimits) {
    isStoring = false
    let before = newest
    stored = keys.sorted { $0.number < $1.number }
    if let missing, key(missing.number) != nil { self.missing = nil }
    if let expected, newest >= expected.number { self.expected = nil }
    guard var owner, owner.dueAt == .never, newest > before else { return }
    owner.first = owner.first ?? newest
    owner.dueAt = now.adding(milliseconds: limits.keyMilliseconds)
    owner.waitsUntil = now.adding(milliseconds: limits.keySpreadMilliseconds)
    owner.reportAt = now
    owner.reportsLeft = Self.reportsMax
    self.owner = owner
  }
}
