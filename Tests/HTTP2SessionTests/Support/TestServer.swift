import HTTP2Session
import NIOCore
import NIOEmbedded

/// Answers by the request's path, and logs the delegate's calls.
final class TestDelegate: HTTP2ServerDelegate {
  var log: [String] = []
  var held: [HTTP2StreamHandle] = []
  var onAnnounced: ((HTTP2StreamHandle, HTTP2ServerConnection<TestDelegate>) -> Bool)?
  var onBody: ((HTTP2StreamHandle, HTTP2ServerConnection<TestDelegate>) -> Void)?
  var onRequest: ((HTTP2StreamHandle, HTTP2ServerConnection<TestDelegate>) -> Void)?

  func http2RequestAnnounced(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<TestDelegate>
  ) -> Bool {
    onAnnounced?(stream, connection) ?? true
  }

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<TestDelegate>) {
    var path = ""
    var status = 200
    connection.withRequest(stream) { request in
      path = text(request.path)
      log.append("\(request.method) \(path) \(request.body.byteCount)")
      if request.headersTooLarge { status = 431 }
      if request.bodyTooLarge { status = 413 }
    }
    if let onRequest { return onRequest(stream, connection) }
    if path == "/hold" && status == 200 {
      held.append(stream)
    } else {
      connection.respond(stream, status: status, contentType: .text) { $0.writeStaticString("0123456789") }
    }
  }

  func http2RequestBodyReceived(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<TestDelegate>
  ) {
    onBody?(stream, connection)
  }

  func http2StreamAborted(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<TestDelegate>) {
    log.append("aborted")
    held.removeAll { $0 == stream }
  }

  func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<TestDelegate>) {
    log.append("drained")
  }

  func http2ConnectionClosed(_ connection: HTTP2ServerConnection<TestDelegate>) { log.append("closed") }
}

func text(_ span: RawSpan) -> String { span.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }

/// A server connection in memory, with the frames that it has sent.
final class TestServer {
  static let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)

  let channel = EmbeddedChannel()
  let delegate = TestDelegate()
  let connection: HTTP2ServerConnection<TestDelegate>
  private var output: [UInt8] = []
  private(set) var frames: [Frame] = []
  /// The sizes of the connection's writes.
  private(set) var writes: [Int] = []

  init(
    limits: HTTP2Limits = HTTP2Limits(),
    preface: Bool = true,
    streamedContentTypes: [HTTP2ContentType] = [],
    resources: HTTP2ServerResources? = nil,
    isShared: Bool = false,
    isAuthenticated: Bool = true
  ) throws {
    connection = HTTP2ServerConnection(
      delegate: delegate,
      resources: resources ?? HTTP2ServerResources(limits: limits, streamedContentTypes: streamedContentTypes)
    )
    connection.isShared = isShared
    if isAuthenticated { connection.markAuthenticated() }
    try channel.pipeline.syncOperations.addHandler(connection)
    channel.connect(to: try SocketAddress(ipAddress: "127.0.0.1", port: 1), promise: nil)
    if preface {
      send(TestServer.preface + settings().bytes + settings(ack: true).bytes)
      frames = []
      writes = []
    }
  }

  deinit { _ = try? channel.finish(acceptAlreadyClosed: true) }

  var isClosed: Bool { !channel.isActive }

  /// Deliver bytes in one read.
  func send(_ bytes: [UInt8]) {
    if channel.isActive { _ = try? channel.writeInbound(ByteBuffer(bytes: bytes)) }
    collect()
  }

  func send(_ frames: Frame...) { send(frames.flatMap(\.bytes)) }

  func collect() {
    channel.embeddedEventLoop.run()
    while let buffer = try? channel.readOutbound(as: ByteBuffer.self) {
      writes.append(buffer.readableBytes)
      output += Array(buffer.readableBytesView)
    }
    frames += Frame.parse(&output)
  }

  func takeFrames() -> [Frame] {
    defer { frames = [] }
    return frames
  }

  func frames(_ kind: Frame.Kind, stream: Int32? = nil) -> [Frame] {
    frames.filter { $0.kind == kind && (stream == nil || $0.stream == stream) }
  }

  func status(_ stream: Int32) -> Int? {
    frames(.headers, stream: stream).first.flatMap { HPACK.status($0.payload) }
  }

  func body(_ stream: Int32) -> [UInt8] { frames(.data, stream: stream).flatMap(\.payload) }

  /// Whether the peer has received the end of this stream's response.
  func isEnded(_ stream: Int32) -> Bool {
    (frames(.data, stream: stream) + frames(.headers, stream: stream)).contains {
      $0.flags & Frame.endStream != 0
    }
  }

  func advance(_ time: TimeAmount) {
    channel.embeddedEventLoop.advanceTime(by: time)
    collect()
  }
}
