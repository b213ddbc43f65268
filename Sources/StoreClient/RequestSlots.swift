internal import ReceiptModel
internal import ReceiptWire

/// One unanswered request, or a free slot.
struct RequestSlot {
  /// "No slot" in the lists of ``RequestSlots``.
  static let none = UInt32.max

  enum State: UInt8 {
    /// On the free list.
    case free
    /// On the list of requests.
    case waiting
    /// Dropped after it was sent on this connection. The slot stays in use until the store answers or the connection
    /// ends, so that no late reply matches another request. It still counts against the store's window.
    case abandoned
  }

  var tag: UInt64 = 0
  /// Position in the order of issue.
  var issue: UInt64 = 0
  /// The session's counter as encoded in the frame; 0 for a query.
  var counter: UInt64 = 0
  /// Bytes of the frame; ``BatchedFrame/none`` once it is abandoned.
  var frame = BatchedFrame.none
  /// The previous request; in an abandoned slot, the request's shard.
  fileprivate(set) var previous = RequestSlot.none
  /// The next request; in a free slot, the next free slot.
  fileprivate(set) var next = RequestSlot.none
  var deadlineTick: UInt32 = 0
  fileprivate(set) var generation: UInt16 = 0
  /// Not used in a free slot.
  var kind = FrameKind.hello
  fileprivate(set) var state = State.free
  /// The shard is derived from the first field, a cid, instead of set by the caller.
  var isRouted = false
  /// The request was sent to another node before.
  var wasSentElsewhere = false

  var isCommand: Bool { kind.isCommand }
}

/// Slots of the unanswered requests. It owns the list of requests in order of issue, the free list and the numbers of
/// issue.
struct RequestSlots: ~Copyable {
  private var slots: [RequestSlot] = []
  private var firstFree = RequestSlot.none
  /// The oldest request; ``RequestSlot/none``: there is none.
  private(set) var head = RequestSlot.none
  private var tail = RequestSlot.none
  /// Number of requests on the list.
  private(set) var count = 0
  private(set) var abandonedCount = 0
  /// Issue number of the next request, above those of all existing ones.
  private(set) var nextIssue: UInt64 = 1

  /// Slots in use: they count against the window.
  var usedCount: Int { count + abandonedCount }

  @inline(__always)
  subscript(index: UInt32) -> RequestSlot { slots[Int(index)] }

  /// Return the correlation id of the request that ``append(_:)`` queues next: its slot and the slot's generation.
  @inline(__always)
  mutating func nextCorrelation() -> UInt32 {
    if firstFree == RequestSlot.none { addSlot() }
    return UInt32(slots[Int(firstFree)].generation) << 16 | firstFree
  }

  private mutating func addSlot() {
    firstFree = UInt32(slots.count)
    var slot = RequestSlot()
    slot.generation = 1
    slots.append(slot)
  }

  /// Append a request to the list, in the slot that ``nextCorrelation()`` has named.
  ///
  /// - Returns: its slot.
  @inline(__always)
  mutating func append(_ request: consuming RequestSlot) -> UInt32 {
    let index = firstFree
    firstFree = slots[Int(index)].next
    request.issue = nextIssue
    request.previous = tail
    request.next = RequestSlot.none
    request.generation = slots[Int(index)].generation
    request.state = .waiting
    nextIssue &+= 1
    slots[Int(index)] = request
    if tail == RequestSlot.none { head = index } else { slots[Int(tail)].next = index }
    tail = index
    count += 1
    return index
  }

  /// Return the slot that a correlation id names; nil if it names no generation of a slot in use.
  @inline(__always)
  func find(_ correlation: UInt32) -> (index: UInt32, slot: RequestSlot)? {
    let index = correlation & 0xFFFF
    guard Int(index) < slots.count else { return nil }
    let slot = slots[Int(index)]
    guard UInt32(slot.generation) == correlation >> 16 else { return nil }
    return (index, slot)
  }

  /// Record where a request was encoded again.
  mutating func setFrame(_ index: UInt32, _ frame: BatchedFrame, counter: UInt64) {
    slots[Int(index)].frame = frame
    slots[Int(index)].counter = counter
  }

  /// Remove a request from the list and free its slot.
  @inline(__always)
  mutating func remove(_ index: UInt32) {
    unlink(index)
    free(index)
  }

  /// Remove a request from the list. Its slot stays in use until ``removeAbandoned(_:)``, ``removeAbandoned(where:)``
  /// or ``removeAllAbandoned()``.
  mutating func abandon(_ index: UInt32, of shard: ShardID) {
    unlink(index)
    slots[Int(index)].frame = .none
    slots[Int(index)].previous = UInt32(shard.rawValue)
    slots[Int(index)].state = .abandoned
    abandonedCount += 1
  }

  mutating func removeAbandoned(_ index: UInt32) {
    abandonedCount -= 1
    free(index)
  }

  /// Free the slots of abandoned requests of some shards; return their number.
  mutating func removeAbandoned(where isGone: (ShardID) -> Bool) -> Int {
    guard abandonedCount > 0 else { return 0 }
    let before = abandonedCount
    for index in slots.indices where slots[index].state == .abandoned {
      if isGone(ShardID(UInt16(slots[index].previous))) { removeAbandoned(UInt32(index)) }
    }
    return before - abandonedCount
  }

  mutating func removeAllAbandoned() {
    guard abandonedCount > 0 else { return }
    for index in slots.indices where slots[index].state == .abandoned { free(UInt32(index)) }
    abandonedCount = 0
  }

  @inline(__always)
  private mutating func unlink(_ index: UInt32) {
    let (previous, next) = (slots[Int(index)].previous, slots[Int(index)].next)
    if previous == RequestSlot.none { head = next } else { slots[Int(previous)].next = next }
    if next == RequestSlot.none { tail = previous } else { slots[Int(next)].previous = previous }
    count -= 1
  }

  @inline(__always)
  private mutating func free(_ index: UInt32) {
    var slot = RequestSlot()
    let generation = slots[Int(index)].generation
    slot.generation = generation == UInt16.max ? 1 : generation &+ 1
    slot.next = firstFree
    slots[Int(index)] = slot
    firstFree = index
  }

  // MARK: - Invariants

  /// Check the lists and the states of all slots, and pass each request to `body`, oldest first.
  func checkInvariants(_ body: (UInt32, RequestSlot) -> Void) {
    var listed = 0
    var lastIssue: UInt64 = 0
    var previous = RequestSlot.none
    var index = head
    while index != RequestSlot.none {
      let slot = slots[Int(index)]
      precondition(slot.state == .waiting && slot.previous == previous && slot.issue > lastIssue)
      body(index, slot)
      listed += 1
      lastIssue = slot.issue
      previous = index
      index = slot.next
    }
    precondition(previous == tail && listed == count && lastIssue < nextIssue)
    precondition(slots.count { $0.state == .abandoned } == abandonedCount)
    var free = 0
    index = firstFree
    while index != RequestSlot.none {
      precondition(slots[Int(index)].state == .free)
      free += 1
      index = slots[Int(index)].next
    }
    precondition(free + listed + abandonedCount == slots.count, "no slot is lost")
  }
}

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
