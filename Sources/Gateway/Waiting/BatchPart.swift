internal import DequeModule
internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import StoreClient

/// The batches that wait for room in the store's request window: performs ``BatchQueue``.
final class BatchPart: GatewayPart {
  private var queue = BatchQueue()
  /// Batches that had to wait, since the start.
  private var delayed: UInt64 = 0
  /// Whether a check of the oldest deadline is scheduled.
  private var isChecking = false

  /// Batches that wait.
  var waitingCount: Int { queue.count }

  /// Let a batch of `entries` requests begin, or queue it if there is no room: its request is then handled again later.
  ///
  /// - Returns: whether it may begin now.
  func beginOrEnqueue(batchOf entries: Int, _ context: RequestContext) -> Bool {
    if context.hasWaited || queue.count == 0 && loop.store.hasRoom(for: entries) { return true }
    let deadline = loop.eventLoop.now + loop.limits.batchWait
    queue.append(
      BatchQueue.Waiting(
        connection: context.connection,
        stream: context.stream,
        caller: context.caller,
        entries: entries,
        deadline: deadline
      )
    )
    delayed &+= 1
    if !isChecking { scheduleCheck(at: deadline) }
    return false
  }

  /// Begin the batches that fit now or have reached their deadline.
  func beginWaiting() {
    while let batch = queue.next(now: loop.eventLoop.now, hasRoom: { loop.store.hasRoom(for: $0) }) {
      begin(batch)
    }
  }

  private func scheduleCheck(at deadline: NIODeadline) {
    isChecking = true
    runLater(in: deadline - loop.eventLoop.now) { [self] in
      beginWaiting()
      loop.endTurn()
      isChecking = false
      if let next = queue.deadline { scheduleCheck(at: next) }
    }
  }

  private func begin(_ batch: BatchQueue.Waiting) {
    guard let connection = loop.connections.answering(batch.stream, on: batch.connection) else { return }
    loop.resumeRequest(batch.stream, connection, caller: batch.caller)
  }

  override func collect(into samples: inout MetricSamples) {
    samples.gauge(
      "tidemark_gateway_batches_waiting",
      help: "Batches waiting for room in the store's request window.",
      Double(waitingCount)
    )
    samples.counter(
      "tidemark_gateway_batches_delayed_total",
      help: "Batches that had to wait for room.",
      Int64(delayed)
    )
  }
}

/// Batches that wait until the store's request window has room for all of their entries, oldest first. A pure state
/// machine.
///
/// The queue throttles a client that sends many batches in parallel. Sent at once, entries that exceed the window would
/// be refused as `store_busy`, although there is room a moment later. At its deadline a batch begins regardless of
/// room. Bodies stay in their streams, whose number and bytes HTTP/2 bounds.
struct BatchQueue {
  /// A request with a validated body, of which nothing has been sent.
  struct Waiting {
    let connection: ConnectionIndex
    let stream: HTTP2StreamHandle
    let caller: Caller
    /// Number of its requests to the store.
    let entries: Int
    let deadline: NIODeadline
  }

  private var waiting = Deque<Waiting>()

  var count: Int { waiting.count }

  /// The deadline of the oldest batch.
  var deadline: NIODeadline? { waiting.first?.deadline }

  mutating func append(_ batch: Waiting) { waiting.append(batch) }

  /// Remove the oldest batch if there is room for its entries or its deadline has passed.
  mutating func next(now: NIODeadline, hasRoom: (_ entries: Int) -> Bool) -> Waiting? {
    guard let first = waiting.first, first.deadline <= now || hasRoom(first.entries) else { return nil }
    return waiting.removeFirst()
  }
}
