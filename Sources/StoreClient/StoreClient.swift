internal import Logging
package import NIOCore
internal import NIOPosix
package import ReceiptModel
package import ReceiptWire

/// A gateway loop's connection to the store: pipelined, resending after a lost connection, with a deadline on
/// each request (Proto/frames.md, "Opening" and "Sessions and resending").
///
/// It lives on one event loop; every call is made there, and so is every call to the delegate. Requests made
/// while no store is reached are kept until their deadline. What the delegate is told follows from
/// ``RequestTable`` (requests) and ``StoreLink`` (connections); this class performs what they say.
package final class StoreClient<Delegate: StoreClientDelegate> {
  private let eventLoop: any EventLoop
  private let configuration: StoreClientConfiguration
  /// Held until ``close()``.
  private var delegate: Delegate?
  private let logger: Logger
  private let connector: Connector

  private var link: StoreLink
  private var table: RequestTable
  private var connection: StoreConnectionHandler<Delegate>?
  /// Of the newest attempt.
  private var address: StoreClientConfiguration.Address
  /// The newest attempt, for `close` to wait for.
  private var channel: EventLoopFuture<any Channel>?
  private var ticker: RepeatedTask?
  private var retry: Scheduled<Void>?
  /// Replies may come; kept apart from the link's state for the path that every reply takes.
  private var isOpen = false
  /// Replies were delivered that the delegate has not been told the end of.
  private var hasDelivered = false
  private var lastLogged: String?

  /// Whether requests reach a store at once.
  package private(set) var isReady = false
  /// Since when they do not: the loss of the connection, or, where the store fell silent, the last byte heard of it.
  /// Nil while ``isReady``, and before the first opening is done.
  package private(set) var cutOffSince: NIODeadline?

  /// - Parameters:
  ///   - eventLoop: a NIOPosix loop; all calls have to be made on it.
  ///   - delegate: held until ``close()``.
  package convenience init(
    eventLoop: any EventLoop,
    configuration: StoreClientConfiguration,
    delegate: Delegate
  ) {
    self.init(
      eventLoop: eventLoop,
      configuration: configuration,
      delegate: delegate,
      connector: Self.connectSocket
    )
  }

  /// Opens a channel on the client's loop with a ``StoreConnectionHandler`` last in its pipeline.
  typealias Connector = (StoreClient, StoreClientConfiguration.Address) -> EventLoopFuture<any Channel>

  /// For tests that have no sockets.
  init(
    eventLoop: any EventLoop,
    configuration: StoreClientConfiguration,
    delegate: Delegate,
    connector: @escaping Connector
  ) {
    self.connector = connector
    self.eventLoop = eventLoop
    self.configuration = configuration
    self.delegate = delegate
    self.logger = configuration.logger
    self.link = StoreLink(configuration)
    self.address = configuration.addresses[0]
    // One tick more: a request may be made late in a tick, and no deadline is to pass early.
    let ticks = configuration.requestDeadline.nanoseconds / StoreClientLimits.tick.nanoseconds + 1
    self.table = RequestTable(
      limit: configuration.inFlightMax,
      deadlineTicks: UInt32(clamping: max(1, ticks))
    )
  }

  /// The store's number of shards; 0 before the first opening is done.
  package var shardCount: Int { table.shardCount }

  /// The store's own name: of its data directory; nil before the first opening is done.
  package var storeID: SessionID? { link.store }

  package var stats: StoreClientStats {
    var stats = table.stats
    stats.inFlight = table.count
    stats.retainedBytes = table.retainedBytes
    return stats
  }

  // MARK: - Requests

  /// Encodes and queues one request for the shard of `cid`: header, cid, for a command the session's counter,
  /// then what `fields` writes, which may not call the client.
  ///
  /// - Parameters:
  ///   - token: given back with the answer; the client attaches no meaning to it.
  ///   - issued: when the token of the user for whom this is asked was issued, in seconds since 1970, 0: it does
  ///     not say; nil: no user's token stands behind the request. It goes behind the fields, and stays with the
  ///     request when that is sent again.
  ///   - thread: the parent message of the thread that is meant, in the kinds that can have one; not empty; nil: the
  ///     channel itself. It goes behind the fields too, before `issued`.
  /// - Returns: false if the window is full; then nothing was done and the delegate is not told.
  package func send(
    _ kind: FrameKind,
    cid: RawSpan,
    token: UInt64,
    issued: UInt32? = nil,
    thread: RawSpan? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    enqueue(kind, shard: nil, name: cid, token: token, issued: issued, thread: thread, fields)
  }

  /// The same for a shard that the caller names.
  ///
  /// - Parameter name: a channel type or a user; nil where the kind has no such field.
  package func send(
    _ kind: FrameKind,
    shard: ShardID,
    name: RawSpan?,
    token: UInt64,
    issued: UInt32? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    enqueue(kind, shard: shard, name: name, token: token, issued: issued, thread: nil, fields)
  }

  private func enqueue(
    _ kind: FrameKind,
    shard: ShardID?,
    name: RawSpan?,
    token: UInt64,
    issued: UInt32?,
    thread: RawSpan?,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    let outcome = table.append(
      kind,
      shard: shard,
      name: name,
      token: token,
      issued: issued,
      thread: thread,
      fields
    )
    switch outcome {
    case .queued: return true
    case .busy: return false
    case .tooLarge(let length):
      refuseLater(token, length: length)
      return true
    }
  }

  /// A request that no frame can carry is refused as the store would do it, after the caller is done.
  private func refuseLater(_ token: UInt64, length: Int) {
    let limit = table.frameLengthMax
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.execute {
      let failure = StoreFailure.refused(
        .frameTooLarge,
        retryAfterMilliseconds: 0,
        detail: "the frame's length would be \(length), the limit is \(limit)"
      )
      bound.value.deliver([RequestTable.Given(token: token, failure: failure)])
    }
  }

  /// Whether the window has room for one request more.
  package var hasRoom: Bool { table.hasRoom }

  /// Whether the window has room for so many requests more, or is empty, if it never has so much.
  package func hasRoom(for count: Int) -> Bool { table.hasRoom(for: count) }

  /// Bytes that wait for a flush.
  package var queuedBytes: Int { table.queuedBytes }

  /// Writes what was queued since the last flush.
  package func flush() {
    guard isReady, let connection else { return }
    var hasWritten = false
    while let bytes = table.nextWrite() {
      table.stats.bytesSent &+= UInt64(bytes.readableBytes)
      connection.write(bytes)
      hasWritten = true
    }
    if hasWritten { connection.flush() }
  }

  // MARK: - Life

  /// Begins to connect, and goes on until ``close()``.
  package func start() {
    eventLoop.assertInEventLoop()
    guard case .connect(let index) = link.start() else { return }
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    ticker = eventLoop.scheduleRepeatedTask(
      initialDelay: StoreClientLimits.tick,
      delay: StoreClientLimits.tick
    ) { _ in
      bound.value.ticked()
    }
    connect(index)
  }

  /// Has the next openings prove other secrets, the current one first. A connection that is open stays.
  package func replaceSecrets(_ secrets: [[UInt8]]) {
    eventLoop.assertInEventLoop()
    link.replaceSecrets(secrets)
  }

  /// Ends everything. Requests without an answer fail as their deadline would let them.
  ///
  /// - Returns: done when the connection is closed.
  package func close() -> EventLoopFuture<Void> {
    eventLoop.assertInEventLoop()
    if link.close() {
      ticker?.cancel()
      retry?.cancel()
      connection?.abandon()
      connection = nil
      table.connectionLost()
      setReady(false)
      deliver(table.close())
      delegate = nil
    }
    guard let channel else { return eventLoop.makeSucceededVoidFuture() }
    return channel.flatMap { channel in
      // Closed already is as good.
      channel.close(promise: nil)
      return channel.closeFuture
    }.recover { _ in }
  }

  private func connect(_ addressIndex: Int) {
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let address = configuration.addresses[addressIndex]
    self.address = address
    let attempt = connector(self, address)
    channel = attempt
    attempt.whenFailure { error in bound.value.connectFailed(error) }
  }

  private static func connectSocket(
    _ client: StoreClient,
    _ address: StoreClientConfiguration.Address
  ) -> EventLoopFuture<any Channel> {
    let bound = NIOLoopBound(client, eventLoop: client.eventLoop)
    let transport = client.configuration.transport
    return ClientBootstrap(group: client.eventLoop)
      .connectTimeout(client.configuration.connectTimeout)
      .channelOption(.tcpOption(.tcp_nodelay), value: 1)
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          if let transport {
            try channel.pipeline.syncOperations.addHandlers(try transport.makeHandlers(address))
          }
          try channel.pipeline.syncOperations.addHandler(StoreConnectionHandler(client: bound.value))
        }
      }
      .connect(host: address.host, port: address.port)
  }

  private func connectFailed(_ error: any Error) {
    logger.debug("Connecting to the store failed", metadata: ["error": "\(error)"])
    // Where a connection was open its handler has told already; the link takes only the first of the two.
    if connection == nil { lost(.connectFailed) }
  }

  private func setReady(_ value: Bool, since: NIODeadline? = nil) {
    guard isReady != value else { return }
    isReady = value
    cutOffSince = value ? nil : since ?? eventLoop.now
    delegate?.storeReadinessChanged(value)
  }

  /// Tells the delegate of requests that were given up.
  private func deliver(_ given: [RequestTable.Given]) {
    guard !given.isEmpty, let delegate else { return }
    for entry in given { delegate.storeFailed(entry.token, entry.failure) }
    delegate.storeReadComplete()
  }

  private func ticked() {
    switch link.tick(now: eventLoop.now) {
    case .nothing:
      break
    case .ping(let number):
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(.ping)) { $0.writeInteger(number) }
      connection?.write(buffer)
      connection?.flush()
    case .fail(let failure):
      connectionFailed(failure)
    }
    deliver(table.tick())
  }
}

// MARK: - What the connection tells

extension StoreClient {
  func connectionOpened(_ handler: StoreConnectionHandler<Delegate>) {
    let hello = link.connected(
      nonce: .random(),
      newSession: SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)),
      now: eventLoop.now
    )
    guard let hello else { return handler.abandon() }
    connection = handler
    var buffer = ByteBuffer()
    hello.write(into: &buffer)
    handler.write(buffer)
    handler.flush()
  }

  func bytesReceived(_ count: Int) { table.stats.bytesReceived &+= UInt64(count) }

  func frameReceived(_ header: FrameHeader, _ payload: RawSpan) {
    if isOpen, header.kind.rawValue & 0x80 != 0 {
      switch table.replied(header) {
      case .deliver(let token):
        hasDelivered = true
        delegate?.storeReplied(token, kind: header.kind, payload: payload)
      case .late:
        break
      case .stray:
        connectionFailed(.strayReply(header.correlation))
      }
    } else if isOpen, header.kind == .error, header.correlation != 0 {
      refused(header, payload)
    } else if isOpen, header.kind == .events {
      hasDelivered = true
      do throws(WireError) {
        try delegate?.storeEvents(header.shard, payload)
      } catch {
        connectionFailed(.malformed(error))
      }
    } else {
      perform(link.frameReceived(header, payload, now: eventLoop.now))
    }
  }

  /// An error frame that answers a request.
  private func refused(_ header: FrameHeader, _ payload: RawSpan) {
    let error: ErrorFrame
    do throws(WireError) { error = try ErrorFrame(payload) } catch {
      return connectionFailed(.malformed(error))
    }
    switch table.replied(header) {
    case .deliver(let token):
      hasDelivered = true
      // A code of a later version says at least that there is no answer.
      let detail = error.code == nil ? "error code \(error.rawCode)" : error.detail
      delegate?.storeFailed(
        token,
        .refused(
          error.code ?? .outcomeUnknown,
          retryAfterMilliseconds: error.retryAfterMilliseconds,
          detail: detail
        )
      )
    case .late:
      break
    case .stray:
      return connectionFailed(.strayReply(header.correlation))
    }
    // The request that the store will not even read is done with; were it sent again, it would end the next
    // connection.
    if error.code?.endsConnection == true, isOpen { connectionFailed(.refused(error)) }
  }

  private func perform(_ action: StoreLink.OnFrame) {
    switch action {
    case .nothing:
      break
    case .prove(let proof):
      var buffer = ByteBuffer()
      proof.write(into: &buffer)
      connection?.write(buffer)
      connection?.flush()
    case .ready(let window, let shardCount, let frameLengthMax):
      isOpen = true
      lastLogged = nil
      table.stats.connections &+= 1
      logger.info("Connected to the store", metadata: ["window": "\(window)", "shards": "\(shardCount)"])
      let given = table.connectionOpened(
        shardCount: shardCount,
        limit: min(window, configuration.inFlightMax),
        frameLengthMax: frameLengthMax
      )
      setReady(true)
      flush()
      deliver(given)
    case .drain:
      logger.info("The store goes away; waiting for its last answers")
      setReady(false)
    case .pong(let bytes, let correlation):
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(.pong, correlation: correlation)) { $0.writeBytes(bytes) }
      connection?.write(buffer)
      connection?.flush()
    case .fail(let failure):
      connectionFailed(failure)
    }
  }

  func readCompleted() {
    link.heard(isReply: hasDelivered, now: eventLoop.now)
    // Replies made room for what the store's window had held back.
    if table.cursor != RequestTable.none, table.openBatch == RequestTable.none { flush() }
    if hasDelivered {
      hasDelivered = false
      delegate?.storeReadComplete()
    }
    if isOpen, !link.takesRequests, table.onWire == 0 { connectionFailed(.drained) }
  }

  func connectionErrored(_ handler: StoreConnectionHandler<Delegate>, _ error: any Error) {
    logger.debug("The connection to the store failed", metadata: ["error": "\(error)"])
    guard handler === connection, !isOpen, let transport = configuration.transport,
      transport.explains(error, address)
    else { return }
    connectionFailed(.transportFailed)
  }

  /// The other end closed it, or it broke.
  func connectionLost(_ handler: StoreConnectionHandler<Delegate>) {
    guard handler === connection else { return }
    lost(.connectionLost)
  }

  /// This end gives it up.
  func connectionFailed(_ failure: LinkFailure) {
    connection?.abandon()
    lost(failure)
  }

  private func lost(_ failure: LinkFailure) {
    guard case .retry(let wait, let sessionEnded) = link.lost(failure, jitter: .random(in: 0..<1)) else {
      return
    }
    log(failure)
    connection = nil
    isOpen = false
    table.stats.connectionsLost &+= 1
    table.connectionLost()
    let given = sessionEnded ? table.sessionEnded() : []
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    retry = eventLoop.scheduleTask(in: wait) { bound.value.waited() }
    setReady(false, since: failure == .silent ? link.lastHeard : nil)
    deliver(given)
    if hasDelivered {
      hasDelivered = false
      delegate?.storeReadComplete()
    }
    if failure.isSecretMismatch { delegate?.storeSecretMismatched() }
  }

  private func waited() {
    guard case .connect(let index) = link.waited() else { return }
    connect(index)
  }

  /// A reason that repeats goes to the debug level.
  private func log(_ failure: LinkFailure) {
    // The transport has said why.
    if failure == .transportFailed { return lastLogged = nil }
    let isRepeated = lastLogged == failure.name
    lastLogged = failure.name
    var metadata: Logger.Metadata = ["reason": "\(failure.name)"]
    switch failure {
    case .unproven:
      let level = isRepeated ? Logger.Level.debug : .error
      return logger.log(
        level: level,
        "The store does not prove that it holds the shared secret, so it is not used: compare --secret-file on both sides",
        metadata: metadata
      )
    case .refused(let error):
      metadata["code"] = "\(error.code?.name ?? String(error.rawCode))"
      metadata["detail"] = "\(error.detail)"
    case .malformed(let error):
      metadata["error"] = "\(error)"
    case .unexpected(let kind):
      metadata["kind"] = "\(kind)"
    case .strayReply(let correlation):
      metadata["correlation"] = "\(correlation)"
    case .version(let version):
      metadata["version"] = "\(version)"
    case .connectFailed, .connectionLost, .transportFailed, .openingTimeout, .silent, .drained, .limits,
      .otherStore:
      break
    }
    logger.log(level: isRepeated ? .debug : .warning, "No connection to the store", metadata: metadata)
  }
}
