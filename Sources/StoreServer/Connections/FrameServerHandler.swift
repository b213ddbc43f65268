internal import LinkSecurity
internal import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine
internal import TLSSession

/// One gateway's connection: decodes frames, performs the handshake, routes each request to the loop of its shard,
/// and writes replies.
final class FrameServerHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  /// The session of an authenticated gateway, as the registry knows it.
  private struct Registration {
    var session: SessionID
    var serial: UInt64
  }

  private enum State {
    /// Becomes `open`, or `closed` after a refusal or a timeout.
    case handshaking(ServerHandshake)
    /// Takes requests. Becomes `closed`.
    case open(Registration)
    /// Takes no more frames. Without a registration, the handshake was not finished.
    case closed(Registration?)
  }

  private var state: State {
    didSet {
      if case .open = state { isOpen = true } else { isOpen = false }
      if case .closed = state { isClosed = true } else { isClosed = false }
    }
  }
  // Stored: both are read for every frame, and a look at an enum with such payloads is a call.
  private var isOpen = false
  private var isClosed = false
  private let servingState: ServingState
  private let terms: ServerHandshake.Terms
  private let registry: ConnectionRegistry
  private let gate: ConnectionGate
  private let counters: ConnectionCounters
  private var logger: Logger
  private var decoder: FrameDecoder
  private(set) var cut = CutFrame()
  /// Refusals of this read's requests, which are written together at its end.
  private var refusals = ByteBuffer()
  /// Whether the frames of a read are being handled, and whether another read came meanwhile.
  private var isReading = false
  private var hasSkippedBytes = false
  private var context: ChannelHandlerContext?
  private var handshakeTimeout: Scheduled<Void>?
  /// Time that a handshake may take.
  private static let handshakeTime = TimeAmount.seconds(10)
  /// Frame length limit before authentication: enough for a hello and a proof.
  private static let handshakeFrameLengthMax: UInt32 = 4_096
  private var unanswered = 0
  /// Size of replies, delivered together, that are always counted until they are written.
  private static let uncountedBytesMax = 256 << 10
  private let backlog = ConnectionBacklog()
  private let backups: BackupServer
  /// Whether the connection has TLS.
  private let isTLS: Bool
  /// Logs failed TLS handshakes.
  private let tlsFailures: HandshakeFailures?
  /// Created with the first backup request.
  private var backup: BackupFrames?
  private let snapshots: SnapshotServer
  /// Created with the first request for a snapshot.
  private var snapshot: SnapshotFrames?

  private let routes = FrameRoutes()
  /// Number in the last ping, which followed a map without lost shards.
  private var lastPing: UInt64 = 0

  init(
    servingState: ServingState,
    terms: ServerHandshake.Terms,
    registry: ConnectionRegistry,
    gate: ConnectionGate,
    counters: ConnectionCounters,
    backups: BackupServer,
    snapshots: SnapshotServer,
    isTLS: Bool,
    tlsFailures: HandshakeFailures?,
    logger: Logger
  ) {
    self.backups = backups
    self.snapshots = snapshots
    self.isTLS = isTLS
    self.tlsFailures = tlsFailures
    self.servingState = servingState
    self.terms = terms
    self.registry = registry
    self.gate = gate
    self.counters = counters
    self.logger = logger
    self.decoder = FrameDecoder(lengthLimit: Self.handshakeFrameLengthMax)
    self.state = .handshaking(ServerHandshake(terms: terms))
  }

  /// Nil until the handshake is finished.
  private var registration: Registration? {
    switch state {
    case .handshaking: nil
    case .open(let registration): registration
    case .closed(let registration): registration
    }
  }

  func channelActive(context: ChannelHandlerContext) {
    self.context = context
    counters.opened()
    let channel = context.channel
    handshakeTimeout = context.eventLoop.assumeIsolated().scheduleTask(in: Self.handshakeTime) { [weak self] in
      guard let self, self.registration == nil, channel.isActive else { return }
      self.end(.handshakeTimeout, "the handshake timed out after \(Self.handshakeTime.nanoseconds / 1_000_000_000) s")
    }
    context.fireChannelActive()
  }

  func channelInactive(context: ChannelHandlerContext) {
    counters.closed()
    handshakeTimeout?.cancel()
    close()
    if let registration { registry.remove(registration.session, serial: registration.serial) }
    self.context = nil
    context.fireChannelInactive()
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard !isClosed else { return }
    // A socket is read to its end before a failed write closes it, and the write may be one of this function's. The
    // last bytes must not overtake the frames before them: the gateway sends them again.
    guard !isReading else {
      hasSkippedBytes = true
      return
    }
    isReading = true
    defer {
      isReading = false
      if hasSkippedBytes, !isClosed { context.close(promise: nil) }
    }
    let incoming = unwrapInboundIn(data)
    routes.beginTurn()
    do throws(WireError) {
      let read = incoming.readableBytesSpan
      var offset = 0
      if !cut.isEmpty {
        guard let (frame, used) = try cut.complete(with: read, decoder) else { return }
        _ = try receive(frame.readableBytesSpan)
        offset = used
      }
      offset += try receive(read.extracting(offset..<read.byteCount))
      if !isClosed { cut.keep(read.extracting(offset..<read.byteCount)) }
    } catch {
      // Apply and answer the frames before the error; the end of this read will find no routes.
      routes.endTurn()
      refuse(error)
    }
  }

  func channelReadComplete(context: ChannelHandlerContext) {
    writeRefusals()
    routes.endRead()
    context.fireChannelReadComplete()
  }

  func channelWritabilityChanged(context: ChannelHandlerContext) {
    // Backpressure: stop reading from a gateway that does not read its replies. Work in flight is bounded by the
    // window.
    context.channel.setOption(.autoRead, value: context.channel.isWritable).whenFailure { _ in }
    context.fireChannelWritabilityChanged()
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    if registration == nil, let error = error as? TLSError, let tlsFailures {
      tlsFailures.record(error, peer: "\(context.remoteAddress.map(String.init(describing:)) ?? "unknown")")
    } else if let count = counters.refusals.occurrencesToLog("failed") {
      logger.info("Connection failed", metadata: ["error": "\(error)", "count": "\(count)"])
    }
    context.close(promise: nil)
  }

  /// Error frame that a TLS store sends to a peer without TLS.
  static var plaintextRefusal: ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeError(
      .handshakeRequired,
      detail: "this store speaks TLS: give the other side --tls-ca, --tls-cert and --tls-key"
    )
    return buffer
  }

  // MARK: Frames

  /// Handle the complete frames at the start of `bytes`; return their total length.
  private func receive(_ bytes: RawSpan) throws(WireError) -> Int {
    var offset = 0
    while !isClosed {
      guard case .frame(let header, let payloadCount) = try decoder.next(bytes, at: offset) else { break }
      let start = offset + FrameHeader.byteCount
      let payload = bytes.extracting(start..<(start + payloadCount))
      if isOpen, header.isRequest {
        try request(header, payload, frame: bytes.extracting(offset..<(start + payloadCount)))
      } else {
        try handleConnectionFrame(header, payload)
      }
      offset = start + payloadCount
    }
    return offset
  }

  private func request(_ header: FrameHeader, _ payload: RawSpan, frame: RawSpan) throws(WireError) {
    guard unanswered < Int(terms.window) else {
      if routes.isWithheld(header.shard) { return }
      refusals.writeError(
        .busy,
        shard: header.shard,
        correlation: header.correlation,
        retryAfterMilliseconds: 100,
        detail: "the window of \(terms.window) unanswered requests is full"
      )
      return
    }
    if try routes.receive(header, payload, frame: frame) {
      unanswered += 1
    } else if !routes.isWithheld(header.shard) {
      refusals.writeError(
        .notOwner,
        shard: header.shard,
        correlation: header.correlation,
        detail: "another node owns shard \(header.shard.rawValue)"
      )
    }
  }

  private func handleConnectionFrame(_ header: FrameHeader, _ payload: RawSpan) throws(WireError) {
    guard case .handshaking(var machine) = state else {
      return try handleFrameAfterHandshake(header, payload)
    }
    let action = try machine.frameReceived(header.kind, payload, nonce: Nonce.random)
    state = .handshaking(machine)
    switch action {
    case .send(let challenge):
      var buffer = ByteBuffer()
      challenge.write(into: &buffer)
      write(buffer)
    case .open(let ready, let session, let name):
      open(ready, session: session, name: name)
    case .refuse(let code, let detail):
      end(code, detail)
    }
  }

  private func handleFrameAfterHandshake(_ header: FrameHeader, _ payload: RawSpan) throws(WireError) {
    guard !header.isReply else { throw .unknownKind(header.kindByte) }
    if header.kind == .ping {
      guard payload.byteCount == 8 else { throw .badValue(.ping) }
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(.pong, correlation: header.correlation)) { $0.writeRaw(payload) }
      write(buffer)
      return
    }
    if terms.isNode, header.kind == .pong { return try pongReceived(payload) }
    if terms.isNode, header.kind.isBetweenNodes { return try receiveChanges(header, payload) }
    if terms.isNode, header.kind.isSnapshot, let context {
      return try (snapshot ?? makeSnapshot(context)).receive(header, payload, servingState)
    }
    guard header.kind.isBackup, let context else { throw .unknownKind(header.kindByte) }
    let backup = backup ?? makeBackup(context)
    try backup.receive(header, payload, servingState)
  }

  /// Pass on what another node sends for a shard. A node that does not own the shard ignores it: the sender repeats it.
  private func receiveChanges(_ header: FrameHeader, _ payload: RawSpan) throws(WireError) {
    let message = try MessageBetweenShards(header, payload)
    guard let serving = servingState.current(), max(message.from, message.to) < ShardID(UInt16(terms.shardCount)) else {
      return
    }
    let host = serving.hosts[Int(serving.hostOfShard[Int(message.to.rawValue)])]
    host.eventLoop.execute { host.receive([message]) }
  }

  private func makeBackup(_ context: ChannelHandlerContext) -> BackupFrames {
    let made = BackupFrames(backups: backups, eventLoop: context.eventLoop) { [weak self] in self?.write($0) }
    backup = made
    return made
  }

  private func makeSnapshot(_ context: ChannelHandlerContext) -> SnapshotFrames {
    let made = SnapshotFrames(
      snapshots: snapshots,
      eventLoop: context.eventLoop,
      isTLS: isTLS,
      peer: context.remoteAddress
    ) {
      [weak self] in self?.write($0)
    }
    snapshot = made
    return made
  }

  private func open(_ ready: Ready, session: SessionID, name: String) {
    guard let context else { return }
    handshakeTimeout?.cancel()
    decoder.lengthLimit = terms.frameLengthMax
    logger[metadataKey: "gateway"] = "\(name)"
    // Register before reading the serving state: a shutdown or reload closes the connections registered by then, and
    // this one must not keep routes into the old loops.
    let serial = registry.insert(session, context.channel)
    state = .open(Registration(session: session, serial: serial))
    gate.markAuthenticated(context.channel)
    guard let serving = servingState.current() else {
      end(.unavailable, "the store is loading its data; try again")
      return
    }
    openRoutes(serving, context)
    var buffer = ByteBuffer()
    ready.write(into: &buffer)
    serving.shardMap()?.write(into: &buffer)
    write(buffer)
    logger.info("Gateway connected", metadata: ["resumed": "\(ready.isResumed)"])
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    guard event is ServingChanged else { return context.fireUserInboundEventTriggered(event) }
    servedShardsChanged()
  }

  /// Close the routes to shards that this node has lost, open routes to those that it owns, and tell the gateway. After
  /// a loss a ping follows the map: what the gateway sends after the pong, it sends with the loss in mind.
  private func servedShardsChanged() {
    guard isOpen, let context, let serving = servingState.current() else { return }
    let dropped = routes.closeLost(serving, unanswered: unanswered)
    openRoutes(serving, context)
    unanswered -= dropped ?? 0
    guard let map = serving.shardMap(without: routes.withheldHosts) else { return }
    // No answer about a lost shard follows the map.
    writeRefusals()
    var buffer = ByteBuffer()
    map.write(into: &buffer)
    if dropped != nil {
      lastPing += 1
      buffer.writeFrame(FrameHeader(.ping)) { $0.writeInteger(lastPing) }
    }
    write(buffer)
  }

  private func pongReceived(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    let number = try reader.fixed64()
    try reader.end()
    guard number == lastPing, !routes.withheldHosts.isEmpty else { return }
    routes.endWithholding()
    servedShardsChanged()
  }

  private func openRoutes(_ serving: ServingState.Serving, _ context: ChannelHandlerContext) {
    guard case .open(let registration) = state else { return }
    let eventLoop = context.eventLoop
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    routes.open(serving, on: eventLoop) { host, route in
      let isLocal = host.eventLoop === eventLoop
      return ReplyLane(
        session: registration.session,
        serial: registration.serial,
        shards: host.ownShardCount,
        backlog: backlog,
        deliver: { buffer, count in
          if isLocal {
            bound.value.deliver(buffer, count)
          } else {
            eventLoop.execute { bound.value.deliver(buffer, count, ofRoute: route) }
          }
        },
        end: { error in
          if isLocal { bound.value.refuse(error) } else { eventLoop.execute { bound.value.refuse(error) } }
        }
      )
    }
  }

  // MARK: Output

  /// Write replies of another loop, unless its shards were lost meanwhile.
  private func deliver(_ buffer: ByteBuffer, _ count: Int, ofRoute route: Int) {
    guard routes.answered(count, byRoute: route) else { return backlog.wrote(buffer.readableBytes) }
    deliver(buffer, count)
  }

  private func deliver(_ buffer: ByteBuffer, _ count: Int) {
    unanswered -= count
    let byteCount = buffer.readableBytes
    guard let context, !isClosed else { return backlog.wrote(byteCount) }
    guard backlog.subscriptions > 0 || byteCount > Self.uncountedBytesMax || !context.channel.isWritable else {
      // A promise costs an allocation. Without events, few bytes to a gateway that reads need not be counted.
      backlog.wrote(byteCount)
      return context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
    }
    context.writeAndFlush(wrapOutboundOut(buffer)).whenComplete { [backlog] _ in backlog.wrote(byteCount) }
  }

  private func writeRefusals() {
    guard refusals.readableBytes > 0 else { return }
    let buffer = refusals
    refusals = ByteBuffer()
    write(buffer)
  }

  private func write(_ buffer: ByteBuffer) {
    guard let context, !isClosed else { return }
    context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
  }

  private func refuse(_ error: WireError) {
    switch error {
    // The start of a TLS handshake: bytes 22, 3 and a minor version (RFC 8446 section 5.1).
    case .lengthTooLarge(let length) where registration == nil && length >> 16 == 0x1603:
      end(
        .frameTooLarge,
        "the peer speaks TLS and this store does not: give the store --tls-cert, --tls-key and --tls-ca, "
          + "or remove --tls-ca on the other side"
      )
    case .lengthTooLarge(let length):
      end(.frameTooLarge, "length \(length), at most \(decoder.lengthLimit)")
    case .unknownKind(let kind):
      end(.unknownKind, "kind \(kind)")
    case .truncated, .trailingBytes, .badVarint, .badValue, .lengthTooSmall, .badFlags:
      end(.malformedFrame, "\(error)")
    }
  }

  /// Send the connection an error frame, then close it.
  private func end(_ code: ErrorCode, _ detail: String) {
    writeRefusals()
    guard let context, !isClosed else { return }
    // Throttle the log before authentication: an unauthenticated peer may connect as often as it likes.
    if let count = registration != nil ? 1 : counters.refusals.occurrencesToLog(code.name) {
      logger.info("Connection refused", metadata: ["code": "\(code.name)", "detail": "\(detail)", "count": "\(count)"])
    }
    var buffer = ByteBuffer()
    buffer.writeError(code, retryAfterMilliseconds: code == .unavailable ? 500 : 0, detail: detail)
    let boundContext = NIOLoopBound(context, eventLoop: context.eventLoop)
    context.writeAndFlush(wrapOutboundOut(buffer)).whenComplete { _ in boundContext.value.close(promise: nil) }
    close()
  }

  private func close() {
    state = .closed(registration)
    cut = CutFrame()
    refusals = ByteBuffer()
    backup?.close()
    backup = nil
    snapshot?.close()
    snapshot = nil
    routes.close()
  }
}

/// Connections since start and now, over all loops.
final class ConnectionCounters: Sendable {
  private let values = NIOLockedValueBox<(opened: UInt64, now: Int)>((0, 0))

  func opened() {
    values.withLockedValue {
      $0.opened += 1
      $0.now += 1
    }
  }

  func closed() { values.withLockedValue { $0.now -= 1 } }

  var current: (opened: UInt64, now: Int) { values.withLockedValue { $0 } }

  /// Throttles log entries about connections that failed or were refused before authentication.
  let refusals = LogThrottle()
}
