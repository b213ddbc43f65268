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

  /// The encoding in a page: 1 leaving, 2 mentions.
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
