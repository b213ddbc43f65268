internal import NIOCore
internal import NIOPosix
internal import TLSSession

/// Outcome of waiting for the peer.
enum Received<Unit> {
  case unit(Unit)
  /// The connection ended; an incomplete unit is dropped.
  case closed
  case timedOut
  /// Not a unit of the protocol, with the reason.
  case broken(String)
}

extension Received: Equatable where Unit: Equatable {}
extension Received: Sendable where Unit: Sendable {}

/// Address of a peer and its transport.
struct ProbeTarget: Sendable {
  /// TLS 1.2 or 1.3 with ALPN `h2` or that of the store.
  struct TLS: Sendable {
    /// PEM file of the authorities to trust; nil for the system's.
    var authorityFile: String?
    /// Accept any certificate.
    var isInsecure = false
    /// Name in the certificate; nil: the host.
    var serverName: String?
    /// PEM files of the client certificate and its key.
    var identity: (certificate: String, key: String)?
    var isForFrames = false
  }

  var host: String
  var port: Int
  var tls: TLS?

  /// - Parameter address: `HOST:PORT`, an IPv6 address in brackets.
  /// - Throws: ``ProbeError`` for an invalid address.
  init(_ address: String, tls: TLS? = nil) throws {
    guard let colon = address.lastIndex(of: ":"), let port = Int(address[address.index(after: colon)...]),
      (1...65_535).contains(port), colon > address.startIndex
    else { throw ProbeError("HOST:PORT is expected: \(address)") }
    let host = String(address[..<colon])
    self.host = host.hasPrefix("[") && host.hasSuffix("]") ? String(host.dropFirst().dropLast()) : host
    self.port = port
    self.tls = tls
  }
}

/// Connection, with or without TLS, that sends bytes and waits for units.
final class ProbeConnection: Sendable {
  private let channel: any Channel
  private let inbox: NIOLoopBound<ProbeInbox>
  /// Negotiated TLS parameters, for the transcript.
  let agreed: String?

  private init(_ channel: any Channel, _ inbox: NIOLoopBound<ProbeInbox>, _ agreed: String?) {
    self.channel = channel
    self.inbox = inbox
    self.agreed = agreed
  }

  /// Connect, including the TLS handshake.
  ///
  /// - Throws: ``ProbeError``.
  static func connect(to target: ProbeTarget, timeout: Duration) async throws -> ProbeConnection {
    do {
      let context = try target.tls.map { tls in
        var configuration = TLSClientConfiguration(
          authorityFile: tls.authorityFile,
          certificateChainFile: tls.identity?.certificate,
          privateKeyFile: tls.identity?.key,
          applicationProtocol: tls.isForFrames ? .frames : .h2
        )
        configuration.verifiesServer = !tls.isInsecure
        return try TLSContext(client: configuration)
      }
      let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
      let established = eventLoop.makePromise(of: TLSEstablished?.self)
      let bootstrap = ClientBootstrap(group: eventLoop)
        .connectTimeout(TimeAmount(timeout))
        .channelOption(.tcpOption(.tcp_nodelay), value: 1)
        .channelOption(.allowRemoteHalfClosure, value: false)
      let channel: any Channel
      let inbox: NIOLoopBound<ProbeInbox>
      do {
        (channel, inbox) = try await bootstrap.connect(host: target.host, port: target.port) { channel in
          channel.eventLoop.makeCompletedFuture {
            if let context {
              let handler = try TLSHandler(
                context: context,
                serverName: target.tls?.serverName ?? target.host,
                handshakeTimeout: TimeAmount(timeout)
              )
              try channel.pipeline.syncOperations.addHandler(handler)
            }
            let inbox = ProbeInbox(eventLoop: channel.eventLoop, established: established)
            try channel.pipeline.syncOperations.addHandler(inbox)
            if context == nil { established.succeed(nil) }
            return (channel, NIOLoopBound(inbox, eventLoop: channel.eventLoop))
          }
        }
      } catch {
        established.fail(error)
        throw error
      }
      let tls = try await established.futureResult.get()
      let agreed = tls.map { "\($0.version), \($0.cipher), ALPN \($0.applicationProtocol ?? "none")" }
      return ProbeConnection(channel, inbox, agreed)
    } catch {
      throw ProbeError("no connection to \(target.host):\(target.port): \(error)")
    }
  }

  /// Send bytes. An error is reported by the next ``receive(timeout:boundary:)``.
  func send(_ bytes: [UInt8]) async {
    try? await channel.writeAndFlush(ByteBuffer(bytes: bytes))
  }

  /// Receive the next unit.
  func receive(
    timeout: Duration,
    boundary: @escaping @Sendable ([UInt8]) -> FrameBoundary
  ) async throws -> Received<[UInt8]> {
    let inbox = inbox
    return try await channel.eventLoop.flatSubmit {
      inbox.value.next(timeout: TimeAmount(timeout), boundary: boundary)
    }.get()
  }

  func close() async {
    try? await channel.close()
  }
}

/// Buffer of received bytes. Used on the event loop only.
private final class ProbeInbox: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer

  private struct Waiter {
    var boundary: @Sendable ([UInt8]) -> FrameBoundary
    var promise: EventLoopPromise<Received<[UInt8]>>
    var timeout: Scheduled<Void>
  }

  private let eventLoop: any EventLoop
  private var bytes: [UInt8] = []
  private var isClosed = false
  private var waiter: Waiter?
  private let established: EventLoopPromise<TLSEstablished?>

  init(eventLoop: any EventLoop, established: EventLoopPromise<TLSEstablished?>) {
    self.eventLoop = eventLoop
    self.established = established
  }

  func next(
    timeout: TimeAmount,
    boundary: @escaping @Sendable ([UInt8]) -> FrameBoundary
  ) -> EventLoopFuture<Received<[UInt8]>> {
    if let received = take(boundary) { return eventLoop.makeSucceededFuture(received) }
    precondition(waiter == nil, "one waits at a time")
    let promise = eventLoop.makePromise(of: Received<[UInt8]>.self)
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let task = eventLoop.scheduleTask(in: timeout) { bound.value.finish(.timedOut) }
    waiter = Waiter(boundary: boundary, promise: promise, timeout: task)
    return promise.futureResult
  }

  private func take(_ boundary: @Sendable ([UInt8]) -> FrameBoundary) -> Received<[UInt8]>? {
    switch boundary(bytes) {
    case .unit(let count):
      defer { bytes.removeFirst(count) }
      return .unit(Array(bytes.prefix(count)))
    case .broken(let reason): return .broken(reason)
    case .incomplete: return isClosed ? .closed : nil
    }
  }

  private func finish(_ received: Received<[UInt8]>) {
    guard let waiter else { return }
    self.waiter = nil
    waiter.timeout.cancel()
    waiter.promise.succeed(received)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    bytes += unwrapInboundIn(data).readableBytesView
    if let waiter, let received = take(waiter.boundary) { finish(received) }
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if let event = event as? TLSEstablished { established.succeed(event) }
  }

  func channelInactive(context: ChannelHandlerContext) {
    isClosed = true
    established.fail(ChannelError.eof)
    if let waiter, let received = take(waiter.boundary) { finish(received) }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    established.fail(error)
    context.close(promise: nil)
  }
}
