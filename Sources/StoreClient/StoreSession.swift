internal import NIOCore
internal import ReceiptModel

/// The session of a client, by which the store recognises its commands (Proto/frames.md, "Sessions and resending"). It
/// survives connections, and in a cluster all connections share it.
struct StoreSession {
  /// The store behind a session.
  struct Identity: Equatable {
    /// Id of the data directory, or of the cluster.
    var store: SessionID
    var shardCount: UInt32
  }

  private(set) var id: SessionID
  /// Nil before the first handshake is done.
  private(set) var identity: Identity?
  /// When the last byte arrived from the store; nil before the first handshake is done.
  private(set) var lastReceivedAt: NIODeadline?

  /// Begin a session.
  ///
  /// - Parameter id: newly drawn.
  init(_ id: SessionID) { self.id = id }

  /// Return the time since the last byte arrived, in milliseconds; nil: the store knows no command of this session.
  func ageMilliseconds(at now: NIODeadline) -> UInt64? {
    lastReceivedAt.map { UInt64(max(0, (now - $0).nanoseconds / 1_000_000)) }
  }

  /// Return whether a store may be used with this session.
  func fits(_ identity: Identity) -> Bool { self.identity == nil || self.identity == identity }

  mutating func opened(by identity: Identity, at now: NIODeadline) {
    self.identity = identity
    lastReceivedAt = now
  }

  mutating func received(at now: NIODeadline) { lastReceivedAt = now }
}
