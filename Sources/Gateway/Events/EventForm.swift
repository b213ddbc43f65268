/// The forms in which an event is written. A mark may have several: for others, and for the user's own devices.
enum EventForm: UInt8, CaseIterable, Sendable {
  case read
  case delivered
  /// `read_state.changed` as others see the row, as the member sees it, as a server sees it.
  case rowShown
  case rowOwn
  case rowServer
  case markRead
  case markUnread
  /// `message.new` as others see its sender's positions, and as the sender sees them.
  case messageNew
  case messageNewOwn
  /// `message.new` without positions, which only servers see there (R10).
  case messageNewPlain
  case messageDeleted
  case truncated
  case updated
  case channelDeleted
  case memberAdded
  case memberRemoved
  case status
  case receipt

  /// The forms of one event that one stream gets, in writing order.
  struct Forms: OptionSet, Hashable, Sendable {
    let rawValue: UInt32
    init(rawValue: UInt32) { self.rawValue = rawValue }
    init(_ form: EventForm) { rawValue = 1 << UInt32(form.rawValue) }
  }

  /// The event's `type`.
  var name: StaticString {
    switch self {
    case .read: "message.read"
    case .delivered: "message.delivered"
    case .rowShown, .rowOwn, .rowServer: "read_state.changed"
    case .markRead: "notification.mark_read"
    case .markUnread: "notification.mark_unread"
    case .messageNew, .messageNewOwn, .messageNewPlain: "message.new"
    case .messageDeleted: "message.deleted"
    case .truncated: "channel.truncated"
    case .updated: "channel.updated"
    case .channelDeleted: "channel.deleted"
    case .memberAdded: "member.added"
    case .memberRemoved: "member.removed"
    case .status: "message.status"
    case .receipt: "message.receipt"
    }
  }
}

/// The recipient of a stream.
enum EventViewer: Hashable, Sendable {
  /// A server, which sees the channels that it named on behalf of all members.
  case server
  /// A user; `isSubject`: whether the event is about them, see ``EventFields/subject``.
  case user(isSubject: Bool)
}
