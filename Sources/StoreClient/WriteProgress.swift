/// How far the requests were written, on any connection and on the current one. Written requests always come first in
/// the list of requests, so both are positions in the order of issue.
struct WriteProgress {
  /// First request that has not been written on this connection.
  private(set) var cursor = RequestSlot.none
  /// Requests issued before this number were written on some connection.
  private var sentEnd: UInt64 = 1
  /// Requests issued before this number were written on this connection.
  private var wireEnd: UInt64 = 1
  /// Number of requests written on this connection that the store has not answered.
  private(set) var onWire = 0

  /// Return whether the request was written on some connection.
  @inline(__always)
  func wasSent(_ slot: RequestSlot) -> Bool { slot.issue < sentEnd || slot.wasSentElsewhere }

  /// Return whether the request was written on this connection.
  @inline(__always)
  func isOnWire(_ slot: RequestSlot) -> Bool { slot.issue < wireEnd }

  @inline(__always)
  mutating func appended(_ index: UInt32) {
    if cursor == RequestSlot.none { cursor = index }
  }

  /// Record that a request leaves the list, whose next one is `next`.
  @inline(__always)
  mutating func removed(_ index: UInt32, next: UInt32) {
    if cursor == index { cursor = next }
  }

  @inline(__always)
  mutating func answered() { onWire -= 1 }

  /// Record that the last `count` requests were written, and so all below `nextIssue`.
  mutating func wroteRest(_ count: Int, nextIssue: UInt64) {
    onWire += count
    sentEnd = nextIssue
    wireEnd = nextIssue
    cursor = RequestSlot.none
  }

  /// Record that the request at the cursor was written.
  ///
  /// - Returns: whether it was written for the first time.
  mutating func wrote(_ slot: RequestSlot) -> Bool {
    let isFirst = !wasSent(slot)
    sentEnd = max(sentEnd, slot.issue + 1)
    wireEnd = slot.issue + 1
    onWire += 1
    cursor = slot.next
    return isFirst
  }

  /// Begin again with the oldest request.
  mutating func connectionLost(head: UInt32) {
    onWire = 0
    wireEnd = 0
    cursor = head
  }

  func checkInvariants() {
    precondition(wireEnd == 0 || wireEnd <= sentEnd, "a request on the wire counts as sent")
  }
}

/// Counters of the session's commands (Proto/frames.md). They rise with every command, over all nodes of a cluster.
struct CommandCounters {
  /// Counter of the next command.
  private(set) var next: UInt64 = 1

  /// Take the next counter.
  @inline(__always)
  mutating func advance() { next &+= 1 }
}
