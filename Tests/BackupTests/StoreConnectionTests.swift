import Dispatch
import Glibc
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ReceiptWire
import Synchronization
import Testing

@testable import Backup

/// Requests of a backup to a store whose connection breaks.
@Suite struct StoreConnectionTests {
  /// The store resets the connection between the making of a request and its write, so that the write itself fails.
  @Test func requestFailsWhenItsWriteFails() async throws {
    let store = try await ResettingStore.start()
    let connection = try await StoreConnection.open(store.endpoint, secrets: [], tls: nil)
    await #expect(throws: BackupFailure("the connection to the store was lost; run this again")) {
      // The closure runs on the connection's event loop, before the write.
      _ = try await connection.request(.backupBegin, timeout: .seconds(30)) { _ in store.reset() }
    }
    await connection.close()
    try await store.stop()
  }
}

/// A fake store that completes the handshake and then resets its connection.
private final class ResettingStore: Sendable {
  /// Its own: ``reset()`` blocks an event loop of the client.
  private let group: MultiThreadedEventLoopGroup
  private let listener: any Channel
  private let accepted: Accepted

  private init(_ group: MultiThreadedEventLoopGroup, _ listener: any Channel, _ accepted: Accepted) {
    self.group = group
    self.listener = listener
    self.accepted = accepted
  }

  var endpoint: Endpoint { Endpoint(host: "127.0.0.1", port: listener.localAddress!.port!) }

  static func start() async throws -> ResettingStore {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let accepted = Accepted()
    let listener = try await ServerBootstrap(group: group)
      .childChannelInitializer { channel in
        accepted.channel.withLock { $0 = channel }
        return channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(Handler())
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    return ResettingStore(group, listener, accepted)
  }

  /// Reset the connection; return when it is closed.
  func reset() {
    guard let channel = accepted.channel.withLock({ $0 }), let options = channel as? any SocketOptionProvider
    else {
      Issue.record("there is no connection to reset")
      return
    }
    let closed = DispatchSemaphore(value: 0)
    channel.closeFuture.whenComplete { _ in closed.signal() }
    // With a linger time of 0, closing sends RST instead of FIN.
    options.setSoLinger(linger(l_onoff: 1, l_linger: 0)).whenComplete { _ in channel.close(promise: nil) }
    closed.wait()
  }

  func stop() async throws {
    try await listener.close()
    try await group.shutdownGracefully()
  }

  /// The accepted connection.
  private final class Accepted: Sendable {
    let channel = Mutex<(any Channel)?>(nil)
  }

  /// Answers hello with a challenge, and the proof with ready.
  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private var hasChallenged = false

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      var output = ByteBuffer()
      if hasChallenged {
        Ready(
          isResumed: false,
          sessionLifetimeMilliseconds: 600_000,
          shards: [Ready.ShardRange(first: 0, count: 1, address: "")]
        ).write(into: &output)
      } else {
        hasChallenged = true
        Challenge(nonce: .random(), proof: [], window: 16, shardCount: 1, store: SessionID(high: 1, low: 1))
          .write(into: &output)
      }
      context.writeAndFlush(wrapOutboundOut(output), promise: nil)
    }
  }
}
