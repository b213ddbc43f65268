package import LinkSecurity
package import Logging
package import NIOCore
internal import TLSSession

/// Configuration of a store client: addresses, timeouts, retries and limits.
package struct StoreClientConfiguration: Sendable {
  /// Address at which a store listens.
  package struct Address: Hashable, Sendable {
    /// Host name or numeric address.
    package var host: String
    /// 1 to 65535.
    package var port: Int

    package init(host: String, port: Int) {
      self.host = host
      self.port = port
    }
  }

  /// Addresses, tried in turn; at least one. In a cluster they are those of any nodes: the client learns the others.
  package var addresses: [Address]
  /// Whether all requests go to the process at the first address, also if it is a cluster's node and does not own their
  /// shards: for requests about the process itself, such as a backup.
  package var usesOneNode = false
  /// In a client of a cluster's node: the number of that node, which it does not connect to.
  package var ownNode: UInt16?
  /// The shared secret, then the one it replaces (Proto/frames.md, "Handshake"). Empty: the store need not prove a
  /// secret.
  package var secrets: [[UInt8]]
  /// Name of this gateway in the store's logs, at most 64 bytes of UTF-8; longer names are truncated.
  package var name: String
  /// Request timeout, including reconnects. Checked every ``StoreClientLimits/tick``.
  package var requestDeadline: TimeAmount = .seconds(5)
  /// Maximum number of unanswered requests, 1 to ``StoreClientLimits/requestsMax``. The store's window lowers it.
  package var inFlightMax = 32_768
  /// First delay before reconnecting. It doubles up to ``backoffMax``; jitter shortens each delay by up to one half.
  package var backoffMin: TimeAmount = .milliseconds(20)
  package var backoffMax: TimeAmount = .seconds(1)
  /// Timeout of one connection attempt.
  package var connectTimeout: TimeAmount = .seconds(2)
  /// A store that has been silent this long is pinged. After as long again without a byte, the connection is dropped.
  package var pingInterval: TimeAmount = .seconds(5)
  /// Nil: frames are sent unencrypted.
  package var transport: StoreTransport?
  package var logger: Logger

  package init(
    addresses: [Address],
    secrets: [[UInt8]] = [],
    name: String = "tidemark-gateway",
    logger: Logger = Logger(label: "tidemark.store-client")
  ) {
    self.addresses = addresses
    self.secrets = secrets
    self.name = name
    self.logger = logger
  }
}

extension StoreClientConfiguration {
  /// Make an empty table for the requests of one node.
  func makeTable() -> RequestTable {
    // One tick is added, because a request may be made late in a tick and no deadline may pass early.
    let ticks = requestDeadline.nanoseconds / StoreClientLimits.tick.nanoseconds + 1
    return RequestTable(limit: inFlightMax, deadlineTicks: UInt32(clamping: max(1, ticks)))
  }
}

/// Fixed limits of one client, independent of the store.
package enum StoreClientLimits {
  /// A correlation id has 16 bits of slot and 16 bits of generation.
  package static let requestsMax = 65_535
  /// Bytes of requests retained for a resend. One old request retains the whole batch that it was written in; above
  /// this limit, new requests are refused as busy.
  package static let retainedBytesMax = 64 << 20
  /// Size at which a batch is closed and the next one started. It bounds the bytes that one old request can retain.
  package static let batchBytesMax = 256 << 10
  /// Buffers kept for the next batches, and the largest capacity that is kept.
  static let spareBuffersMax = 8
  static let spareBufferBytesMax = 64 << 10
  /// Smallest initial capacity of a batch: one request.
  static let batchBytesMin = 256
  /// Interval at which deadlines and pings are checked.
  package static let tick: TimeAmount = .milliseconds(100)
  /// Longest delay before reconnecting to a node of a cluster: requests wait until the client has found the new owner.
  package static let clusterBackoffMax: TimeAmount = .milliseconds(150)
  /// Timeout of a handshake (Proto/frames.md, "Handshake").
  static let handshakeTimeout: TimeAmount = .seconds(10)
}

/// Transport layer between the socket and the frames of a client's connections.
package struct StoreTransport: Sendable {
  /// Creates the handlers of a connection to that address.
  package var makeHandlers: @Sendable (StoreClientConfiguration.Address) throws -> [any ChannelHandler]
  /// Called for an error before the store was ready. Returns whether the error is the transport's own, and was logged.
  package var handlesError: @Sendable (any Error, StoreClientConfiguration.Address) -> Bool

  package init(
    makeHandlers: @escaping @Sendable (StoreClientConfiguration.Address) throws -> [any ChannelHandler],
    handlesError: @escaping @Sendable (any Error, StoreClientConfiguration.Address) -> Bool = { _, _ in false }
  ) {
    self.makeHandlers = makeHandlers
    self.handlesError = handlesError
  }

  /// Mutual TLS.
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
