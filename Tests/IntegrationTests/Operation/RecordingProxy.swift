import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A TCP proxy on loopback that records the bytes it forwards, like an eavesdropper between two processes.
final class RecordingProxy: Sendable {
  private let recording: NIOLockedValueBox<[UInt8]>
  private let listener: any Channel

  var port: Int { listener.localAddress?.port ?? 0 }
  /// The bytes of all connections, both ways, in the order of arrival.
  var bytes: [UInt8] { recording.withLockedValue { $0 } }

  private init(_ listener: any Channel, _ recording: NIOLockedValueBox<[UInt8]>) {
    self.listener = listener
    self.recording = recording
  }

  static func start(to port: Int) async throws -> RecordingProxy {
    let recording = NIOLockedValueBox<[UInt8]>([])
    let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .childChannelInitializer { channel in
        let eventLoop = channel.eventLoop
        let front = NIOLoopBound(Side(recording), eventLoop: eventLoop)
        // On the same loop, so that the two sides may call each other.
        return ClientBootstrap(group: eventLoop).channelInitializer { back in
          eventLoop.makeCompletedFuture {
            let other = Side(recording)
            other.peer = channel
            front.value.peer = back
            try back.pipeline.syncOperations.addHandler(other)
          }
        }.connect(host: "127.0.0.1", port: port).flatMapThrowing { _ in
          try channel.pipeline.syncOperations.addHandler(front.value)
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    return RecordingProxy(listener, recording)
  }

  func stop() async { try? await listener.close() }

  /// Whether a text was forwarded in cleartext.
  func hasSeen(_ text: String) -> Bool { Data(bytes).range(of: Data(text.utf8)) != nil }

  private final class Side: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let recording: NIOLockedValueBox<[UInt8]>
    var peer: (any Channel)?

    init(_ recording: NIOLockedValueBox<[UInt8]>) { self.recording = recording }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      let buffer = unwrapInboundIn(data)
      recording.withLockedValue { $0 += buffer.readableBytesView }
      peer?.writeAndFlush(buffer, promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
      peer?.close(promise: nil)
      peer = nil
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
  }
}
