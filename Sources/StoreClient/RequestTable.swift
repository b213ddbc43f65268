internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The requests that have no answer yet, and the bytes they were written in. A pure state machine: time is a
/// count of ticks, frames go out as the buffers that its functions return.
///
/// A request's slot is the lower half of its correlation id. Slots are threaded on a list in order of issue,
/// in which the requests written so far are always the first ones; so "sent", "sent on this connection" and
/// "not sent yet" are two marks in that order, and a deadline sweep looks at nothing but what is due.
///
/// A request is encoded once, at the end of the open batch; a flush closes the batch and writes it whole.
/// Batches stay for a resend until the last of their requests is done. Nothing is copied but after a lost
/// connection.
struct RequestTable: ~Copyable {
  static let none = UInt32.max

  enum SlotState: UInt8 {
    /// On the free list.
    case free
    /// On the list of requests.
    case waiting
    /// Given up, but sent on this connection: the slot stays taken until the store answers or the connection
    /// ends, so that no late reply meets another request. It also still counts in the store's window.
    case abandoned
  }

  struct Slot {
    var token: UInt64 = 0
    /// Place in the order of issue.
    var issue: UInt64 = 0
    /// The session's counter as it stands in the bytes; 0 for a query.
    var counter: UInt64 = 0
    /// Where the frame stands in its batch.
    var offset: UInt32 = 0
    var length: UInt32 = 0
    var batch: UInt32 = RequestTable.none
    var previous: UInt32 = RequestTable.none
    /// The next request; in a free slot the next free one.
    var next: UInt32 = RequestTable.none
    var deadlineTick: UInt32 = 0
    var generation: UInt16 = 0
    var kind: UInt8 = 0
    var state = SlotState.free
    /// The shard follows from the first field, a cid, rather than from the caller.
    var isRouted = false
  }

  struct Batch {
    /// Empty while the batch is the open one.
    var buffer = ByteBuffer()
    /// Requests in it that have no answer.
    var outstanding = 0
    /// What it counts in `retainedBytes`; 0: the entry is free.
    var bytes = 0
  }

  var slots: [Slot] = []
  private(set) var freeSlot = RequestTable.none
  private(set) var head = RequestTable.none
  private(set) var tail = RequestTable.none
  /// The first request that was not written on this connection.
  var cursor = RequestTable.none
  /// Requests on the list.
  private(set) var count = 0
  private(set) var abandonedCount = 0
  private var nextIssue: UInt64 = 1
  /// Requests issued before this were written on some connection.
  var sentEnd: UInt64 = 1
  /// Requests issued before this were written on this connection.
  var wireEnd: UInt64 = 1
  /// Requests written on this connection that the store has not answered.
  var onWire = 0

  /// The counter that the next command gets.
  var counterNext: UInt64 = 1
  /// The highest counter that was written.
  var counterSent: UInt64 = 0
  /// The bytes of requests that were never written are not as they have to be: a counter is missing, belongs
  /// to an ended session, or the shards were not known.
  var unsentIsStale = false

  var batches: [Batch] = []
  var freeBatches: [UInt32] = []
  var open = ByteBuffer()
  /// The open batch; none while it is empty.
  var openBatch = RequestTable.none
  /// Issue number of the open batch's first request.
  var openFirstIssue: UInt64 = 0
  var retainedBytes = 0
  /// How large the next batch is likely to be.
  var batchBytesHint = StoreClientLimits.batchBytesMin
  var spares: [ByteBuffer] = []

  /// Requests that may wait; the lower of the own and the store's limit.
  var limit: Int
  /// 0 until a store said it.
  private(set) var shardCount = 0
  /// The store's frame limit.
  var frameLengthMax = FrameHeader.lengthLimitDefault
  /// Ticks so far, wrapping. They are counted, not taken from a clock: a loop that stood still for a while
  /// has not kept anybody waiting by that, and a request costs no look at the time.
  private(set) var ticks: UInt32 = 0
  private let deadlineTicks: UInt32
  var stats = StoreClientStats()

  /// - Parameters:
  ///   - limit: 1 to ``StoreClientLimits/requestsMax``.
  ///   - deadlineTicks: how many ticks a request may wait.
  init(limit: Int, deadlineTicks: UInt32) {
    self.limit = min(max(limit, 1), StoreClientLimits.requestsMax)
    self.deadlineTicks = deadlineTicks
  }

  // MARK: - New requests

  /// Whether the window, and the bytes that may be kept, have room for one more.
  var hasRoom: Bool {
    count + abandonedCount < limit && retainedBytes + open.writerIndex < StoreClientLimits.retainedBytesMax
  }

  /// Whether there is room for so many requests more by their number, and for one by its bytes; or there are none at
  /// all.
  func hasRoom(for count: Int) -> Bool {
    let taken = self.count + abandonedCount
    return hasRoom && (taken + count <= limit || taken == 0)
  }

  /// Encodes one request. False: the window is full, nothing was done.
  ///
  /// - Parameters:
  ///   - shard: nil where it follows from `name`, a cid.
  ///   - name: the first field; nil where the kind has none.
  ///   - issued: what stands behind the fields, in seconds; nil: nothing does.
  ///   - thread: what stands between the two, not empty; nil: nothing does.
  mutating func append(
    _ kind: FrameKind,
    shard: ShardID?,
    name: RawSpan?,
    token: UInt64,
    issued: UInt32? = nil,
    thread: RawSpan? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) -> OnAppend {
    guard hasRoom else { return .busy }
    var target = shard ?? ShardID(0)
    if shard == nil, let name {
      if shardCount > 0 { target = .owning(name, count: shardCount) } else { unsentIsStale = true }
    }
    let index = freeSlot == Self.none ? addSlot() : freeSlot
    let generation = slots[Int(index)].generation
    let start = open.writerIndex
    let counter = kind.isCommand ? counterNext : 0
    var flags = FrameHeader.Flags()
    if issued != nil { flags = flags.union(.issued) }
    if thread != nil { flags = flags.union(.thread) }
    open.beginRequest(
      FrameHeader(
        kind,
        flags: flags,
        shard: target,
        correlation: UInt32(generation) << 16 | index
      ),
      name: name,
      counter: counter
    )
    fields(&open)
    if let thread { open.writeField(thread) }
    if let issued { open.writeInteger(issued) }
    open.endFrame(start)
    let length = open.writerIndex - start
    guard length - 4 <= Int(frameLengthMax) else {
      open.moveWriterIndex(to: start)
      return .tooLarge(length - 4)
    }
    if kind.isCommand { counterNext &+= 1 }
    if openBatch == Self.none { beginBatch() }
    batches[Int(openBatch)].outstanding += 1

    let issue = nextIssue
    nextIssue &+= 1
    let last = tail
    freeSlot = slots[Int(index)].next
    slots[Int(index)] = Slot(
      token: token,
      issue: issue,
      counter: counter,
      offset: UInt32(truncatingIfNeeded: start),
      length: UInt32(truncatingIfNeeded: length),
      batch: openBatch,
      previous: last,
      next: Self.none,
      deadlineTick: ticks &+ deadlineTicks,
      generation: generation,
      kind: kind.rawValue,
      state: .waiting,
      isRouted: shard == nil && name != nil
    )
    if last == Self.none { head = index } else { slots[Int(last)].next = index }
    tail = index
    if cursor == Self.none { cursor = index }
    count += 1
    if open.writerIndex >= StoreClientLimits.batchBytesMax { closeBatch() }
    return .queued
  }

  enum OnAppend: Equatable {
    case queued
    /// The window is full, nothing was done.
    case busy
    /// The frame's length field would be this, above the store's limit; nothing was done.
    case tooLarge(Int)
  }

  private mutating func addSlot() -> UInt32 {
    var slot = Slot()
    slot.generation = 1
    slots.append(slot)
    return UInt32(slots.count - 1)
  }

  // MARK: - Replies

  enum OnReply: Equatable {
    case deliver(token: UInt64)
    /// The request was given up before.
    case late
    /// No request waits for this.
    case stray
  }

  mutating func replied(_ header: FrameHeader) -> OnReply {
    let index = header.correlation & 0xFFFF
    guard Int(index) < slots.count else { return .stray }
    let slot = slots[Int(index)]
    guard UInt32(slot.generation) == header.correlation >> 16, slot.issue < wireEnd,
      header.kind == .error || header.kind.rawValue == slot.kind | 0x80
    else { return .stray }
    switch slot.state {
    case .free:
      return .stray
    case .waiting:
      onWire -= 1
      stats.replies &+= 1
      unlink(index)
      release(index)
      return .deliver(token: slot.token)
    case .abandoned:
      onWire -= 1
      stats.repliesLate &+= 1
      abandonedCount -= 1
      release(index)
      return .late
    }
  }

  // MARK: - Requests given up

  struct Given: Equatable {
    var token: UInt64
    var failure: StoreFailure
  }

  /// One tick has passed. Takes out the requests whose deadline has passed, oldest first.
  mutating func tick() -> [Given] {
    ticks &+= 1
    var given: [Given] = []
    while head != Self.none, Int32(bitPattern: ticks &- slots[Int(head)].deadlineTick) >= 0 {
      stats.timeouts &+= 1
      given.append(giveUp(head))
    }
    return given
  }

  /// The session ended: commands that were sent are given up, all else goes on in a new session from counter
  /// 1.
  mutating func sessionEnded() -> [Given] {
    var given: [Given] = []
    var index = head
    while index != Self.none, slots[Int(index)].issue < sentEnd {
      let next = slots[Int(index)].next
      if isCommand(index) { given.append(giveUp(index)) }
      index = next
    }
    counterNext = 1
    counterSent = 0
    if head != Self.none { unsentIsStale = true }
    return given
  }

  /// Everything is given up, oldest first, and no more is taken.
  mutating func close() -> [Given] {
    limit = 0
    var given: [Given] = []
    while head != Self.none { given.append(giveUp(head)) }
    return given
  }

  /// Takes one request out. Its failure follows from what it is and how far it came.
  mutating func giveUp(_ index: UInt32) -> Given {
    let slot = slots[Int(index)]
    let wasSent = slot.issue < sentEnd
    let given = Given(
      token: slot.token,
      failure: wasSent && isCommand(index) ? .outcomeUnknown : .unavailable
    )
    unlink(index)
    if slot.issue < wireEnd {
      releaseBatch(slot.batch)
      slots[Int(index)].batch = Self.none
      slots[Int(index)].state = .abandoned
      abandonedCount += 1
    } else {
      // Its bytes stand in a batch that may not go out whole now.
      if !wasSent { unsentIsStale = true }
      release(index)
    }
    return given
  }

  func isCommand(_ index: UInt32) -> Bool { FrameKind.isCommand(slots[Int(index)].kind) }

  // MARK: - Connections

  /// An opening is done: what was sent before and has no answer is to be sent again.
  ///
  /// - Parameters:
  ///   - shardCount: of the store.
  ///   - limit: the lower of the own limit and the store's window.
  /// - Returns: what this store would not take, for it allows shorter frames only.
  mutating func connectionOpened(shardCount: Int, limit: Int, frameLengthMax: UInt32) -> [Given] {
    if self.shardCount != shardCount {
      self.shardCount = shardCount
      if head != Self.none { unsentIsStale = true }
    }
    self.limit = min(max(limit, 1), StoreClientLimits.requestsMax)
    var given: [Given] = []
    if frameLengthMax < self.frameLengthMax {
      var index = head
      while index != Self.none {
        let slot = slots[Int(index)]
        if slot.length - 4 > frameLengthMax { given.append(giveUp(index)) }
        index = slot.next
      }
    }
    self.frameLengthMax = min(frameLengthMax, FrameHeader.lengthLimitDefault)
    return given
  }

  /// The connection is gone, and with it what the store still had to answer on it.
  mutating func connectionLost() {
    if abandonedCount > 0 {
      for index in slots.indices where slots[index].state == .abandoned { release(UInt32(index)) }
      abandonedCount = 0
    }
    onWire = 0
    wireEnd = 0
    cursor = head
  }

  // MARK: - The list

  private mutating func unlink(_ index: UInt32) {
    let (previous, next) = (slots[Int(index)].previous, slots[Int(index)].next)
    if previous == Self.none { head = next } else { slots[Int(previous)].next = next }
    if next == Self.none { tail = previous } else { slots[Int(next)].previous = previous }
    if cursor == index { cursor = next }
    count -= 1
  }

  private mutating func release(_ index: UInt32) {
    let batch = slots[Int(index)].batch
    if batch != Self.none { releaseBatch(batch) }
    let generation = slots[Int(index)].generation
    slots[Int(index)] = Slot(next: freeSlot, generation: generation == UInt16.max ? 1 : generation &+ 1)
    freeSlot = index
  }

  /// Every request issued from here on is later than all there are.
  var issueEnd: UInt64 { nextIssue }
}
