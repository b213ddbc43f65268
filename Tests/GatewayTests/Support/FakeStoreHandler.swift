import NIOCore
import NIOPosix
import ReceiptModel
import ReceiptWire

/// Answers the frames of one connection to a ``FakeStore``.
final class FakeStoreHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private let model: FakeModel
  private let decoder = FrameDecoder()
  private var received = ByteBuffer()

  init(model: FakeModel) { self.model = model }

  func channelActive(context: ChannelHandlerContext) { model.opened(context.channel) }
  func channelInactive(context: ChannelHandlerContext) { model.closed(context.channel) }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var buffer = unwrapInboundIn(data)
    received.writeBuffer(&buffer)
    var out = ByteBuffer()
    do {
      try takeFrames(into: &out)
    } catch {
      context.close(promise: nil)
    }
    if out.readableBytes > 0 { context.writeAndFlush(wrapOutboundOut(out), promise: nil) }
  }

  private func takeFrames(into out: inout ByteBuffer) throws(WireError) {
    let buffer = received
    let bytes = buffer.readableBytesSpan
    var offset = 0
    while case .frame(let header, let count) = try decoder.next(bytes, at: offset) {
      let start = offset + FrameHeader.byteCount
      try handle(header, bytes.extracting(start..<(start + count)), into: &out)
      offset = start + count
    }
    received.moveReaderIndex(forwardBy: offset)
    received.discardReadBytes()
  }

  private func handle(_ header: FrameHeader, _ payload: RawSpan, into out: inout ByteBuffer) throws(WireError) {
    switch header.kind {
    case .hello:
      _ = try Hello(payload)
      Challenge(
        nonce: .random(),
        proof: [],
        window: 1_000,
        shardCount: model.shardCount,
        store: SessionID(high: 1, low: 2)
      ).write(into: &out)
    case .proof:
      Ready(
        isResumed: false,
        sessionLifetimeMilliseconds: 600_000,
        shards: [Ready.ShardRange(first: 0, count: model.shardCount, address: "")]
      ).write(into: &out)
    case .ping:
      out.writeFrame(FrameHeader(.pong, correlation: header.correlation)) { $0.writeRaw(payload) }
    default: try model.answer(header, payload, into: &out)
    }
  }
}
