/// What a channel's watchers are told (DESIGN.md section 3, "Events"): by numbers, whose names are looked up when it is
/// written, while the state is the one that it was made from. The thread is its parent's sequence number, zero for the
/// channel itself.
package enum ChannelEvent: Hashable, Sendable {
  case row(RowEvent)
  /// `moves`: it stands for its sender's positions too (R5).
  case messageNew(thread: SequenceNumber, SequenceNumber, moves: SenderMoves)
  case messageDeleted(thread: SequenceNumber, SequenceNumber, at: Timestamp)
  case truncated(through: SequenceNumber, at: Timestamp)
  /// The channel's options in force are others now.
  case updated(at: Timestamp)
  case memberAdded(MemberOrdinal, at: Timestamp)
  /// The name is kept: the row may be nobody's by now.
  case memberRemoved(user: String, at: Timestamp)
  /// A run of one sender's messages that have the same status now (R1, R19).
  case status(thread: SequenceNumber, StatusRun, at: Timestamp)
  /// `by`: the row that acknowledged it, where others may see that (R7).
  case receipt(SequenceNumber, by: MemberOrdinal?, at: Timestamp)

  /// Whether it says where a receipt stands.
  package var isReceipt: Bool {
    if case .receipt = self { true } else { false }
  }

  /// The positions of its sender that a message has moved to itself, and which of them others may know of (R7, R8).
  package struct SenderMoves: FlagSet {
    package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    package static let read = SenderMoves(rawValue: 1)
    package static let delivered = SenderMoves(rawValue: 2)
    package static let readShown = SenderMoves(rawValue: 4)
    package static let deliveredShown = SenderMoves(rawValue: 8)
  }

  /// A row that has changed, and in what way: for its member's own devices, and for others as far as they see it.
  package struct RowEvent: Hashable, Sendable {
    package var thread: SequenceNumber
    package var row: MemberOrdinal
    /// A mark-read moved the watermark or the marker (R2).
    package var isRead: Bool
    /// A mark-unread set the marker (R4).
    package var isUnread: Bool
    /// The read position that others see rose.
    package var showsRead: Bool
    /// The delivered position that others see rose.
    package var showsDelivered: Bool
    /// The row that others see fell, was hidden, or is shown again.
    package var showsRow: Bool
    /// The member hides, or shows again, what they read or receive: where the row had stood is not known any more.
    package var hasNewSettings = false
    package var at: Timestamp

    package init(
      thread: SequenceNumber = .zero,
      row: MemberOrdinal,
      isRead: Bool = false,
      isUnread: Bool = false,
      showsRead: Bool = false,
      showsDelivered: Bool = false,
      showsRow: Bool = false,
      at: Timestamp
    ) {
      self.thread = thread
      self.row = row
      self.isRead = isRead
      self.isUnread = isUnread
      self.showsRead = showsRead
      self.showsDelivered = showsDelivered
      self.showsRow = showsRow
      self.at = at
    }

    /// Whether others than the member's own devices are told of it.
    var tellsOthers: Bool { showsRead || showsDelivered || showsRow }

    /// Whether it is to be told at all.
    var tellsAnybody: Bool { isRead || isUnread || tellsOthers }

    /// What the own devices are told, and what others are: one event where both happened at once, else each with its
    /// own time, so that neither tells of the other.
    static func events(own: RowEvent, shown: RowEvent) -> [RowEvent] {
      guard own.tellsAnybody, shown.tellsAnybody, own.at == shown.at else {
        return [own, shown].filter { $0.tellsAnybody }
      }
      var both = shown
      (both.isRead, both.isUnread) = (own.isRead, own.isUnread)
      return [both]
    }
  }

  /// All messages of `sender` from `from` to `to` that are not deleted have this status; messages of others between
  /// them do not end a run.
  package struct StatusRun: Hashable, Sendable {
    package var sender: UserNumber
    package var from: SequenceNumber
    package var to: SequenceNumber
    package var status: MessageStatus

    package init(sender: UserNumber, from: SequenceNumber, to: SequenceNumber, status: MessageStatus) {
      self.sender = sender
      self.from = from
      self.to = to
      self.status = status
    }
  }
}
