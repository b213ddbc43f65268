package import LinkSecurity
package import NIOCore
internal import TLSSession

/// Transport layer between the socket and the frames of a client's connections.
package struct StoreTransport: Sendable {
  /// Creates the handlers of a connection to that address.
  package var makeHandlers: @Sendable (StoreClientConfiguration.Address) throws -> [any ChannelHandler]
  /// Called for an error before the store was ready. Returns whether the error is the transport's own, and was logged.
  package var handlesError: @Sendable (any Error, StoreClientConfiguration.Address) -> Bool

  package init(
    makeHandlers: @escaping @Sendable (StoreClientConfiguration.Address) throws -> [any ChannelHandler],
    handlesError: @escaping @Sendable (any Error, StoreClientConfiguration.Address) -> Bool = { _, _ in false
    }
  ) {
    self.makeHandlers = makeHandlers
    self.handlesError = handlesError
  }

  /// Return a transport with mutual TLS.
  package static func tls(_ tls: LinkTLS) -> StoreTransport {
    StoreTransport(
      makeHandlers: { [try tls.clientHandler(store: $0.host)] },
      handlesError: { error, address in
        guard let error = error as? TLSError else { return false }
        return tls.failures.record(error, peer: "\(address.host):\(address.port)")
      }
    )
  }
}
