internal import Logging
internal import NIOCore
internal import NIOPosix
internal import ReceiptModel
internal import ReceiptWire

/// One node of the store: its link, its connection, and the unanswered requests of the shards that it owns. A store
/// that is no cluster is one node. ``StoreLink`` and ``RequestTable`` decide, and this class executes their actions.
final class StoreNode<Delegate: StoreClientDelegate> {
  /// Position among the client's nodes.
  let index: Int
  /// Nil once the client is closed.
  private var client: StoreClient<Delegate>?
  private let eventLoop: any EventLoop
  private let configuration: StoreClientConfiguration

  private var link: StoreLink
  var table: RequestTable
  private var connection: StoreConnectionHandler<Delegate>?
  /// Address of the newest attempt.
  private(set) var address: StoreClientConfiguration.Address
  /// Channel of the newest attempt, which `close` waits for.
  private var channel: EventLoopFuture<any Channel>?
  private var retry: Scheduled<Void>?
  /// Whether replies may arrive. Duplicates the link's state for the path of every reply.
  private var acceptsReplies = false
  /// In a cluster: when the node's first map is late; nil: none is awaited.
  private var mapDeadline: NIODeadline?
  /// Whether replies were delivered since the last call of `storeReadComplete`.
  private var hasDelivered = false
  private var lastLogged: String?

  /// - Parameter addresses: tried in turn; at least one.
  init(_ client: StoreClient<Delegate>, index: Int, addresses: [StoreClientConfiguration.Address]) {
    self.client = client
    self.index = index
    eventLoop = client.eventLoop
    configuration = client.configuration
    link = StoreLink(configuration, addresses: addresses)
    address = addresses[0]
    table = configuration.makeTable()
  }

  /// Whether requests are sent at once: the link accepts them and, in a cluster, the node has sent its map.
  var isReady: Bool { link.acceptsRequests && mapDeadline == nil }
  /// Time of the last byte from this node; nil before the first one.
  var lastReceivedAt: NIODeadline? { link.lastReceivedAt }

  // MARK: - Lifecycle

  func start() {
    guard case .connect(let address) = link.start() else { return }
    connect(address)
  }

  /// Try other addresses from the next attempt on; see ``StoreLink/replaceAddresses(_:next:)``.
  func replaceAddresses(_ addresses: [StoreClientConfiguration.Address], next: StoreClientConfiguration.Address?) {
    link.replaceAddresses(addresses, next: next)
  }

  func limitBackoff(to longest: TimeAmount) { link.limitBackoff(to: longest) }

  func replaceSecrets(_ secrets: [[UInt8]]) { link.replaceSecrets(secrets) }

  /// Stop all attempts.
  func close() {
    link.close()
    retry?.cancel()
    connection?.closeSilently()
    connection = nil
    acceptsReplies = false
    table.connectionLost()
    client = nil
  }

  /// Complete when the connection is closed.
  var closeFuture: EventLoopFuture<Void> {
    guard let channel else { return eventLoop.makeSucceededVoidFuture() }
    return channel.flatMap { channel in
      // An already closed channel is fine.
      channel.close(promise: nil)
      return channel.closeFuture
    }.recover { _ in }
  }

  private func connect(_ address: StoreClientConfiguration.Address) {
    guard let client else { return }
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    self.address = address
    let attempt = client.connector(self, address)
    channel = attempt
    attempt.whenFailure { error in bound.value.connectFailed(error) }
  }

  static func connectSocket(
    _ node: StoreNode,
    _ address: StoreClientConfiguration.Address
  ) -> EventLoopFuture<any Channel> {
    let bound = NIOLoopBound(node, eventLoop: node.eventLoop)
    let transport = node.configuration.transport
    return ClientBootstrap(group: node.eventLoop)
      .connectTimeout(node.configuration.connectTimeout)
      .channelOption(.tcpOption(.tcp_nodelay), value: 1)
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          if let transport {
            try channel.pipeline.syncOperations.addHandlers(try transport.makeHandlers(address))
          }
          try channel.pipeline.syncOperations.addHandler(StoreConnectionHandler(node: bound.value))
        }
      }
      .connect(host: address.host, port: address.port)
  }

  private func connectFailed(_ error: any Error) {
    configuration.logger.debug("Connecting to the store failed", metadata: ["error": "\(error)"])
    // If a connection was open, its handler has already reported the loss; the link accepts only the first report.
    if connection == nil { lost(.connectFailed) }
  }

  func ticked() {
    switch link.tick(now: eventLoop.now) {
    case .nothing:
      break
    case .ping(let number):
      write { $0.writeFrame(FrameHeader(.ping)) { $0.writeInteger(number) } }
    case .fail(let failure):
      connectionFailed(failure)
    }
    if let mapDeadline, eventLoop.now >= mapDeadline { connectionFailed(.handshakeTimeout) }
  }

  // MARK: - Writes

  /// Write the requests queued since the last flush.
  func flush() {
    guard isReady, let connection else { return }
    var hasWritten = false
    while let bytes = table.nextWrite() {
      table.counted.bytesSent &+= UInt64(bytes.readableBytes)
      connection.write(bytes)
      hasWritten = true
    }
    if hasWritten { connection.flush() }
  }

  /// Write a frame that is no request.
  func write(_ frame: (inout ByteBuffer) -> Void) {
    var buffer = ByteBuffer()
    frame(&buffer)
    connection?.write(buffer)
    connection?.flush()
  }

  // MARK: - Connection events

  func connectionOpened(_ handler: StoreConnectionHandler<Delegate>) {
    guard let client, let hello = link.connected(nonce: .random(), session: client.session, now: eventLoop.now)
    else { return handler.closeSilently() }
    connection = handler
    write { hello.write(into: &$0) }
  }

  func bytesReceived(_ count: Int) { table.counted.bytesReceived &+= UInt64(count) }

  func frameReceived(_ header: FrameHeader, _ payload: RawSpan) {
    if acceptsReplies, header.isReply { return replied(header, payload) }
    guard let client else { return }
    if acceptsReplies, header.kind == .error, header.correlation != 0 {
      refused(header, payload)
    } else if acceptsReplies, header.kind == .events {
      guard client.takesEvents(of: header.shard, from: self) else { return }
      hasDelivered = true
      do throws(WireError) {
        try client.delegate?.storeEvents(header.shard, payload)
      } catch {
        connectionFailed(.malformed(error))
      }
    } else {
      perform(link.frameReceived(header, payload, session: &client.session, now: eventLoop.now))
    }
  }

  @inline(__always)
  private func replied(_ header: FrameHeader, _ payload: RawSpan) {
    switch table.replied(header) {
    case .deliver(let tag):
      hasDelivered = true
      client?.delegate?.storeReplied(tag, kind: header.kind, payload: payload)
    case .late:
      break
    case .unmatched:
      connectionFailed(.unmatchedReply(header.correlation))
    }
  }

  /// Handle an error frame that answers a request.
  private func refused(_ header: FrameHeader, _ payload: RawSpan) {
    let error: ErrorFrame
    do throws(WireError) { error = try ErrorFrame(payload) } catch {
      return connectionFailed(.malformed(error))
    }
    // This request and those behind it move to the owner in their order. Then the reply is late.
    if error.code == .notOwner { client?.refused(header.shard, by: self) }
    switch table.replied(header) {
    case .deliver(let tag):
      hasDelivered = true
      // An unknown code, of a later version, still means that there is no reply.
      let detail = error.code == nil ? "error code \(error.rawCode)" : error.detail
      client?.delegate?.storeFailed(
        tag,
        .refused(error.code ?? .outcomeUnknown, retryAfterMilliseconds: error.retryAfterMilliseconds, detail: detail)
      )
    case .late:
      break
    case .unmatched:
      return connectionFailed(.unmatchedReply(header.correlation))
    }
    // The store refuses to read this request, and it is now done. A resend would end the next connection too.
    if error.code?.endsConnection == true, acceptsReplies { connectionFailed(.refused(error)) }
  }

  private func perform(_ action: StoreLink.FrameAction) {
    switch action {
    case .nothing:
      break
    case .prove(let proof):
      write { proof.write(into: &$0) }
    case .ready(let window, let shardCount, let frameLengthMax, let isNode):
      acceptsReplies = true
      lastLogged = nil
      table.counted.connections &+= 1
      configuration.logger.info(
        "Connected to the store",
        metadata: ["window": "\(window)", "shards": "\(shardCount)", "address": "\(address.host):\(address.port)"]
      )
      mapDeadline = isNode ? eventLoop.now + StoreClientLimits.handshakeTimeout : nil
      let failed = table.connectionOpened(
        shardCount: shardCount,
        limit: min(window, configuration.inFlightMax),
        frameLengthMax: frameLengthMax
      )
      client?.opened(self, isNode: isNode)
      flush()
      client?.deliver(failed)
    case .shardMap(let map):
      mapDeadline = nil
      client?.receive(map, of: self)
    case .drain:
      configuration.logger.info("The store is shutting down; waiting for pending replies")
      client?.readinessChanged()
    case .pong(let bytes, let correlation):
      write { $0.writeFrame(FrameHeader(.pong, correlation: correlation)) { $0.writeBytes(bytes) } }
    case .fail(let failure): connectionFailed(failure)
    }
  }

  func readCompleted() {
    guard let client else { return }
    link.bytesReceived(isReply: hasDelivered, session: &client.session, now: eventLoop.now)
    // Replies made room for requests that the store's window had held back.
    if table.hasDelayedRequests { flush() }
    deliveryCompleted(client)
    if acceptsReplies, !link.acceptsRequests, table.onWire == 0 { connectionFailed(.drained) }
  }

  private func deliveryCompleted(_ client: StoreClient<Delegate>) {
    guard hasDelivered else { return }
    hasDelivered = false
    client.delegate?.storeReadComplete()
  }

  func connectionErrored(_ handler: StoreConnectionHandler<Delegate>, _ error: any Error) {
    configuration.logger.debug("The connection to the store failed", metadata: ["error": "\(error)"])
    guard handler === connection, !acceptsReplies, let transport = configuration.transport,
      transport.handlesError(error, address)
    else { return }
    connectionFailed(.transportFailed)
  }

  /// Handle a connection that the other end closed, or that broke.
  func connectionLost(_ handler: StoreConnectionHandler<Delegate>) {
    guard handler === connection else { return }
    lost(.connectionLost)
  }

  /// Drop the connection for a failure found at this end.
  func connectionFailed(_ failure: LinkFailure) {
    connection?.closeSilently()
    lost(failure)
  }

  private func lost(_ failure: LinkFailure) {
    guard let client, case .retry(let wait) = link.lost(failure, jitter: client.jitter) else { return }
    log(failure)
    connection = nil
    acceptsReplies = false
    mapDeadline = nil
    table.counted.connectionsLost &+= 1
    table.connectionLost()
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    retry = eventLoop.scheduleTask(in: wait) { bound.value.retryDelayElapsed() }
    client.lost(self, failure)
    // The client may have retired this node.
    deliveryCompleted(client)
    client.delegate?.storeConnectionFailed(failure)
  }

  private func retryDelayElapsed() {
    guard case .connect(let address) = link.retryDelayElapsed() else { return }
    connect(address)
  }

  /// Log a failure; repeated reasons are logged at debug level.
  private func log(_ failure: LinkFailure) {
    // The transport has already logged the reason.
    if failure == .transportFailed { return lastLogged = nil }
    let isRepeated = lastLogged == failure.name
    lastLogged = failure.name
    var metadata: Logger.Metadata = ["reason": "\(failure.name)", "address": "\(address.host):\(address.port)"]
    switch failure {
    case .unauthenticated:
      let level = isRepeated ? Logger.Level.debug : .error
      return configuration.logger.log(
        level: level,
        "The store failed to prove the shared secret: compare --secret-file on both sides",
        metadata: metadata
      )
    case .refused(let error):
      metadata["code"] = "\(error.code?.name ?? String(error.rawCode))"
      metadata["detail"] = "\(error.detail)"
    case .malformed(let error):
      metadata["error"] = "\(error)"
    case .unexpected(let kind):
      metadata["kind"] = "\(kind)"
    case .unmatchedReply(let correlation):
      metadata["correlation"] = "\(correlation)"
    case .version(let version):
      metadata["version"] = "\(version)"
    case .connectFailed, .connectionLost, .transportFailed, .handshakeTimeout, .silent, .drained, .limits,
      .otherStore:
      break
    }
    configuration.logger.log(level: isRepeated ? .debug : .warning, "No connection to the store", metadata: metadata)
  }
}

/// The session of a client, by which the store recognises its commands (Proto/frames.md, "Sessions and resending"). It
/// survives connections, and in a cluster all connections share it.
struct StoreSession {
  /// The store behind a session.
  struct Identity: Equatable {
    /// Id of the data directory, or of the cluster.
    var store: SessionID
    var shardCount: UInt32
  }

  private(set) var id: SessionID
  /// Nil before the first handshake is done.
  private(set) var identity: Identity?
  /// When the last byte arrived from the store; nil before the first handshake is done.
  private(set) var lastReceivedAt: NIODeadline?

  /// Begin a session.
  ///
  /// - Parameter id: newly drawn.
  init(_ id: SessionID) { self.id = id }

  /// Return the time since the last byte arrived, in milliseconds; nil: the store knows no command of this session.
  func ageMilliseconds(at now: NIODeadline) -> UInt64? {
    lastReceivedAt.map { UInt64(max(0, (now - $0).nanoseconds / 1_000_000)) }
  }

  /// Return whether a store may be used with this session.
  func fits(_ identity: Identity) -> Bool { self.identity == nil || self.identity == identity }

  mutating func opened(by identity: Identity, at now: NIODeadline) {
    self.identity = identity
    lastReceivedAt = now
  }

  mutating func received(at now: NIODeadline) { lastReceivedAt = now }
}
