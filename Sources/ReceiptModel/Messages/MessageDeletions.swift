/// When messages of a channel were deleted individually, in all and by segment, and up to where they were truncated
/// (R16).
struct MessageDeletions: ~Copyable, Sendable {
  /// No message was deleted individually after this.
  private(set) var last = Timestamp.none
  /// The same for each segment; only as long as the last segment with a deletion.
  private var lastOfSegments: [Int64] = []
  /// When messages were last truncated; none: never.
  private(set) var truncatedAt = Timestamp.none
  /// The messages up to here are gone, including those assigned later.
  private(set) var truncatedThrough = SequenceNumber.zero

  /// Return the last message of this message's segment, if no message of the segment was deleted individually at or
  /// after a time; otherwise nil.
  func endOfSegment(_ sequence: SequenceNumber, withoutDeletionSince time: Timestamp) -> SequenceNumber? {
    let segment = Self.segment(sequence)
    if segment < lastOfSegments.count, lastOfSegments[segment] >= time.milliseconds { return nil }
    return SequenceNumber(UInt32(segment + 1) * PageID.messagesPerSegment)
  }

  /// Record that a message was deleted individually.
  mutating func delete(_ sequence: SequenceNumber, at time: Timestamp) {
    last = max(last, time)
    let segment = Self.segment(sequence)
    let missing = segment + 1 - lastOfSegments.count
    if missing > 0 { lastOfSegments.append(contentsOf: repeatElement(0, count: missing)) }
    lastOfSegments[segment] = max(lastOfSegments[segment], time.milliseconds)
  }

  /// Record a truncation.
  ///
  /// - Returns: the end of the last truncation; nil if it was not before `sequence`, and nothing is recorded.
  mutating func truncate(through sequence: SequenceNumber, at time: Timestamp) -> SequenceNumber? {
    guard sequence > truncatedThrough else { return nil }
    let before = truncatedThrough
    truncatedThrough = sequence
    truncatedAt = time
    return before
  }

  private static func segment(_ sequence: SequenceNumber) -> Int {
    (Int(sequence.rawValue) - 1) / Int(PageID.messagesPerSegment)
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(lastOfSegments) }
}
