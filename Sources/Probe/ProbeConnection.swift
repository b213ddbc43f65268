internal import NIOCore
internal import NIOPosix

/// What a wait for the other end comes to.
package enum Received: Equatable, Sendable {
  case unit([UInt8])
  /// The other end closed the connection, or it broke; what was left of a unit is gone.
  case closed
  case timedOut
  /// What came is no unit of the language; the text says why.
  case broken(String)
}

/// A TCP connection that sends bytes and waits for units.
package final class ProbeConnection: Sendable {
  private let channel: any Channel
  private let inbox: NIOLoopBound<ProbeInbox>

  private init(_ channel: any Channel, _ inbox: NIOLoopBound<ProbeInbox>) {
    self.channel = channel
    self.inbox = inbox
  }

  /// - Parameter target: `HOST:PORT`, an IPv6 address in brackets.
  ///
  /// Throws ``ProbeError`` where the target makes no sense or nobody listens.
  package static func connect(to target: String, timeout: Duration) async throws -> ProbeConnection {
    let (host, port) = try address(target)
    do {
      let (channel, inbox) = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
        .connectTimeout(TimeAmount(timeout))
        .channelOption(.tcpOption(.tcp_nodelay), value: 1)
        // A peer that closes its side may still be sent to: what it does then is what a probe wants to see.
        .channelOption(.allowRemoteHalfClosure, value: false)
        .connect(host: host, port: port) { channel in
          channel.eventLoop.makeCompletedFuture {
            let inbox = ProbeInbox(eventLoop: channel.eventLoop)
            try channel.pipeline.syncOperations.addHandler(inbox)
            return (channel, NIOLoopBound(inbox, eventLoop: channel.eventLoop))
          }
        }
      return ProbeConnection(channel, inbox)
    } catch {
      throw ProbeError("no connection to \(target): \(error)")
    }
  }

  private static func address(_ target: String) throws -> (String, Int) {
    guard let colon = target.lastIndex(of: ":"), let port = Int(target[target.index(after: colon)...]),
      (1...65_535).contains(port), colon > target.startIndex
    else { throw ProbeError("HOST:PORT is expected: \(target)") }
    var host = String(target[..<colon])
    if host.hasPrefix("["), host.hasSuffix("]") { host = String(host.dropFirst().dropLast()) }
    return (host, port)
  }

  /// Sends bytes. A connection that is closed already takes them without a word: the next
  /// ``receive(timeout:cut:)`` tells.
  package func send(_ bytes: [UInt8]) async {
    try? await channel.writeAndFlush(ByteBuffer(bytes: bytes))
  }

  /// The next unit, as `cut` finds it.
  package func receive(
    timeout: Duration,
    cut: @escaping @Sendable ([UInt8]) -> ProbeCut
  ) async throws -> Received {
    let inbox = inbox
    return try await channel.eventLoop.flatSubmit {
      inbox.value.next(timeout: TimeAmount(timeout), cut: cut)
    }.get()
  }

  package func close() async {
    try? await channel.close()
  }
}

/// Keeps what came until somebody asks for it.
private final class ProbeInbox: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer

  private struct Waiter {
    var cut: @Sendable ([UInt8]) -> ProbeCut
    var promise: EventLoopPromise<Received>
    var timeout: Scheduled<Void>
  }

  private let eventLoop: any EventLoop
  private var bytes: [UInt8] = []
  private var isClosed = false
  private var waiter: Waiter?

  init(eventLoop: any EventLoop) { self.eventLoop = eventLoop }

  func next(timeout: TimeAmount, cut: @escaping @Sendable ([UInt8]) -> ProbeCut) -> EventLoopFuture<Received>
  {
    if let received = take(cut) { return eventLoop.makeSucceededFuture(received) }
    precondition(waiter == nil, "one waits at a time")
    let promise = eventLoop.makePromise(of: Received.self)
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let task = eventLoop.scheduleTask(in: timeout) { bound.value.finish(.timedOut) }
    waiter = Waiter(cut: cut, promise: promise, timeout: task)
    return promise.futureResult
  }

  private func take(_ cut: @Sendable ([UInt8]) -> ProbeCut) -> Received? {
    switch cut(bytes) {
    case .unit(let count):
      defer { bytes.removeFirst(count) }
      return .unit(Array(bytes.prefix(count)))
    case .broken(let reason): return .broken(reason)
    case .incomplete: return isClosed ? .closed : nil
    }
  }

  private func finish(_ received: Received) {
    guard let waiter else { return }
    self.waiter = nil
    waiter.timeout.cancel()
    waiter.promise.succeed(received)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    bytes += unwrapInboundIn(data).readableBytesView
    if let waiter, let received = take(waiter.cut) { finish(received) }
  }

  func channelInactive(context: ChannelHandlerContext) {
    isClosed = true
    if let waiter, let received = take(waiter.cut) { finish(received) }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
