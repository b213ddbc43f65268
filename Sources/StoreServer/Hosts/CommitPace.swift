internal import NIOCore

/// Decides whether commits are quick enough for an event loop, by a moving average of their duration.
struct CommitPace {
  /// Average above which commits leave the loop. A commit on a disk with a fast sync takes a tenth to a quarter of
  /// this.
  static let quickMicroseconds: Double = 1_000
  /// Size of some 150 marks. After a commit below this, the loop has nothing else to do.
  static let smallBytes = 4_096
  private var meanMicroseconds: Double = 0

  var isQuick: Bool { meanMicroseconds < Self.quickMicroseconds }

  mutating func record(_ duration: TimeAmount) {
    let microseconds = Double(duration.nanoseconds) / 1_000
    // One stall of 20 ms moves commits off the loop; 8 of 150 µs move them back.
    meanMicroseconds += (microseconds - meanMicroseconds) / 10
  }
}
