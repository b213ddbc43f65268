internal import DequeModule

/// The streams of an ``EventHub`` that wait to be opened or relisted, and how many are.
struct OpeningQueue {
  /// Some of them may be closed.
  private var waiting = Deque<EventHub.Ref>()
  /// How many of the streams in the queues are closed; they are skipped later.
  private var closedCount = 0
  /// Streams whose relisting failed; they wait again from the next tick on.
  private var relistings: [EventHub.Ref] = []
  /// Streams being opened or relisted.
  private(set) var inProgress = 0

  /// Open streams that wait.
  var count: Int { entryCount - closedCount }

  /// Entries, with those of closed streams.
  var entryCount: Int { waiting.count + relistings.count }

  mutating func append(_ ref: EventHub.Ref) { waiting.append(ref) }

  /// Let a stream wait again from the next tick on.
  mutating func retry(_ ref: EventHub.Ref) { relistings.append(ref) }

  mutating func tick() {
    waiting.append(contentsOf: relistings)
    relistings = []
  }

  /// Return the next stream, if fewer than `limit` are in progress. It is in progress until ``ended()`` or
  /// ``skipped()``.
  mutating func next(limit: Int) -> EventHub.Ref? {
    guard inProgress < limit, let ref = waiting.popFirst() else { return nil }
    inProgress += 1
    return ref
  }

  /// End the opening or relisting of a stream.
  mutating func ended() { inProgress -= 1 }

  /// End the turn of a stream that was closed while it waited.
  mutating func skipped() {
    inProgress -= 1
    closedCount -= 1
  }

  /// Count a stream that was closed while it waits. True: the queues should be compacted, since closed streams
  /// outnumber the others by more than 1,024.
  mutating func closed() -> Bool {
    closedCount += 1
    return closedCount > count + 1_024
  }

  /// Drop the closed streams.
  mutating func compact(isOpen: (EventHub.Ref) -> Bool) {
    waiting = Deque(waiting.filter(isOpen))
    relistings = relistings.filter(isOpen)
    closedCount = 0
  }
}
