internal import DequeModule
internal import HTTP2Session
internal import NIOCore
internal import StoreClient

/// Batches that wait until the store's window has room for all of their entries, oldest first. A pure state machine.
///
/// A client that sends many batches side by side is slowed down in this way: were they sent at once, the entries that
/// find no room would be refused as `store_busy`, although there is room a moment later. A batch that has waited for
/// its time is begun whatever room there is. Their bodies stay in their streams, whose number and bytes HTTP/2 bounds.
struct BatchQueue {
  /// A request whose body was found to be in order, of which nothing was sent.
  struct Waiting {
    let connection: UInt32
    let stream: HTTP2StreamHandle
    let caller: Caller
    /// Requests that it makes to the store.
    let entries: Int
    let deadline: NIODeadline
  }

  private var waiting = Deque<Waiting>()

  var count: Int { waiting.count }

  /// When the oldest is begun at the latest.
  var deadline: NIODeadline? { waiting.first?.deadline }

  mutating func append(_ batch: Waiting) { waiting.append(batch) }

  /// Takes out the oldest if there is room for its entries, or its time is over.
  mutating func next(now: NIODeadline, hasRoom: (_ entries: Int) -> Bool) -> Waiting? {
    guard let first = waiting.first, first.deadline <= now || hasRoom(first.entries) else { return nil }
    return waiting.removeFirst()
  }
}

extension GatewayLoop {
  /// Whether a batch of so many entries may begin. If not, it waits, and comes here again.
  func mayBegin(batchOf entries: Int, _ context: RequestContext) -> Bool {
    if isBeginningBatch || batches.count == 0 && store.hasRoom(for: entries) { return true }
    let deadline = eventLoop.now + limits.batchWait
    batches.append(
      BatchQueue.Waiting(
        connection: context.connection,
        stream: context.stream,
        caller: context.caller,
        entries: entries,
        deadline: deadline
      )
    )
    counters.batchesDelayed &+= 1
    if batches.count == 1 { lookAtBatches(at: deadline) }
    return false
  }

  /// Begins those that fit now, or have waited long enough.
  func beginWaitingBatches() {
    while let batch = batches.next(now: eventLoop.now, hasRoom: { store.hasRoom(for: $0) }) { begin(batch) }
  }

  private func lookAtBatches(at deadline: NIODeadline) {
    eventLoop.assumeIsolated().scheduleTask(deadline: deadline) {
      self.beginWaitingBatches()
      self.endTurn()
      if let next = self.batches.deadline { self.lookAtBatches(at: next) }
    }
  }

  private func begin(_ batch: BatchQueue.Waiting) {
    guard let connection = connections.connection(batch.connection), connection.isOpen(batch.stream) else {
      return
    }
    connections.markDirty(batch.connection)
    isBeginningBatch = true
    defer { isBeginningBatch = false }
    receiveAgain(batch.stream, connection, caller: batch.caller)
  }
}
