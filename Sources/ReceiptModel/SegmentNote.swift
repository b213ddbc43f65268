/// What the head page says of a segment beyond its count of messages that count as unread, so that unread counts of a
/// channel on storage read no segment without need (R14).
package struct SegmentNote: Hashable, Sendable {
  package var segment: UInt32
  /// A message of it left its sender's position alone (R5): a member's own messages may be among those after their
  /// position.
  package var hasLeaving: Bool
  /// A message of it mentions somebody, or did (R14).
  package var hasMentions: Bool

  package init(segment: UInt32, hasLeaving: Bool = false, hasMentions: Bool = false) {
    self.segment = segment
    self.hasLeaving = hasLeaving
    self.hasMentions = hasMentions
  }

  /// As it stands in a page: 1 leaving, 2 mentions.
  package var what: UInt8 { (hasLeaving ? 1 : 0) | (hasMentions ? 2 : 0) }

  package var isEmpty: Bool { what == 0 }

  /// - Returns: nil: no such note, or an empty one.
  package init?(segment: UInt32, what: UInt8) {
    guard (1...Self.whatMax).contains(what) else { return nil }
    self.init(segment: segment, hasLeaving: what & 1 != 0, hasMentions: what & 2 != 0)
  }

  private static let whatMax: UInt8 = 3
}

extension [UInt64] {
  /// Whether a bit is set; those behind the end are not.
  func hasBit(_ position: Int) -> Bool {
    position >> 6 < count && self[position >> 6] >> UInt64(position & 63) & 1 == 1
  }

  mutating func setBit(_ position: Int) {
    while count <= position >> 6 { append(0) }
    self[position >> 6] |= 1 << UInt64(position & 63)
  }
}
