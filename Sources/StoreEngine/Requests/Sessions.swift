internal import DequeModule
internal import ReceiptModel

/// The gateways' sessions in a shard: which commands count as applied, so that a resend is applied exactly once.
final class ShardSessions: ShardPart {
  private(set) var table = SessionTable()

  // MARK: Look-up

  /// Return the index of a connection's session; add a new session.
  @inline(__always)
  func index(of lane: ReplyLane) -> Int32 {
    let known = lane.sessionIndexes[shard.indexInLoop]
    return known >= 0 ? known : find(lane)
  }

  @inline(never)
  private func find(_ lane: ReplyLane) -> Int32 {
    let found = table.index(of: lane.session)
    table.recordUse(at: found, elapsed: shard.loop.elapsedMilliseconds)
    // A closed lane still drops its requests, but must not keep the index: nothing would take it back.
    guard !lane.isClosed else { return found }
    lane.sessionIndexes[shard.indexInLoop] = found
    table.laneOpened(at: found)
    return found
  }

  /// Record that a session's connection is gone: the session may be forgotten later.
  override func close(_ lane: ReplyLane) {
    let known = lane.sessionIndexes[shard.indexInLoop]
    guard known >= 0 else { return }
    lane.sessionIndexes[shard.indexInLoop] = -1
    table.recordUse(at: known, elapsed: shard.loop.elapsedMilliseconds)
    table.laneClosed(at: known)
  }

  /// Sessions that one tick examines.
  private static let examinedPerTick = 256

  /// Forget some of the sessions that ended long ago.
  func tick() {
    table.forgetEnded(
      elapsed: shard.loop.elapsedMilliseconds,
      lifetimeMilliseconds: keptMilliseconds,
      examinedMax: Self.examinedPerTick
    )
  }

  /// Time after which a session without effects is not kept. Twice its lifetime, because gateways measure that on their
  /// own clocks.
  private var keptMilliseconds: Int64 { 2 * shard.configuration.sessionLifetimeMilliseconds }

  /// Return whether a command counts as applied.
  @inline(__always)
  func hasApplied(_ counter: UInt64, at index: Int32) -> Bool { table.hasApplied(counter, at: index) }

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
    table.recordRefused(counter, at: index(of: request.lane))
  }

  /// Record that a request is dropped because its connection is gone. A command is resent on another connection, where
  /// it may have been refused already: applying it here would come after that refusal.
  func recordDrop(_ waiting: WaitingRequest) {
    if let counter = waiting.counter { table.recordDropped(counter, at: index(of: waiting.lane)) }
  }

  /// Record that a command was refused for the whole store, unless it was applied already.
  ///
  /// - Returns: whether it is refused.
  func recordRefusalUnlessApplied(_ counter: UInt64, _ lane: ReplyLane) -> Bool {
    // First, because it adds a session that is new here.
    let session = index(of: lane)
    guard !table.hasApplied(counter, at: session) else { return false }
    table.recordRefused(counter, at: session)
    return true
  }

  /// Record that a command waits, unless it was applied already.
  func recordWaiting(_ counter: UInt64, _ lane: ReplyLane) {
    let session = index(of: lane)
    if !table.hasApplied(counter, at: session) { table.recordWaiting(counter, at: session) }
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
    table.records(elapsed: shard.loop.elapsedMilliseconds, lifetimeMilliseconds: keptMilliseconds)
  }
}

/// The gateways' sessions in one shard, so that a resend is applied exactly once (Proto/frames.md, "Sessions and
/// resending").
///
/// A counter at or below a record's `highest` counts as applied unless it is in `notApplied`. That list holds the
/// counters of commands that wait for a channel, were refused or were dropped. A refusal may be lost with its
/// connection. If the refused command then counted as applied, its resend would be answered as if it had been done.
struct SessionTable {
  /// Maximum number of refused commands that a session remembers; the oldest are dropped, because their replies arrived
  /// long ago. Every batch with effects of the session contains them, so there are few.
  static let refusedMax = 128
  /// Maximum number of dropped commands that a session remembers: those that waited when their connection closed. The
  /// gateway resends them at once, in order, so there are many, for a short time.
  static let droppedMax = 1_024

  private struct Entry {
    var record: SessionRecord
    /// Set if the session has effects in the open batch.
    var isChanged = false
    /// Counters of refused commands in `record.notApplied`, oldest first. The counter of a command that was resent may
    /// stay for a while.
    var refused: Deque<UInt64> = []
    /// Likewise of dropped commands: their connection closed while they waited, or they were read back after a restart.
    var dropped: Deque<UInt64> = []
    /// Time of the last write, in the loop's elapsed time.
    var writtenAt: Int64 = 0
    /// Open connections that have looked the session up.
    var laneCount = 0
    /// Time at which a connection last looked it up or closed, likewise.
    var usedAt: Int64 = 0

    /// Add a counter to one of the lists, and forget the oldest above the limit. More may have been read back.
    ///
    /// A resent command may be refused again. It is listed once: if an earlier copy was forgotten, the command would
    /// count as applied.
    mutating func append(_ counter: UInt64, to list: WritableKeyPath<Entry, Deque<UInt64>>, countMax: Int) {
      refused.removeAll { $0 == counter }
      dropped.removeAll { $0 == counter }
      self[keyPath: list].append(counter)
      while self[keyPath: list].count > countMax {
        let oldest = self[keyPath: list].removeFirst()
        record.notApplied.removeAll { $0 == oldest }
      }
    }
  }

  private var entries: [Entry] = []
  private var indexes: [SessionID: Int32] = [:]
  private var changed: [Int32] = []
  /// Indexes of forgotten sessions, for new ones.
  private var free: [Int32] = []
  /// The index that ``forgetEnded(elapsed:lifetimeMilliseconds:examinedMax:)`` examines next.
  private var nextExamined = 0

  /// Number of sessions.
  var count: Int { indexes.count }
  /// Number of indexes, free ones included.
  var indexCount: Int { entries.count }

  /// Return a session's index, which stays while a connection has it or the session has an effect in the open batch;
  /// add a new session.
  mutating func index(of session: SessionID) -> Int32 {
    if let known = indexes[session] { return known }
    let entry = Entry(record: SessionRecord(session: session))
    let index: Int32
    if let reused = free.popLast() {
      index = reused
      entries[Int(index)] = entry
    } else {
      index = Int32(entries.count)
      entries.append(entry)
    }
    indexes[session] = index
    return index
  }

  // MARK: Connections

  /// Record that a connection holds a session's index.
  mutating func laneOpened(at index: Int32) { entries[Int(index)].laneCount += 1 }

  /// Record that a connection that held a session's index is gone.
  mutating func laneClosed(at index: Int32) { entries[Int(index)].laneCount -= 1 }

  /// Record that a connection of a session opens or closes.
  mutating func recordUse(at index: Int32, elapsed: Int64) { entries[Int(index)].usedAt = elapsed }

  /// Forget sessions without a connection whose last write and last connection are more than `lifetimeMilliseconds`
  /// ago. The head page no longer keeps them either.
  ///
  /// - Parameter examinedMax: sessions to examine; the next call continues behind them.
  mutating func forgetEnded(elapsed: Int64, lifetimeMilliseconds: Int64, examinedMax: Int) {
    for _ in 0..<min(examinedMax, entries.count) {
      if nextExamined >= entries.count { nextExamined = 0 }
      defer { nextExamined += 1 }
      let entry = entries[nextExamined]
      guard entry.laneCount == 0, !entry.isChanged,
        elapsed - max(entry.writtenAt, entry.usedAt) > lifetimeMilliseconds,
        indexes[entry.record.session] == Int32(nextExamined)
      else { continue }
      indexes[entry.record.session] = nil
      entries[nextExamined] = Entry(record: SessionRecord(session: entry.record.session))
      free.append(Int32(nextExamined))
    }
  }

  // MARK: Commands

  /// Return whether a command counts as applied. A new command is found to be one without a copy of the record.
  @inline(__always)
  func hasApplied(_ counter: UInt64, at index: Int32) -> Bool {
    counter <= entries[Int(index)].record.highest && entries[Int(index)].record.hasApplied(counter)
  }

  /// Record that a command was decided and not refused.
  mutating func recordDecided(_ counter: UInt64, at index: Int32) {
    let index = Int(index)
    if counter > entries[index].record.highest {
      entries[index].record.highest = counter
    } else if !entries[index].record.notApplied.isEmpty {
      entries[index].record.notApplied.removeAll { $0 == counter }
    }
  }

  /// Record that a command waits for its channel. Later commands of its session may be decided first.
  mutating func recordWaiting(_ counter: UInt64, at index: Int32) {
    let index = Int(index)
    guard counter > entries[index].record.highest else { return }
    entries[index].record.highest = counter
    entries[index].record.notApplied.append(counter)
  }

  /// Record that a command was refused and not applied, so that a resend is decided again.
  mutating func recordRefused(_ counter: UInt64, at index: Int32) {
    guard !hasApplied(counter, at: index) else { return }
    recordWaiting(counter, at: index)
    entries[Int(index)].append(counter, to: \.refused, countMax: Self.refusedMax)
  }

  /// Record that a waiting command was dropped and not applied, because its connection closed.
  mutating func recordDropped(_ counter: UInt64, at index: Int32) {
    guard !hasApplied(counter, at: index) else { return }
    recordWaiting(counter, at: index)
    entries[Int(index)].append(counter, to: \.dropped, countMax: Self.droppedMax)
  }

  // MARK: Log and pages

  /// Record that the session has an effect in the open batch.
  mutating func markChanged(_ index: Int32) {
    guard !entries[Int(index)].isChanged else { return }
    entries[Int(index)].isChanged = true
    changed.append(index)
  }

  /// Take the session records for the batch that closes at `time`.
  mutating func takeChanged(at time: Timestamp, elapsed: Int64) -> [SessionRecord] {
    defer { changed.removeAll(keepingCapacity: true) }
    return changed.map { index in
      entries[Int(index)].isChanged = false
      entries[Int(index)].writtenAt = elapsed
      entries[Int(index)].record.lastWritten = time
      return entries[Int(index)].record
    }
  }

  /// Restore a record that was read back, or that the followed log holds.
  ///
  /// - Parameter elapsed: the loop's elapsed time, which is 0 at recovery.
  mutating func assign(_ record: SessionRecord, elapsed: Int64 = 0) {
    let index = Int(index(of: record.session))
    entries[index].record = record
    entries[index].writtenAt = elapsed
    entries[index].dropped = Deque(record.notApplied)
  }

  /// Return the session records for the shard's head page: sessions that were written or restored in the last
  /// `lifetimeMilliseconds`. Measured in elapsed time: a clock that is put forward must not make a shard forget what it
  /// has just applied.
  func records(elapsed: Int64, lifetimeMilliseconds: Int64) -> [SessionRecord] {
    entries.lazy.filter { $0.record.highest > 0 && elapsed - $0.writtenAt <= lifetimeMilliseconds }
      .map(\.record)
      .sorted { ($0.session.high, $0.session.low) < ($1.session.high, $1.session.low) }
  }
}
