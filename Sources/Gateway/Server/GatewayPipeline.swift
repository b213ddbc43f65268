internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import TLSSession

/// The channel pipeline of a client's connection. Start reading here:
///
///     socket → TLSHandler → HTTP2ServerConnection → GatewayLoop → Router → routes → StoreClient → store
///              OpenSSL,      nghttp2                 (the delegate of both: Loop/GatewayLoop)
///              ALPN h2
///
/// Without TLS the first handler is absent: HTTP/2 by prior knowledge (RFC 9113 section 3.3). ``ProtocolGateHandler``
/// precedes HTTP/2 until the client's protocol is known, and refuses HTTP/1 clients. With `--proxy-protocol` a trusted
/// proxy first names the client (``ProxyHeaderHandler``).
enum GatewayPipeline {
  /// Add the handlers to a newly accepted connection, on its event loop.
  static func assemble(
    _ channel: any Channel,
    _ loop: GatewayLoop,
    tls: TLSContext?,
    takesProxyHeaders: Bool = false
  ) throws {
    let peer = channel.remoteAddress.flatMap { PeerAddress($0) }
    if takesProxyHeaders, let gate = loop.shared.gate, let peer, gate.isTrusted(peer) {
      let handler = ProxyHeaderHandler(
        timeout: loop.limits.firstBytesTimeout,
        refused: { channel in
          gate.refusedForProxyHeader(
            "its address is in --trusted-proxies, but it does not begin with a PROXY header (--proxy-protocol)",
            channel
          )
        }
      ) { channel, client in
        // A connection of the proxy's own, such as a health check, counts for the proxy's address.
        guard client.map({ gate.admit(channel, from: $0) }) ?? true else { return false }
        try assemble(channel, loop, tls: tls, from: client ?? peer, isNamed: client != nil)
        return true
      }
      try channel.pipeline.syncOperations.addHandler(handler)
    } else {
      if takesProxyHeaders, let gate = loop.shared.gate {
        try channel.pipeline.syncOperations.addHandler(UntrustedProxyHandler(gate))
      }
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
