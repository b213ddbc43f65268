package import FeedClient

/// State machine of one stream of a webhook's partition, from its lease to its end. Events go in, actions come out; the
/// caller performs them. Times are milliseconds since 1970, because a time of one worker is read by another.
///
/// A failed batch is not kept beyond its stream: its state is stored, and the next stream, of this worker or another,
/// puts it together again. A batch that becomes a dead letter takes three streams, so that no dead letter is lost to a
/// concurrent `replay`, which writes the same state with the same epoch:
///
/// 1. The dead letter is stored, but the position is not committed; the stream ends.
/// 2. The next stream has a newer epoch, so a replay that read the state earlier can no longer write it. If the state
///    contains the dead letter, the position behind it is committed; else the batch is attempted once more.
/// 3. The stream after that begins behind the batch.
package struct PartitionMachine: Sendable {
  /// What has happened.
  package enum Event: Sendable {
    /// Lines of the stream, in answer to ``Action/read``.
    case lines([FeedLine])
    /// The attempt of the batch in flight has ended.
    case attempted(DeliveryOutcome)
    case committed(CommitResult)
    /// The time of ``Action/wake(at:)`` has come.
    case woken
    /// The endpoint is gone: no new batch before that time. Nil: it is back.
    case paused(until: Int64?)
    case streamEnded
    /// The lease moves to another worker, or the worker stops: finish the request in flight.
    case stop
    /// The request in flight has taken too long to finish.
    case abandon
  }

  /// Result of a commit.
  package enum CommitResult: Sendable, Hashable {
    /// With the number of dead letters, if the state was stored.
    case done(deadLetters: Int?)
    case leaseLost
    /// To be tried again.
    case failed
  }

  /// Position, change of the state, or both, to be committed.
  package struct Commit: Sendable, Hashable {
    /// Epoch of the stream.
    package var epoch: Int64
    /// Position; nil: it stays.
    package var cursor: String?
    /// Change of the state; nil: it stays.
    package var change: PartitionState.Change?

    /// Create a commit.
    package init(epoch: Int64, cursor: String? = nil, change: PartitionState.Change? = nil) {
      self.epoch = epoch
      self.cursor = cursor
      self.change = change
    }
  }

  /// Why a stream is no longer served.
  package enum End: Sendable, Hashable {
    /// Open the next stream.
    case reopen
    /// Another worker has the partition, or its stream was replaced.
    case leaseLost
    /// As asked with ``Event/stop``.
    case stopped
    /// The stream cannot be used; the reason is for the log.
    case failed(String)
  }

  /// What the caller is to do.
  package enum Action: Sendable, Hashable {
    /// Read lines from the stream.
    case read
    case attempt(Batch)
    case commit(Commit)
    /// Send ``Event/woken`` at that time; replaces an earlier wake.
    case wake(at: Int64)
    case report(Report)
    case end(End)
  }

  /// Something to log and count.
  package enum Report: Sendable, Hashable {
    case gap(from: String, to: String)
    case deadLetter(DeadLetter)
    /// The endpoint answered 410; the next attempt is at that time.
    case gone(until: Int64)
  }

  private enum Phase: Equatable {
    case awaitingLease
    /// awaitingLease → running
    case running
    /// running → ending, with the end once the request in flight and the commits are done
    case ending(End)
    case ended
  }

  /// The batch that is delivered next.
  private enum Current {
    case none
    case waiting(Batch, PartitionState.Attempt)
    case inFlight(Batch, PartitionState.Attempt)
  }

  /// Delivered batches that may wait for their commit.
  private static let uncommittedMax = 16
  /// Delay in milliseconds before a failed commit is repeated.
  private static let commitRetryDelay: Int64 = 1_000

  private let task: WebhookTask
  private let partition: String
  private var phase = Phase.awaitingLease
  /// The epoch of the stream; nil before its lease.
  private var epoch: Int64?
  private var assembler: BatchAssembler
  /// Attempts of the batch that is put together again.
  private var repeated: PartitionState.Attempt?
  private var backlog: ArraySlice<FeedLine> = []
  private var current = Current.none
  private var lastCursor: String?
  /// The position before the first record of the assembler.
  private var batchFrom: String?
  /// The position of the last commit that was sent.
  private var committedCursor: String?
  private var isReading = false
  private var isCommitting = false
  private var pendingCursor: String?
  private var pendingChange: PartitionState.Change?
  /// Whether the stored state contains an attempt.
  private var hasStoredAttempt = false
  private var inFlightCommit: Commit?
  /// Batches delivered since the last successful commit, and how many of them the commit in flight has.
  private var uncommitted = 0
  private var committing = 0
  private var commitNotBefore: Int64 = 0
  private var pausedUntil: Int64?
  private var lastWake: Int64?

  /// Create a machine for a new stream, with the webhook's current pause.
  package init(_ task: WebhookTask, partition: String, pausedUntil: Int64? = nil) {
    self.task = task
    self.partition = partition
    self.pausedUntil = pausedUntil
    assembler = BatchAssembler(
      recordsMax: task.batchRecordsMax,
      waitMilliseconds: task.batchWaitMilliseconds
    )
  }

  /// Begin to read.
  package mutating func start(now: Int64) -> [Action] { advance(now) }

  /// Handle an event.
  ///
  /// - Parameter jitter: a random number from 0 to 1.
  package mutating func handle(_ event: Event, now: Int64, jitter: Double) -> [Action] {
    guard phase != .ended else { return [] }
    var actions: [Action] = []
    switch event {
    case .lines(let lines):
      isReading = false
      if case .ending = phase { break }
      backlog += lines
    case .attempted(let outcome): attemptEnded(outcome, now, jitter, &actions)
    case .committed(let result):
      isCommitting = false
      switch result {
      case .done: uncommitted -= committing
      case .leaseLost: return end(.leaseLost)
      case .failed: return commitFailed(now)
      }
    case .woken: lastWake = nil
    case .paused(let until): pausedUntil = until
    case .streamEnded: beginEnding(.reopen)
    case .stop: beginEnding(.stopped)
    case .abandon:
      if case .inFlight(_, var attempt) = current {
        current = .none
        attempt.nextAt = now
        store(.init(attempt: attempt))
      }
    }
    return actions + advance(now)
  }

  private mutating func commitFailed(_ now: Int64) -> [Action] {
    // Put back what a later commit has not replaced.
    if let commit = inFlightCommit {
      pendingCursor = pendingCursor ?? commit.cursor
      pendingChange = pendingChange ?? commit.change
    }
    if case .ending(let end) = phase { return self.end(end) }
    commitNotBefore = now + Self.commitRetryDelay
    return advance(now)
  }

  private mutating func end(_ end: End) -> [Action] {
    phase = .ended
    return [.end(end)]
  }

  private mutating func beginEnding(_ end: End) {
    backlog = []
    switch phase {
    case .awaitingLease, .running, .ending(.reopen): phase = .ending(end)
    case .ending, .ended: break
    }
    if case .waiting = current { current = .none }
  }

  private mutating func store(_ change: PartitionState.Change) {
    pendingChange = change
    hasStoredAttempt = change.attempt != nil
  }

  // MARK: Attempts

  private mutating func attemptEnded(
    _ outcome: DeliveryOutcome,
    _ now: Int64,
    _ jitter: Double,
    _ actions: inout [Action]
  ) {
    guard case .inFlight(let batch, var attempt) = current else { return }
    current = .none
    switch outcome {
    case .delivered:
      pausedUntil = nil
      pendingCursor = batch.end
      uncommitted += 1
      if hasStoredAttempt { store(.init(attempt: nil)) }
    case .failed(let failure):
      attempt.attempts += 1
      attempt.nextAt = now + RetrySchedule.delay(afterAttempts: attempt.attempts, failure, jitter: jitter)
      if failure.isGone {
        pausedUntil = attempt.nextAt
        actions.append(.report(.gone(until: attempt.nextAt)))
      }
      guard now - attempt.firstAt >= task.retryMilliseconds else {
        store(.init(attempt: attempt))
        if phase == .running { current = .waiting(batch, attempt) }
        return
      }
      let letter = DeadLetter(
        from: batch.from,
        to: batch.end,
        count: batch.count,
        firstErrorAt: attempt.firstAt,
        lastErrorAt: now,
        error: "\(failure.cause)"
      )
      store(.init(attempt: attempt, deadLetter: letter))
      actions.append(.report(.deadLetter(letter)))
      beginEnding(.reopen)
    }
  }

  // MARK: Lines

  private mutating func leaseReceived(_ lease: FeedLease, _ now: Int64) -> End? {
    guard phase == .awaitingLease else { return .failed("a second lease line") }
    guard let state = PartitionState(lease.state) else {
      return .failed("the stored state is of a newer version or damaged; delivery stops rather than lose dead letters")
    }
    phase = .running
    epoch = lease.epoch
    lastCursor = lease.cursor
    hasStoredAttempt = state.attempt != nil
    guard let attempt = state.attempt else { return nil }
    if state.isAttemptDead {
      pendingCursor = attempt.end
      store(.init(attempt: nil))
      beginEnding(.reopen)
    } else {
      repeated = attempt
      assembler.repeatBatch(of: attempt)
    }
    return nil
  }

  private var isIdle: Bool {
    guard case .none = current else { return false }
    return assembler.records.isEmpty && repeated == nil
  }

  /// Use lines up to the end of the batch that is put together.
  private mutating func consume(_ now: Int64, _ actions: inout [Action]) -> End? {
    while assembler.takesRecords, let line = backlog.first {
      guard phase == .running || phase == .awaitingLease else { return nil }
      backlog.removeFirst()
      switch line {
      case .lease(let lease):
        if let end = leaseReceived(lease, now) { return end }
      case _ where phase == .awaitingLease: return .failed("the stream does not begin with a lease")
      case .record(let record):
        assembler.add(record, now: now)
        if assembler.records.count == 1 { batchFrom = lastCursor }
        lastCursor = record.cursor
      case .heartbeat(let cursor):
        lastCursor = cursor
        if assembler.heartbeatReceived() { forgetRepeated() }
        if isIdle { commitIdle(cursor) }
      case .gap(let cursor, let from, let to):
        assembler.close()
        lastCursor = cursor
        actions.append(.report(.gap(from: from, to: to)))
        if isIdle { commitIdle(cursor) }
      case .leaseLost: return .leaseLost
      }
    }
    return nil
  }

  /// Commit a position behind which nothing is pending, once.
  private mutating func commitIdle(_ cursor: String) {
    guard cursor != committedCursor else { return }
    pendingCursor = cursor
  }

  /// Forget the attempts of a batch whose records are all gone.
  private mutating func forgetRepeated() {
    repeated = nil
    store(.init(attempt: nil))
  }

  // MARK: Progress

  private mutating func advance(_ now: Int64) -> [Action] {
    var actions: [Action] = []
    if let end = consume(now, &actions) { return actions + self.end(end) }
    if phase == .running, case .none = current, assembler.isReady(now: now) {
      let records = assembler.take()
      let batch = Batch(consumer: task.name, partition: partition, from: batchFrom, records: records)
      var attempt = PartitionState.Attempt(
        from: batch.from,
        end: batch.end,
        count: batch.count,
        attempts: repeated?.attempts ?? 0,
        firstAt: min(repeated?.firstAt ?? now, now),
        nextAt: repeated.map { min($0.nextAt, now + RetrySchedule.retryAfterMax) } ?? now
      )
      if attempt.attempts == 0, let pausedUntil { attempt.nextAt = max(attempt.nextAt, pausedUntil) }
      repeated = nil
      current = .waiting(batch, attempt)
      // The next batch is put together while this one is delivered.
      if let end = consume(now, &actions) { return actions + self.end(end) }
    }
    if phase == .running, case .waiting(let batch, let attempt) = current,
      now >= attemptTime(attempt), uncommitted < Self.uncommittedMax
    {
      current = .inFlight(batch, attempt)
      actions.append(.attempt(batch))
    }
    if let commit = nextCommit(now) { actions.append(.commit(commit)) }
    if case .ending(let end) = phase, !isCommitting {
      if case .inFlight = current { return actions }
      return actions + self.end(end)
    }
    if !isReading, backlog.isEmpty, assembler.takesRecords, phase == .running || phase == .awaitingLease {
      isReading = true
      actions.append(.read)
    }
    if let wake = wakeTime, wake != lastWake {
      lastWake = wake
      actions.append(.wake(at: wake))
    }
    return actions
  }

  /// Take what is to be committed. One commit is in flight at a time; meanwhile later ones become one.
  private mutating func nextCommit(_ now: Int64) -> Commit? {
    guard !isCommitting, let epoch, pendingCursor != nil || pendingChange != nil else { return nil }
    if phase == .running, now < commitNotBefore { return nil }
    let commit = Commit(epoch: epoch, cursor: pendingCursor, change: pendingChange)
    inFlightCommit = commit
    committedCursor = pendingCursor ?? committedCursor
    (pendingCursor, pendingChange, committing, isCommitting) = (nil, nil, uncommitted, true)
    return commit
  }

  /// When the batch may be attempted.
  private func attemptTime(_ attempt: PartitionState.Attempt) -> Int64 {
    // A pause holds back batches that have not been attempted; the others have their own times.
    attempt.attempts == 0 ? max(attempt.firstAt, pausedUntil ?? 0) : attempt.nextAt
  }

  private var wakeTime: Int64? {
    var times: [Int64] = []
    switch current {
    case .none: if let time = assembler.readyAt { times.append(time) }
    case .waiting(_, let attempt):
      // Otherwise it waits for a commit.
      if uncommitted < Self.uncommittedMax { times.append(attemptTime(attempt)) }
    case .inFlight: break
    }
    if !isCommitting, pendingCursor != nil || pendingChange != nil { times.append(commitNotBefore) }
    return times.min()
  }
}
