import NIOCore
import NIOPosix
import Operations
import StoreTestSupport
import TestSupport

/// A server whose HTTP/2 frames are made by hand: every call gets the same answer.
enum ScriptedServer {
  enum Answer: Sendable {
    /// Frames of the call's stream.
    case frames([Frame])
    /// The same, each byte written by itself.
    case bytewise([Frame])
    /// Bytes in place of HTTP/2, as soon as the client connects.
    case raw(String)
  }

  /// A frame of the call's stream, or of the connection.
  struct Frame: Sendable {
    var type: UInt8
    var flags: UInt8 = 0
    var ofConnection = false
    var payload: [UInt8] = []

    static func headers(_ fields: [(String, String)], isLast: Bool = false) -> Frame {
      Frame(type: 1, flags: isLast ? 5 : 4, payload: fields.flatMap { Self.field($0.0, $0.1) })
    }

    static func data(_ bytes: [UInt8]) -> Frame { Frame(type: 0, payload: bytes) }

    static func reset(_ code: UInt8) -> Frame { Frame(type: 3, payload: [0, 0, 0, code]) }

    static let goAway = Frame(type: 7, ofConnection: true, payload: [0, 0, 0, 0, 0, 0, 0, 0])

    /// A literal field without indexing (RFC 7541 section 6.2.2).
    private static func field(_ name: String, _ value: String) -> [UInt8] {
      [0, UInt8(name.utf8.count)] + Array(name.utf8) + [UInt8(value.utf8.count)] + Array(value.utf8)
    }

    func bytes(stream: UInt32) -> [UInt8] {
      var buffer = ByteBuffer()
      buffer.writeInteger(UInt8(payload.count >> 16))
      buffer.writeInteger(UInt16(truncatingIfNeeded: payload.count))
      buffer.writeInteger(type)
      buffer.writeInteger(flags)
      buffer.writeInteger(ofConnection ? 0 : stream)
      buffer.writeBytes(payload)
      return Array(buffer.readableBytesView)
    }
  }

  /// Run a server while `body` runs.
  static func with<Value>(_ answer: Answer, body: (Endpoint) async throws -> Value) async throws -> Value {
    let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(Handler(answer))
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    guard let port = channel.localAddress?.port else { throw Unexpected("the server has no port") }
    let result: Result<Value, any Error>
    do {
      result = .success(try await body(Endpoint(host: "127.0.0.1", port: port)))
    } catch {
      result = .failure(error)
    }
    try await channel.close()
    return try result.get()
  }

  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private static let prefaceBytes = 24
    private static let frameHeaderBytes = 9

    private let answer: Answer
    private var received = ByteBuffer()
    private var hasPreface = false

    init(_ answer: Answer) { self.answer = answer }

    func channelActive(context: ChannelHandlerContext) {
      if case .raw(let text) = answer {
        write(Array(text.utf8), context)
      } else {
        write(Frame(type: 4, ofConnection: true).bytes(stream: 0), context)
      }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      received.writeImmutableBuffer(unwrapInboundIn(data))
      if !hasPreface {
        guard received.readableBytes >= Self.prefaceBytes else { return }
        received.moveReaderIndex(forwardBy: Self.prefaceBytes)
        hasPreface = true
      }
      while let head = received.getBytes(at: received.readerIndex, length: Self.frameHeaderBytes) {
        let count = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
        guard received.readableBytes >= Self.frameHeaderBytes + count else { return }
        received.moveReaderIndex(forwardBy: Self.frameHeaderBytes + count)
        let stream = head[5...].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        if head[3] == 4, head[4] == 0 {
          write(Frame(type: 4, flags: 1, ofConnection: true).bytes(stream: 0), context)
        }
        if head[3] == 1 { respond(stream, context) }
      }
    }

    private func respond(_ stream: UInt32, _ context: ChannelHandlerContext) {
      switch answer {
      case .frames(let frames): write(frames.flatMap { $0.bytes(stream: stream) }, context)
      case .bytewise(let frames):
        for byte in frames.flatMap({ $0.bytes(stream: stream) }) { write([byte], context) }
      case .raw: break
      }
    }

    private func write(_ bytes: [UInt8], _ context: ChannelHandlerContext) {
      context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
    }
  }
}
