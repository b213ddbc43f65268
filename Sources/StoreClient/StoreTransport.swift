package import LinkSecurity
package import NIOCore
internal import TLSSession

/// What is between the socket and the frames of a client's connections.
package struct StoreTransport: Sendable {
  /// Makes the handlers of a connection to that address.
  package var makeHandlers: @Sendable (StoreClientConfiguration.Address) throws -> [any ChannelHandler]
  /// Told of an error before the store was ready. Returns whether it is the transport's own, and logged.
  package var explains: @Sendable (any Error, StoreClientConfiguration.Address) -> Bool

  package init(
    makeHandlers: @escaping @Sendable (StoreClientConfiguration.Address) throws -> [any ChannelHandler],
    explains: @escaping @Sendable (any Error, StoreClientConfiguration.Address) -> Bool = { _, _ in false }
  ) {
    self.makeHandlers = makeHandlers
    self.explains = explains
  }

  /// Mutual TLS.
  package static func tls(_ tls: LinkTLS) -> StoreTransport {
    StoreTransport(
      makeHandlers: { [try tls.clientHandler(store: $0.host)] },
      explains: { error, address in
        guard let error = error as? TLSError else { return false }
        return tls.failures.note(error, peer: "\(address.host):\(address.port)")
      }
    )
  }
}
