/// The acknowledgements of one message (R9): a bit for each row that has acknowledged, and the kept records in order of
/// acknowledgement. A dropped record leaves its bit.
struct MessageAcknowledgements: ~Copyable, Sendable {
  /// The message was registered with an acknowledgement request. Still false while a page of acknowledgements loads
  /// before the message's own page.
  var isRequested = false
  /// None: never.
  var expiresAt = Timestamp.none
  /// A bit for each row, up to the highest row that has acknowledged.
  private(set) var acknowledged: [UInt64] = []
  /// Rows that have acknowledged, including those whose record was dropped.
  private(set) var count = 0

  // Kept records, in order of acknowledgement. A dropped record leaves ``gone`` in its index until more than half are
  // gone, so that each removal costs amortised constant time.
  /// Row numbers, with ``hiddenBit`` set if the member acknowledged while hidden.
  private var rows: [UInt32] = []
  private var times: [Int64] = []
  /// From a row to its index in ``rows``.
  private var byRow = HashIndex()
  /// Notes by row. Sparse, as notes are rare.
  private var notes: [UInt32: String] = [:]
  private var noteBytes = 0
  private var goneCount = 0
  /// Kept records and the index of the oldest (or the end): of visible acknowledgements, and of those made while
  /// hidden.
  private(set) var visibleCount = 0
  private(set) var hiddenCount = 0
  private var firstVisible = 0
  private var firstHidden = 0

  private static let gone = UInt32.max
  /// Above every row number (``ReadVector/rowsMax``).
  private static let hiddenBit = UInt32(1) << 31
  private static let goneMin = 16

  init() {}

  // MARK: Looking up

  func hasAcknowledged(_ row: MemberOrdinal) -> Bool {
    let word = Int(row.rawValue >> 6)
    return word < acknowledged.count && acknowledged[word] >> UInt64(row.rawValue & 63) & 1 == 1
  }

  /// Return the row's acknowledgement, without time and note if its record was dropped; nil if it has not acknowledged.
  func record(_ row: MemberOrdinal) -> Acknowledgement? {
    guard hasAcknowledged(row) else { return nil }
    guard let index = index(ofRow: row.rawValue) else { return Acknowledgement(row: row, at: .none) }
    return record(at: index)
  }

  /// The time of the last visible acknowledgement; unknown if a record was dropped, none if there is none.
  var lastShown: Timestamp {
    if count > visibleCount + hiddenCount { return .unknown }
    let index = rows.indices.last { isKept($0, isHidden: false) }
    return index.map { Timestamp(milliseconds: times[$0]) } ?? .none
  }

  /// Return the rows of the `wanted` oldest kept records (or all), either of those made while hidden or of the visible
  /// ones.
  func oldest(_ wanted: Int, isHidden: Bool) -> [MemberOrdinal] {
    let left = min(wanted, isHidden ? hiddenCount : visibleCount)
    var oldest: [MemberOrdinal] = []
    var index = isHidden ? firstHidden : firstVisible
    while oldest.count < left {
      if isKept(index, isHidden: isHidden) { oldest.append(MemberOrdinal(rows[index] & ~Self.hiddenBit)) }
      index += 1
    }
    return oldest
  }

  /// Call `body` with each row that has acknowledged, in rising order.
  func forEachAcknowledged(_ body: (MemberOrdinal) -> Void) {
    for word in acknowledged.indices {
      var bits = acknowledged[word]
      while bits != 0 {
        body(MemberOrdinal(UInt32(word << 6 + bits.trailingZeroBitCount)))
        bits &= bits - 1
      }
    }
  }

  /// The rows whose record was dropped, in rising order, then the records in order of acknowledgement. Assigning them
  /// in this order rebuilds this acknowledgement request.
  var acknowledgements: [Acknowledgement] {
    var all: [Acknowledgement] = []
    all.reserveCapacity(count)
    forEachAcknowledged { row in
      if index(ofRow: row.rawValue) == nil { all.append(Acknowledgement(row: row, at: .none)) }
    }
    for index in rows.indices where rows[index] != Self.gone { all.append(record(at: index)) }
    return all
  }

  private func record(at index: Int) -> Acknowledgement {
    let row = rows[index] & ~Self.hiddenBit
    return Acknowledgement(
      row: MemberOrdinal(row),
      at: Timestamp(milliseconds: times[index]),
      isHidden: rows[index] & Self.hiddenBit != 0,
      note: notes[row] ?? ""
    )
  }

  private func index(ofRow row: UInt32) -> Int? {
    byRow.find(Self.hash(row)) { rows[Int($0)] & ~Self.hiddenBit == row }.map { Int($0) }
  }

  private func isKept(_ index: Int, isHidden: Bool) -> Bool {
    rows[index] != Self.gone && (rows[index] & Self.hiddenBit != 0) == isHidden
  }

  /// Return the Fibonacci hash: rows are small consecutive numbers.
  private static func hash(_ row: UInt32) -> UInt64 { UInt64(row) &* 0x9E37_79B9_7F4A_7C15 }

  // MARK: Assignment

  /// Assign a row's acknowledgement. Idempotent.
  mutating func assign(_ acknowledgement: Acknowledgement) {
    let row = acknowledgement.row.rawValue
    if !hasAcknowledged(acknowledgement.row) {
      let word = Int(row >> 6)
      if acknowledged.count <= word {
        acknowledged.append(contentsOf: repeatElement(0, count: word + 1 - acknowledged.count))
      }
      acknowledged[word] |= 1 << UInt64(row & 63)
      count += 1
    }
    let known = index(ofRow: row)
    if acknowledgement.at == .none {
      if let known { remove(known) }
      return
    }
    let entry = row | (acknowledgement.isHidden ? Self.hiddenBit : 0)
    if let known {
      recordKept(known, -1)
      rows[known] = entry
      times[known] = acknowledgement.at.milliseconds
      firstVisible = min(firstVisible, known)
      firstHidden = min(firstHidden, known)
      recordKept(known, 1)
    } else {
      rows.append(entry)
      times.append(acknowledgement.at.milliseconds)
      byRow.insert(Self.hash(row), UInt32(rows.count - 1))
      recordKept(rows.count - 1, 1)
    }
    setNote(row, acknowledgement.note)
    restoreFirsts()
  }

  /// Drop a row's time and note; the acknowledgement itself stays.
  mutating func forget(_ row: MemberOrdinal) {
    if let index = index(ofRow: row.rawValue) { remove(index) }
  }

  /// Remove all acknowledgements.
  mutating func clear() {
    (acknowledged, count) = ([], 0)
    (rows, times) = ([], [])
    byRow = HashIndex()
    (notes, noteBytes, goneCount) = ([:], 0, 0)
    (visibleCount, hiddenCount, firstVisible, firstHidden) = (0, 0, 0, 0)
  }

  private mutating func remove(_ index: Int) {
    let row = rows[index] & ~Self.hiddenBit
    recordKept(index, -1)
    byRow.remove(Self.hash(row), UInt32(index))
    setNote(row, "")
    rows[index] = Self.gone
    times[index] = 0
    goneCount += 1
    if goneCount >= Self.goneMin, goneCount * 2 > rows.count { closeGaps() } else { restoreFirsts() }
  }

  private mutating func recordKept(_ index: Int, _ change: Int) {
    if rows[index] & Self.hiddenBit != 0 { hiddenCount += change } else { visibleCount += change }
  }

  private mutating func setNote(_ row: UInt32, _ note: String) {
    if let before = notes[row] { noteBytes -= before.utf8.count }
    noteBytes += note.utf8.count
    if note.isEmpty { notes[row] = nil } else { notes[row] = note }
  }

  /// Advance the indices of the oldest records. Both only rise, except when a record is assigned again, so the cost is
  /// one pass over the records in total.
  private mutating func restoreFirsts() {
    while firstVisible < rows.count, !isKept(firstVisible, isHidden: false) { firstVisible += 1 }
    while firstHidden < rows.count, !isKept(firstHidden, isHidden: true) { firstHidden += 1 }
  }

  private mutating func closeGaps() {
    let kept = rows.indices.filter { rows[$0] != Self.gone }
    (rows, times) = (kept.map { rows[$0] }, kept.map { times[$0] })
    byRow = HashIndex()
    for index in rows.indices { byRow.insert(Self.hash(rows[index] & ~Self.hiddenBit), UInt32(index)) }
    (goneCount, firstVisible, firstHidden) = (0, 0, 0)
    restoreFirsts()
  }

  /// Heap bytes, without the acknowledgement request's own slot in the table.
  var heapByteCount: Int {
    // A dictionary entry is its key, a string and their share of empty slots.
    heapBytes(acknowledged) + heapBytes(rows) + heapBytes(times) + byRow.byteCount + notes.capacity * 32 + noteBytes
  }
}

#if DEBUG
  extension MessageAcknowledgements {
    /// Compare the counters with a recount.
    func checkInvariants() -> String? {
      var bits = 0
      var (visible, hidden) = (0, 0)
      var bytes = 0
      forEachAcknowledged { _ in bits += 1 }
      if bits != count { return "\(bits) rows have acknowledged, \(count) are counted" }
      if rows.count != times.count { return "records of different lengths" }
      for index in rows.indices where rows[index] != Self.gone {
        let row = rows[index] & ~Self.hiddenBit
        if rows[index] & Self.hiddenBit != 0 { hidden += 1 } else { visible += 1 }
        if times[index] == 0 { return "row \(row): a record without a time" }
        if self.index(ofRow: row) != index { return "row \(row): its record is not found" }
        if !hasAcknowledged(MemberOrdinal(row)) {
          return "row \(row): has a record, but has not acknowledged"
        }
      }
      if visible != visibleCount || hidden != hiddenCount { return "visibleCount or hiddenCount is wrong" }
      if rows.count - visible - hidden != goneCount { return "goneCount is wrong" }
      if rows.indices.first(where: { isKept($0, isHidden: false) }) ?? rows.count != firstVisible
        || rows.indices.first(where: { isKept($0, isHidden: true) }) ?? rows.count != firstHidden
      {
        return "firstVisible or firstHidden is wrong"
      }
      for (row, note) in notes {
        bytes += note.utf8.count
        if index(ofRow: row) == nil { return "row \(row): a note without a record" }
      }
      return bytes == noteBytes ? nil : "\(bytes) bytes of notes, \(noteBytes) are counted"
    }
  }
#endif
