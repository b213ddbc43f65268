package import Logging
package import NIOCore

/// Where the store is and how long, how often and how much is tried.
package struct StoreClientConfiguration: Sendable {
  /// Where a store listens.
  package struct Address: Hashable, Sendable {
    /// A name or a numeric address.
    package var host: String
    /// 1 to 65535.
    package var port: Int

    package init(host: String, port: Int) {
      self.host = host
      self.port = port
    }
  }

  /// Tried in turn; at least one.
  package var addresses: [Address]
  /// The shared secret, then the one it replaces (Proto/frames.md, "Opening"). Empty: the store is not asked
  /// for a proof.
  package var secrets: [[UInt8]]
  /// Names this gateway in the store's logs, at most 64 bytes of UTF-8; what is longer is cut.
  package var name: String
  /// How long a request may wait for its answer, reconnecting included. Seen every
  /// ``StoreClientLimits/tick``.
  package var requestDeadline: TimeAmount = .seconds(5)
  /// Requests that may be unanswered, 1 to ``StoreClientLimits/requestsMax``. The store's window lowers it.
  package var inFlightMax = 32_768
  /// The first wait before connecting again; it doubles up to ``backoffMax``, each jittered down by up to one
  /// half.
  package var backoffMin: TimeAmount = .milliseconds(20)
  package var backoffMax: TimeAmount = .seconds(1)
  /// How long one attempt to connect may take.
  package var connectTimeout: TimeAmount = .seconds(2)
  /// The store not heard of for so long is pinged; when nothing comes for as long again, the connection is
  /// given up.
  package var pingInterval: TimeAmount = .seconds(5)
  /// Nil: frames are sent in the clear.
  package var transport: StoreTransport?
  package var logger: Logger

  package init(
    addresses: [Address],
    secrets: [[UInt8]] = [],
    name: String = "tidemark-gateway",
    logger: Logger = Logger(label: "tidemark.store-client")
  ) {
    precondition(!addresses.isEmpty, "a store client needs an address")
    self.addresses = addresses
    self.secrets = secrets
    self.name = name
    self.logger = logger
  }
}

/// What one client may hold, whatever the store does. Named together so that they can be read together.
package enum StoreClientLimits {
  /// A correlation id is 16 bits of slot and 16 bits of generation.
  package static let requestsMax = 65_535
  /// Bytes of requests kept for a resend. One old request keeps the whole batch that it was written in;
  /// beyond this, new ones are refused as busy.
  package static let retainedBytesMax = 64 << 20
  /// A batch that reaches this is closed and the next one begun, so that one old request cannot keep more.
  package static let batchBytesMax = 256 << 10
  /// Buffers kept for the next batch, and the largest worth keeping.
  static let spareBuffersMax = 8
  static let spareBufferBytesMax = 64 << 10
  /// The smallest buffer a batch starts with: one request.
  static let batchBytesMin = 256
  /// How often deadlines and pings are looked at.
  package static let tick: TimeAmount = .milliseconds(100)
  /// An opening has to be done within this (Proto/frames.md, "Opening").
  static let openingTimeout: TimeAmount = .seconds(10)
}
