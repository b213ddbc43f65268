internal import NIOCore
internal import ReceiptWire

/// Handler of one connection to a store: splits the input into frames for its node, and writes the node's bytes.
final class StoreConnectionHandler<Delegate: StoreClientDelegate>: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  /// Nil once the node has dropped this connection; later events are ignored.
  private var node: StoreNode<Delegate>?
  private var context: ChannelHandlerContext?
  private let decoder: FrameDecoder
  /// Never longer than the frame limit.
  private var cut = CutFrame()

  init(node: StoreNode<Delegate>, lengthLimit: UInt32 = FrameHeader.lengthLimitDefault) {
    self.node = node
    self.decoder = FrameDecoder(lengthLimit: lengthLimit)
  }

  // MARK: - For the node

  func write(_ buffer: ByteBuffer) { context?.write(wrapOutboundOut(buffer), promise: nil) }
  func flush() { context?.flush() }

  /// Close the connection without further calls to its node.
  func closeSilently() {
    node = nil
    context?.close(promise: nil)
  }

  // MARK: - From the channel

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    if context.channel.isActive { node?.connectionOpened(self) }
  }

  func handlerRemoved(context: ChannelHandlerContext) {
    self.context = nil
    node = nil
  }

  func channelActive(context: ChannelHandlerContext) { node?.connectionOpened(self) }

  func channelInactive(context: ChannelHandlerContext) {
    let node = node
    self.node = nil
    node?.connectionLost(self)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard let node else { return }
    let incoming = unwrapInboundIn(data)
    node.bytesReceived(incoming.readableBytes)
    let read = incoming.readableBytesSpan
    do throws(WireError) {
      var offset = 0
      if !cut.isEmpty {
        guard let (frame, used) = try cut.complete(with: read, decoder) else { return }
        guard try deliver(frame.readableBytesSpan, to: node) != nil else { return }
        offset = used
      }
      guard let used = try deliver(read.extracting(offset..<read.byteCount), to: node) else { return }
      cut.keep(read.extracting((offset + used)..<read.byteCount))
    } catch {
      node.connectionFailed(.malformed(error))
    }
  }

  /// Deliver the complete frames in `bytes`.
  ///
  /// - Returns: the number of bytes consumed, or nil if the connection was dropped.
  private func deliver(_ bytes: RawSpan, to node: StoreNode<Delegate>) throws(WireError) -> Int? {
    var offset = 0
    while case .frame(let header, let payloadCount) = try decoder.next(bytes, at: offset) {
      let start = offset + FrameHeader.byteCount
      offset = start + payloadCount
      node.frameReceived(header, bytes.extracting(start..<offset))
      if self.node == nil { return nil }
    }
    return offset
  }

  func channelReadComplete(context: ChannelHandlerContext) { node?.readCompleted() }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    // A reset, or an error of the transport below (TLS): either way the connection is finished.
    node?.connectionErrored(self, error)
    context.close(promise: nil)
  }
}
