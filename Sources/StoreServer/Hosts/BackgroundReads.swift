internal import DequeModule

/// Background reads of a host: those that run on the threads, and those that wait for one of them.
struct BackgroundReads {
  typealias Read = @Sendable () -> Void

  /// Maximum number of background reads and peeks (at up to a thousand channels) of one host that run at once. The pool
  /// has one more thread than that for all hosts, so that other reads overtake them.
  static let runningMax = 2

  private var waiting: Deque<Read> = []
  private var running = 0

  /// Start a read if there is room, else queue it.
  ///
  /// - Returns: whether it starts now.
  mutating func startOrQueue(_ read: @escaping Read) -> Bool {
    guard running < Self.runningMax else {
      waiting.append(read)
      return false
    }
    running += 1
    return true
  }

  /// End a read; return the one that starts in its place.
  mutating func finishedOne() -> Read? {
    if let next = waiting.popFirst() { return next }
    running -= 1
    return nil
  }
}
