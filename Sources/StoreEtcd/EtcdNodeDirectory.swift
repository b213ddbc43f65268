package import NIOCore
package import Operations
package import StoreEngine

/// The nodes of a cluster in etcd. A node's key has a lease, so that it goes when the node does.
///
/// Not thread-safe: make all calls on its event loop. Call ``withdraw(done:)`` before the last reference goes.
package final class EtcdNodeDirectory: NodeDirectory {
  /// Lifetime of an announcement that is not renewed.
  private static let leaseSeconds: UInt64 = 10
  /// Interval of renewals and reads.
  private static let interval = TimeAmount.seconds(2)

  private enum State {
    case idle
    /// Announces a node. Lease 0: none is known to be alive.
    case announcing(NodeAnnouncement, lease: UInt64)
    case withdrawn
  }

  private let eventLoop: any EventLoop
  private let transactions: EtcdTransactions
  private let servers: EtcdServers
  private var state = State.idle
  private var known: [NodeAnnouncement]?
  private var changed: ([NodeAnnouncement]) -> Void = { _ in }
  private var timer: Scheduled<Void>?

  /// - Parameter report: called on the event loop for each failure of a server, for logs.
  package init(
    configuration: EtcdConfiguration,
    eventLoop: any EventLoop,
    report: @escaping (EtcdFailure, Endpoint) -> Void = { _, _ in }
  ) {
    self.eventLoop = eventLoop
    transactions = EtcdTransactions(cluster: configuration.cluster)
    servers = EtcdServers(configuration: configuration, eventLoop: eventLoop, report: report)
  }

  package func announce(_ node: NodeAnnouncement, changed: @escaping ([NodeAnnouncement]) -> Void) {
    state = .announcing(node, lease: 0)
    self.changed = changed
    renew()
  }

  package func withdraw(done: @escaping () -> Void) {
    timer?.cancel()
    timer = nil
    changed = { _ in }
    guard case .announcing(_, let lease) = state, lease != 0 else {
      state = .withdrawn
      servers.close()
      return done()
    }
    state = .withdrawn
    let request = EtcdLeaseNumber(lease: lease)
    servers.call(.revokeLease, GRPCMessage.framed(request.write)) { _ throws(EtcdWireError) in
    } done: { [servers] _ in
      servers.close()
      done()
    }
  }

  // MARK: Steps of a renewal

  private func renew() {
    guard case .announcing(_, let lease) = state else { return }
    guard lease != 0 else { return grant() }
    let request = EtcdLeaseNumber(lease: lease)
    call(.keepLeaseAlive, request.write) { bytes throws(EtcdWireError) in
      try EtcdLeaseResponse(bytes.readableBytesUInt8Span)
    } then: { directory, response in
      // The lease has expired, with the key.
      guard response.seconds > 0 else { return directory.grant() }
      directory.readNodes()
    }
  }

  private func grant() {
    let request = EtcdLeaseGrant(seconds: Self.leaseSeconds)
    call(.grantLease, request.write) { bytes throws(EtcdWireError) in
      try EtcdLeaseResponse(bytes.readableBytesUInt8Span)
    } then: { directory, response in
      directory.put(lease: response.lease)
    }
  }

  private func put(lease: UInt64) {
    guard case .announcing(let node, _) = state else { return }
    let value = EtcdNodeValue(node).encoded()
    let transaction = EtcdTransaction(
      success: [.put(key: transactions.keys.node(node.node), value: value, lease: lease)]
    )
    call(.announce, transaction.write) { bytes throws(EtcdWireError) in
      try EtcdTransactionResponse(bytes.readableBytesUInt8Span)
    } then: { directory, _ in
      directory.state = .announcing(node, lease: lease)
      directory.readNodes()
    }
  }

  private func readNodes() {
    let range = EtcdRange(first: transactions.keys.nodesFirst, end: transactions.keys.nodesEnd)
    let transaction = EtcdTransaction(success: [.range(range)])
    call(.nodes, transaction.write) { [transactions] bytes throws(EtcdWireError) in
      let response = try EtcdTransactionResponse(bytes.readableBytesUInt8Span)
      return try transactions.nodes(try transactions.values(response, 0, of: 1))
    } then: { directory, nodes in
      if directory.known != nodes {
        directory.known = nodes
        directory.changed(nodes)
      }
      directory.check(nodes)
      directory.renewLater()
    }
  }

  /// The key is gone although its lease lives: another process with the same number has announced itself, and ended.
  private func check(_ nodes: [NodeAnnouncement]) {
    guard case .announcing(let node, _) = state, !nodes.contains(where: { $0.node == node.node }) else { return }
    state = .announcing(node, lease: 0)
  }

  private func renewLater() {
    timer = eventLoop.assumeIsolated().scheduleTask(in: Self.interval) { [weak self] in self?.renew() }
  }

  /// Make a call; after a failure the renewal begins again later.
  private func call<Value>(
    _ call: EtcdCall,
    _ write: (inout ByteBuffer) -> Void,
    parse: @escaping (ByteBuffer) throws(EtcdWireError) -> Value,
    then next: @escaping (EtcdNodeDirectory, Value) -> Void
  ) {
    servers.call(call, GRPCMessage.framed(write), parse: parse) { [weak self] result in
      guard let self, case .announcing = state else { return }
      switch result {
      case .success(let value): next(self, value)
      case .failure: renewLater()
      }
    }
  }
}
