import DequeModule
import ReceiptModel

/// What a shard knows of the gateways' sessions, so that a resend is applied exactly once (Proto/frames.md, "Sessions
/// and resending").
///
/// A counter at or below a record's `highest` counts as applied unless it stands in `waiting`: there stand commands
/// that wait for a channel, and those that were refused. A refusal may be lost with its connection; if its counter
/// counted as applied, the resend would be answered as if it had been.
struct SessionTable {
  /// Refused commands that a session keeps as not applied; the oldest give way, their answers have arrived long since.
  /// They stand in every batch that the session writes, so they are few.
  static let refusedMax = 128

  private struct Entry {
    var record: SessionRecord
    /// In the batch that gathers now.
    var isTouched = false
    /// Those of `record.waiting` that wait for no channel: refused, or read back after a restart. Oldest first.
    var refused: Deque<UInt64> = []
    /// When it was last written, in the loop's elapsed time.
    var writtenAt: Int64 = 0
  }

  private var entries: [Entry] = []
  private var positions: [SessionID: Int32] = [:]
  private var touched: [Int32] = []

  /// Where a session stands; new ones are taken in.
  mutating func position(of session: SessionID) -> Int32 {
    if let known = positions[session] { return known }
    let position = Int32(entries.count)
    entries.append(Entry(record: SessionRecord(session: session)))
    positions[session] = position
    return position
  }

  @inline(__always)
  func covers(_ counter: UInt64, at position: Int32) -> Bool { entries[Int(position)].record.covers(counter) }

  /// The command is decided now, and not refused.
  mutating func decided(_ counter: UInt64, at position: Int32) {
    let position = Int(position)
    if counter > entries[position].record.highest {
      entries[position].record.highest = counter
    } else if !entries[position].record.waiting.isEmpty {
      entries[position].record.waiting.removeAll { $0 == counter }
    }
  }

  /// The command waits for its channel; later ones of its session may be decided before it.
  mutating func waits(_ counter: UInt64, at position: Int32) {
    let position = Int(position)
    guard counter > entries[position].record.highest else { return }
    entries[position].record.highest = counter
    entries[position].record.waiting.append(counter)
  }

  /// The command was refused, and nothing of it applied: sent again, it is decided again.
  mutating func refused(_ counter: UInt64, at position: Int32) {
    guard !covers(counter, at: position) else { return }
    waits(counter, at: position)
    entries[Int(position)].refused.append(counter)
    while entries[Int(position)].refused.count > Self.refusedMax {
      let oldest = entries[Int(position)].refused.removeFirst()
      entries[Int(position)].record.waiting.removeAll { $0 == oldest }
    }
  }

  /// The session has an effect in the batch that gathers.
  mutating func touch(_ position: Int32) {
    guard !entries[Int(position)].isTouched else { return }
    entries[Int(position)].isTouched = true
    touched.append(position)
  }

  /// The records of the batch that is closed at `time`.
  mutating func takeTouched(at time: Timestamp, elapsed: Int64) -> [SessionRecord] {
    defer { touched.removeAll(keepingCapacity: true) }
    return touched.map { position in
      entries[Int(position)].isTouched = false
      entries[Int(position)].writtenAt = elapsed
      entries[Int(position)].record.lastWritten = time
      return entries[Int(position)].record
    }
  }

  /// Takes over a record that is read back.
  mutating func assign(_ record: SessionRecord) {
    let position = Int(position(of: record.session))
    entries[position].record = record
    entries[position].refused = Deque(record.waiting)
  }

  /// What the shard's head page keeps: sessions that wrote no longer ago than `lifetime` milliseconds, or were read
  /// back no longer ago. By elapsed time, not by the clock: a clock that is put forward may not make a shard forget
  /// what it has just applied.
  func records(elapsed: Int64, lifetimeMilliseconds: Int64) -> [SessionRecord] {
    entries.lazy.filter { $0.record.highest > 0 && elapsed - $0.writtenAt <= lifetimeMilliseconds }
      .map(\.record)
      .sorted { ($0.session.high, $0.session.low) < ($1.session.high, $1.session.low) }
  }
}
