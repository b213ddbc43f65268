import Glibc
import NIOCore
import NIOPosix

/// Calls back on its event loop, but only after the loop has looked at its sockets: by way of a pipe, whose end is one
/// of the descriptors that it looks at. Tasks and times that are due have their turn before that, and as long as some
/// are there nothing is read from a socket.
///
/// Everything is called on the event loop.
final class SliceBell {
  private let eventLoop: any EventLoop
  private let answer: () -> Void
  /// The end that is written to; −1: there is none yet, or none any more.
  private var descriptor: CInt = -1
  private var channel: (any Channel)?
  private var isClosed = false

  init(eventLoop: any EventLoop, answer: @escaping () -> Void) {
    self.eventLoop = eventLoop
    self.answer = answer
  }

  func open() {
    var ends: [CInt] = [-1, -1]
    guard pipe(&ends) == 0 else { return }
    let (input, output) = (ends[0], ends[1])
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    // One byte is in it at most; all the same nothing may block here.
    _ = fcntl(output, F_SETFL, O_NONBLOCK)
    let bell = NIOLoopBound(self, eventLoop: eventLoop)
    NIOPipeBootstrap(group: eventLoop)
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(Listener { bell.value.answer() })
        }
      }
      .takingOwnershipOfDescriptor(input: input)
      .whenComplete { bell.value.opened($0, output) }
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

  /// Has the answer called once.
  func ring() {
    var byte: UInt8 = 0
    if descriptor >= 0, write(descriptor, &byte, 1) == 1 { return }
    let bell = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.scheduleTask(in: .microseconds(20)) { bell.value.answer() }
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
    private let heard: () -> Void

    init(heard: @escaping () -> Void) { self.heard = heard }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { heard() }
  }
}
