import NIOCore
import NIOEmbedded
import Testing

@testable import TLSSession

/// Records the events above the TLS handler.
private final class Recorder: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  var text = ""
  var errors: [TLSError] = []
  var established: TLSEstablished?
  var isInactive = false

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    text += String(buffer: unwrapInboundIn(data))
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    if let error = error as? TLSError { errors.append(error) }
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if let event = event as? TLSEstablished { established = event }
  }

  func channelInactive(context: ChannelHandlerContext) { isInactive = true }
}

private final class End {
  let channel = EmbeddedChannel()
  let recorder = Recorder()

  init(_ context: TLSContext, serverName: String? = nil) throws {
    try channel.pipeline.syncOperations.addHandler(TLSHandler(context: context, serverName: serverName))
    try channel.pipeline.syncOperations.addHandler(recorder)
  }

  func connect() throws {
    channel.connect(to: try SocketAddress(ipAddress: "127.0.0.1", port: 1), promise: nil)
  }

  deinit { _ = try? channel.finish(acceptAlreadyClosed: true) }
}

/// Deliver bytes between two channels until none are left.
private func run(_ a: End, _ b: End) {
  var moved = true
  while moved {
    moved = false
    for (from, to) in [(a, b), (b, a)] {
      from.channel.embeddedEventLoop.run()
      while let bytes = try? from.channel.readOutbound(as: ByteBuffer.self) {
        moved = true
        if to.channel.isActive { _ = try? to.channel.writeInbound(bytes) }
      }
    }
  }
}

@Suite("TLS handler")
struct TLSHandlerTests {
  private func pair() throws -> (client: End, server: End) {
    let client = try End(Contexts.client(), serverName: "localhost")
    let server = try End(Contexts.server())
    try server.connect()
    try client.connect()
    return (client, server)
  }

  @Test("writes before the handshake wait for it, with their promises")
  func writesBeforeHandshakeWaitForIt() throws {
    let (client, server) = try pair()
    var done: [Int] = []
    for (index, text) in ["one ", "two ", "three"].enumerated() {
      let promise = client.channel.eventLoop.makePromise(of: Void.self)
      promise.futureResult.assumeIsolated().whenSuccess { done.append(index) }
      client.channel.pipeline.syncOperations.write(NIOAny(ByteBuffer(string: text)), promise: promise)
    }
    client.channel.pipeline.syncOperations.flush()
    #expect(done.isEmpty)
    run(client, server)
    #expect(server.recorder.text == "one two three")
    #expect(done.sorted() == [0, 1, 2])
    #expect(server.recorder.established?.applicationProtocol == "h2")
    #expect(client.recorder.established?.version == "TLSv1.3")
  }

  @Test("several writes in one flush are sent in one buffer")
  func severalWritesInOneFlushAreSentInOneBuffer() throws {
    let (client, server) = try pair()
    run(client, server)
    for text in ["one ", "two "] {
      client.channel.pipeline.syncOperations.write(NIOAny(ByteBuffer(string: text)), promise: nil)
    }
    #expect(try client.channel.readOutbound(as: ByteBuffer.self) == nil)
    client.channel.pipeline.syncOperations.flush()
    let bytes = try #require(try client.channel.readOutbound(as: ByteBuffer.self))
    #expect(try client.channel.readOutbound(as: ByteBuffer.self) == nil)
    _ = try server.channel.writeInbound(bytes)
    #expect(server.recorder.text == "one two ")
  }

  @Test("closing sends close_notify, and the peer closes without an error")
  func closingSendsCloseNotify() throws {
    let (client, server) = try pair()
    run(client, server)
    client.channel.pipeline.syncOperations.writeAndFlush(NIOAny(ByteBuffer(string: "last")), promise: nil)
    client.channel.close(promise: nil)
    run(client, server)
    #expect(server.recorder.text == "last")
    #expect(!server.channel.isActive && server.recorder.isInactive)
    #expect(server.recorder.errors.isEmpty && client.recorder.errors.isEmpty)
  }

  @Test("a truncated connection is reported")
  func truncatedConnectionIsReported() throws {
    let (client, server) = try pair()
    run(client, server)
    server.channel.pipeline.fireChannelInactive()
    #expect(server.recorder.errors == [.truncated])
    _ = client
  }

  @Test("a failed handshake sends its alert, reports and closes")
  func failedHandshakeSendsAlert() throws {
    let client = try End(Contexts.client(authority: "other-ca"), serverName: "localhost")
    let server = try End(Contexts.server())
    try server.connect()
    try client.connect()
    let promise = client.channel.eventLoop.makePromise(of: Void.self)
    var failed: (any Error)?
    promise.futureResult.assumeIsolated().whenFailure { failed = $0 }
    client.channel.pipeline.syncOperations.writeAndFlush(NIOAny(ByteBuffer(string: "x")), promise: promise)
    run(client, server)
    #expect(client.recorder.errors == [.certificate(reason: "unable to get local issuer certificate")])
    #expect(failed as? TLSError == client.recorder.errors.first)
    #expect(!client.channel.isActive && !server.channel.isActive)
    #expect(server.recorder.errors.count == 1)
  }

  @Test("a slow handshake times out")
  func slowHandshakeTimesOut() throws {
    let server = try End(Contexts.server())
    try server.connect()
    _ = try server.channel.writeInbound(ByteBuffer(bytes: [0x16, 3, 1]))
    server.channel.embeddedEventLoop.advanceTime(by: .seconds(9))
    #expect(server.channel.isActive)
    server.channel.embeddedEventLoop.advanceTime(by: .seconds(2))
    #expect(!server.channel.isActive)
    #expect(server.recorder.errors == [.handshakeTimeout])
  }

  @Test("the timeout is cancelled after the handshake")
  func timeoutIsCancelledAfterHandshake() throws {
    let (client, server) = try pair()
    run(client, server)
    server.channel.embeddedEventLoop.advanceTime(by: .seconds(60))
    #expect(server.channel.isActive)
    _ = client
  }
}
