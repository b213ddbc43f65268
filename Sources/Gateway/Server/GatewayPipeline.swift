internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import TLSSession

/// The way of the bytes of a client's connection. A reader starts here:
///
///     socket → TLSHandler → HTTP2ServerConnection → GatewayLoop → Router → routes → StoreClient → store
///              OpenSSL,      nghttp2                 (the delegate of both: Loop/, Routes/, Answers/)
///              ALPN h2
///
/// Without TLS the first handler is missing: HTTP/2 by prior knowledge (RFC 9113 section 3.3). Until the client's
/// protocol is known, ``ProtocolGateHandler`` stands before HTTP/2 and tells HTTP/1 clients what to do. With
/// `--proxy-protocol` a trusted proxy says first whose the connection is (``ProxyHeaderHandler``).
enum GatewayPipeline {
  /// Adds the handlers to a connection that was just accepted, on its event loop.
  static func assemble(
    _ channel: any Channel,
    _ loop: GatewayLoop,
    tls: TLSContext?,
    takesProxyHeaders: Bool = false
  ) throws {
    let peer = channel.remoteAddress.flatMap { PeerAddress($0) }
    if takesProxyHeaders, let gate = loop.gate, let peer, gate.isTrusted(peer) {
      let handler = ProxyHeaderHandler(timeout: loop.limits.firstBytesTimeout) { channel, client in
        // The proxy's own connection, such as a health check, is as its address says.
        guard client.map({ gate.admits(channel, from: $0) }) ?? true else { return false }
        try assemble(channel, loop, tls: tls, from: client ?? peer, isNamed: client != nil)
        return true
      }
      try channel.pipeline.syncOperations.addHandler(handler)
    } else {
      try assemble(channel, loop, tls: tls, from: peer)
    }
  }

  private static func assemble(
    _ channel: any Channel,
    _ loop: GatewayLoop,
    tls: TLSContext?,
    from client: PeerAddress?,
    isNamed: Bool = false
  ) throws {
    if let tls {
      try channel.pipeline.syncOperations.addHandler(TLSHandler(context: tls))
    }
    try channel.pipeline.syncOperations.addHandler(ProtocolGateHandler(loop, isTLS: tls != nil))
    try channel.pipeline.syncOperations.addHandler(loop.connectionOpened(from: client, isNamed: isNamed))
  }
}
