/// Push acknowledgements (R3, R20), by names and by tickets.
extension NaiveModel {
  /// The target of a ticket: one membership in one incarnation of a channel, and one message.
  struct Ticket: Sendable {
    let incarnation: Int
    let membership: Int
    let roomID: RoomID
    let place: Int
  }

  mutating func push(_ cid: String, _ user: String, _ message: String, acked: Int) -> Outcome {
    switch target(cid, user, message) {
    case .failure(let refusal): .refused(refusal.name)
    case .success(let ticket): deliver(ticket, acked: acked)
    }
  }

  mutating func makeTicket(_ cid: String, _ user: String, _ message: String) -> Outcome {
    switch target(cid, user, message) {
    case .failure(let refusal): return .refused(refusal.name)
    case .success(let ticket):
      if isGone(ticket.roomID, ticket.place) { return .refused("message_deleted") }
      tickets[cid, default: []].append(ticket)
      return .ticket(tickets[cid]!.count - 1)
    }
  }

  mutating func redeem(_ cid: String, _ number: Int, acked: Int) -> Outcome {
    let ticket = tickets[cid]![number]
    guard channels[cid]?.incarnation == ticket.incarnation else { return .refused("channel_not_found") }
    if channels[cid]!.main.memberships[ticket.membership].hasLeft { return .refused("not_a_member") }
    return deliver(ticket, acked: acked)
  }

  private func target(_ cid: String, _ user: String, _ message: String) -> Result<Ticket, NamedRefusal> {
    guard let channel = channels[cid] else { return .failure(NamedRefusal(name: "channel_not_found")) }
    guard let member = membership(cid, user) else { return .failure(NamedRefusal(name: "not_a_member")) }
    guard let (roomID, place) = find(cid, message, for: channel.main.memberships[member]) else {
      return .failure(NamedRefusal(name: "message_not_found"))
    }
    let ticket = Ticket(incarnation: channel.incarnation, membership: member, roomID: roomID, place: place)
    return .success(ticket)
  }

  private mutating func deliver(_ ticket: Ticket, acked: Int) -> Outcome {
    let (cid, roomID) = (ticket.roomID.cid, ticket.roomID)
    if isClosed(roomID) { return .refused("message_deleted") }
    let user = channels[cid]!.main.memberships[ticket.membership].user
    let sentAt = self[roomID].messages[ticket.place].registeredAt
    guard let row = self[roomID].membership(user) else {
      return .delivery(isMoved: false, sentAt: sentAt, deliveredAt: 0)
    }
    let before = positions(self[roomID].memberships[row])
    var shown = now
    if acked != 0 {
      // R20: not before the message was registered, not before what the row already shows, and not after now. R7: a
      // delivery while hidden has no time.
      let shownSince = settings(of: user).deliveredShownSince
      shown = min([acked, sentAt, before.deliveredSteps.last?.at ?? 0, shownSince].max()!, now)
    }
    let isHidden = hidesDelivered(user)
    self[roomID].memberships[row].acts.append(.delivered(to: ticket.place + 1, at: shown, isHidden: isHidden))
    let after = positions(self[roomID].memberships[row])
    return .delivery(
      isMoved: after.delivered > before.delivered,
      sentAt: sentAt,
      deliveredAt: after.deliveredSteps.last?.at ?? 0
    )
  }
}
