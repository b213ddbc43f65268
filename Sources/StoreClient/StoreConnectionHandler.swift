internal import NIOCore
internal import ReceiptWire

/// One connection to a store: cuts what comes in into frames for its client, and writes what the client hands
/// it.
final class StoreConnectionHandler<Delegate: StoreClientDelegate>: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  /// nil once the client has given this connection up: nothing that happens to it is of interest any more.
  private var client: StoreClient<Delegate>?
  private var context: ChannelHandlerContext?
  private let decoder: FrameDecoder
  /// The start of a frame whose rest has not come. Never longer than the frame limit and one read.
  private var partial = ByteBuffer()

  init(client: StoreClient<Delegate>, lengthLimit: UInt32 = FrameHeader.lengthLimitDefault) {
    self.client = client
    self.decoder = FrameDecoder(lengthLimit: lengthLimit)
  }

  // MARK: - For the client

  func write(_ buffer: ByteBuffer) { context?.write(wrapOutboundOut(buffer), promise: nil) }
  func flush() { context?.flush() }

  /// Closes the connection; its client hears no more of it.
  func abandon() {
    client = nil
    context?.close(promise: nil)
  }

  // MARK: - From the channel

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    if context.channel.isActive { client?.connectionOpened(self) }
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    self.context = nil
    client = nil
  }

  func channelActive(context: ChannelHandlerContext) { client?.connectionOpened(self) }

  func channelInactive(context: ChannelHandlerContext) {
    let client = client
    self.client = nil
    client?.connectionLost(self)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard let client else { return }
    let incoming = unwrapInboundIn(data)
    client.bytesReceived(incoming.readableBytes)
    // The bytes are worked on where a call back from the client cannot reach them.
    if partial.readableBytes == 0 {
      guard let used = deliver(incoming.readableBytesSpan, to: client) else { return }
      if used < incoming.readableBytes {
        partial.clear()
        partial.writeRaw(incoming.readableBytesSpan.extracting(used..<incoming.readableBytes))
      }
    } else {
      var bytes = ByteBuffer()
      swap(&bytes, &partial)
      bytes.writeImmutableBuffer(incoming)
      guard let used = deliver(bytes.readableBytesSpan, to: client) else { return }
      bytes.moveReaderIndex(forwardBy: used)
      bytes.discardReadBytes()
      partial = bytes
    }
  }

  /// Hands over the whole frames in `bytes`.
  ///
  /// - Returns: how many bytes they took, or nil where the connection was given up.
  private func deliver(_ bytes: RawSpan, to client: StoreClient<Delegate>) -> Int? {
    var offset = 0
    do throws(WireError) {
      while case .frame(let header, let payloadCount) = try decoder.next(bytes, at: offset) {
        let start = offset + FrameHeader.byteCount
        offset = start + payloadCount
        client.frameReceived(header, bytes.extracting(start..<offset))
        if self.client == nil { return nil }
      }
    } catch {
      client.connectionFailed(.malformed(error))
      return nil
    }
    return offset
  }

  func channelReadComplete(context: ChannelHandlerContext) { client?.readCompleted() }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    // A reset, or a fault of the transport below (TLS): either way this connection is done.
    client?.connectionErrored(self, error)
    context.close(promise: nil)
  }
}
