internal import NIOCore
internal import ReceiptWire
internal import StoreEngine

/// The shared log's calls as transactions of etcd, and their results from the responses. No I/O.
struct EtcdTransactions {
  /// Groups whose ends one transaction reads.
  static let groupsPerRead = (EtcdTransaction.operationsMax - 1) / 4

  let keys: EtcdKeys

  init(cluster: String) { keys = EtcdKeys(cluster: cluster) }

  // MARK: Append

  /// The conditions and writes of C1, for each group. If a condition of any group fails, the transaction reads of each
  /// group who owns it and what is at the position.
  func append(_ appends: [GroupAppend]) -> EtcdTransaction {
    var transaction = EtcdTransaction()
    for append in appends {
      addConditions(fence: append.fence, group: append.group, record: append.record, to: &transaction)
      transaction.success += [
        .put(key: keys.record(append.group, append.record.position), value: append.record.encoded()),
        .range(EtcdRange(first: keys.owner(append.group))),
      ]
      addReads(group: append.group, position: append.record.position, to: &transaction)
    }
    return transaction
  }

  func outcomes(
    of appends: [GroupAppend],
    _ response: EtcdTransactionResponse
  ) throws(EtcdWireError) -> [AppendOutcome] {
    guard response.responses.count == 2 * appends.count else { throw .unexpectedResponse }
    var outcomes: [AppendOutcome] = []
    for (index, append) in appends.enumerated() {
      if response.succeeded {
        outcomes.append(.committed(try owner(try range(response, 2 * index + 1))))
        continue
      }
      let owner = try owner(try range(response, 2 * index))
      let stored = try range(response, 2 * index + 1).values.first?.value
      if owner.fence != append.fence {
        outcomes.append(.fenced(owner))
      } else if let stored {
        // This attempt's record is in if an earlier attempt put it there.
        outcomes.append(append.record.isEncoded(as: stored) ? .committed(owner) : .fenced(owner))
      } else {
        outcomes.append(.unclear)
      }
    }
    return outcomes
  }

  // MARK: Claim

  /// Return the transaction of a claim. The first one also creates the trim key, so that a trim can compare it.
  func claim(_ claim: GroupClaim) -> EtcdTransaction {
    var transaction = EtcdTransaction()
    addConditions(fence: claim.seen, group: claim.group, record: claim.record, to: &transaction)
    let owner = EtcdOwnerValue(node: claim.candidate, epoch: claim.record.epoch, claimedAt: claim.record.position)
    transaction.success = [
      .put(key: keys.owner(claim.group), value: owner.encoded()),
      .put(key: keys.record(claim.group, claim.record.position), value: claim.record.encoded()),
    ]
    if claim.record.position == RecordPosition.zero.next {
      let trim = EtcdPositionValue(claim.record.position)
      transaction.success.append(.put(key: keys.trim(claim.group), value: trim.encoded()))
    }
    addReads(group: claim.group, position: claim.record.position, to: &transaction)
    return transaction
  }

  func outcome(of claim: GroupClaim, _ response: EtcdTransactionResponse) throws(EtcdWireError) -> AppendOutcome {
    if response.succeeded {
      guard response.revision > 0, response.responses.count == self.claim(claim).success.count else {
        throw .unexpectedResponse
      }
      let fence = OwnerFence(response.revision)
      return .committed(GroupOwner(node: claim.candidate, epoch: claim.record.epoch, fence: fence))
    }
    guard response.responses.count == 2 else { throw .unexpectedResponse }
    let owner = try owner(try range(response, 0))
    let stored = try range(response, 1).values.first?.value
    let isIn =
      owner.node == claim.candidate && owner.epoch == claim.record.epoch
      && stored.map(claim.record.isEncoded(as:)) ?? false
    return isIn ? .committed(owner) : .fenced(owner)
  }

  /// C1: the owner is still this one, the position is free, the position before exists.
  private func addConditions(
    fence: OwnerFence,
    group: GroupID,
    record: GroupRecord,
    to transaction: inout EtcdTransaction
  ) {
    transaction.compares += [
      EtcdCompare(key: keys.owner(group), condition: .modRevision(equals: fence.rawValue)),
      EtcdCompare(key: keys.record(group, record.position), condition: .createRevision(equals: 0)),
    ]
    guard record.position != RecordPosition.zero.next else { return }
    let before = RecordPosition(record.position.rawValue - 1)
    transaction.compares.append(EtcdCompare(key: keys.record(group, before), condition: .exists))
  }

  private func addReads(group: GroupID, position: RecordPosition, to transaction: inout EtcdTransaction) {
    transaction.failure += [
      .range(EtcdRange(first: keys.owner(group))), .range(EtcdRange(first: keys.record(group, position))),
    ]
  }

  // MARK: Ends

  /// Reads owner, first position, the number of records from a known position on, and the set; then the configuration,
  /// which has the level.
  ///
  /// A group's positions have no gaps, so the number tells the last one. etcd counts keys in its index, and a known
  /// position keeps the count short; to sort keys in descending order it would load every record.
  ///
  /// - Parameter known: for each group a position that exists or existed; 1 if none is known.
  func ends(of groups: [GroupID], known: [RecordPosition]) -> EtcdTransaction {
    var transaction = EtcdTransaction()
    for (group, known) in zip(groups, known) {
      transaction.success += [
        .range(EtcdRange(first: keys.owner(group))), .range(EtcdRange(first: keys.trim(group))),
        .range(EtcdRange(first: keys.record(group, known), end: keys.recordsEnd(group), countOnly: true)),
        .range(EtcdRange(first: keys.set(group))),
      ]
    }
    transaction.success.append(.range(EtcdRange(first: keys.configuration)))
    return transaction
  }

  func ends(
    of groups: [GroupID],
    known: [RecordPosition],
    _ response: EtcdTransactionResponse
  ) throws(EtcdWireError) -> [GroupEnd] {
    guard response.responses.count == 4 * groups.count + 1 else { throw .unexpectedResponse }
    let level = level(try range(response, 4 * groups.count))
    var ends: [GroupEnd] = []
    for (index, known) in known.enumerated() {
      let owner = try owner(try range(response, 4 * index))
      let first = try first(try range(response, 4 * index + 1))
      let count = try range(response, 4 * index + 2).count
      let set = try set(try range(response, 4 * index + 3))
      // The records that were counted begin at the known position, or where the log begins now.
      let (end, overflow) = max(known, first).rawValue.addingReportingOverflow(count)
      guard !overflow else { throw .unexpectedResponse }
      ends.append(GroupEnd(owner: owner, first: first, last: RecordPosition(end - 1), set: set, level: level))
    }
    return ends
  }

  // MARK: Read

  /// Reads where a group's log begins, and records from a position on.
  func read(_ group: GroupID, from position: RecordPosition, max: Int) -> EtcdTransaction {
    let records = EtcdRange(first: keys.record(group, position), end: keys.recordsEnd(group), limit: UInt64(max))
    return EtcdTransaction(success: [.range(EtcdRange(first: keys.trim(group))), .range(records)])
  }

  /// Result of a read.
  enum Page {
    case records([GroupRecord], hasMore: Bool)
    case trimmed(first: RecordPosition)
  }

  func page(
    of group: GroupID,
    from position: RecordPosition,
    _ response: EtcdTransactionResponse
  ) throws(EtcdWireError) -> Page {
    guard response.responses.count == 2 else { throw .unexpectedResponse }
    let first = try first(try range(response, 0))
    guard position >= first else { return .trimmed(first: first) }
    let range = try range(response, 1)
    var records: [GroupRecord] = []
    records.reserveCapacity(range.values.count)
    var next = position
    for value in range.values {
      let record = try record(value, of: group)
      guard record.position == next else { throw .badValue(.record) }
      records.append(record)
      next = next.next
    }
    return .records(records, hasMore: range.hasMore)
  }

  /// Return the record under a key of the group's log.
  func record(_ value: EtcdKeyValue, of group: GroupID) throws(EtcdWireError) -> GroupRecord {
    let record: GroupRecord
    do throws(WireError) {
      record = try GroupRecord(value.value.span.bytes)
    } catch {
      throw .badRecord(error)
    }
    guard value.key == keys.record(group, record.position) else { throw .badValue(.record) }
    return record
  }

  /// Watches a group's log.
  func watch(_ group: GroupID, from revision: UInt64) -> EtcdWatch {
    EtcdWatch(first: keys.record(group, .zero), end: keys.recordsEnd(group), startRevision: revision)
  }

  // MARK: Trim

  /// Removes records, if the set is the same, the first position rises, and the one that becomes the first exists: so
  /// the last record stays.
  func trim(_ trim: GroupTrim) -> EtcdTransaction {
    let first = EtcdPositionValue(trim.before).encoded()
    return EtcdTransaction(
      compares: [
        EtcdCompare(key: keys.owner(trim.group), condition: .modRevision(equals: trim.fence.rawValue)),
        EtcdCompare(key: keys.set(trim.group), condition: .modRevision(equals: trim.set)),
        EtcdCompare(key: keys.trim(trim.group), condition: .value(lessThan: Array(first.readableBytesView))),
        EtcdCompare(key: keys.record(trim.group, trim.before), condition: .exists),
      ],
      success: [
        .deleteRange(first: keys.record(trim.group, .zero), end: keys.record(trim.group, trim.before)),
        .put(key: keys.trim(trim.group), value: first),
      ]
    )
  }

  // MARK: Members' reports

  /// Puts a node's report, and reads those of all nodes.
  func report(_ group: GroupID, by node: NodeID, _ report: MemberReport) -> EtcdTransaction {
    EtcdTransaction(
      success: [
        .put(key: keys.report(group, node), value: EtcdReportValue(report).encoded()),
        .range(EtcdRange(first: keys.report(group, NodeID(0)), end: keys.reportsEnd(group))),
      ]
    )
  }

  func reports(_ response: EtcdTransactionResponse) throws(EtcdWireError) -> [NodeID: MemberReport] {
    guard response.responses.count == 2 else { throw .unexpectedResponse }
    return try reports(try range(response, 1).values)
  }

  func reports(_ values: [EtcdKeyValue]) throws(EtcdWireError) -> [NodeID: MemberReport] {
    var reports: [NodeID: MemberReport] = [:]
    for stored in values {
      guard let node = keys.node(ofKey: stored.key) else { throw .badValue(.position) }
      // One that cannot be read, such as a later program's, counts as none.
      if let value = try? EtcdReportValue(stored.value) { reports[node] = value.report }
    }
    return reports
  }

  // MARK: Parts of responses

  private func range(_ response: EtcdTransactionResponse, _ index: Int) throws(EtcdWireError) -> EtcdRangeResponse {
    guard case .range(let range) = response.responses[index] else { throw .unexpectedResponse }
    return range
  }

  private func owner(_ range: EtcdRangeResponse) throws(EtcdWireError) -> GroupOwner {
    guard let stored = range.values.first else { return .none }
    let value = try EtcdOwnerValue(stored.value)
    return GroupOwner(node: value.node, epoch: value.epoch, fence: OwnerFence(stored.modRevision))
  }

  private func set(_ range: EtcdRangeResponse) throws(EtcdWireError) -> GroupSet? {
    guard let stored = range.values.first else { return nil }
    return GroupSet(members: try EtcdSetValue(stored.value).members, revision: stored.modRevision)
  }

  /// Return the cluster's level. Nil also for a value that does not parse: the groups go on at the level that they
  /// know.
  private func level(_ range: EtcdRangeResponse) -> ClusterLevel? {
    guard let stored = range.values.first else { return nil }
    return try? EtcdConfigurationValue(stored.value).configuration.level
  }

  private func first(_ range: EtcdRangeResponse) throws(EtcdWireError) -> RecordPosition {
    guard let stored = range.values.first else { return RecordPosition.zero.next }
    return try EtcdPositionValue(stored.value).position
  }
}

extension GroupClaim {
  /// The node that claims.
  fileprivate var candidate: NodeID {
    guard case .claim(by: let node) = record.kind else {
      preconditionFailure("the record of a claim is another kind")
    }
    return node
  }
}

extension GroupRecord {
  fileprivate func isEncoded(as bytes: [UInt8]) -> Bool { encoded().readableBytesView.elementsEqual(bytes) }
}
