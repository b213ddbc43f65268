import Foundation

/// What has to be queried after an event.
struct Query: OptionSet, Sendable {
  let rawValue: Int
  static let ownRow = Query(rawValue: 1)
  static let allRows = Query(rawValue: 2)
}

extension ReadState {
  /// After a query, events of messages that it had already counted may still arrive.
  private static let overlap = Duration.seconds(5)

  private enum Position {
    case read
    case delivered
  }

  /// Apply an event of this place.
  ///
  /// - Returns: What has to be queried, since the event does not tell it.
  mutating func apply(_ event: Event, now: ContinuousClock.Instant) -> Query {
    switch event.type {
    case "message.read":
      return raise(event, .read, event.row.lastReadSeq, event.row.lastReadMessageID, event.createdAt)
    case "message.delivered":
      return raise(
        event,
        .delivered,
        event.row.lastDeliveredSeq,
        event.row.lastDeliveredMessageID,
        event.row.lastDeliveredAt ?? event.createdAt
      )
    case "read_state.changed": return replaceRow(event)
    case "message.new": return register(event, now: now)
    case "message.deleted":
      if let seq = event.seq { forgetStatus(seq) }
      guard let message = event.messageID.flatMap({ forget(message: $0) }) else { return .ownRow }
      return message.user == user || message.isSilent ? [] : .ownRow
    case "message.status":
      guard event.user == user, let from = event.fromSeq, let to = event.toSeq, from <= to else { return [] }
      if let status = event.status.flatMap(DeliveryStatus.init) { tell(status, of: from...to) }
      return []
    case "member.added": return addMember(event)
    case "member.removed":
      if let member = event.user { rows.removeValue(forKey: member) }
      return []
    case "channel.truncated":
      if place.thread != nil { return .allRows }
      if let seq = event.seq { forget(upTo: seq) }
      return .ownRow
    case "channel.updated":
      guard let shown = event.shown, shown != receiptsShown else { return [] }
      receiptsShown = shown
      // What rows and statuses show depends on it.
      return .allRows
    case "notification.mark_read", "notification.mark_unread": return moveOwn(event)
    default: return []
    }
  }

  private mutating func raise(
    _ event: Event,
    _ position: Position,
    _ seq: Int,
    _ id: String?,
    _ time: Date?
  ) -> Query {
    // A row that is not loaded, or a new participant of the thread.
    guard let member = event.user, var row = rows[member] else { return isComplete ? .allRows : [] }
    if position == .read, seq > row.lastReadSeq {
      row.lastReadSeq = seq
      row.lastReadMessageID = id
      row.lastRead = time
    }
    // What was read is shown as delivered (R3).
    if seq > row.lastDeliveredSeq {
      row.lastDeliveredSeq = seq
      row.lastDeliveredMessageID = id
      row.lastDeliveredAt = time
    }
    rows[member] = row
    return []
  }

  private mutating func replaceRow(_ event: Event) -> Query {
    guard let member = event.user else { return [] }
    let known = rows[member]
    if known == nil, place.thread != nil || !isComplete { return isComplete ? .allRows : [] }
    var row = event.row
    if !event.hasJoinedSeq { row.joinedSeq = known?.joinedSeq ?? 0 }
    rows[member] = row
    return []
  }

  private mutating func register(_ event: Event, now: ContinuousClock.Instant) -> Query {
    guard let message = event.message, let moves = event.moves else { return [] }
    let (id, seq, isSilent) = (message.id, message.seq, message.silent == true)
    let isOwn = event.user == user
    let isRepeated = seq <= told
    let isNext = seq == told + 1 && queriedAt.map { now - $0 > Self.overlap } ?? true
    told = max(told, seq)
    know(RegisteredMessage(id: id, seq: seq, user: event.user, isSilent: isSilent))
    var query: Query = []
    if event.user != nil {
      if moves.read { query.formUnion(raise(event, .read, seq, id, event.createdAt)) }
      if moves.delivered { query.formUnion(raise(event, .delivered, seq, id, event.createdAt)) }
    }
    if isOwn { follow(seq, told: .sent) }
    guard let own, !isRepeated else { return query }
    if isOwn, moves.read {
      clearUnread()
    } else if !isSilent, !isOwn, let unread = own.unreadMessages {
      rows[user]?.unreadMessages = unread + 1
      rows[user]?.firstUnreadMessageID = own.firstUnreadMessageID ?? id
    }
    // Mentions are not told. Without a gap, and without a mention, the count is exact.
    return isNext && (moves.read || isSilent) ? query : query.union(.ownRow)
  }

  private mutating func addMember(_ event: Event) -> Query {
    guard place.thread == nil, let member = event.user else { return [] }
    var row = Row(
      joinedSeq: event.row.joinedSeq,
      lastReadSeq: event.row.lastReadSeq,
      lastDeliveredSeq: event.row.lastReadSeq
    )
    row.lastRead = event.createdAt
    row.lastReadMessageID = event.row.lastReadMessageID
    row.lastDeliveredAt = event.createdAt
    row.lastDeliveredMessageID = event.row.lastReadMessageID
    rows[member] = row
    return member == user ? .ownRow : []
  }

  private mutating func moveOwn(_ event: Event) -> Query {
    guard own != nil else { return [] }
    rows[user]?.unreadMessages = event.row.unreadMessages
    rows[user]?.unreadEpoch = event.row.unreadEpoch
    rows[user]?.markedUnread = event.row.markedUnread
    if event.type == "notification.mark_unread" {
      rows[user]?.firstUnreadMessageID = event.row.firstUnreadMessageID
    } else if event.row.unreadMessages == 0 {
      clearUnread()
    }
    // Positions, times and mentions are not told, or only by name.
    return .ownRow
  }
}
