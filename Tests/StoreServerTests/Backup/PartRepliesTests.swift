import Logging
import NIOCore
import NIOEmbedded
import ReceiptWire
import Synchronization
import Testing

@testable import StoreServer

/// The replies of a transfer, its timeout, and the connections that a snapshot may use.
@Suite struct PartRepliesTests {
  private final class Written {
    var frames: [ByteBuffer] = []
  }

  private final class Timeouts: Sendable {
    let count = Mutex(0)
  }

  @Test func silenceIsCountedFromTheLastReply() throws {
    let loop = EmbeddedEventLoop()
    let timeouts = Timeouts()
    let written = Written()
    let replies = PartReplies(
      eventLoop: loop,
      silenceMax: .seconds(30),
      timedOut: { timeouts.count.withLock { $0 += 1 } },
      write: { written.frames.append($0) }
    )
    let header = FrameHeader(.snapshotRead, correlation: 7)
    replies.begin()
    replies.begin()
    replies.reply(header, .success(())) { _, _ in }
    // One request is still unanswered, however long its answer takes.
    loop.advanceTime(by: .minutes(10))
    replies.reply(header, .success(())) { _, _ in }
    #expect(replies.unanswered == 0 && written.frames.count == 2)
    loop.advanceTime(by: .milliseconds(29_999))
    replies.begin()
    loop.advanceTime(by: .minutes(10))
    replies.reply(header, .success(())) { _, _ in }
    loop.advanceTime(by: .milliseconds(29_999))
    #expect(timeouts.count.withLock { $0 } == 0)
    loop.advanceTime(by: .milliseconds(1))
    #expect(timeouts.count.withLock { $0 } == 1)
    try loop.syncShutdownGracefully()
  }

  @Test func closeStopsTheTimeout() throws {
    let loop = EmbeddedEventLoop()
    let timeouts = Timeouts()
    let replies = PartReplies(
      eventLoop: loop,
      silenceMax: .seconds(30),
      timedOut: { timeouts.count.withLock { $0 += 1 } },
      write: { _ in }
    )
    replies.begin()
    replies.reply(FrameHeader(.snapshotRead, correlation: 7), .success(())) { _, _ in }
    replies.cancelTimer()
    loop.advanceTime(by: .minutes(10))
    #expect(timeouts.count.withLock { $0 } == 0)
    try loop.syncShutdownGracefully()
  }

  /// Snapshots have all users' data, so none leaves the machine in plain text.
  @Test(
    arguments: [
      ("127.0.0.1", false, true), ("::1", false, true), ("192.0.2.7", false, false), ("2001:db8::7", false, false),
      ("192.0.2.7", true, true), ("127.0.0.1", true, true), (nil, true, true), (nil, false, false),
    ]
  )
  func snapshotsNeedTLSOrALoopbackAddress(_ address: String?, _ isTLS: Bool, _ isGiven: Bool) throws {
    let loop = EmbeddedEventLoop()
    let written = Written()
    let frames = SnapshotFrames(
      snapshots: Self.snapshots,
      eventLoop: loop,
      isTLS: isTLS,
      peer: try address.map { try SocketAddress(ipAddress: $0, port: 7) },
      write: { written.frames.append($0) }
    )
    // The byte too many shows whether the request is looked at.
    let header = FrameHeader(.snapshotRead, correlation: 7)
    if isGiven {
      #expect(throws: WireError.trailingBytes) { try frames.receive(header, [0].span.bytes, ServingState()) }
      #expect(written.frames.isEmpty)
    } else {
      try frames.receive(header, [0].span.bytes, ServingState())
      let frame = try #require(written.frames.first)
      let error = try ErrorFrame(frame.readableBytesSpan.extracting(droppingFirst: FrameHeader.byteCount))
      #expect(error.code == .unavailable && error.detail == "snapshots and record keys need TLS between nodes")
    }
    try loop.syncShutdownGracefully()
  }

  /// Shared by the tests, because it starts a thread.
  private static let snapshots = SnapshotServer(logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
}
