import ReceiptModel

/// What a shard knows of the gateways' sessions, so that a resend is applied exactly once (Proto/frames.md, "Sessions and resending").
struct SessionTable {
  private struct Entry {
    var record: SessionRecord
    /// In the batch that gathers now.
    var isTouched = false
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

  func covers(_ counter: UInt64, at position: Int32) -> Bool { entries[Int(position)].record.covers(counter) }

  /// The command is decided now.
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

  /// The session has an effect in the batch that gathers.
  mutating func touch(_ position: Int32) {
    guard !entries[Int(position)].isTouched else { return }
    entries[Int(position)].isTouched = true
    touched.append(position)
  }

  /// The records of the batch that is closed at `time`.
  mutating func takeTouched(at time: Timestamp) -> [SessionRecord] {
    defer { touched.removeAll(keepingCapacity: true) }
    return touched.map { position in
      entries[Int(position)].isTouched = false
      entries[Int(position)].record.lastWritten = time
      return entries[Int(position)].record
    }
  }

  /// Takes over a record that is read back.
  mutating func assign(_ record: SessionRecord) {
    entries[Int(position(of: record.session))].record = record
  }

  /// What the shard's head page keeps: sessions that wrote no longer ago than `lifetime` milliseconds.
  func records(now: Timestamp, lifetimeMilliseconds: Int64) -> [SessionRecord] {
    entries.lazy.map(\.record)
      .filter { $0.highest > 0 && now.milliseconds - $0.lastWritten.milliseconds <= lifetimeMilliseconds }
      .sorted { ($0.session.high, $0.session.low) < ($1.session.high, $1.session.low) }
  }
}
