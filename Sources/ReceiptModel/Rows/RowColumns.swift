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

  /// Return when the watermark last moved; none: never.
  @inline(__always)
  func time(_ row: MemberOrdinal) -> Timestamp { Timestamp(milliseconds: times[Int(row.rawValue)]) }

  /// Return how often the watermark has moved (R17).
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

  mutating func assign(_ row: MemberOrdinal, to sequence: SequenceNumber, at time: Timestamp, stepCount: UInt32) {
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

/// From which reply on a thread counts for each of its members, a row per member (R6, R15). In a channel both columns
/// stay empty: there, only the join decides.
struct ThreadBounds: ~Copyable, Sendable {
  /// In a thread, a message from before a member took part counts once the member has read it (R15); in a channel never
  /// (R6).
  let isOfThread: Bool
  /// An exclusive lower bound. Replies with a number at or below it are never counted for the member, who joined the
  /// channel after them (R6).
  private var counted: [UInt32] = []
  /// An exclusive lower bound. Replies with a number at or below it are not unread for the member, unless they marked
  /// them so.
  private var unread: [UInt32] = []

  init(isOfThread: Bool) { self.isOfThread = isOfThread }

  /// Return, in a thread, the reply after which others' statuses can depend on the row.
  @inline(__always)
  func countedAfter(_ row: MemberOrdinal) -> SequenceNumber { SequenceNumber(counted[Int(row.rawValue)]) }

  /// Return, in a thread, the reply after which messages are unread for the member.
  @inline(__always)
  func unreadAfter(_ row: MemberOrdinal) -> SequenceNumber { SequenceNumber(unread[Int(row.rawValue)]) }

  // MARK: Assignment

  mutating func append() {
    guard isOfThread else { return }
    counted.append(0)
    unread.append(0)
  }

  mutating func assign(_ row: MemberOrdinal, _ record: RowRecord) {
    guard isOfThread else { return }
    counted[Int(row.rawValue)] = (record.countedAfter ?? record.joined).rawValue
    unread[Int(row.rawValue)] = (record.unreadAfter ?? record.joined).rawValue
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(counted) + heapBytes(unread) }

  #if DEBUG
    /// Check that the columns have a value for each row of a thread.
    func checkColumns(rowCount: Int) -> String? {
      let expected = isOfThread ? rowCount : 0
      return counted.count == expected && unread.count == expected ? nil : "thread bounds: columns of different lengths"
    }
  #endif
}
