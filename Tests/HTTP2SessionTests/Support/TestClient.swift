import HTTP2Session
import NIOCore
import NIOEmbedded

final class TestClient: HTTP2ClientDelegate {
  var log: [String] = []
  var isReady = false
  /// Trailer values of each response, by name.
  var trailers: [String: [String?]] = [:]
  var headerStatus: [String] = []
  var onReadComplete: ((HTTP2ClientConnection<TestClient>) -> Void)?

  func http2ReadComplete(on connection: HTTP2ClientConnection<TestClient>) { onReadComplete?(connection) }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<TestClient>
  ) {
    log.append("\(tag) \(response.status) \(text(response.contentType)) \(text(response.body))")
    for (name, value) in [
      ("grpc-status", response.trailer("grpc-status")), ("grpc-message", response.trailer("grpc-message")),
    ] {
      trailers[name, default: []].append(value.map { String(decoding: $0, as: UTF8.self) })
    }
    if let status = response.header("grpc-status") { headerStatus.append(text(status)) }
  }

  func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<TestClient>
  ) {
    log.append("\(tag) part \(text(response.body))")
  }

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<TestClient>) {
    log.append("\(tag) failed \(errorCode)")
  }

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<TestClient>) { isReady = true }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<TestClient>) { log.append("closed") }
}

/// Our client and our server, connected in memory.
final class Pair {
  let server: TestServer
  let channel = EmbeddedChannel()
  let delegate = TestClient()
  let client: HTTP2ClientConnection<TestClient>
  let template = HTTP2RequestTemplate(
    method: .get,
    scheme: "http",
    authority: "localhost",
    authorization: "Bearer t",
    headers: [("x-a", "1")]
  )
  let posting = HTTP2RequestTemplate(
    method: .post,
    scheme: "http",
    authority: "localhost",
    contentType: "application/json"
  )

  init(
    limits: HTTP2Limits = HTTP2Limits(),
    clientLimits: HTTP2ClientLimits = HTTP2ClientLimits(),
    streamedContentTypes: [HTTP2ContentType] = []
  ) throws {
    server = try TestServer(limits: limits, preface: false, streamedContentTypes: streamedContentTypes)
    client = HTTP2ClientConnection(delegate: delegate, resources: HTTP2ClientResources(limits: clientLimits))
    try channel.pipeline.syncOperations.addHandler(client)
    channel.connect(to: try SocketAddress(ipAddress: "127.0.0.1", port: 1), promise: nil)
    run()
  }

  deinit { _ = try? channel.finish(acceptAlreadyClosed: true) }

  /// Deliver bytes in both directions until none are left.
  func run() {
    client.flushIfNeeded()
    var moved = true
    while moved {
      moved = false
      channel.embeddedEventLoop.run()
      // Long answers are written in turns (``LoopTurns``).
      server.channel.embeddedEventLoop.advanceTime(by: .milliseconds(1))
      while let bytes = try? channel.readOutbound(as: ByteBuffer.self) {
        moved = true
        if server.channel.isActive { _ = try? server.channel.writeInbound(bytes) }
      }
      while let bytes = try? server.channel.readOutbound(as: ByteBuffer.self) {
        moved = true
        if channel.isActive { _ = try? channel.writeInbound(bytes) }
      }
    }
  }
}

/// Our client, and a server whose frames are made by hand.
final class RawServerPair {
  let channel = EmbeddedChannel()
  let delegate = TestClient()
  let client: HTTP2ClientConnection<TestClient>
  let template = HTTP2RequestTemplate(method: .post, scheme: "http", authority: "localhost")
  private var output: [UInt8] = []

  init(_ limits: HTTP2ClientLimits = HTTP2ClientLimits()) throws {
    client = HTTP2ClientConnection(delegate: delegate, resources: HTTP2ClientResources(limits: limits))
    try channel.pipeline.syncOperations.addHandler(client)
    channel.connect(to: try SocketAddress(ipAddress: "127.0.0.1", port: 1), promise: nil)
    try receive([Frame(.settings, stream: 0), Frame(.settings, flags: Frame.ack, stream: 0)])
  }

  deinit { _ = try? channel.finish(acceptAlreadyClosed: true) }

  func receive(_ frames: [Frame], pieceBytes: Int = .max) throws {
    client.flushIfNeeded()
    var bytes = frames.flatMap(\.bytes)[...]
    while !bytes.isEmpty {
      try channel.writeInbound(ByteBuffer(bytes: bytes.prefix(pieceBytes)))
      bytes = bytes.dropFirst(pieceBytes)
    }
  }

  /// The frames that the client has sent since the last call, after its connection preface.
  func sent() throws -> [Frame] {
    while let bytes = try channel.readOutbound(as: ByteBuffer.self) { output += bytes.readableBytesView }
    let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)
    if output.starts(with: preface) { output.removeFirst(preface.count) }
    return Frame.parse(&output)
  }
}
