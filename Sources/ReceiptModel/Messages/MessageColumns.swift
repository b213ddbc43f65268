/// The ids of a channel's messages, concatenated, with the index that finds a message by its id. Ids of deleted
/// messages stay: a message id is never used twice.
struct MessageIDColumn: ~Copyable, Sendable {
  /// Maximum size of all ids of a channel together, in bytes. With ids of ordinary length it fits a few hundred million
  /// messages.
  private static let bytesMax = Int(UInt32.max) - Identifier.messageLengthMax

  private var bytes: [UInt8] = []
  private var ends: [UInt32] = []
  private var index = HashIndex()

  /// Whether another id fits.
  var hasRoom: Bool { bytes.count <= Self.bytesMax }

  /// Return the sequence number of a message id.
  @inline(__always)
  func find(_ id: RawSpan) -> SequenceNumber? {
    index.find(StableHash.hash(id)) { position in
      bytes.span.bytes.extracting(range(Int(position))).equals(id)
    }
    .map { SequenceNumber($0 + 1) }
  }

  /// Call `body` with a message's id; an empty one for position 0.
  @inline(__always)
  func withID<Result>(_ sequence: SequenceNumber, _ body: (RawSpan) -> Result) -> Result {
    guard sequence > .zero else { return body(RawSpan()) }
    return body(bytes.span.bytes.extracting(range(Int(sequence.rawValue) - 1)))
  }

  /// Append the id of the next message.
  mutating func append(_ id: String) {
    let position = UInt32(ends.count)
    bytes.append(contentsOf: id.utf8)
    ends.append(UInt32(bytes.count))
    var id = id
    id.withUTF8 { index.insert(StableHash.hash($0.span.bytes), position) }
  }

  private func range(_ position: Int) -> Range<Int> {
    (position == 0 ? 0 : Int(ends[position - 1]))..<Int(ends[position])
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(bytes) + heapBytes(ends) + index.byteCount }

  #if DEBUG
    /// Check that a message is found by its id.
    func check(_ sequence: SequenceNumber) -> String? {
      withID(sequence) { find($0) } == sequence ? nil : "message \(sequence.rawValue): not found by its id"
    }
  #endif
}

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

/// A head page's facts about a segment beyond its number of countable messages. They let unread counts of an unloaded
/// channel skip segments (R14).
package struct SegmentFlags: Hashable, Sendable {
  package var segment: UInt32
  /// A message of the segment did not move its sender's position (R5), so a member's own messages may come after their
  /// position.
  package var hasUnmovedSender: Bool
  /// A message of the segment mentions a user, or did (R14).
  package var hasMentions: Bool

  package init(segment: UInt32, hasUnmovedSender: Bool = false, hasMentions: Bool = false) {
    self.segment = segment
    self.hasUnmovedSender = hasUnmovedSender
    self.hasMentions = hasMentions
  }

  /// The encoding in a page: 1 for ``hasUnmovedSender``, 2 for ``hasMentions``.
  package var rawFlags: UInt8 { (hasUnmovedSender ? 1 : 0) | (hasMentions ? 2 : 0) }

  package var isEmpty: Bool { rawFlags == 0 }

  /// Decode the flags of a segment.
  ///
  /// - Returns: nil for unknown or no flags.
  package init?(segment: UInt32, rawFlags: UInt8) {
    guard (1...Self.rawFlagsMax).contains(rawFlags) else { return nil }
    self.init(segment: segment, hasUnmovedSender: rawFlags & 1 != 0, hasMentions: rawFlags & 2 != 0)
  }

  private static let rawFlagsMax: UInt8 = 3
}

/// The segments of a channel that have flags: a bit for each, only as long as needed.
struct FlaggedSegments: ~Copyable, Sendable {
  /// Segments with a message that did not move its sender's position (R5).
  private var unmovedSenders: [UInt64] = []
  /// Segments with a message that mentions a user (R14).
  private var mentions: [UInt64] = []

  /// The flags, in order of segments.
  var list: [SegmentFlags] {
    (0..<UInt32(max(unmovedSenders.count, mentions.count) * 64)).compactMap { segment in
      let flags = SegmentFlags(
        segment: segment,
        hasUnmovedSender: unmovedSenders.hasBit(Int(segment)),
        hasMentions: mentions.hasBit(Int(segment))
      )
      return flags.isEmpty ? nil : flags
    }
  }

  /// Record that a message did not move its sender's position.
  mutating func recordUnmovedSender(of sequence: SequenceNumber) {
    unmovedSenders.setBit(Self.segment(sequence))
  }

  /// Record that a message mentions a user.
  mutating func recordMention(in sequence: SequenceNumber) { mentions.setBit(Self.segment(sequence)) }

  private static func segment(_ sequence: SequenceNumber) -> Int {
    (Int(sequence.rawValue) - 1) / Int(PageID.messagesPerSegment)
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(unmovedSenders) + heapBytes(mentions) }
}

extension [UInt64] {
  /// Return whether a bit is set; bits after the end are not.
  func hasBit(_ position: Int) -> Bool {
    position >> 6 < count && self[position >> 6] >> UInt64(position & 63) & 1 == 1
  }

  mutating func setBit(_ position: Int) {
    while count <= position >> 6 { append(0) }
    self[position >> 6] |= 1 << UInt64(position & 63)
  }
}
