internal import HTTP2Session
internal import NIOCore
internal import TLSSession

/// The way of the bytes of a client's connection. A reader starts here:
///
///     socket → TLSHandler → HTTP2ServerConnection → GatewayLoop → Router → routes → StoreClient → store
///              OpenSSL,      nghttp2                 (the delegate of both: Loop/, Routes/, Answers/)
///              ALPN h2
///
/// Without TLS the first handler is missing: HTTP/2 by prior knowledge (RFC 9113 section 3.3). Until the client's
/// protocol is known, ``ProtocolGateHandler`` stands before HTTP/2 and tells HTTP/1 clients what to do.
enum GatewayPipeline {
  /// Adds the handlers to a connection that was just accepted, on its event loop.
  static func assemble(_ channel: any Channel, _ loop: GatewayLoop, tls: TLSContext?) throws {
    if let tls {
      try channel.pipeline.syncOperations.addHandler(TLSHandler(context: tls))
    }
    try channel.pipeline.syncOperations.addHandler(ProtocolGateHandler(loop, isTLS: tls != nil))
    try channel.pipeline.syncOperations.addHandler(loop.connectionOpened())
  }
}
