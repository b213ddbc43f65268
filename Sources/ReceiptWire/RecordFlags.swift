/// Flags of stored records (Proto/frames.md, "The log and the pages"). The numbers of each stand only here: the writer,
/// the reader and ``PageScan`` use the same type.

internal import ReceiptModel

/// The flags of *row_assigned*: facts about the row, and which optional fields follow.
struct RowRecordFlags: OptionSet {
  let rawValue: UInt64

  static let left = Self(rawValue: 1)
  static let hidesHistory = Self(rawValue: 2)
  /// The record ends with ``RowMoveFlags``, the numbers of steps and the acknowledged position.
  static let withMoves = Self(rawValue: 4)
  static let joinedByReading = Self(rawValue: 8)
  static let withMarkedAt = Self(rawValue: 16)
  static let withAckedAt = Self(rawValue: 32)
  static let withCountedAfter = Self(rawValue: 64)
  static let withUnreadAfter = Self(rawValue: 128)
  static let muted = Self(rawValue: 256)
  static let flaggedUnread = Self(rawValue: 512)
  static let withFlaggedAt = Self(rawValue: 1_024)
  private static let known: UInt64 = 2_047

  /// Whether this version knows all flags that are set.
  var isKnown: Bool { rawValue & ~Self.known == 0 }

  init(rawValue: UInt64) { self.rawValue = rawValue }

  init(_ record: RowRecord) {
    self.init()
    if record.hasLeft { insert(.left) }
    if record.hidesHistory { insert(.hidesHistory) }
    if record.readIsHidden || record.deliveredIsHidden || record.readStepCount != 0
      || record.deliveredStepCount != 0 || record.acknowledgedThrough != .zero
    {
      insert(.withMoves)
    }
    if record.joinedByReading { insert(.joinedByReading) }
    if record.markedAt != .none { insert(.withMarkedAt) }
    if record.ackedAt != .none { insert(.withAckedAt) }
    if record.countedAfter != nil { insert(.withCountedAfter) }
    if record.unreadAfter != nil { insert(.withUnreadAfter) }
    if record.isMuted { insert(.muted) }
    if record.isFlaggedUnread { insert(.flaggedUnread) }
    if record.flaggedAt != .none { insert(.withFlaggedAt) }
  }
}

/// The flags of a row's last moves, which follow with ``RowRecordFlags/withMoves``.
struct RowMoveFlags: OptionSet {
  let rawValue: UInt64

  static let readIsHidden = Self(rawValue: 1)
  static let deliveredIsHidden = Self(rawValue: 2)

  /// Whether this version knows all flags that are set.
  var isKnown: Bool { rawValue <= 3 }

  init(rawValue: UInt64) { self.rawValue = rawValue }

  init(_ record: RowRecord) {
    self.init()
    if record.readIsHidden { insert(.readIsHidden) }
    if record.deliveredIsHidden { insert(.deliveredIsHidden) }
  }
}

/// The flags of *user settings*, in records and in assign_user.
package struct UserSettingsFlags: OptionSet, Sendable {
  package let rawValue: UInt64

  package static let hidesRead = Self(rawValue: 1)
  package static let hidesDelivered = Self(rawValue: 2)
  package static let erasing = Self(rawValue: 4)
  /// The user is erased; no other flag may be set.
  package static let erased = Self(rawValue: 8)

  /// Whether the flags are known, and none is set beside ``erased``.
  package var isValid: Bool { rawValue <= Self.erased.rawValue }

  package init(rawValue: UInt64) { self.rawValue = rawValue }

  init(_ settings: UserSettings) {
    self.init()
    if settings.hidesRead { insert(.hidesRead) }
    if settings.hidesDelivered { insert(.hidesDelivered) }
    if settings.isErasing { insert(.erasing) }
    if settings.isErased { insert(.erased) }
  }
}

/// The flags of *membership*.
struct MembershipFlags: OptionSet {
  let rawValue: UInt8

  static let member = Self(rawValue: 1)
  /// The time of the deletion follows.
  static let withDeletedAt = Self(rawValue: 2)
  /// A tombstone: the membership is gone.
  static let gone = Self(rawValue: 4)

  /// Whether the flags are known. A tombstone is no membership, and has a deletion time.
  var isValid: Bool { !contains(.gone) ? rawValue <= 3 : self == [.withDeletedAt, .gone] }

  init(rawValue: UInt8) { self.rawValue = rawValue }

  init(_ membership: Membership) {
    self.init()
    if membership.isMember { insert(.member) }
    if membership.deletedAt != .none { insert(.withDeletedAt) }
    if membership.isGone { insert(.gone) }
  }
}
