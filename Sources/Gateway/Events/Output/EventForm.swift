internal import ReceiptModel
internal import ReceiptWire

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

extension EventFields {
  /// The user whom the event is about: the member whose row has changed, or the sender whose message has a new status;
  /// empty: no single user.
  var subject: String {
    switch self {
    case .row(let event): event.ownRow.user
    case .status(let event): event.sender
    case .receipt(let event): event.sender
    case .messageNew(let event): event.sender
    case .messageDeleted, .truncated, .channelUpdated, .channelDeleted, .memberAdded, .memberRemoved: ""
    }
  }

  /// Return the forms that a viewer gets (Proto/openapi.yaml); empty where the event is not visible to them.
  func forms(for viewer: EventViewer) -> EventForm.Forms {
    switch self {
    case .row(let event): event.forms(for: viewer)
    case .messageNew(let event): EventForm.Forms(event.form(for: viewer))
    case .messageDeleted: EventForm.Forms(.messageDeleted)
    case .truncated: EventForm.Forms(.truncated)
    case .channelUpdated: EventForm.Forms(.updated)
    case .channelDeleted: EventForm.Forms(.channelDeleted)
    case .memberAdded: EventForm.Forms(.memberAdded)
    case .memberRemoved: EventForm.Forms(.memberRemoved)
    case .status: viewer == .user(isSubject: false) ? [] : EventForm.Forms(.status)
    case .receipt: viewer == .user(isSubject: false) ? [] : EventForm.Forms(.receipt)
    }
  }
}

extension MessageEventFields {
  fileprivate func form(for viewer: EventViewer) -> EventForm {
    switch viewer {
    case .server: .messageNew
    case .user(isSubject: true): .messageNewOwn
    case .user(isSubject: false): flags.contains(.serversOnly) ? .messageNewPlain : .messageNew
    }
  }
}

extension RowEventFields {
  fileprivate func forms(for viewer: EventViewer) -> EventForm.Forms {
    var forms: EventForm.Forms = []
    // R7, R10: a hidden row has no form for others, and a row for servers only has none for members.
    if shownRow != nil, viewer == .server || !shown.contains(.serversOnly) {
      if shown.contains(.read) { forms.insert(EventForm.Forms(.read)) }
      if shown.contains(.delivered) { forms.insert(EventForm.Forms(.delivered)) }
      if shown.contains(.row) {
        switch viewer {
        case .server: forms.insert(EventForm.Forms(.rowServer))
        case .user(let isSubject): forms.insert(EventForm.Forms(isSubject ? .rowOwn : .rowShown))
        }
      }
    }
    if viewer == .user(isSubject: true) {
      if own.contains(.read) { forms.insert(EventForm.Forms(.markRead)) }
      if own.contains(.unread) { forms.insert(EventForm.Forms(.markUnread)) }
    }
    return forms
  }
}

/// Filtering of events for members who joined under hidden history (R6).
extension EventFields {
  /// Return the event and its forms with one of its limits applied; nil: nothing remains.
  ///
  /// - Parameter time: when the member joined.
  func limited(
    by limit: HistoryLimit,
    _ forms: EventForm.Forms,
    joinedAt time: Timestamp
  ) -> (event: EventFields, forms: EventForm.Forms)? {
    if limit.hidden.contains(.event) { return nil }
    let hidesPosition = limit.hidden.contains(.position)
    switch self {
    case .row(var row):
      var forms = forms
      if hidesPosition { forms.remove(EventForm.Forms(.read)) }
      if limit.hidden.contains(.delivered) { forms.remove(EventForm.Forms(.delivered)) }
      if limit.hidden.contains(.row) { forms.remove(EventForm.Forms(.rowShown)) }
      row.shownRow = row.shownRow?.seen(since: limit.joined, at: time)
      return forms.isEmpty ? nil : (.row(row), forms)
    case .channelUpdated(let at, var channel):
      if hidesPosition { channel.newestMessage = "" }
      return (.channelUpdated(at: at, channel), forms)
    case .memberAdded(var member):
      if hidesPosition { (member.readSequence, member.readMessage) = (limit.joined, "") }
      return (.memberAdded(member), forms)
    case .messageNew, .messageDeleted, .truncated: return hidesPosition ? nil : (self, forms)
    case .channelDeleted, .memberRemoved, .status, .receipt: return (self, forms)
    }
  }
}

extension RowEventRow {
  /// Return the row in the view of a member with hidden history: positions at or below their join show as the join.
  fileprivate func seen(since join: SequenceNumber, at time: Timestamp) -> RowEventRow {
    var seen = self
    if lastReadSequence <= join {
      (seen.lastReadSequence, seen.lastReadMessage, seen.lastRead) = (join, "", time)
    }
    if lastDeliveredSequence <= join {
      (seen.lastDeliveredSequence, seen.lastDeliveredMessage, seen.lastDelivered) = (join, "", time)
    }
    return seen
  }
}
