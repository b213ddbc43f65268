internal import NIOCore
package import StoreEngine

/// What `tidemark cluster` sees of a group.
package struct GroupOverview: Hashable, Sendable {
  package var group: GroupID
  package var end: GroupEnd
  /// By all nodes that have ever reported, also those that are no members any more.
  package var reports: [NodeID: MemberReport]

  package init(group: GroupID, end: GroupEnd, reports: [NodeID: MemberReport]) {
    self.group = group
    self.end = end
    self.reports = reports
  }
}

/// What `tidemark cluster` sees of a cluster.
package struct ClusterOverview: Hashable, Sendable {
  package var configuration: ClusterConfiguration
  /// What a raise compares.
  package var revisions: ClusterRevisions
  /// The nodes that run, in the order of their numbers.
  package var nodes: [NodeAnnouncement]
  /// In the order of their numbers.
  package var groups: [GroupOverview]

  package init(
    configuration: ClusterConfiguration,
    revisions: ClusterRevisions,
    nodes: [NodeAnnouncement],
    groups: [GroupOverview]
  ) {
    self.configuration = configuration
    self.revisions = revisions
    self.nodes = nodes
    self.groups = groups
  }
}

/// Revisions of what ``EtcdGroupLog/raise(_:to:from:done:)`` was decided by: it fails if any has changed.
package struct ClusterRevisions: Hashable, Sendable {
  package var configuration: UInt64
  package var nodes: [NodeID: UInt64]

  package init(configuration: UInt64, nodes: [NodeID: UInt64] = [:]) {
    self.configuration = configuration
    self.nodes = nodes
  }
}

/// Result of a change of a set, or of the level.
package enum ChangeOutcome: Hashable, Sendable {
  case changed
  /// Somebody else has changed it meanwhile: look at it again.
  case conflict
  /// The call failed, and may have been applied.
  case unclear
}

/// Configuration, sets and nodes of a cluster, for nodes that start and for `tidemark cluster`.
extension EtcdGroupLog {
  /// Store what all nodes have in common, unless an earlier node has done it.
  ///
  /// - Parameter done: gets what is stored; nil: the call failed.
  package func agree(_ configuration: ClusterConfiguration, done: @escaping (ClusterConfiguration?) -> Void) {
    transact(.cluster, transactions.agree(configuration)) { [self] response throws(EtcdWireError) in
      try transactions.configuration(configuration, response)
    } done: { stored in
      done(stored)
    }
  }

  /// Whether a node of the cluster has ever started; nil: the call failed.
  package func hasConfiguration(done: @escaping (Bool?) -> Void) {
    transact(.cluster, transactions.cluster()) { [self] response throws(EtcdWireError) in
      try transactions.cluster(response).configuration != nil
    } done: { exists in
      done(exists)
    }
  }

  /// Read the nodes that are announced; nil: the call failed.
  package func nodes(done: @escaping ([NodeAnnouncement]?) -> Void) {
    transact(.nodes, transactions.cluster()) { [self] response throws(EtcdWireError) in
      try transactions.cluster(response).nodes
    } done: { nodes in
      done(nodes)
    }
  }

  /// Read everything about the cluster.
  ///
  /// - Parameter done: gets nil inside of the result if no node has ever started, and a failure if a call failed.
  package func overview(done: @escaping (Result<ClusterOverview?, EtcdUnavailable>) -> Void) {
    transact(.cluster, transactions.cluster()) { [self] response throws(EtcdWireError) in
      try transactions.cluster(response)
    } done: { [self] found in
      guard let found else { return done(.failure(EtcdUnavailable())) }
      guard let (configuration, revisions) = found.configuration else { return done(.success(nil)) }
      let groups = (0..<configuration.groupCount).map { GroupID(UInt8($0)) }
      ends(of: groups) { [self] ends in
        guard let ends else { return done(.failure(EtcdUnavailable())) }
        let empty = ClusterOverview(
          configuration: configuration,
          revisions: revisions,
          nodes: found.nodes,
          groups: []
        )
        addGroups(ArraySlice(zip(groups, ends)), to: empty, done: done)
      }
    }
  }

  /// Add the groups one after the other, with their members' reports.
  private func addGroups(
    _ rest: ArraySlice<(GroupID, GroupEnd)>,
    to overview: ClusterOverview,
    done: @escaping (Result<ClusterOverview?, EtcdUnavailable>) -> Void
  ) {
    guard let (group, end) = rest.first else { return done(.success(overview)) }
    transact(.cluster, transactions.reports(of: group)) { [self] response throws(EtcdWireError) in
      try transactions.reports(ofRead: response)
    } done: { [self] reports in
      guard let reports else { return done(.failure(EtcdUnavailable())) }
      var overview = overview
      overview.groups.append(GroupOverview(group: group, end: end, reports: reports))
      addGroups(rest.dropFirst(), to: overview, done: done)
    }
  }

  /// Give a group another set, if it still is the one of this revision.
  ///
  /// - Parameters:
  ///   - members: in the order of their ranks; not empty, no node twice.
  ///   - revision: ``GroupSet/revision`` of the set that is replaced; 0: the initial one.
  ///   - first: the log's first record when the members' reports were read.
  package func change(
    _ group: GroupID,
    to members: [NodeID],
    from revision: UInt64,
    first: RecordPosition,
    done: @escaping (ChangeOutcome) -> Void
  ) {
    change(transactions.change(group, to: members, from: revision, first: first), done: done)
  }

  /// Give the cluster another level, if the configuration and the announcements still are those of these revisions.
  package func raise(
    _ configuration: ClusterConfiguration,
    to level: ClusterLevel,
    from revisions: ClusterRevisions,
    done: @escaping (ChangeOutcome) -> Void
  ) {
    change(transactions.raise(configuration, to: level, from: revisions), done: done)
  }

  /// Remove a node's announcement, by an earlier process that has ended. `nil`: the call failed.
  package func removeAnnouncement(of node: NodeID, done: @escaping (Bool?) -> Void) {
    transact(.nodes, transactions.removeAnnouncement(of: node)) { response throws(EtcdWireError) in
      response.succeeded
    } done: { removed in
      done(removed)
    }
  }

  private func change(_ transaction: EtcdTransaction, done: @escaping (ChangeOutcome) -> Void) {
    transact(.cluster, transaction) { response throws(EtcdWireError) in
      response.succeeded ? ChangeOutcome.changed : .conflict
    } done: { outcome in
      done(outcome ?? .unclear)
    }
  }
}

/// No server of etcd has answered.
package struct EtcdUnavailable: Error, CustomStringConvertible, Sendable {
  package init() {}
  package var description: String { "etcd does not answer" }
}

extension EtcdTransactions {
  func agree(_ configuration: ClusterConfiguration) -> EtcdTransaction {
    EtcdTransaction(
      compares: [EtcdCompare(key: keys.configuration, condition: .createRevision(equals: 0))],
      success: [.put(key: keys.configuration, value: EtcdConfigurationValue(configuration).encoded())],
      failure: [.range(EtcdRange(first: keys.configuration))]
    )
  }

  /// - Parameter own: what the transaction stores.
  func configuration(
    _ own: ClusterConfiguration,
    _ response: EtcdTransactionResponse
  ) throws(EtcdWireError) -> ClusterConfiguration {
    if response.succeeded { return own }
    guard let stored = try values(response, 0, of: 1).first else { throw .unexpectedResponse }
    return try EtcdConfigurationValue(stored.value).configuration
  }

  func cluster() -> EtcdTransaction {
    EtcdTransaction(
      success: [
        .range(EtcdRange(first: keys.configuration)),
        .range(EtcdRange(first: keys.nodesFirst, end: keys.nodesEnd)),
      ]
    )
  }

  func cluster(
    _ response: EtcdTransactionResponse
  ) throws(EtcdWireError) -> (configuration: (ClusterConfiguration, ClusterRevisions)?, nodes: [NodeAnnouncement]) {
    let nodes = try values(response, 1, of: 2)
    var configuration: (ClusterConfiguration, ClusterRevisions)?
    if let stored = try values(response, 0, of: 2).first {
      var revisions = ClusterRevisions(configuration: stored.modRevision)
      for node in nodes {
        if let id = keys.node(ofKey: node.key) { revisions.nodes[id] = node.modRevision }
      }
      configuration = (try EtcdConfigurationValue(stored.value).configuration, revisions)
    }
    return (configuration, try self.nodes(nodes))
  }

  /// Return the announcements that parse: one of a program that is not known must not hide the others.
  func nodes(_ values: [EtcdKeyValue]) throws(EtcdWireError) -> [NodeAnnouncement] {
    var nodes: [NodeAnnouncement] = []
    for stored in values {
      guard let node = keys.node(ofKey: stored.key) else { throw .badValue(.node) }
      if let value = try? EtcdNodeValue(stored.value, node: node) { nodes.append(value.announcement) }
    }
    return nodes
  }

  func reports(of group: GroupID) -> EtcdTransaction {
    EtcdTransaction(
      success: [.range(EtcdRange(first: keys.report(group, NodeID(0)), end: keys.reportsEnd(group)))]
    )
  }

  func reports(ofRead response: EtcdTransactionResponse) throws(EtcdWireError) -> [NodeID: MemberReport] {
    try reports(try values(response, 0, of: 1))
  }

  /// Changes a set, if it is still the same, and nothing was trimmed since: the members that have the records may lack
  /// them then (C7). A log that was never trimmed has no key to compare.
  func change(
    _ group: GroupID,
    to members: [NodeID],
    from revision: UInt64,
    first: RecordPosition
  ) -> EtcdTransaction {
    var compares = [EtcdCompare(key: keys.set(group), condition: .modRevision(equals: revision))]
    if first > RecordPosition.zero.next {
      let next = Array(EtcdPositionValue(first.next).encoded().readableBytesView)
      compares.append(EtcdCompare(key: keys.trim(group), condition: .value(lessThan: next)))
    }
    return EtcdTransaction(
      compares: compares,
      success: [.put(key: keys.set(group), value: EtcdSetValue(members).encoded())]
    )
  }

  func raise(
    _ configuration: ClusterConfiguration,
    to level: ClusterLevel,
    from revisions: ClusterRevisions
  ) -> EtcdTransaction {
    var raised = configuration
    raised.level = level
    var compares = [EtcdCompare(key: keys.configuration, condition: .modRevision(equals: revisions.configuration))]
    for (node, revision) in revisions.nodes.sorted(by: { $0.key < $1.key }).prefix(EtcdTransaction.operationsMax - 1) {
      compares.append(EtcdCompare(key: keys.node(node), condition: .modRevision(equals: revision)))
    }
    return EtcdTransaction(
      compares: compares,
      success: [.put(key: keys.configuration, value: EtcdConfigurationValue(raised).encoded())]
    )
  }

  func removeAnnouncement(of node: NodeID) -> EtcdTransaction {
    EtcdTransaction(success: [.deleteRange(first: keys.node(node), end: [])])
  }

  /// Return the values of a range in a response with `count` parts.
  func values(
    _ response: EtcdTransactionResponse,
    _ index: Int,
    of count: Int
  ) throws(EtcdWireError) -> [EtcdKeyValue] {
    guard response.responses.count == count, case .range(let range) = response.responses[index], !range.hasMore else {
      throw .unexpectedResponse
    }
    return range.values
  }
}
