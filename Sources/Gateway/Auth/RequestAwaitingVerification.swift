package import HTTP2Session
package import Operations

/// A request that waits for token verification.
package struct RequestAwaitingVerification: Sendable {
  /// The connection's index in the loop's ``ConnectionTable``.
  package var connection: ConnectionIndex
  package var stream: HTTP2StreamHandle
  /// The party whose waiting requests are limited: the connection, or the client that a proxy's connection names.
  package var origin: TokenOrigin
  /// Whether its body has not arrived; the request is handled again once it has.
  package var awaitsBody: Bool

  package init(
    connection: ConnectionIndex,
    stream: HTTP2StreamHandle,
    origin: TokenOrigin,
    awaitsBody: Bool = false
  ) {
    self.connection = connection
    self.stream = stream
    self.origin = origin
    self.awaitsBody = awaitsBody
  }
}

/// The origin of a token that is being verified.
package enum TokenOrigin: Hashable, Sendable {
  /// A connection of one client.
  case connection(ConnectionIndex)
  /// A client on a connection that it shares with others.
  case address(PeerAddress)
  /// A proxy's connection that does not name the client.
  case unknown
}
