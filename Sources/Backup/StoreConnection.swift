internal import Foundation
internal import LinkSecurity
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient
internal import TLSSession

/// Single connection to a store. Its requests belong to it, and are not resent on another.
final class StoreConnection: Sendable {
  private let channel: any Channel
  private let handler: NIOLoopBound<StoreConnectionFrameHandler>

  private init(_ channel: any Channel, _ handler: NIOLoopBound<StoreConnectionFrameHandler>) {
    self.channel = channel
    self.handler = handler
  }

  /// Connect and authenticate both sides with the secret.
  static func open(_ store: Endpoint, secrets: [[UInt8]], tls: LinkTLS?) async throws -> StoreConnection {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let opened = eventLoop.makePromise(of: Void.self)
    do {
      let (channel, handler) = try await ClientBootstrap(group: eventLoop)
        .connectTimeout(.seconds(10))
        .channelOption(.tcpOption(.tcp_nodelay), value: 1)
        .connect(host: store.host, port: store.port) { channel in
          channel.eventLoop.makeCompletedFuture {
            if let tls {
              try channel.pipeline.syncOperations.addHandler(try tls.clientHandler(store: store.host))
            }
            let handler = StoreConnectionFrameHandler(eventLoop, StoreAuthenticator(secrets: secrets), opened)
            try channel.pipeline.syncOperations.addHandler(handler)
            return (channel, NIOLoopBound(handler, eventLoop: eventLoop))
          }
        }
      try await opened.futureResult.get()
      return StoreConnection(channel, handler)
    } catch let failure as BackupFailure {
      throw failure
    } catch {
      opened.fail(error)
      throw BackupFailure("\(store): cannot connect to a store: check --store, and the store's /ready")
    }
  }

  /// Send a request and return its reply's payload.
  ///
  /// - Parameter timeout: the connection is closed if there is no reply within it.
  func request(
    _ kind: FrameKind,
    timeout: TimeAmount = .seconds(60),
    _ fields: @escaping @Sendable (inout ByteBuffer) -> Void = { _ in }
  ) async throws -> ByteBuffer {
    let handler = handler
    return try await channel.eventLoop.flatSubmit { handler.value.request(kind, timeout, fields) }.get()
  }

  func close() async { try? await channel.close() }
}

/// Frame handler of one connection.
private final class StoreConnectionFrameHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private struct Pending {
    var kind: FrameKind
    var promise: EventLoopPromise<ByteBuffer>
    var timeout: Scheduled<Void>
  }

  private let eventLoop: any EventLoop
  private let authenticator: StoreAuthenticator
  private let opened: EventLoopPromise<Void>
  private let hello = Hello(
    session: SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)),
    sessionAgeMilliseconds: nil,
    nonce: .random(),
    name: "tidemark-backup"
  )
  private var context: ChannelHandlerContext?
  private var bytes = ByteBuffer()
  private var pending: [UInt32: Pending] = [:]
  private var correlation: UInt32 = 0
  private var handshakeTimeout: Scheduled<Void>?

  init(_ eventLoop: any EventLoop, _ authenticator: StoreAuthenticator, _ opened: EventLoopPromise<Void>) {
    self.eventLoop = eventLoop
    self.authenticator = authenticator
    self.opened = opened
  }

  func request(_ kind: FrameKind, _ timeout: TimeAmount, _ fields: (inout ByteBuffer) -> Void)
    -> EventLoopFuture<
      ByteBuffer
    >
  {
    guard let context else { return eventLoop.makeFailedFuture(Self.lost) }
    correlation += 1
    let promise = eventLoop.makePromise(of: ByteBuffer.self)
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let scheduled = eventLoop.scheduleTask(in: timeout) {
      bound.value.fail(
        BackupFailure("the store did not answer within \(timeout.nanoseconds / 1_000_000_000) s")
      )
    }
    pending[correlation] = Pending(kind: kind.reply, promise: promise, timeout: scheduled)
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(kind, correlation: correlation), fields)
    context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
    return promise.futureResult
  }

  func handlerAdded(context: ChannelHandlerContext) { self.context = context }

  func channelActive(context: ChannelHandlerContext) {
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    handshakeTimeout = eventLoop.scheduleTask(in: .seconds(15)) {
      bound.value.fail(
        BackupFailure("the handshake was not done in 15 s: is this a store's port?")
      )
    }
    var buffer = ByteBuffer()
    hello.write(into: &buffer)
    context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var incoming = unwrapInboundIn(data)
    bytes.writeBuffer(&incoming)
    do {
      while let (header, payload) = try takeFrame() { try receive(header, payload, context) }
      bytes.discardReadBytes()
    } catch let failure as BackupFailure {
      fail(failure)
    } catch {
      fail(
        BackupFailure(
          "the store's answer cannot be read (\(error)): is it a store's --listen port, and of this version?"
        )
      )
    }
  }

  /// Return the next complete frame of the received bytes; nil if there is none yet.
  private func takeFrame() throws -> (header: FrameHeader, payload: ByteBuffer)? {
    // A span of a class's property would outlive the access to it.
    let held = bytes
    let next = try FrameDecoder().next(held.readableBytesSpan, at: 0)
    guard case .frame(let header, let count) = next else { return nil }
    bytes.moveReaderIndex(forwardBy: FrameHeader.byteCount)
    return bytes.readSlice(length: count).map { (header, $0) }
  }

  private func receive(_ header: FrameHeader, _ payload: ByteBuffer, _ context: ChannelHandlerContext) throws
  {
    switch header.kind {
    case .challenge:
      let challenge = try Challenge(payload.readableBytesSpan)
      guard case .prove(let proof) = authenticator.verify(challenge, hello: hello) else {
        throw BackupFailure("the store has a different secret: compare --secret-file on both sides")
      }
      var buffer = ByteBuffer()
      proof.write(into: &buffer)
      context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
    case .ready:
      handshakeTimeout?.cancel()
      opened.succeed()
    case .ping:
      var buffer = ByteBuffer()
      buffer.writeFrame(FrameHeader(.pong, correlation: header.correlation)) {
        $0.writeImmutableBuffer(payload)
      }
      context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
    case .drain: throw BackupFailure("the store is shutting down; run this again when it is back")
    case .error:
      let error = try ErrorFrame(payload.readableBytesSpan)
      let failure = Self.failure(error)
      guard let request = pending.removeValue(forKey: header.correlation) else { throw failure }
      request.timeout.cancel()
      request.promise.fail(failure)
    default:
      guard let request = pending.removeValue(forKey: header.correlation), request.kind == header.kind else {
        throw BackupFailure("the store sent an unexpected \(header.kind) frame")
      }
      request.timeout.cancel()
      request.promise.succeed(payload)
    }
  }

  private static func failure(_ error: ErrorFrame) -> BackupFailure {
    switch error.code {
    case .backupUnderWay:
      BackupFailure("backup_under_way: another backup of this store is under way; wait for it")
    case .unknownKind:
      BackupFailure("the store does not support backups: upgrade it first")
    case .authenticationFailed: BackupFailure("authentication_failed: \(error.detail)")
    default: BackupFailure("\(error.code?.name ?? "error \(error.rawCode)"): \(error.detail)")
    }
  }

  func channelInactive(context: ChannelHandlerContext) { fail(Self.lost) }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    if let error = error as? TLSError,
      let explanation = HandshakeFailures.explanation(of: error, at: .gateway)
    {
      return fail(BackupFailure("\(explanation.reason): \(explanation.remedy)"))
    }
    fail(Self.lost)
  }

  func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

  private static let lost = BackupFailure("the connection to the store was lost; run this again")

  private func fail(_ failure: BackupFailure) {
    handshakeTimeout?.cancel()
    opened.fail(failure)
    let waiting = pending.values
    pending = [:]
    for request in waiting {
      request.timeout.cancel()
      request.promise.fail(failure)
    }
    context?.close(promise: nil)
    context = nil
  }
}
