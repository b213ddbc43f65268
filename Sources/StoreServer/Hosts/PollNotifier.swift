internal import Glibc
internal import NIOCore
internal import NIOPosix

/// Runs a callback on its event loop, but only after the loop has polled its sockets. It writes to a pipe whose other
/// end the loop polls. Scheduled and immediate tasks run before the poll, and while any are due no socket is read.
///
/// Call everything on the event loop.
final class PollNotifier {
  private let eventLoop: any EventLoop
  private let onEvent: () -> Void
  /// Write end of the pipe; −1 before it is open and after it is closed.
  private var descriptor: CInt = -1
  private var channel: (any Channel)?
  private var isClosed = false

  init(eventLoop: any EventLoop, onEvent: @escaping () -> Void) {
    self.eventLoop = eventLoop
    self.onEvent = onEvent
  }

  func open() {
    var ends: [CInt] = [-1, -1]
    guard pipe(&ends) == 0 else { return }
    let (input, output) = (ends[0], ends[1])
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    // The pipe never holds more than one byte, but a write must not block in any case.
    _ = fcntl(output, F_SETFL, O_NONBLOCK)
    let notifier = NIOLoopBound(self, eventLoop: eventLoop)
    NIOPipeBootstrap(group: eventLoop)
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(Listener { notifier.value.onEvent() })
        }
      }
      .takingOwnershipOfDescriptor(input: input)
      .whenComplete { notifier.value.opened($0, output) }
  }

  private func opened(_ result: Result<any Channel, any Error>, _ output: CInt) {
    if case .success(let channel) = result {
      guard isClosed else {
        self.channel = channel
        descriptor = output
        return
      }
      channel.close(promise: nil)
    }
    _ = Glibc.close(output)
  }

  /// Schedule one callback.
  func notify() {
    var byte: UInt8 = 0
    if descriptor >= 0, write(descriptor, &byte, 1) == 1 { return }
    let notifier = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.scheduleTask(in: .microseconds(20)) { notifier.value.onEvent() }
  }

  func close() {
    isClosed = true
    guard descriptor >= 0 else { return }
    _ = Glibc.close(descriptor)
    descriptor = -1
    channel?.close(promise: nil)
    channel = nil
  }

  private final class Listener: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let onReadable: () -> Void

    init(onReadable: @escaping () -> Void) { self.onReadable = onReadable }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { onReadable() }
  }
}
