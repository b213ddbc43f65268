internal import Foundation
internal import LinkSecurity
internal import NIOCore
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

/// Connections whose requests are made by the clock, in turn. Used on their event loop only.
struct LoadPacer {
  private var pace: LoadPace
  private let connections: [any PacedDriver]
  /// Index of the connection that makes the next request.
  private var next = 0
  private var timer: RepeatedTask?

  /// - Parameters:
  ///   - rate: requests per second, more than 0.
  ///   - makeDue: called on the event loop at each tick.
  init(
    _ connections: [any PacedDriver],
    rate: Double,
    now: UInt64,
    on eventLoop: any EventLoop,
    makeDue: @escaping @Sendable () -> Void
  ) {
    self.connections = connections
    pace = LoadPace(rate: rate, start: now)
    let tick = TimeAmount.nanoseconds(LoadPace.tickNanoseconds)
    timer = eventLoop.scheduleRepeatedTask(initialDelay: .zero, delay: tick) { _ in makeDue() }
  }

  /// Return the connection to try for the next due request, and the time at which it was due; nil if none is due.
  mutating func nextDue(at now: UInt64) -> (connection: any PacedDriver, dueAt: UInt64)? {
    guard let due = pace.next(at: now) else { return nil }
    let connection = connections[next]
    next = (next + 1) % connections.count
    return (connection, due)
  }

  /// Count the due request as made.
  mutating func madeOne() { pace.madeOne() }

  /// Number of connections.
  var count: Int { connections.count }

  func flush() {
    for connection in connections { connection.flush() }
  }

  func stop() { timer?.cancel() }
}

/// Schedule of a paced run: a constant number of requests per second, independent of the responses. A late request
/// stays due, and its latency counts from the time at which it was due, so that delays of the server are not hidden.
struct LoadPace: Sendable {
  /// Interval at which a loop makes the due requests.
  static let tickNanoseconds: Int64 = 1_000_000

  private let nanosecondsBetween: Double
  private let start: UInt64
  private var made: UInt64 = 0

  /// - Parameter rate: requests per second, more than 0.
  init(rate: Double, start: UInt64) {
    precondition(rate > 0)
    nanosecondsBetween = 1e9 / rate
    self.start = start
  }

  /// Time at which the next request was due; nil if it is not due yet.
  func next(at now: UInt64) -> UInt64? {
    let due = start + UInt64(Double(made) * nanosecondsBetween)
    return due <= now ? due : nil
  }

  /// Count the due request as made.
  mutating func madeOne() { made += 1 }
}
