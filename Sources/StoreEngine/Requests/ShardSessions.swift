internal import ReceiptModel

/// The gateways' sessions in a shard: which commands count as applied, so that a resend is applied exactly once.
final class ShardSessions: ShardPart {
  private var table = SessionTable()

  // MARK: Look-up

  /// Return the position of a connection's session; add a new session.
  @inline(__always)
  func position(of lane: ReplyLane) -> Int32 {
    let known = lane.sessionPositions[shard.position]
    return known >= 0 ? known : find(lane)
  }

  @inline(never)
  private func find(_ lane: ReplyLane) -> Int32 {
    let found = table.position(of: lane.session)
    lane.sessionPositions[shard.position] = found
    return found
  }

  /// Return whether a command counts as applied.
  @inline(__always)
  func covers(_ counter: UInt64, at position: Int32) -> Bool { table.covers(counter, at: position) }

  // MARK: Commands

  /// Record that a command was decided and not refused.
  @inline(__always)
  func recordDecision(_ request: borrowing Request) {
    guard let counter = request.counter, !request.isDuplicate else { return }
    table.recordDecided(counter, at: request.session)
  }

  /// Record that a command was refused and not applied; a resend is decided then.
  func recordRefusal(_ request: borrowing Request) {
    guard let counter = request.counter, !request.isDuplicate else { return }
    table.recordRefused(counter, at: position(of: request.lane))
  }

  /// Record that a request is dropped because its connection is gone. A command is resent on another connection, where
  /// it may have been refused already: applying it here would come after that refusal.
  func recordDrop(_ waiting: WaitingRequest) {
    if let counter = waiting.counter { table.recordDropped(counter, at: position(of: waiting.lane)) }
  }

  /// Record that a command was refused for the whole store, unless it was applied already.
  ///
  /// - Returns: whether it is refused.
  func recordRefusalUnlessApplied(_ counter: UInt64, _ lane: ReplyLane) -> Bool {
    // First, because it adds a session that is new here.
    let session = position(of: lane)
    guard !table.covers(counter, at: session) else { return false }
    table.recordRefused(counter, at: session)
    return true
  }

  /// Record that a command waits, unless it was applied already.
  func recordWaiting(_ counter: UInt64, _ lane: ReplyLane) {
    let session = position(of: lane)
    if !table.covers(counter, at: session) { table.recordWaiting(counter, at: session) }
  }

  // MARK: Log and pages

  /// Record that a session has an effect in the open batch.
  @inline(__always)
  func markChanged(_ session: Int32) { table.markChanged(session) }

  /// Take the session records for the batch that is being closed.
  func takeChanged() -> [SessionRecord] {
    table.takeChanged(at: shard.state.time, elapsed: shard.loop.elapsedMilliseconds)
  }

  /// Assign a session that was read from storage or from a followed log.
  func assign(_ record: SessionRecord, elapsed: Int64 = 0) { table.assign(record, elapsed: elapsed) }

  /// The sessions that the head page keeps.
  var kept: [SessionRecord] {
    table.records(
      elapsed: shard.loop.elapsedMilliseconds,
      lifetimeMilliseconds: 2 * shard.configuration.sessionLifetimeMilliseconds
    )
  }
}
