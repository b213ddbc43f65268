internal import Logging
package import NIOCore
internal import NIOPosix
package import ReceiptModel
package import ReceiptWire

/// Connection of a gateway's event loop to the store: pipelined, resending after a lost connection, with a timeout for
/// each request (Proto/frames.md, "Handshake" and "Sessions and resending").
///
/// All calls, and all calls to the delegate, are on one event loop. Requests made while no store is connected are kept
/// until their deadline. ``RequestTable`` (requests) and ``StoreLink`` (connections) decide, and this class executes
/// their actions.
package final class StoreClient<Delegate: StoreClientDelegate> {
  private let eventLoop: any EventLoop
  private let configuration: StoreClientConfiguration
  /// Retained until ``close()``.
  private var delegate: Delegate?
  private let logger: Logger
  private let connector: Connector

  private var link: StoreLink
  private var table: RequestTable
  private var connection: StoreConnectionHandler<Delegate>?
  /// Address of the newest attempt.
  private var address: StoreClientConfiguration.Address
  /// Channel of the newest attempt, which `close` waits for.
  private var channel: EventLoopFuture<any Channel>?
  private var ticker: RepeatedTask?
  private var retry: Scheduled<Void>?
  /// Whether replies may arrive. Duplicates the link's state for the path of every reply.
  private var acceptsReplies = false
  /// Whether replies were delivered since the last call of `storeReadComplete`.
  private var hasDelivered = false
  private var lastLogged: String?

  private var readiness = ConnectionReadiness()

  /// Whether requests are sent to a store at once.
  package var isReady: Bool { readiness.isReady }

  /// Time since which requests are not sent. It is the loss of the connection or, if the store went silent, the last
  /// byte received from it. Nil while ``isReady``, and before the first handshake is done.
  package var disconnectedSince: NIODeadline? { readiness.disconnectedSince }

  /// - Parameters:
  ///   - eventLoop: a NIOPosix loop; all calls must be made on it.
  ///   - delegate: retained until ``close()``.
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

  /// Create a client for tests without sockets.
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
    // One tick is added, because a request may be made late in a tick and no deadline may pass early.
    let ticks = configuration.requestDeadline.nanoseconds / StoreClientLimits.tick.nanoseconds + 1
    self.table = RequestTable(
      limit: configuration.inFlightMax,
      deadlineTicks: UInt32(clamping: max(1, ticks))
    )
  }

  /// The store's shard count; 0 before the first handshake is done.
  package var shardCount: Int { table.shardCount }

  /// Id of the store's data directory; nil before the first handshake is done.
  package var storeID: SessionID? { link.storeID }

  package var stats: StoreClientStats {
    var stats = table.stats
    stats.inFlight = table.count
    stats.retainedBytes = table.retainedBytes
    return stats
  }

  // MARK: - Requests

  /// Encode and queue one request: header, name, the session's counter for a command, the bytes that `fields` writes,
  /// then the thread and `issued`. `fields` must not call the client.
  ///
  /// - Parameters:
  ///   - token: passed back with the reply; the client does not interpret it.
  ///   - issued: when the user token behind the request was issued, in seconds since 1970; 0: the token does not say;
  ///     nil: no user token. It is kept for a resend.
  /// - Returns: false if the window is full; then nothing was done and the delegate is not called.
  package func send(
    _ kind: FrameKind,
    to destination: StoreDestination,
    token: UInt64,
    issued: UInt32? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    let outcome = table.append(
      kind,
      shard: destination.shard,
      name: destination.name,
      token: token,
      issued: issued,
      thread: destination.thread,
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

  /// Refuse a request that no frame can carry, with the store's error, after the caller has returned.
  private func refuseLater(_ token: UInt64, length: Int) {
    let limit = table.frameLengthMax
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.execute {
      let failure = StoreFailure.refused(
        .frameTooLarge,
        retryAfterMilliseconds: 0,
        detail: "the frame's length would be \(length), the limit is \(limit)"
      )
      bound.value.deliver([RequestTable.FailedRequest(token: token, failure: failure)])
    }
  }

  /// Whether the window has room for one more request.
  package var hasRoom: Bool { table.hasRoom }

  /// Return whether the window has room for `count` more requests, or is empty.
  package func hasRoom(for count: Int) -> Bool { table.hasRoom(for: count) }

  /// Bytes that wait for a flush.
  package var queuedBytes: Int { table.queuedBytes }

  /// Write the requests queued since the last flush.
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

  // MARK: - Lifecycle

  /// Start connecting, and reconnect until ``close()``.
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

  /// Use other secrets for future handshakes, the current one first. An open connection stays.
  package func replaceSecrets(_ secrets: [[UInt8]]) {
    eventLoop.assertInEventLoop()
    link.replaceSecrets(secrets)
  }

  /// Close the client. Unanswered requests fail as they would at their deadline.
  ///
  /// - Returns: a future that completes when the connection is closed.
  package func close() -> EventLoopFuture<Void> {
    eventLoop.assertInEventLoop()
    if link.close() {
      ticker?.cancel()
      retry?.cancel()
      connection?.closeSilently()
      connection = nil
      table.connectionLost()
      setReady(false)
      deliver(table.close())
      delegate = nil
    }
    guard let channel else { return eventLoop.makeSucceededVoidFuture() }
    return channel.flatMap { channel in
      // An already closed channel is fine.
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
    // If a connection was open, its handler has already reported the loss; the link accepts only the first report.
    if connection == nil { lost(.connectFailed) }
  }

  private func setReady(_ value: Bool, since: NIODeadline? = nil) {
    if readiness.set(value, since: since ?? eventLoop.now) { delegate?.storeReadinessChanged(value) }
  }

  /// Report dropped requests to the delegate.
  private func deliver(_ failed: [RequestTable.FailedRequest]) {
    guard !failed.isEmpty, let delegate else { return }
    for entry in failed { delegate.storeFailed(entry.token, entry.failure) }
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

// MARK: - Connection events

extension StoreClient {
  func connectionOpened(_ handler: StoreConnectionHandler<Delegate>) {
    let hello = link.connected(
      nonce: .random(),
      newSession: SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)),
      now: eventLoop.now
    )
    guard let hello else { return handler.closeSilently() }
    connection = handler
    var buffer = ByteBuffer()
    hello.write(into: &buffer)
    handler.write(buffer)
    handler.flush()
  }

  func bytesReceived(_ count: Int) { table.stats.bytesReceived &+= UInt64(count) }

  func frameReceived(_ header: FrameHeader, _ payload: RawSpan) {
    if acceptsReplies, header.kind.isReply {
      switch table.replied(header) {
      case .deliver(let token):
        hasDelivered = true
        delegate?.storeReplied(token, kind: header.kind, payload: payload)
      case .late:
        break
      case .unmatched:
        connectionFailed(.unmatchedReply(header.correlation))
      }
    } else if acceptsReplies, header.kind == .error, header.correlation != 0 {
      refused(header, payload)
    } else if acceptsReplies, header.kind == .events {
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

  /// Handle an error frame that answers a request.
  private func refused(_ header: FrameHeader, _ payload: RawSpan) {
    let error: ErrorFrame
    do throws(WireError) { error = try ErrorFrame(payload) } catch {
      return connectionFailed(.malformed(error))
    }
    switch table.replied(header) {
    case .deliver(let token):
      hasDelivered = true
      // An unknown code, of a later version, still means that there is no reply.
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
    case .unmatched:
      return connectionFailed(.unmatchedReply(header.correlation))
    }
    // The store refuses to read this request, and it is now done. A resend would end the next connection too.
    if error.code?.endsConnection == true, acceptsReplies { connectionFailed(.refused(error)) }
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
      acceptsReplies = true
      lastLogged = nil
      table.stats.connections &+= 1
      logger.info("Connected to the store", metadata: ["window": "\(window)", "shards": "\(shardCount)"])
      let failed = table.connectionOpened(
        shardCount: shardCount,
        limit: min(window, configuration.inFlightMax),
        frameLengthMax: frameLengthMax
      )
      setReady(true)
      flush()
      deliver(failed)
    case .drain:
      logger.info("The store is shutting down; waiting for pending replies")
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
    link.bytesReceived(isReply: hasDelivered, now: eventLoop.now)
    // Replies made room for requests that the store's window had held back.
    if table.hasDelayedRequests { flush() }
    if hasDelivered {
      hasDelivered = false
      delegate?.storeReadComplete()
    }
    if acceptsReplies, !link.acceptsRequests, table.onWire == 0 { connectionFailed(.drained) }
  }

  func connectionErrored(_ handler: StoreConnectionHandler<Delegate>, _ error: any Error) {
    logger.debug("The connection to the store failed", metadata: ["error": "\(error)"])
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
    guard case .retry(let wait, let sessionEnded) = link.lost(failure, jitter: .random(in: 0..<1)) else {
      return
    }
    log(failure)
    connection = nil
    acceptsReplies = false
    table.stats.connectionsLost &+= 1
    table.connectionLost()
    let failed = sessionEnded ? table.endSession() : []
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    retry = eventLoop.scheduleTask(in: wait) { bound.value.retryDelayElapsed() }
    setReady(false, since: failure == .silent ? link.lastReceivedAt : nil)
    deliver(failed)
    if hasDelivered {
      hasDelivered = false
      delegate?.storeReadComplete()
    }
    delegate?.storeConnectionFailed(failure)
  }

  private func retryDelayElapsed() {
    guard case .connect(let index) = link.retryDelayElapsed() else { return }
    connect(index)
  }

  /// Log a failure; repeated reasons are logged at debug level.
  private func log(_ failure: LinkFailure) {
    // The transport has already logged the reason.
    if failure == .transportFailed { return lastLogged = nil }
    let isRepeated = lastLogged == failure.name
    lastLogged = failure.name
    var metadata: Logger.Metadata = ["reason": "\(failure.name)"]
    switch failure {
    case .unauthenticated:
      let level = isRepeated ? Logger.Level.debug : .error
      return logger.log(
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
    logger.log(level: isRepeated ? .debug : .warning, "No connection to the store", metadata: metadata)
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
}
