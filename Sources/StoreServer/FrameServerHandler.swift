import LinkSecurity
import Logging
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ReceiptWire
import StoreEngine
import TLSSession

/// One gateway's connection: bytes to frames, the opening, then each request to the loop that owns its shard, and
/// replies back.
final class FrameServerHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private let runtime: ServingState
  private let terms: ServerOpening.Terms
  private let registry: ConnectionRegistry
  private let gate: ConnectionGate
  private let counters: ConnectionCounters
  private var logger: Logger
  private var decoder: FrameDecoder
  private var opening: ServerOpening?
  private var leftover: ByteBuffer?
  private var context: ChannelHandlerContext?
  private var openingTimeout: Scheduled<Void>?
  private var session: SessionID?
  /// Until a gateway has proved itself, no more is taken than a hello and a proof need.
  private static let openingFrameLengthMax: UInt32 = 4_096
  private var isClosing = false
  private var unanswered = 0
  private let account = ConnectionAccount()
  private var serial: UInt64 = 0
  private let desk: BackupDesk
  private let tlsFailures: HandshakeFailures?
  /// Made with the first request of a backup.
  private var backup: BackupFrames?

  /// A loop that has shards, and this connection's lane there.
  private struct Route {
    var host: LoopHost
    var lane: ReplyLane
    /// For another loop: frames of this read that are handed over at its end.
    var forward: ByteBuffer?
  }
  private var routes: [Route] = []
  private var routeOfShard: [UInt8] = []

  init(
    runtime: ServingState,
    terms: ServerOpening.Terms,
    registry: ConnectionRegistry,
    gate: ConnectionGate,
    counters: ConnectionCounters,
    desk: BackupDesk,
    tlsFailures: HandshakeFailures?,
    logger: Logger
  ) {
    self.desk = desk
    self.tlsFailures = tlsFailures
    self.runtime = runtime
    self.terms = terms
    self.registry = registry
    self.gate = gate
    self.counters = counters
    self.logger = logger
    self.decoder = FrameDecoder(lengthLimit: Self.openingFrameLengthMax)
    self.opening = ServerOpening(terms: terms)
  }

  func channelActive(context: ChannelHandlerContext) {
    self.context = context
    counters.opened()
    let channel = context.channel
    openingTimeout = context.eventLoop.assumeIsolated().scheduleTask(in: .seconds(10)) { [weak self] in
      guard let self, self.opening != nil, channel.isActive else { return }
      self.end(.handshakeTimeout, "the opening was not done in 10 s")
    }
    context.fireChannelActive()
  }

  func channelInactive(context: ChannelHandlerContext) {
    counters.closed()
    openingTimeout?.cancel()
    close()
    if let session { registry.remove(session, serial: serial) }
    self.context = nil
    context.fireChannelInactive()
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard !isClosing else { return }
    var buffer = unwrapInboundIn(data)
    if var rest = leftover {
      // Before it is written to, or what has come so far is copied with every read.
      leftover = nil
      rest.writeBuffer(&buffer)
      buffer = rest
    }
    for route in routes where route.host.eventLoop === context.eventLoop {
      route.host.readClock()
    }
    let consumed: Int
    do throws(WireError) {
      consumed = try receive(buffer.readableBytesSpan)
    } catch {
      // What came before it is carried out and answered; the end of this read will find no routes.
      for route in routes where route.host.eventLoop === context.eventLoop { route.host.loop.endTurn() }
      refuse(error)
      return
    }
    buffer.moveReaderIndex(forwardBy: consumed)
    if !isClosing, buffer.readableBytes > 0 { leftover = buffer }
  }

  func channelReadComplete(context: ChannelHandlerContext) {
    for position in routes.indices {
      if routes[position].host.eventLoop === context.eventLoop {
        routes[position].host.loop.endTurn()
      } else if let frames = routes[position].forward {
        routes[position].forward = nil
        let host = routes[position].host
        Self.forward(frames, to: host, lane: UncheckedLane(lane: routes[position].lane))
      }
    }
    context.fireChannelReadComplete()
  }

  func channelWritabilityChanged(context: ChannelHandlerContext) {
    // A gateway that does not read its replies is not read from either; what is under way is bounded by the window.
    context.channel.setOption(.autoRead, value: context.channel.isWritable).whenFailure { _ in }
    context.fireChannelWritabilityChanged()
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    if opening != nil, let error = error as? TLSError, let tlsFailures {
      tlsFailures.note(error, peer: "\(context.remoteAddress.map(String.init(describing:)) ?? "unknown")")
    } else if let count = counters.refusals.due("failed") {
      logger.info("connection failed", metadata: ["error": "\(error)", "count": "\(count)"])
    }
    context.close(promise: nil)
  }

  /// What a peer that speaks no TLS is told by a store that does.
  static var plaintextRefusal: ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeError(
      .handshakeRequired,
      detail: "this store speaks TLS: give the other side --tls-ca, --tls-cert and --tls-key"
    )
    return buffer
  }

  // MARK: Frames

  /// Takes the whole frames at the start of `bytes`; returns how many bytes they had.
  private func receive(_ bytes: RawSpan) throws(WireError) -> Int {
    var offset = 0
    while !isClosing {
      guard case .frame(let header, let payloadCount) = try decoder.next(bytes, at: offset) else { break }
      let start = offset + FrameHeader.byteCount
      let payload = bytes.extracting(start..<(start + payloadCount))
      if opening == nil, header.kind.isRequest {
        try request(header, payload, frame: bytes.extracting(offset..<(start + payloadCount)))
      } else {
        try frameOfConnection(header, payload)
      }
      offset = start + payloadCount
    }
    return offset
  }

  private func request(_ header: FrameHeader, _ payload: RawSpan, frame: RawSpan) throws(WireError) {
    guard unanswered < Int(terms.window) else {
      var buffer = ByteBuffer()
      buffer.writeError(
        .busy,
        shard: header.shard,
        correlation: header.correlation,
        retryAfterMilliseconds: 100,
        detail: "the window of \(terms.window) unanswered requests is full"
      )
      write(buffer)
      return
    }
    unanswered += 1
    let shard = Int(header.shard.rawValue)
    // A shard that does not exist is refused by whichever loop is asked.
    let position = shard < routeOfShard.count ? Int(routeOfShard[shard]) : 0
    if routes[position].host.eventLoop === context?.eventLoop {
      try routes[position].host.loop.receive(header, payload, lane: routes[position].lane)
    } else {
      var forward = routes[position].forward ?? ByteBuffer()
      routes[position].forward = nil
      forward.writeRaw(frame)
      routes[position].forward = forward
    }
  }

  private func frameOfConnection(_ header: FrameHeader, _ payload: RawSpan) throws(WireError) {
    if header.kind == .ping, opening == nil {
      guard payload.byteCount == 8 else { throw .badValue(.text) }
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(.pong, correlation: header.correlation)) { $0.writeRaw(payload) }
      write(buffer)
      return
    }
    guard var machine = opening else {
      guard header.kind.isBackup, let context else { throw .unknownKind(header.kind.rawValue) }
      let backup = backup ?? makeBackup(context)
      return try backup.receive(header, payload, runtime)
    }
    let action = try machine.frameReceived(header.kind, payload, nonce: Nonce.random)
    opening = machine
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

  private func makeBackup(_ context: ChannelHandlerContext) -> BackupFrames {
    let made = BackupFrames(desk: desk, eventLoop: context.eventLoop) { [weak self] in self?.write($0) }
    backup = made
    return made
  }

  private func open(_ ready: Ready, session: SessionID, name: String) {
    guard let context else { return }
    openingTimeout?.cancel()
    opening = nil
    decoder.lengthLimit = terms.frameLengthMax
    self.session = session
    logger[metadataKey: "gateway"] = "\(name)"
    // Before the runtime is looked at: who takes it down ends the connections that are noted then, and this one may not
    // keep routes into it.
    serial = registry.insert(session, context.channel)
    gate.prove(context.channel)
    guard let serving = runtime.current() else {
      end(.unavailable, "the store is reading its data; try again")
      return
    }
    routeOfShard = serving.hostOfShard
    let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
    routes = serving.hosts.map { host in
      let eventLoop = context.eventLoop
      let isLocal = host.eventLoop === eventLoop
      let lane = ReplyLane(
        session: session,
        serial: serial,
        shards: host.shardCount,
        account: account,
        deliver: { buffer, count in
          if isLocal {
            bound.value.deliver(buffer, count)
          } else {
            eventLoop.execute { bound.value.deliver(buffer, count) }
          }
        },
        end: { error in
          if isLocal { bound.value.refuse(error) } else { eventLoop.execute { bound.value.refuse(error) } }
        }
      )
      if isLocal {
        host.loop.open(lane)
      } else {
        Self.openLane(UncheckedLane(lane: lane), on: host)
      }
      return Route(host: host, lane: lane)
    }
    var buffer = ByteBuffer()
    ready.write(into: &buffer)
    write(buffer)
    logger.info("gateway connected", metadata: ["resumed": "\(ready.isResumed)"])
  }

  // MARK: Out

  private func deliver(_ buffer: ByteBuffer, _ count: Int) {
    unanswered -= count
    let byteCount = buffer.readableBytes
    guard let context, !isClosing else { return account.wrote(byteCount) }
    context.writeAndFlush(wrapOutboundOut(buffer)).whenComplete { [account] _ in account.wrote(byteCount) }
  }

  private func write(_ buffer: ByteBuffer) {
    guard let context, !isClosing else { return }
    context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
  }

  private func refuse(_ error: WireError) {
    switch error {
    // The first bytes of a TLS handshake: 22, 3 and a minor version (RFC 8446 section 5.1).
    case .lengthTooLarge(let length) where opening != nil && length >> 16 == 0x1603:
      end(
        .frameTooLarge,
        "the peer speaks TLS and this store does not: give the store --tls-cert, --tls-key and --tls-ca, "
          + "or leave --tls-ca out on the other side"
      )
    case .lengthTooLarge(let length):
      end(.frameTooLarge, "length \(length), at most \(decoder.lengthLimit)")
    case .unknownKind(let kind):
      end(.unknownKind, "kind \(kind)")
    case .truncated, .trailingBytes, .badVarint, .badValue, .lengthTooSmall, .badFlags:
      end(.malformedFrame, "\(error)")
    }
  }

  /// An error frame of the connection, then close.
  private func end(_ code: ErrorCode, _ detail: String) {
    guard let context, !isClosing else { return }
    // Who has not proved itself may come as often as it likes.
    if let count = opening == nil ? 1 : counters.refusals.due(code.name) {
      logger.info(
        "connection refused",
        metadata: ["code": "\(code.name)", "detail": "\(detail)", "count": "\(count)"]
      )
    }
    var buffer = ByteBuffer()
    buffer.writeError(code, retryAfterMilliseconds: code == .unavailable ? 500 : 0, detail: detail)
    let context2 = NIOLoopBound(context, eventLoop: context.eventLoop)
    context.writeAndFlush(wrapOutboundOut(buffer)).whenComplete { _ in context2.value.close(promise: nil) }
    close()
  }

  private func close() {
    isClosing = true
    leftover = nil
    backup?.close()
    backup = nil
    for route in routes {
      if route.host.eventLoop === context?.eventLoop {
        route.host.loop.close(route.lane)
      } else {
        Self.closeLane(UncheckedLane(lane: route.lane), on: route.host)
      }
    }
    routes = []
  }

  // MARK: Other loops

  /// A lane is made here and used only on its host's loop from then on.
  ///
  /// `@unchecked Sendable`: that hand-over is the reason.
  private struct UncheckedLane: @unchecked Sendable {
    var lane: ReplyLane
  }

  private static func forward(_ frames: ByteBuffer, to host: LoopHost, lane: UncheckedLane) {
    host.eventLoop.execute { host.receive(frames, lane: lane.lane) }
  }

  private static func openLane(_ lane: UncheckedLane, on host: LoopHost) {
    host.eventLoop.execute { host.loop.open(lane.lane) }
  }

  private static func closeLane(_ lane: UncheckedLane, on host: LoopHost) {
    host.eventLoop.execute { host.loop.close(lane.lane) }
  }
}
