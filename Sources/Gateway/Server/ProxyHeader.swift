internal import NIOCore
package import Operations

/// The PROXY protocol header that a load balancer in TCP mode sends before its client's bytes: version 1 (a line of
/// text) or 2 (binary), as in HAProxy's doc/proxy-protocol.txt.
package enum ProxyHeader: Equatable, Sendable {
  /// More bytes are needed.
  case incomplete
  /// The header's size, and the client. The client is nil where the connection is the proxy's own, or has no IP
  /// address.
  case complete(client: PeerAddress?, byteCount: Int)
  /// The bytes are no PROXY header.
  case invalid

  /// Maximum size of a version 1 header: `PROXY UNKNOWN` with two IPv6 addresses, and the end of the line.
  static let textBytesMax = 107
  /// Maximum size of a version 2 header: addresses, and extensions, which are skipped.
  static let binaryBytesMax = 4_096

  private static let text = Array("PROXY ".utf8)
  private static let binary: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]

  /// Return whether a connection's first bytes begin like a PROXY header. HTTP/2 and TLS begin with neither version.
  static func begins(_ bytes: some Collection<UInt8>) -> Bool {
    bytes.starts(with: text) || bytes.starts(with: binary.prefix(6))
  }

  /// Parse a header from the first bytes of a connection.
  package init(_ bytes: [UInt8]) {
    if bytes.starts(with: Self.binary) {
      self.init(binary: bytes)
    } else if bytes.starts(with: Self.text) {
      self.init(text: bytes)
    } else if Self.binary.starts(with: bytes) || Self.text.starts(with: bytes) {
      self = .incomplete
    } else {
      self = .invalid
    }
  }

  /// Parse version 1: `PROXY TCP4 192.0.2.7 198.51.100.1 56324 443`, carriage return, line feed.
  private init(text bytes: [UInt8]) {
    let head = bytes.prefix(Self.textBytesMax)
    guard let end = head.firstIndex(of: UInt8(ascii: "\n")) else {
      self = bytes.count < Self.textBytesMax ? .incomplete : .invalid
      return
    }
    let words = head[..<end].split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
      .map { String(decoding: $0, as: UTF8.self) }
    let isText = head[..<(end - 1)].allSatisfy { (0x20...0x7E).contains($0) && $0 != UInt8(ascii: "+") }
    guard head[end - 1] == UInt8(ascii: "\r"), isText, words.count >= 2 else {
      self = .invalid
      return
    }
    if words[1] == "UNKNOWN" || words[1] == "UNKNOWN\r" {
      self = .complete(client: nil, byteCount: end + 1)
      return
    }
    guard words.count == 6, let address = try? SocketAddress(ipAddress: words[2], port: 0),
      (try? SocketAddress(ipAddress: words[3], port: 0)) != nil, UInt16(words[4]) != nil,
      UInt16(words[5].dropLast()) != nil, words[1] == (address.protocol == .inet ? "TCP4" : "TCP6")
    else {
      self = .invalid
      return
    }
    self = .complete(client: PeerAddress(address), byteCount: end + 1)
  }

  /// Parse version 2: twelve bytes of signature, version and command, family and protocol, 16 bits of length,
  /// addresses, extensions.
  private init(binary bytes: [UInt8]) {
    guard bytes.count >= 16 else {
      self = .incomplete
      return
    }
    let length = Int(bytes[14]) << 8 | Int(bytes[15])
    let (version, command) = (bytes[12] >> 4, bytes[12] & 0xF)
    guard version == 2, command <= 1, 16 + length <= Self.binaryBytesMax else {
      self = .invalid
      return
    }
    guard bytes.count >= 16 + length else {
      self = .incomplete
      return
    }
    func number(_ range: Range<Int>) -> UInt64 { bytes[range].reduce(0) { $0 << 8 | UInt64($1) } }
    var client: PeerAddress?
    // LOCAL is the proxy's own connection. Only the families IPv4 and IPv6 have an address that is used.
    switch (command, bytes[13] >> 4) {
    case (1, 1):
      guard length >= 12 else {
        self = .invalid
        return
      }
      client = PeerAddress(high: 0, low: 0xFFFF << 32 | number(16..<20))
    case (1, 2):
      guard length >= 36 else {
        self = .invalid
        return
      }
      client = PeerAddress(high: number(16..<24), low: number(24..<32))
    default: break
    }
    self = .complete(client: client, byteCount: 16 + length)
  }
}

/// First handler on a connection that `--trusted-proxies` does not name, with `--proxy-protocol`: a connection that
/// begins with a PROXY header is closed with a line in the log, since its sender may not name a client.
final class UntrustedProxyHandler: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer

  private let gate: ConnectionGate

  init(_ gate: ConnectionGate) { self.gate = gate }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard !ProxyHeader.begins(unwrapInboundIn(data).readableBytesView) else {
      gate.refusedForProxyHeader(
        "it begins with a PROXY header, and its address is not in --trusted-proxies",
        context.channel
      )
      return context.close(promise: nil)
    }
    context.fireChannelRead(data)
    context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
  }
}

/// First handler on a connection from a trusted proxy. Once the ``ProxyHeader`` is complete, it has the rest of the
/// pipeline added, passes on the bytes after the header, and removes itself.
final class ProxyHeaderHandler: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer

  private let timeout: TimeAmount
  private let refused: (any Channel) -> Void
  private let identified: (any Channel, PeerAddress?) throws -> Bool
  private var input = ByteBuffer()
  private var timer: Scheduled<Void>?

  /// - Parameters:
  ///   - timeout: how long the header may take.
  ///   - refused: called with a connection that does not begin with a PROXY header, before it is closed.
  ///   - identified: called with the client that the header names; returns false where the connection must be closed.
  init(
    timeout: TimeAmount,
    refused: @escaping (any Channel) -> Void = { _ in },
    identified: @escaping (any Channel, PeerAddress?) throws -> Bool
  ) {
    self.timeout = timeout
    self.refused = refused
    self.identified = identified
  }

  func channelActive(context: ChannelHandlerContext) {
    timer = context.eventLoop.assumeIsolated().scheduleTask(in: timeout) { context.close(promise: nil) }
    context.fireChannelActive()
  }

  func channelInactive(context: ChannelHandlerContext) {
    timer?.cancel()
    context.fireChannelInactive()
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var bytes = unwrapInboundIn(data)
    input.writeBuffer(&bytes)
    switch ProxyHeader(Array(input.readableBytesView.prefix(ProxyHeader.binaryBytesMax))) {
    case .incomplete: return
    case .invalid:
      refused(context.channel)
      context.close(promise: nil)
    case .complete(let client, let byteCount):
      timer?.cancel()
      input.moveReaderIndex(forwardBy: byteCount)
      guard (try? identified(context.channel, client)) == true else { return context.close(promise: nil) }
      let rest = input
      input = ByteBuffer()
      if rest.readableBytes > 0 { context.fireChannelRead(wrapInboundOut(rest)) }
      context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
    }
  }
}
