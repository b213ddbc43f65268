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
