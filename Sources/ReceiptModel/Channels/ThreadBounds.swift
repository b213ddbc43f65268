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
      return counted.count == expected && unread.count == expected
        ? nil : "thread bounds: columns of different lengths"
    }
  #endif
}
