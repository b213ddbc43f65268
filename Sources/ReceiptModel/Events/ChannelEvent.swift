/// An event for a channel's subscribers (docs/contribute/architecture.md, "Events"). It holds numbers; their names are
/// looked up at encoding, while the state that produced the event is current. A thread is given by its parent's
/// sequence number, zero for the channel itself.
package enum ChannelEvent: Hashable, Sendable {
  case row(RowEvent)
  /// `moves`: the sender's positions that this event also reports (R5).
  case messageNew(thread: SequenceNumber, SequenceNumber, moves: SenderMoves)
  case messageDeleted(thread: SequenceNumber, SequenceNumber, at: Timestamp)
  case truncated(through: SequenceNumber, at: Timestamp)
  /// The channel's effective options changed.
  case updated(at: Timestamp)
  case memberAdded(MemberOrdinal, at: Timestamp)
  /// Holds the name, because the row may have no user any more.
  case memberRemoved(user: String, at: Timestamp)
  /// A run of one sender's messages that now have the same status (R1, R19).
  case status(thread: SequenceNumber, StatusRun, at: Timestamp)
  /// `by`: the row that acknowledged the message, if others may see that (R7).
  case acknowledgement(SequenceNumber, by: MemberOrdinal?, at: Timestamp)

  /// Whether the event reports an acknowledgement request's state.
  package var isAcknowledgement: Bool {
    if case .acknowledgement = self { true } else { false }
  }

  /// The sender's positions that a message moved to itself, and which of them others may see (R7, R8).
  package struct SenderMoves: FlagSet {
    package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    package static let read = SenderMoves(rawValue: 1)
    package static let delivered = SenderMoves(rawValue: 2)
    package static let readShown = SenderMoves(rawValue: 4)
    package static let deliveredShown = SenderMoves(rawValue: 8)
  }

  /// A changed row, and how it changed: for its member's own devices, and for others as far as they see it.
  package struct RowEvent: Hashable, Sendable {
    package var thread: SequenceNumber
    package var row: MemberOrdinal
    /// A mark-read moved the watermark or the marker (R2).
    package var isRead: Bool
    /// A mark-unread set the marker (R4).
    package var isUnread: Bool
    /// The read position visible to others rose.
    package var showsRead: Bool
    /// The delivered position visible to others rose.
    package var showsDelivered: Bool
    /// The row visible to others fell, was hidden, or is visible again.
    package var showsRow: Bool
    /// The member changed their privacy settings; the row's previous visible position is unknown.
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

    /// Whether the event goes to anyone besides the member's own devices.
    var isForOthers: Bool { showsRead || showsDelivered || showsRow }

    /// Whether there is anything to report.
    var hasAudience: Bool { isRead || isUnread || isForOthers }

    /// Return the events for the own devices and for others. One event if both changed at the same time; otherwise one
    /// each with its own time, so that neither reveals the other.
    static func events(own: RowEvent, shown: RowEvent) -> [RowEvent] {
      guard own.hasAudience, shown.hasAudience, own.at == shown.at else {
        return [own, shown].filter { $0.hasAudience }
      }
      var both = shown
      (both.isRead, both.isUnread) = (own.isRead, own.isUnread)
      return [both]
    }
  }

  /// All messages of `sender` from `from` to `to` that are not deleted have this status. Other senders' messages in
  /// between do not end a run.
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
