internal import NIOCore

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
