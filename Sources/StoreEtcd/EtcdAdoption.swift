internal import NIOCore
package import StoreEngine

/// The start of a group's log behind data that a single store has written (docs/operate/cluster.md, "Adoption").
///
/// The data counts as record 1, which nobody can read: the log begins with record 2, a claim that names the data's
/// hash. So a node without the data needs a snapshot, and cannot claim the group before it has one. Record 3 releases
/// the group to the node that has the data: nobody has owned it, so that node needs no wait.
package struct GroupAdoption: Hashable, Sendable {
  package let group: GroupID
  /// Where the data ends.
  package let cursor: LogCursor
  let claim: GroupRecord
  let release: GroupRecord
  let node: NodeID

  /// - Parameter data: identifies the data: the same for a repeated attempt, and for no other store.
  package init(group: GroupID, by node: NodeID, data: RecordHash) {
    self.group = group
    self.node = node
    cursor = LogCursor(position: RecordPosition.zero.next, epoch: .zero, hash: data)
    claim = cursor.record(.claim(by: node), epoch: OwnerEpoch.zero.next)
    release = LogCursor(after: claim).record(.release(to: node), epoch: claim.epoch)
  }

  package enum Outcome: Hashable, Sendable {
    /// The log begins behind the data, by this attempt or an earlier one.
    case adopted
    /// The group has another history already.
    case refused
    case unclear
  }
}

extension EtcdTransactions {
  /// Begins a group's log, if the cluster has none of that group.
  func adopt(_ adoption: GroupAdoption) -> EtcdTransaction {
    let owner = EtcdOwnerValue(node: adoption.node, epoch: adoption.claim.epoch, claimedAt: adoption.claim.position)
    return EtcdTransaction(
      compares: [
        EtcdCompare(key: keys.owner(adoption.group), condition: .createRevision(equals: 0)),
        EtcdCompare(key: keys.trim(adoption.group), condition: .createRevision(equals: 0)),
      ],
      success: [
        .put(key: keys.owner(adoption.group), value: owner.encoded()),
        .put(key: keys.record(adoption.group, adoption.claim.position), value: adoption.claim.encoded()),
        .put(key: keys.record(adoption.group, adoption.release.position), value: adoption.release.encoded()),
        .put(key: keys.trim(adoption.group), value: EtcdPositionValue(adoption.claim.position).encoded()),
      ],
      failure: [.range(EtcdRange(first: keys.record(adoption.group, adoption.claim.position)))]
    )
  }

  func outcome(
    of adoption: GroupAdoption,
    _ response: EtcdTransactionResponse
  ) throws(EtcdWireError) -> GroupAdoption.Outcome {
    if response.succeeded { return .adopted }
    guard response.responses.count == 1, case .range(let range) = response.responses[0] else {
      throw .unexpectedResponse
    }
    let stored = range.values.first?.value
    return stored.map { adoption.claim.encoded().readableBytesView.elementsEqual($0) } == true ? .adopted : .refused
  }
}

extension EtcdGroupLog {
  /// Begin a group's log behind data that is there.
  package func adopt(_ adoption: GroupAdoption, done: @escaping (GroupAdoption.Outcome) -> Void) {
    transact(.claim, transactions.adopt(adoption)) { [self] response throws(EtcdWireError) in
      try transactions.outcome(of: adoption, response)
    } done: { outcome in
      done(outcome ?? .unclear)
    }
  }
}
