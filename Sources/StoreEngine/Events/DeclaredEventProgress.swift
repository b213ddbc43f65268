internal import ReceiptModel

/// Event progress of a shard: the times up to which its watchers have received all events (Proto/frames.md, "Events").
struct DeclaredEventProgress {
  /// All events up to this time are in frames that have left.
  private(set) var durable = Timestamp.none
  /// The same, including frames that leave with the closed batches.
  private(set) var closed = Timestamp.none

  init(_ time: Timestamp) {
    durable = time
    closed = time
  }

  /// Record that a frame declares all events up to `time` sent. A frame never declares less than an earlier one: a
  /// client that resumes from a declared time receives everything from that time on, inclusive.
  mutating func declare(through time: Timestamp, _ replyTiming: ReplyLane.Timing) {
    closed = max(closed, time)
    if case .now = replyTiming { durable = closed }
  }

  mutating func committed() { durable = closed }
}
