internal import Logging
package import NIOCore
package import ReceiptModel
package import ReceiptWire

/// Connection of a gateway's event loop to the store: pipelined, resending after a lost connection, with a timeout for
/// each request (Proto/frames.md, "Handshake", "Sessions and resending" and "Shards of a cluster").
///
/// All calls, and all calls to the delegate, are on one event loop. Requests made while no store is connected are kept
/// until their deadline. A store is one node, until it says that it is one of a cluster. Then the client connects to
/// all addresses, and sends each request to the owner of its shard.
package final class StoreClient<Delegate: StoreClientDelegate> {
  let eventLoop: any EventLoop
  private(set) var configuration: StoreClientConfiguration
  /// Retained until ``close()``.
  private(set) var delegate: Delegate?
  let connector: Connector
  /// Random numbers for session ids and pauses.
  private let randomNumber: () -> UInt64

  /// At least one. The first is the only one, except in a cluster.
  private var nodes: [StoreNode<Delegate>] = []
  /// The first of `nodes`. Each access to an array of a generic class asks the runtime for its metadata: 450
  /// instructions for a request.
  private var first: StoreNode<Delegate>!
  /// Nil except in a cluster.
  private var routes: ShardRoutes?
  /// In a cluster: the requests of shards that have no known owner.
  private var unrouted: RequestTable
  /// In a cluster: the nodes that serve the shards.
  private var sources: ShardSources
  /// Nil except in a cluster. Its indexes are those of `nodes`.
  private var known: KnownNodes?
  /// Changes of `known` that are not executed yet, in their order. An event may come while others are executed.
  private var changes: [KnownNodes.Changes] = []
  private var isPerforming = false
  var session: StoreSession
  private var counters = CommandCounters()
  private var ticker: RepeatedTask?
  private var readiness = ConnectionReadiness()

  /// Whether the requests of all shards are sent at once.
  package var isReady: Bool { readiness.isReady }

  /// Time since which requests are not sent. It is the loss of the connection or, if the store went silent, the last
  /// byte received from it. Nil while ``isReady``, and before the first handshake is done.
  ///
  /// In a cluster: since when one of the ``unservedShards`` was not served.
  package var disconnectedSince: NIODeadline? {
    guard let since = readiness.disconnectedSince else { return nil }
    return routes == nil ? since : sources.unservedSince ?? since
  }

  /// Whether the store is a cluster. False before the first handshake is done.
  package var isCluster: Bool { routes != nil }

  /// In a cluster: the shards whose owner is not known and connected, in order; empty before a node has named its
  /// shards.
  package var unservedShards: [ShardID] { nodes.contains { $0.isReady } ? sources.unserved : [] }

  /// - Parameters:
  ///   - eventLoop: a NIOPosix loop; all calls must be made on it.
  ///   - delegate: retained until ``close()``.
  package convenience init(eventLoop: any EventLoop, configuration: StoreClientConfiguration, delegate: Delegate) {
    self.init(
      eventLoop: eventLoop,
      configuration: configuration,
      delegate: delegate,
      connector: StoreNode.connectSocket
    )
  }

  /// Opens a channel on the client's loop with a ``StoreConnectionHandler`` last in its pipeline.
  typealias Connector = (StoreNode<Delegate>, StoreClientConfiguration.Address) -> EventLoopFuture<any Channel>

  /// Create a client for tests without sockets.
  init(
    eventLoop: any EventLoop,
    configuration: StoreClientConfiguration,
    delegate: Delegate,
    connector: @escaping Connector,
    randomNumber: @escaping () -> UInt64 = { .random(in: .min ... .max) }
  ) {
    precondition(!configuration.addresses.isEmpty, "a store client needs an address")
    self.connector = connector
    self.randomNumber = randomNumber
    self.eventLoop = eventLoop
    self.configuration = configuration
    self.delegate = delegate
    session = StoreSession(SessionID(high: randomNumber(), low: randomNumber()))
    unrouted = configuration.makeTable()
    sources = ShardSources(shardCount: 0, now: eventLoop.now)
    first = StoreNode(self, index: 0, addresses: configuration.addresses)
    nodes = [first]
  }

  /// The store's shard count; 0 before the first handshake is done.
  package var shardCount: Int { routes?.shardCount ?? first.table.shardCount }

  /// Id of the store's data directory or cluster; nil before the first handshake is done.
  package var storeID: SessionID? { session.identity?.store }

  package var stats: StoreClientStats {
    var stats = unrouted.stats
    for node in nodes { stats += node.table.stats }
    return stats
  }

  // MARK: - Requests

  /// Encode and queue one request: header, name, the session's counter for a command, the bytes that `fields` writes,
  /// then the thread and `issued`. `fields` must not call the client.
  ///
  /// - Parameters:
  ///   - tag: passed back with the reply; the client does not interpret it.
  ///   - issued: when the user token behind the request was issued, in seconds since 1970; 0: the token does not say;
  ///     nil: no user token. It is kept for a resend.
  /// - Returns: false if the window is full; then nothing was done and the delegate is not called.
  package func send(
    _ kind: FrameKind,
    to destination: StoreDestination,
    tag: UInt64,
    issued: UInt32? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    let outcome: RequestTable.AppendResult
    if routes == nil {
      outcome = Self.append(kind, destination, tag, issued, to: &first.table, &counters, fields)
    } else if let owner = owner(of: destination) {
      outcome = Self.append(kind, destination, tag, issued, to: &nodes[owner].table, &counters, fields)
    } else {
      outcome = Self.append(kind, destination, tag, issued, to: &unrouted, &counters, fields)
    }
    switch outcome {
    case .queued: return true
    case .busy: return false
    case .tooLarge(let length):
      refuseLater(tag, length: length)
      return true
    }
  }

  @inline(__always)
  private static func append(
    _ kind: FrameKind,
    _ destination: borrowing StoreDestination,
    _ tag: UInt64,
    _ issued: UInt32?,
    to table: inout RequestTable,
    _ counters: inout CommandCounters,
    _ fields: (inout ByteBuffer) -> Void
  ) -> RequestTable.AppendResult {
    table.append(
      kind,
      shard: destination.shard,
      name: destination.name,
      tag: tag,
      issued: issued,
      thread: destination.thread,
      counters: &counters,
      fields
    )
  }

  /// Refuse a request that no frame can carry, with the store's error, after the caller has returned.
  private func refuseLater(_ tag: UInt64, length: Int) {
    let limit = first.table.frameLengthMax
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.execute {
      let failure = StoreFailure.refused(
        .frameTooLarge,
        retryAfterMilliseconds: 0,
        detail: "the frame's length would be \(length), the limit is \(limit)"
      )
      bound.value.deliver([RequestTable.FailedRequest(tag: tag, failure: failure)])
    }
  }

  /// Whether the windows of all nodes that own shards have room for one more request.
  package var hasRoom: Bool { unrouted.hasRoom && nodes.allSatisfy { !isRouted($0) || $0.table.hasRoom } }

  /// Return whether the windows of all nodes that own shards have room for `count` more requests, or are empty.
  package func hasRoom(for count: Int) -> Bool {
    unrouted.hasRoom(for: count) && nodes.allSatisfy { !isRouted($0) || $0.table.hasRoom(for: count) }
  }

  private func isRouted(_ node: StoreNode<Delegate>) -> Bool { routes?.isOwner(node.index) ?? true }

  /// Bytes that wait for a flush.
  package var queuedBytes: Int {
    routes == nil ? first.table.queuedBytes : nodes.reduce(0) { $0 + $1.table.queuedBytes }
  }

  /// Write the requests queued since the last flush.
  package func flush() {
    if routes == nil { return first.flush() }
    for node in nodes { node.flush() }
  }

  /// Write a frame that has no reply to the owner of a shard. It is dropped if that owner is not known and connected.
  package func post(to shard: ShardID, _ frame: (inout ByteBuffer) -> Void) {
    guard let owner = routes?.owner(of: shard), nodes[owner].isReady else { return }
    nodes[owner].write(frame)
  }

  // MARK: - Lifecycle

  /// Start connecting, and reconnect until ``close()``.
  package func start() {
    eventLoop.assertInEventLoop()
    guard ticker == nil else { return }
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    ticker = eventLoop.scheduleRepeatedTask(
      initialDelay: StoreClientLimits.tick,
      delay: StoreClientLimits.tick
    ) { _ in
      bound.value.ticked()
    }
    first.start()
  }

  /// Use other secrets for future handshakes, the current one first. An open connection stays.
  package func replaceSecrets(_ secrets: [[UInt8]]) {
    eventLoop.assertInEventLoop()
    // Nodes of a cluster are added later.
    configuration.secrets = secrets
    for node in nodes { node.replaceSecrets(secrets) }
  }

  /// Take the nodes of the cluster as a directory of nodes has them now. A client without it learns the nodes from the
  /// first one that it is connected to.
  package func listNodes(_ nodes: [ShardMap.Peer]) {
    eventLoop.assertInEventLoop()
    if let change = known?.list(nodes) { return perform(change) }
    guard !nodes.isEmpty else { return }
    configuration.addresses = nodes.map { StoreClientConfiguration.Address(host: $0.host, port: Int($0.port)) }
    first.replaceAddresses(configuration.addresses, next: nil)
  }

  /// Close the client. Unanswered requests fail as they would at their deadline.
  ///
  /// - Returns: a future that completes when the connections are closed.
  package func close() -> EventLoopFuture<Void> {
    eventLoop.assertInEventLoop()
    if delegate != nil {
      ticker?.cancel()
      for node in nodes { node.close() }
      setReady(false, since: eventLoop.now)
      deliver(nodes.flatMap { $0.table.close() } + unrouted.close())
      delegate = nil
    }
    return EventLoopFuture.andAllComplete(nodes.map(\.closeFuture), on: eventLoop)
  }

  /// A random number from 0 to 1 for a pause.
  var jitter: Double { Double(randomNumber() >> 11) * 0x1p-53 }

  /// Report dropped requests to the delegate.
  func deliver(_ failed: [RequestTable.FailedRequest]) {
    guard !failed.isEmpty, let delegate else { return }
    for entry in failed { delegate.storeFailed(entry.tag, entry.failure) }
    delegate.storeReadComplete()
  }

  private func ticked() {
    for node in nodes { node.ticked() }
    deliver(nodes.flatMap { $0.table.tick() } + unrouted.tick())
    if let changes = known?.tick(now: eventLoop.now) { perform(changes) }
  }

  // MARK: - Events of nodes

  /// Handle the end of a node's handshake. A node of a cluster is ready with its first map.
  func opened(_ node: StoreNode<Delegate>, isNode: Bool) {
    if isNode, routes == nil, !configuration.usesOneNode {
      beginCluster(node)
    } else if routes != nil, routes?.shardCount != node.table.shardCount {
      // The first node of another session.
      begin(shardCount: node.table.shardCount)
    }
    readinessChanged()
  }

  func lost(_ node: StoreNode<Delegate>, _ failure: LinkFailure) {
    // A cluster goes on without a node that serves another one.
    let isAlone = routes == nil || !nodes.contains { $0.isReady }
    let endsSession = failure.endsSession && (failure != .otherStore || isAlone)
    let failed = endsSession ? endSession(except: node) : []
    readinessChanged(since: failure == .silent ? node.lastReceivedAt : nil)
    deliver(failed)
    if let changes = known?.lost(node.index, isSuperseded: failure.isSuperseded) { perform(changes) }
    if endsSession { known?.sessionEnded(now: eventLoop.now) }
  }

  /// Begin another session, with the store that answers next.
  private func endSession(except node: StoreNode<Delegate>) -> [RequestTable.FailedRequest] {
    session = StoreSession(SessionID(high: randomNumber(), low: randomNumber()))
    counters = CommandCounters()
    // Epochs of another cluster say nothing about this one's.
    if let routes {
      self.routes = ShardRoutes(shardCount: routes.shardCount)
      sources = ShardSources(shardCount: routes.shardCount, now: eventLoop.now)
    }
    for other in nodes where other !== node { other.connectionFailed(.connectionLost) }
    var failed: [RequestTable.FailedRequest] = []
    for node in nodes { failed += node.table.endSession(counters: &counters) }
    failed += unrouted.endSession(counters: &counters)
    // No owner is known now. What waits at a node goes before what is made from now on, whoever owns its shard next:
    // a store counts a command behind a later one of its session as applied.
    moveRequests()
    return failed
  }

  /// Report a change of readiness.
  func readinessChanged(since: NIODeadline? = nil) {
    let value: Bool
    if let routes {
      let change = sources.update(routes, isReady: { nodes[$0].isReady }, at: since ?? eventLoop.now)
      if !change.isEmpty { delegate?.storeShardsChanged(reopened: change.reopened) }
      value = sources.unservedSince == nil
    } else {
      value = first.isReady
    }
    setReady(value, since: since ?? eventLoop.now)
  }

  private func setReady(_ value: Bool, since: NIODeadline) {
    if readiness.set(value, since: since) { delegate?.storeReadinessChanged(value) }
  }
}

// MARK: - Cluster

extension StoreClient {
  private func owner(of destination: borrowing StoreDestination) -> Int? {
    if let shard = destination.shard { return routes?.owner(of: shard) }
    guard let name = destination.name else { return routes?.owner(of: ShardID(0)) }
    return routes?.owner(of: .owning(name, count: shardCount))
  }

  /// Return whether events of a shard that a node sends are valid: the node serves the shard. What others send is
  /// dropped. It is in the replay when the subscriptions begin again.
  func takesEvents(of shard: ShardID, from node: StoreNode<Delegate>) -> Bool {
    routes == nil || sources.isServed(shard, by: node.index)
  }

  /// Connect to the nodes at all addresses. The requests wait until their owners are known.
  private func beginCluster(_ first: StoreNode<Delegate>) {
    var addresses = [first.address]
    for address in configuration.addresses where !addresses.contains(address) { addresses.append(address) }
    addresses.removeLast(max(0, addresses.count - ShardRoutes.nodesMax))
    configuration.backoffMax = min(configuration.backoffMax, StoreClientLimits.clusterBackoffMax)
    first.limitBackoff(to: configuration.backoffMax)
    first.replaceAddresses([first.address], next: nil)
    known = KnownNodes(addresses, excluded: configuration.ownNode, now: eventLoop.now)
    for (index, address) in addresses.enumerated().dropFirst() { addNode(at: index, [address]) }
    begin(shardCount: first.table.shardCount)
  }

  /// Connect to nodes that have become known or moved, and retire the connections that are not needed any more.
  private func perform(_ change: KnownNodes.Changes) {
    changes.append(change)
    performChanges()
  }

  private func performChanges() {
    guard !isPerforming else { return }
    isPerforming = true
    defer { isPerforming = false }
    // A callback may have closed the client.
    while delegate != nil, !changes.isEmpty {
      let next = changes.removeFirst()
      for index in next.retired { retire(index) }
      for move in next.moved { nodes[move.index].replaceAddresses(move.addresses, next: move.next) }
      for addition in next.added { addNode(at: addition.index, addition.addresses) }
    }
  }

  /// Connect to a node. The index is the next one, or that of a node that is retired.
  private func addNode(at index: Int, _ addresses: [StoreClientConfiguration.Address]) {
    guard delegate != nil else { return }
    let node = StoreNode(self, index: index, addresses: addresses)
    if index < nodes.count {
      node.table.counted = nodes[index].table.counted
      nodes[index] = node
      if index == 0 { first = node }
    } else {
      nodes.append(node)
    }
    node.table.setShardCount(shardCount)
    node.start()
  }

  /// Give up a node for good. Its unanswered requests move to the owners of their shards.
  private func retire(_ index: Int) {
    nodes[index].close()
    if routes?.remove(index) == true { routesChanged() }
    readinessChanged()
  }

  /// Wait for the maps of a cluster with this number of shards.
  private func begin(shardCount: Int) {
    routes = ShardRoutes(shardCount: shardCount)
    sources = ShardSources(shardCount: shardCount, now: eventLoop.now)
    unrouted.setShardCount(shardCount)
    for node in nodes { node.table.setShardCount(shardCount) }
    moveRequests()
  }

  /// Take a node's map of its shards.
  func receive(_ map: ShardMap, of node: StoreNode<Delegate>) {
    // A write of this function may fail, and so end a connection: the changes of that come after these.
    if let change = known?.receive(map, of: node.index, at: node.address) { changes.append(change) }
    if routes?.receive(map, of: node.index) == true { routesChanged() }
    if let shardCount = routes?.shardCount {
      // A reply that follows the map is always about one of its shards.
      node.table.removeAbandoned { shard in
        let index = Int(shard.rawValue)
        return index < shardCount && !map.owned.contains { $0.shards.contains(index) }
      }
    }
    readinessChanged()
    flush()
    performChanges()
  }

  /// Handle a request that a node has refused because it does not own the shard.
  func refused(_ shard: ShardID, by node: StoreNode<Delegate>) {
    guard routes?.refused(shard, by: node.index) == true else { return }
    routesChanged()
    readinessChanged()
  }

  /// Move the requests of the shards that have another owner now. The client counts as disconnected meanwhile.
  private func routesChanged() {
    // First: a request that the delegate sends must not overtake these.
    moveRequests()
    setReady(false, since: eventLoop.now)
  }

  private func moveRequests() {
    guard let routes else { return }
    var moved = unrouted.removeAll { routes.owner(of: $0) != nil }
    for node in nodes {
      moved += node.table.removeAll { routes.owner(of: $0) != node.index }
    }
    var failed: [RequestTable.FailedRequest] = []
    for request in moved {
      let failure: RequestTable.FailedRequest?
      if let owner = routes.owner(of: request.shard) {
        failure = nodes[owner].table.append(request)
      } else {
        failure = unrouted.append(request)
      }
      if let failure { failed.append(failure) }
    }
    deliver(failed)
  }
}

/// Whether requests are sent to a store at once, and since when not.
private struct ConnectionReadiness {
  private(set) var isReady = false
  private(set) var disconnectedSince: NIODeadline?

  /// Return whether that is a change.
  mutating func set(_ value: Bool, since: NIODeadline) -> Bool {
    guard isReady != value else { return false }
    isReady = value
    disconnectedSince = value ? nil : since
    return true
  }
}

/// Counters of a client since its creation, for metrics.
package struct StoreClientStats: Hashable, Sendable {
  /// Requests written for the first time.
  package var requestsSent: UInt64 = 0
  /// Requests written again after a lost connection.
  package var resends: UInt64 = 0
  /// Replies that matched a request, error frames included.
  package var replies: UInt64 = 0
  /// Replies to requests whose deadline had passed.
  package var repliesLate: UInt64 = 0
  /// Requests whose deadline passed.
  package var timeouts: UInt64 = 0
  /// Handshakes that completed with `ready`.
  package var connections: UInt64 = 0
  /// Attempts and connections that ended without a call of ``StoreClient/close()``.
  package var connectionsLost: UInt64 = 0
  package var bytesSent: UInt64 = 0
  package var bytesReceived: UInt64 = 0
  /// Unanswered requests, sent or not.
  package var inFlight = 0
  /// Bytes of requests retained for a resend.
  package var retainedBytes = 0

  /// Add the counters of another node.
  static func += (sum: inout Self, other: Self) {
    sum.requestsSent &+= other.requestsSent
    sum.resends &+= other.resends
    sum.replies &+= other.replies
    sum.repliesLate &+= other.repliesLate
    sum.timeouts &+= other.timeouts
    sum.connections &+= other.connections
    sum.connectionsLost &+= other.connectionsLost
    sum.bytesSent &+= other.bytesSent
    sum.bytesReceived &+= other.bytesReceived
    sum.inFlight += other.inFlight
    sum.retainedBytes += other.retainedBytes
  }
}

/// The shard that a store request goes to, with the fields that depend on it.
package struct StoreDestination: ~Escapable {
  /// Nil: the shard that owns `name`, a cid.
  let shard: ShardID?
  /// The request's first field; nil if the frame kind has none.
  let name: RawSpan?
  /// Parent message of a thread, not empty; nil: the channel itself.
  let thread: RawSpan?

  @inline(__always)
  @_lifetime(copy name, copy thread)
  private init(shard: ShardID?, name: RawSpan?, thread: RawSpan?) {
    self.shard = shard
    self.name = name
    self.thread = thread
  }

  /// Return the destination of the shard that owns a channel.
  ///
  /// - Parameter thread: parent message of the thread, for kinds that support threads; not empty; nil: the channel
  ///   itself.
  @inline(__always)
  @_lifetime(copy cid, copy thread)
  package static func channel(_ cid: RawSpan, thread: RawSpan? = nil) -> StoreDestination {
    StoreDestination(shard: nil, name: cid, thread: thread)
  }

  /// Return the destination of a given shard.
  ///
  /// - Parameter name: a channel type, a user or a token; nil if the frame kind has no name.
  @inline(__always)
  @_lifetime(copy name)
  package static func shard(_ id: ShardID, name: RawSpan?) -> StoreDestination {
    StoreDestination(shard: id, name: name, thread: nil)
  }
}

/// Callbacks for the store's replies and events. All calls are on the client's event loop; each may call `send` and
/// `flush`.
package protocol StoreClientDelegate: AnyObject, SendableMetatype {
  /// Handle a reply. `payload` is its fields, valid during the call; `kind` is the request's.
  func storeReplied(_ tag: UInt64, kind: FrameKind, payload: RawSpan)
  /// Handle the failure of a request, with an error frame or without a reply. No other call follows for this tag.
  func storeFailed(_ tag: UInt64, _ failure: StoreFailure)
  /// Handle events of subscriptions (Proto/frames.md, "Events"). `payload` is the fields, valid during the call.
  ///
  /// - Throws: if the fields do not parse; the connection is then dropped.
  func storeEvents(_ shard: ShardID, _ payload: RawSpan) throws(WireError)
  /// Handle the end of one read's replies, or of one event's failures: all have been delivered.
  func storeReadComplete()
  /// Handle a connection that became ready or not ready. While it is not, requests wait until their deadline.
  func storeReadinessChanged(_ isReady: Bool)
  /// Handle a change of the nodes that serve the shards of a cluster; see ``StoreClient/unservedShards``. It comes
  /// before the change of readiness.
  ///
  /// - Parameter reopened: shards that were lost, or have another owner, and are served now. There are no subscriptions
  ///   to their events.
  func storeShardsChanged(reopened: [ShardID])
  /// Handle the failure of a connection or of an attempt to connect. The client keeps retrying.
  func storeConnectionFailed(_ failure: LinkFailure)
}

extension StoreClientDelegate {
  /// Do nothing, for clients without subscriptions.
  package func storeEvents(_ shard: ShardID, _ payload: RawSpan) throws(WireError) {}

  /// Do nothing, for clients without subscriptions.
  package func storeShardsChanged(reopened: [ShardID]) {}

  /// Do nothing, for clients that just keep retrying.
  package func storeConnectionFailed(_ failure: LinkFailure) {}
}

/// Reason why a request has no reply.
package enum StoreFailure: Error, Hashable, Sendable {
  /// The store answered with an error frame; `retryAfterMilliseconds` is 0 if it named no time.
  case refused(ErrorCode, retryAfterMilliseconds: UInt32, detail: String)
  /// The local window is full, and nothing was sent.
  case busy
  /// The request was never sent, or was a query. Nothing was applied.
  case unavailable
  /// A command was sent and may or may not have been applied.
  case outcomeUnknown
}
