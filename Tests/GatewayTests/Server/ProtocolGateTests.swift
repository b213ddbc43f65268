import Foundation
import NIOCore
import NIOPosix
import Operations
import Testing

@testable import Gateway

/// Protocol detection from a connection's first bytes: HTTP/2, HTTP/1, or neither.
@Suite struct ProtocolGateTests {
  private static let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

  /// First bytes with their outcome in the clear, and over TLS without `h2`.
  private static let table: [(String, clear: String, tls: String)] = [
    (preface, "http2", "close"), (preface + "\u{0}\u{0}", "http2", "close"), ("", "wait", "wait"),
    ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", "refuse", "refuse"), ("GET / HTTP/1.0\n\n", "refuse", "refuse"),
    ("POST /v1/channels/a:b/read HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}", "refuse", "refuse"),
    ("HEAD / HTTP/1.1\r\n\r\n", "refuse head", "refuse head"),
    ("HEADS / HTTP/1.1\r\n\r\n", "refuse", "refuse"),
    ("PUT / HTTP/1.1\r\n\r\n", "refuse", "refuse"), ("PROPFIND / HTTP/1.1\r\n\r\n", "refuse", "refuse"),
    ("PRI * HTTP/1.1\r\n\r\n", "refuse", "refuse"), ("PRI / HTTP/1.1\r\n\r\n", "refuse", "refuse"),
    ("OPTIONS * HTTP/1.1\r\n\r\n", "refuse", "refuse"), ("get / http/1.1\r\n\r\n", "refuse", "refuse"),
    ("GET / HTTP/1.1\r\nupgrade: h2c\r\n\r\n", "refuse", "refuse"),
    // Incomplete heads.
    ("G", "awaitHead", "awaitHead"), ("GET / HT", "awaitHead", "awaitHead"),
    ("GET / HTTP/1.1\r\nhost: x\r\n", "awaitHead", "awaitHead"), ("P", "wait", "wait"),
    ("PRI * ", "wait", "wait"),
    // Neither protocol.
    ("\u{16}\u{3}\u{1}", "http2", "close"), ("\u{1}garbage", "http2", "close"), (" GET /", "http2", "close"),
    ("\r\n\r\n", "http2", "close"), ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\u{0}", "http2", "close"),
    ("PR\u{0}", "http2", "close"), ("{}", "http2", "close"),
  ]

  private static func name(_ action: ProtocolGate.Action) -> String {
    switch action {
    case .wait: "wait"
    case .passOn: "http2"
    case .awaitHead: "awaitHead"
    case .refuse(let isHead): isHead ? "refuse head" : "refuse"
    case .close: "close"
    case .drop: "discard"
    }
  }

  /// The outcome of bytes in pieces: the first action other than waiting, else the last one.
  private static func outcome(_ bytes: [UInt8], pieces: [Int], takesHTTP2: Bool) -> String {
    var gate = ProtocolGate(takesHTTP2: takesHTTP2)
    var last = "wait"
    var start = 0
    for end in pieces + [bytes.count] where end > start {
      let piece = Array(bytes[start..<end])
      last = name(gate.received(piece.span.bytes))
      if last != "wait" && last != "awaitHead" { return last }
      start = end
    }
    return last
  }

  @Test func firstBytesInAnyPiecesDecideProtocol() {
    for (text, clear, tls) in Self.table {
      let bytes = Array(text.utf8)
      for (takesHTTP2, expected) in [(true, clear), (false, tls)] {
        #expect(
          Self.outcome(bytes, pieces: [], takesHTTP2: takesHTTP2) == expected,
          "\(text.debugDescription)"
        )
        let drip = Array(0...bytes.count)
        #expect(
          Self.outcome(bytes, pieces: drip, takesHTTP2: takesHTTP2) == expected,
          "dripped \(text.debugDescription)"
        )
        for at in bytes.indices {
          #expect(
            Self.outcome(bytes, pieces: [at], takesHTTP2: takesHTTP2) == expected,
            "\(text.debugDescription) cut at \(at)"
          )
        }
      }
    }
  }

  @Test func oversizeOrLateHeadIsRefused() {
    let chunk = [UInt8](repeating: UInt8(ascii: "A"), count: 4_096)
    var gate = ProtocolGate(takesHTTP2: true)
    var received = 0
    while gate.received(chunk.span.bytes) == .awaitHead { received += chunk.count }
    #expect(received + chunk.count == ProtocolGate.headByteCountMax)
    // Bytes after the response are discarded up to a limit, then the connection is closed.
    var dropped = 0
    while gate.received(chunk.span.bytes) == .drop { dropped += chunk.count }
    #expect(dropped == ProtocolGate.droppedByteCountMax)
    let (late, timer) = (gate.received(chunk.span.bytes), gate.timedOut())
    #expect(late == .drop && timer == .wait)

    for (text, expected) in [
      ("", "wait"), ("P", "refuse"), ("PRI * HTTP/2.0", "refuse"), ("HEAD / HT", "refuse head"),
      ("GET", "refuse"),
      (Self.preface, "wait"),
    ] {
      var gate = ProtocolGate(takesHTTP2: true)
      let bytes = Array(text.utf8)
      _ = gate.received(bytes.span.bytes)
      let action = gate.timedOut()
      #expect(Self.name(action) == expected, "\(text.debugDescription)")
      // The time to send the response is limited too.
      let next = gate.timedOut()
      #expect(next == (expected == "wait" ? .wait : .close))
    }
  }

  // MARK: On a socket

  /// A TCP client that sends bytes and reads until the gateway closes.
  private static func exchange(_ port: Int, _ pieces: [String]) async throws -> String {
    let group = MultiThreadedEventLoopGroup.singleton
    let received = group.next().makePromise(of: ByteBuffer.self)
    let channel = try await ClientBootstrap(group: group)
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(Collector(received))
        }
      }
      .connect(host: "127.0.0.1", port: port).get()
    for piece in pieces { try? await channel.writeAndFlush(ByteBuffer(string: piece)) }
    return String(buffer: try await received.futureResult.value("the end of the connection"))
  }

  private final class Collector: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let received: EventLoopPromise<ByteBuffer>
    private var bytes = ByteBuffer()

    init(_ received: EventLoopPromise<ByteBuffer>) { self.received = received }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      bytes.writeImmutableBuffer(unwrapInboundIn(data))
    }

    func channelInactive(context: ChannelHandlerContext) { received.succeed(bytes) }
  }

  @Test func http1ClientGets505() async throws {
    var limits = GatewayLimits()
    limits.firstBytesTimeout = .milliseconds(200)
    try await TestGateway.run(limits: limits) { gateway in
      for pieces in [
        ["GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n"],
        ["P", "OST / HTTP/1.1\r\n", "content-length: 2\r\n\r\n", "{}"],
        ["GET / HT"], ["P"],
      ] {
        let response = try await Self.exchange(gateway.port, pieces)
        let parts = response.components(separatedBy: "\r\n\r\n")
        try #require(parts.count == 2, "\(pieces): \(response)")
        let head = parts[0].components(separatedBy: "\r\n")
        #expect(head[0] == "HTTP/1.1 505 HTTP Version Not Supported")
        #expect(head.contains("content-type: application/problem+json") && head.contains("connection: close"))
        #expect(head.contains("content-length: \(parts[1].utf8.count)"))
        let problem = try #require(
          try JSONSerialization.jsonObject(with: Data(parts[1].utf8)) as? [String: Any]
        )
        #expect(
          problem["status"] as? Int == 505 && problem["code"] as? String == "http_version_not_supported"
        )
        #expect((problem["detail"] as? String)?.contains("Deploy/haproxy/haproxy.cfg") == true)
        #expect(head.contains("x-request-id: \(problem["request_id"] as? String ?? "")"))
      }
      let head = try await Self.exchange(gateway.port, ["HEAD / HTTP/1.1\r\n\r\n"])
      #expect(head.hasPrefix("HTTP/1.1 505 ") && head.hasSuffix("\r\n\r\n"))
      // Other bytes get an HTTP/2 session's answer: SETTINGS first, then GOAWAY.
      let garbage = try await Self.exchange(gateway.port, ["\u{1}garbage, and more of it than a preface has"])
      #expect(garbage.utf8.dropFirst(3).first == 4)
      // Other connections are served as before.
      #expect(try await gateway.client.get("/v1/openapi.yaml", token: nil).status == 200)
      let metrics = try await gateway.eventLoop.submit { gateway.loop.value.counters.http1Refused }.get()
      #expect(metrics == 5)
    }
  }
}

/// The PROXY protocol, as HAProxy specifies it.
@Suite struct ProxyHeaderTests {
  private func address(_ text: String) throws -> PeerAddress {
    try #require(PeerAddress(SocketAddress(ipAddress: text, port: 0)))
  }

  @Test(
    arguments: [
      ("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\nPRI", "192.0.2.7"),
      ("PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n", "2001:db8::7"),
      ("PROXY UNKNOWN\r\n", nil), ("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", nil),
    ] as [(String, String?)]
  )
  func version1HeaderIsParsed(_ line: String, client: String?) throws {
    let count =
      try #require(
        line.utf8.firstIndex(of: UInt8(ascii: "\n")).map { line.utf8.distance(from: line.startIndex, to: $0) }
      ) + 1
    let expected = ProxyHeader.complete(client: try client.map(address), byteCount: count)
    #expect(ProxyHeader(Array(line.utf8)) == expected)
    for cut in 0..<count { #expect(ProxyHeader(Array(line.utf8.prefix(cut))) == .incomplete) }
  }

  @Test(
    arguments: [
      "GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n", "PROXY TCP4 192.0.2.7\r\n", "PROXY TCP4 a b 1 2\r\n",
      "PROXY TCP6 192.0.2.7 192.0.2.8 1 2\r\n", "PROXY TCP4 192.0.2.7 192.0.2.8 1 66000\r\n", "PROXY \n",
      "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\n", "PROXY UNKNOWN " + String(repeating: "x", count: 100) + "\r\n",
    ]
  )
  func invalidHeaderIsRejected(_ line: String) { #expect(ProxyHeader(Array(line.utf8)) == .invalid) }

  /// Extensions are skipped. The proxy's own connections have no client address.
  @Test
  func version2HeaderIsParsed() throws {
    let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]
    let ipv4: [UInt8] = [192, 0, 2, 7, 198, 51, 100, 1, 0xDC, 4, 1, 0xBB]
    let ipv6: [UInt8] =
      [0x20, 1, 0xD, 0xB8] + Array(repeating: 0, count: 11) + [7] + Array(repeating: 1, count: 20)
    let extra: [UInt8] = [4, 0, 1, 9]
    for (command, family, body, expected) in [
      (0x21, 0x11, ipv4, "192.0.2.7"), (0x21, 0x11, ipv4 + extra, "192.0.2.7"),
      (0x21, 0x21, ipv6, "2001:db8::7"),
      (0x20, 0x00, [], nil), (0x20, 0x11, ipv4, nil), (0x21, 0x31, Array(repeating: 1, count: 216), nil),
    ] as [(UInt8, UInt8, [UInt8], String?)] {
      let header = signature + [command, family, UInt8(body.count >> 8), UInt8(body.count & 0xFF)] + body
      #expect(
        ProxyHeader(header + [1, 2]) == .complete(client: try expected.map(address), byteCount: header.count)
      )
      for cut in 0..<header.count { #expect(ProxyHeader(Array(header.prefix(cut))) == .incomplete) }
    }
    for (command, family, length) in [
      (0x31, 0x11, 12), (0x22, 0x11, 12), (0x21, 0x11, 11), (0x21, 0x21, 35), (0x21, 0x11, 5_000),
    ]
      as [(UInt8, UInt8, Int)]
    {
      let header = signature + [command, family, UInt8(length >> 8), UInt8(length & 0xFF)]
      #expect(ProxyHeader(header + Array(repeating: 0, count: length)) == .invalid)
    }
  }
}
