/// Everything stored in one member's row.
package struct RowRecord: Hashable, Sendable {
  package var user: String
  /// Empty: no role.
  package var role: String
  package var hasLeft: Bool
  /// The member joined under `history: hidden`: nothing before the join counts as unread (R6).
  package var hidesHistory: Bool
  /// The newest sequence number at the time of the join: the member joined before message n if `joined < n` (R6).
  package var joined: SequenceNumber
  package var joinedAt: Timestamp
  package var read: SequenceNumber
  /// For a row that was left: when the member left.
  package var readAt: Timestamp
  package var delivered: SequenceNumber
  package var deliveredAt: Timestamp
  /// The time shown in place of ``deliveredAt`` (R20); none: ``deliveredAt`` is shown.
  package var ackedAt: Timestamp
  /// The unread marker, if set (R4).
  package var marker: SequenceNumber?
  /// When the marker was last set, moved or cleared; none: never.
  package var markedAt: Timestamp
  package var unreadEpoch: UInt32
  /// The watermark's last move was made while the user hid it (R7).
  package var readIsHidden: Bool
  package var deliveredIsHidden: Bool
  /// How often the watermark has moved, which is the number of its newest step (R17).
  package var readStepCount: UInt32
  package var deliveredStepCount: UInt32
  /// Mark-read has acknowledged the messages up to here (R9).
  package var acknowledgedThrough: SequenceNumber
  /// In a thread: the user has only marked it read. While the user hides reads, others do not see them in the thread
  /// (R7, R15).
  package var joinedByReading: Bool
  /// In a thread: the newest reply when the user joined the channel. Replies up to it never count for the user (R6).
  /// nil: the same as ``joined``.
  package var countedAfter: SequenceNumber?
  /// In a thread: replies up to this one are not unread for the user, who did not take part then. nil: the same as
  /// ``joined``.
  package var unreadAfter: SequenceNumber?
  /// The member excludes the channel from their unread totals (R14).
  package var isMuted: Bool
  /// The member has flagged the channel unread as a whole (R4).
  package var isFlaggedUnread: Bool
  /// When the flag was last set or cleared; none: never.
  package var flaggedAt: Timestamp

  package init(
    user: String,
    role: String = "",
    hasLeft: Bool = false,
    hidesHistory: Bool = false,
    joined: SequenceNumber,
    joinedAt: Timestamp,
    read: SequenceNumber = .zero,
    readAt: Timestamp = .none,
    delivered: SequenceNumber = .zero,
    deliveredAt: Timestamp = .none,
    ackedAt: Timestamp = .none,
    marker: SequenceNumber? = nil,
    markedAt: Timestamp = .none,
    unreadEpoch: UInt32 = 0,
    readIsHidden: Bool = false,
    deliveredIsHidden: Bool = false,
    readStepCount: UInt32 = 0,
    deliveredStepCount: UInt32 = 0,
    acknowledgedThrough: SequenceNumber = .zero,
    joinedByReading: Bool = false,
    countedAfter: SequenceNumber? = nil,
    unreadAfter: SequenceNumber? = nil,
    isMuted: Bool = false,
    isFlaggedUnread: Bool = false,
    flaggedAt: Timestamp = .none
  ) {
    self.user = user
    self.role = role
    self.hasLeft = hasLeft
    self.hidesHistory = hidesHistory
    self.joined = joined
    self.joinedAt = joinedAt
    self.read = read
    self.readAt = readAt
    self.delivered = delivered
    self.deliveredAt = deliveredAt
    self.ackedAt = ackedAt
    self.marker = marker
    self.markedAt = markedAt
    self.unreadEpoch = unreadEpoch
    self.readIsHidden = readIsHidden
    self.deliveredIsHidden = deliveredIsHidden
    self.readStepCount = readStepCount
    self.deliveredStepCount = deliveredStepCount
    self.acknowledgedThrough = acknowledgedThrough
    self.joinedByReading = joinedByReading
    self.countedAfter = countedAfter
    self.unreadAfter = unreadAfter
    self.isMuted = isMuted
    self.isFlaggedUnread = isFlaggedUnread
    self.flaggedAt = flaggedAt
  }
}
