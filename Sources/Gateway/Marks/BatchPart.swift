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
