internal import LinkSecurity
internal import Operations
internal import TLSSession

/// Requests of one connection.
enum LoadWork: Sendable {
  /// GET of one path, repeatedly.
  case get(path: String)
  /// Requests about one message after the other.
  case walk(RequestWalk)
}

/// Plan of one run of the load generator.
struct LoadPlan: Sendable {
  /// Limit that no run reaches.
  static let requestsMax = 1_000_000_000

  /// Plan of one connection.
  struct Connection: Sendable {
    /// `authorization`; empty for none.
    var authorization = ""
    var work: LoadWork
  }

  /// Protocol of a plan.
  enum WireProtocol: Sendable {
    case http2
    /// The store's frames (Proto/frames.md), with the secrets that it shares with its gateways. Every connection needs
    /// a walk of frames.
    case frames(secrets: [[UInt8]])

    var isHTTP2: Bool { if case .http2 = self { true } else { false } }
  }

  var endpoint: Endpoint
  var wireProtocol = WireProtocol.http2
  /// TLS, or h2c with prior knowledge.
  var tls: TLSContext?
  /// TLS of connections to a store; nil: not encrypted.
  var storeTLS: LinkTLS?
  var connections: [Connection]
  /// Requests in flight on each connection, at least 1.
  var streams: Int
  /// Event loops of the connections, at least 1. A run uses at most one for each connection.
  var loops = 1
  /// Measured requests of all connections.
  var requests: Int
  /// Requests before the measured ones.
  var warmup = 0
  /// Timeout in seconds for a store to become ready.
  var handshakeTimeout = 10.0
  /// Measured time in seconds after which no more requests are made; nil: no limit.
  var duration: Double?
  /// Requests per second of all connections, independent of the responses; nil: a stream makes its next request after
  /// the response to its last one. Only over HTTP/2.
  var rate: Double?
  /// Names and ids of the processes whose CPU time is measured, with their descendants.
  var processes: [(name: String, processID: Int32)] = []

  /// Event loops that the run uses.
  var loopCount: Int { min(loops, connections.count) }
  /// Requests per second of each of those loops; nil for a run that is not paced.
  var ratePerLoop: Double? { rate.map { $0 / Double(loopCount) } }
}

/// Reason why a run failed.
struct LoadError: Error, Hashable, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
