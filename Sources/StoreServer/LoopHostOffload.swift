internal import DequeModule
internal import NIOCore

/// Decides whether commits are quick enough for an event loop, by a moving average of their duration.
struct CommitPace {
  /// Average above which commits leave the loop. A commit on a disk with a fast sync takes a tenth to a quarter of
  /// this.
  static let quickMicroseconds: Double = 1_000
  /// Some 150 marks. A smaller group means that the loop has nothing else to do.
  static let smallBytes = 4_096
  private var meanMicroseconds: Double = 0

  var isQuick: Bool { meanMicroseconds < Self.quickMicroseconds }

  mutating func record(_ duration: TimeAmount) {
    let microseconds = Double(duration.nanoseconds) / 1_000
    // One stall of 20 ms moves commits off the loop; some thirty quick ones move them back.
    meanMicroseconds += (microseconds - meanMicroseconds) / 10
  }
}

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
