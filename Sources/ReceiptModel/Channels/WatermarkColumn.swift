/// The watermarks of one kind, a row per member (R2, R3): the position, the time of its last move, and how often it has
/// moved. The columns have one length.
struct WatermarkColumn: ~Copyable, Sendable {
  private var positions: [UInt32] = []
  /// For a row that was left, in the column of reads: when the member left.
  private var times: [Int64] = []
  private var stepCounts: [UInt32] = []

  /// The highest message that the row has reached; zero: none, or the row was left.
  @inline(__always)
  subscript(row: MemberOrdinal) -> SequenceNumber { SequenceNumber(positions[Int(row.rawValue)]) }

  /// When the watermark last moved; none: never.
  @inline(__always)
  func time(_ row: MemberOrdinal) -> Timestamp { Timestamp(milliseconds: times[Int(row.rawValue)]) }

  /// How often the watermark has moved (R17).
  @inline(__always)
  func stepCount(_ row: MemberOrdinal) -> UInt32 { stepCounts[Int(row.rawValue)] }

  /// Call `body` with the positions of all rows, for a pass over them.
  @inline(__always)
  func withPositions<Result>(_ body: (UnsafeBufferPointer<UInt32>) -> Result) -> Result {
    positions.withUnsafeBufferPointer(body)
  }

  // MARK: Assignment

  /// Append a row without a position.
  mutating func append() {
    positions.append(0)
    times.append(0)
    stepCounts.append(0)
  }

  mutating func assign(
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    at time: Timestamp,
    stepCount: UInt32
  ) {
    positions[Int(row.rawValue)] = sequence.rawValue
    times[Int(row.rawValue)] = time.milliseconds
    stepCounts[Int(row.rawValue)] = stepCount
  }

  /// Move a row's watermark by one step.
  mutating func move(_ row: MemberOrdinal, to sequence: SequenceNumber, at time: Timestamp) {
    let position = Int(row.rawValue)
    positions[position] = sequence.rawValue
    times[position] = time.milliseconds
    stepCounts[position] &+= 1
  }

  /// Clear the position of a row that is left, so that counts do not include it.
  ///
  /// - Parameter time: the time to keep.
  mutating func clear(_ row: MemberOrdinal, at time: Timestamp) {
    assign(row, to: .zero, at: time, stepCount: 0)
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(positions) + heapBytes(times) + heapBytes(stepCounts) }

  #if DEBUG
    /// Check that the columns have a value for each row.
    func checkColumns(rowCount: Int) -> String? {
      [positions.count, times.count, stepCounts.count].contains { $0 != rowCount }
        ? "watermarks: columns of different lengths" : nil
    }
  #endif
}

/// The shown times of rows' last delivered moves, of those that were acknowledged with a time (R20). Only as long as
/// the highest row that ever had one.
struct AckedTimes: ~Copyable, Sendable {
  /// A time is valid only for the move with this number, so that a move without such a time need not touch it.
  private struct Move: Sendable {
    var number: UInt32 = 0
    var at: Int64 = 0
  }

  private var moves: [Move] = []

  /// The acknowledged time of a row's last delivered move; none: its own time is shown.
  ///
  /// - Parameter stepCount: the number of that move.
  func time(_ row: MemberOrdinal, stepCount: UInt32) -> Timestamp {
    let position = Int(row.rawValue)
    guard position < moves.count, moves[position].number == stepCount else { return .none }
    return Timestamp(milliseconds: moves[position].at)
  }

  mutating func assign(_ row: MemberOrdinal, stepCount: UInt32, at time: Timestamp) {
    let position = Int(row.rawValue)
    if position >= moves.count {
      if time == .none { return }
      moves.append(contentsOf: repeatElement(Move(), count: position + 1 - moves.count))
    }
    moves[position] = Move(number: stepCount, at: time.milliseconds)
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(moves) }
}
