/// The watermark that a step moves.
package enum StepKind: UInt8, Sendable {
  case read = 0
  case delivered = 1
}

/// One move of one watermark of one row (R17).
package struct Step: Hashable, Sendable {
  /// Row number within its page of 256 rows.
  package var row: UInt8
  package var kind: StepKind
  /// The user hid this kind at the time of the move (R7).
  package var isHidden: Bool
  /// The preceding step of the same watermark was dropped, so the position before this step is unknown.
  package var isAfterDropped: Bool
  package var sequence: SequenceNumber
  /// When the shard applied the move; changes since a time are selected by this.
  package var time: Timestamp
  /// The time of the push ack, before ``time`` (R20); none: there is none.
  package var acked: Timestamp
  /// Counts the moves of this watermark of this row, from 1.
  package var number: UInt32

  package init(
    row: UInt8,
    kind: StepKind,
    sequence: SequenceNumber,
    time: Timestamp,
    acked: Timestamp = .none,
    number: UInt32,
    isHidden: Bool = false,
    isAfterDropped: Bool = false
  ) {
    self.row = row
    self.kind = kind
    self.isHidden = isHidden
    self.isAfterDropped = isAfterDropped
    self.sequence = sequence
    self.time = time
    self.acked = acked
    self.number = number
  }

  /// The time shown to users.
  var shownAt: Timestamp { acked.or(time) }

  /// The watermark's key among the 512 of its row page.
  var key: UInt16 { Self.key(row, kind) }

  static func key(_ row: UInt8, _ kind: StepKind) -> UInt16 { UInt16(row) << 1 | UInt16(kind.rawValue) }
}

/// Writes consecutive steps as bytes (Proto/frames.md, "Steps"): sequence number and time as differences from the
/// preceding step.
struct StepWriter: Sendable {
  /// Bit above the row's number: the step has the time of a push ack.
  static let ackedFlag: UInt64 = 1 << 11

  private(set) var bytes: [UInt8] = []
  private(set) var count: Int32 = 0
  private var sequence: UInt32 = 0
  private var time: Int64 = 0

  init() {}

  /// Continue after existing steps.
  ///
  /// - Returns: the latest ``Step/time`` in them; nil if the bytes are not valid steps.
  mutating func resume(_ bytes: [UInt8]) -> Timestamp? {
    var cursor = StepCursor()
    var count: Int32 = 0
    var end = Timestamp.none
    while let step = cursor.next(bytes.span) {
      count += 1
      end = max(end, step.time)
    }
    guard !cursor.isDamaged else { return nil }
    self.bytes = bytes
    self.count = count
    sequence = cursor.sequence
    time = cursor.time
    return end
  }

  @inline(__always)
  mutating func append(_ step: Step) {
    let flags =
      UInt64(step.kind.rawValue) | (step.isHidden ? 2 : 0) | (step.isAfterDropped ? 4 : 0) | UInt64(step.row) << 3
      | (step.acked == .none ? 0 : Self.ackedFlag)
    put(flags)
    put(Self.zigzag(Int64(step.sequence.rawValue) - Int64(sequence)))
    put(Self.zigzag(step.time.milliseconds &- time))
    put(UInt64(step.number))
    if step.acked != .none { put(UInt64(max(0, step.time.milliseconds &- step.acked.milliseconds))) }
    sequence = step.sequence.rawValue
    time = step.time.milliseconds
    count += 1
  }

  /// Clear the steps and keep the capacity: a tail that filled up once will do so again.
  mutating func reset() {
    let room = bytes.count
    self = StepWriter()
    bytes.reserveCapacity(room)
  }

  private static func zigzag(_ value: Int64) -> UInt64 { UInt64(bitPattern: value << 1 ^ value >> 63) }

  @inline(__always)
  private mutating func put(_ value: UInt64) {
    Varint.encode(value) { bytes.append($0) }
  }
}

/// A reader of encoded steps; terminates on any input.
struct StepCursor {
  private var offset = 0
  fileprivate var sequence: UInt32 = 0
  fileprivate var time: Int64 = 0
  /// The bytes were not written by a ``StepWriter``.
  private(set) var isDamaged = false

  /// Return the next step; nil at the end, and for damaged bytes.
  mutating func next(_ bytes: Span<UInt8>) -> Step? {
    guard offset < bytes.count, !isDamaged else { return nil }
    guard let flags = varint(bytes), flags < StepWriter.ackedFlag << 1, let sequenceChange = varint(bytes),
      let timeChange = varint(bytes), let number = varint(bytes), number > 0, number <= UInt64(UInt32.max)
    else {
      isDamaged = true
      return nil
    }
    let (reached, isFar) = Int64(sequence).addingReportingOverflow(Self.signed(sequenceChange))
    let (at, isLate) = time.addingReportingOverflow(Self.signed(timeChange))
    guard !isFar, !isLate, reached > 0, reached <= Int64(UInt32.max), at >= 0 else {
      isDamaged = true
      return nil
    }
    var acked = Timestamp.none
    if flags & StepWriter.ackedFlag != 0 {
      guard let earlier = varint(bytes), earlier > 0, earlier < UInt64(at) else {
        isDamaged = true
        return nil
      }
      acked = Timestamp(milliseconds: at - Int64(earlier))
    }
    sequence = UInt32(reached)
    time = at
    return Step(
      row: UInt8(truncatingIfNeeded: flags >> 3),
      kind: flags & 1 == 0 ? .read : .delivered,
      sequence: SequenceNumber(sequence),
      time: Timestamp(milliseconds: at),
      acked: acked,
      number: UInt32(number),
      isHidden: flags & 2 != 0,
      isAfterDropped: flags & 4 != 0
    )
  }

  private static func signed(_ value: UInt64) -> Int64 {
    Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
  }

  private mutating func varint(_ bytes: Span<UInt8>) -> UInt64? {
    var value: UInt64 = 0
    var shift: UInt64 = 0
    while offset < bytes.count {
      let byte = bytes[offset]
      offset += 1
      guard shift < 63 || byte <= 1 else { return nil }
      value |= UInt64(byte & 0x7F) << shift
      if byte < 0x80 { return value }
      shift += 7
    }
    return nil
  }
}

/// Encoding and merging of stored steps.
package enum StepBytes {
  /// Return whether the bytes are valid steps; data from storage is checked before it is used.
  package static func areWhole(_ bytes: [UInt8]) -> Bool { steps(bytes) != nil }

  /// Return the decoded steps; nil if the bytes are not valid steps.
  package static func steps(_ bytes: [UInt8]) -> [Step]? {
    var steps: [Step] = []
    var cursor = StepCursor()
    while let step = cursor.next(bytes.span) { steps.append(step) }
    return cursor.isDamaged ? nil : steps
  }

  package static func bytes(_ steps: some Sequence<Step>) -> [UInt8] {
    var writer = StepWriter()
    for step in steps { writer.append(step) }
    return writer.bytes
  }

  /// Maximum number of steps in a segment made by ``merge(_:keeping:)``; more than a tail ever seals.
  static let mergedMax = 512

  /// Merge segments into fewer ones with only the steps to keep, in order.
  ///
  /// Segments are filled from the back. A merged segment that replaces an old one therefore holds no step later than
  /// that one's last. So the times by which segments are selected stay valid.
  ///
  /// - Returns: nil if a segment is damaged.
  package static func merge(_ segments: [[UInt8]], keeping isKept: (Step) -> Bool) -> [[UInt8]]? {
    var kept: [Step] = []
    /// By watermark: the number of the last kept step.
    var last = [UInt32](repeating: 0, count: 512)
    for bytes in segments {
      var cursor = StepCursor()
      while var step = cursor.next(bytes.span) {
        guard isKept(step) else { continue }
        if step.number &- 1 != last[Int(step.key)] { step.isAfterDropped = true }
        last[Int(step.key)] = step.number
        kept.append(step)
      }
      if cursor.isDamaged { return nil }
    }
    var merged: [[UInt8]] = []
    var start = 0
    while start < kept.count {
      let left = (kept.count - start) % mergedMax
      let end = start + (left == 0 ? mergedMax : left)
      merged.append(Self.bytes(kept[start..<end]))
      start = end
    }
    return merged
  }
}
