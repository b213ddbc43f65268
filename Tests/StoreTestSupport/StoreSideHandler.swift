package import NIOCore
package import ReceiptModel
package import ReceiptWire

/// The store's side of one connection, after the handshake.
package protocol StoreSideConnection: AnyObject {
  /// Handle the end of the handshake.
  func opened(session: SessionID, on channel: any Channel)
  /// Handle a frame; write the reply to `output`, unless it comes later.
  ///
  /// - Returns: false to close the connection at once. Nothing more is written then.
  func received(_ header: FrameHeader, _ payload: ByteBuffer, _ output: inout ByteBuffer) throws -> Bool
  /// Handle the end of a read, after its last frame.
  func readEnded()
  /// Handle the end of the connection.
  func closed()
}

extension StoreSideConnection {
  package func opened(session: SessionID, on channel: any Channel) {}
  package func readEnded() {}
  package func closed() {}
}

/// The channel handler of a store's side in a test: ``StoreInMemory``, or a fake with faults. It completes the
/// handshake without secrets, answers pings, and passes all other frames on.
package final class StoreSideHandler: ChannelInboundHandler {
  package typealias InboundIn = ByteBuffer
  package typealias OutboundOut = ByteBuffer

  /// The store's properties in the handshake.
  package struct Terms: Sendable {
    package var shardCount: Int
    package var window: UInt32
    package var store: SessionID

    package init(shardCount: Int, window: UInt32 = 1_000, store: SessionID = SessionID(high: 1, low: 2)) {
      self.shardCount = shardCount
      self.window = window
      self.store = store
    }
  }

  private let terms: Terms
  private let connection: any StoreSideConnection
  private let failed: @Sendable (any Error) -> Void
  private var session = SessionID(high: 0, low: 0)
  private var input = ByteBuffer()
  private var isClosed = false

  /// - Parameter failed: called with the error of an unreadable frame; the connection is closed then.
  package init(
    _ terms: Terms,
    _ connection: any StoreSideConnection,
    failed: @escaping @Sendable (any Error) -> Void = { _ in }
  ) {
    self.terms = terms
    self.connection = connection
    self.failed = failed
  }

  package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    input.writeImmutableBuffer(unwrapInboundIn(data))
    var output = ByteBuffer()
    do {
      while !isClosed, case .frame(let header, let count) = try FrameDecoder().next(input.readableBytesSpan, at: 0) {
        input.moveReaderIndex(forwardBy: FrameHeader.byteCount)
        guard try received(header, input.readSlice(length: count)!, context.channel, &output) else {
          return close(context)
        }
      }
      input.discardReadBytes()
    } catch {
      failed(error)
      return close(context)
    }
    if output.readableBytes > 0 { context.writeAndFlush(wrapOutboundOut(output), promise: nil) }
    connection.readEnded()
  }

  package func channelInactive(context: ChannelHandlerContext) {
    isClosed = true
    connection.closed()
  }

  private func received(
    _ header: FrameHeader,
    _ payload: ByteBuffer,
    _ channel: any Channel,
    _ output: inout ByteBuffer
  ) throws -> Bool {
    switch header.kind {
    case .hello:
      session = try Hello(payload.readableBytesSpan).session
      Challenge(
        nonce: .random(),
        proof: [],
        window: terms.window,
        shardCount: UInt32(terms.shardCount),
        store: terms.store
      ).write(into: &output)
    case .proof:
      connection.opened(session: session, on: channel)
      let shards = Ready.ShardRange(first: 0, count: UInt32(terms.shardCount), address: "")
      Ready(isResumed: false, sessionLifetimeMilliseconds: 600_000, shards: [shards]).write(into: &output)
    case .ping:
      output.writeFrame(FrameHeader(.pong, correlation: header.correlation)) { $0.writeImmutableBuffer(payload) }
    default:
      return try connection.received(header, payload, &output)
    }
    return true
  }

  private func close(_ context: ChannelHandlerContext) {
    isClosed = true
    context.close(promise: nil)
  }
}
