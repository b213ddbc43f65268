/// Messages, marks and acknowledgements, in a channel or in a thread (R2 to R5, R9, R15).
extension NaiveModel {
  /// - Parameter thread: the parent message that the caller named; nil if none was named.
  mutating func performRoomCommand(_ command: Command, thread: String?) -> Outcome {
    switch command {
    case .post(
      let cid,
      let id,
      let sender,
      let created,
      let isSilent,
      let requestsAcknowledgement,
      let moves,
      let mentions
    ):
      return post(cid, thread, id, sender, created, isSilent, requestsAcknowledgement, moves: moves, mentions)
    case .read(let cid, let user, let message, let epoch):
      let isHidden = hidesRead(user)
      return act(cid, thread, user, message, empty: .newest, others: .join) {
        .read(to: $0, epoch: epoch, at: $1, isHidden: isHidden)
      }
    case .delivered(let cid, let user, let message):
      let isHidden = hidesDelivered(user)
      return act(cid, thread, user, message, empty: .newest, others: .ignore) {
        .delivered(to: $0, at: $1, isHidden: isHidden)
      }
    case .unread(let cid, let user, let message, let epoch):
      let isOff = channels[cid] != nil && settings(cid)["mark_unread"] == "off"
      return act(cid, thread, user, message, empty: .firstReply, others: .refuse, isOff: isOff) { n, _ in
        n == 0 ? .flagged(epoch: epoch) : .unread(from: n, epoch: epoch)
      }
    default: preconditionFailure("not in a thread: \(command)")
    }
  }

  private mutating func post(
    _ cid: String,
    _ thread: String?,
    _ id: String,
    _ sender: String,
    _ created: Int,
    _ isSilent: Bool,
    _ requestsAcknowledgement: Bool,
    moves: Bool,
    _ mentions: [String]
  ) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    if let known = find(cid, id) {
      if isGone(known.roomID, known.place) { return .refused("message_deleted") }
      // An identical repeat is a duplicate; different fields mean another message.
      let message = self[known.roomID].messages[known.place]
      let parent = self[known.roomID].parent.map { channels[cid]!.main.messages[$0].id }
      let refusal = message.acknowledgementRequestRefusal
      guard parent == thread, message.sender == sender, message.isSilent == isSilent,
        message.moves == moves,
        (message.hasAcknowledgementRequest || !refusal.isEmpty) == requestsAcknowledgement
      else { return .refused("message_conflict") }
      return .message(sequence: known.place + 1, isNew: false, refusal: refusal)
    }
    if isErasing(sender) { return .refused("user_erased") }
    var roomID = RoomID(cid: cid)
    if let thread {
      guard let parent = find(cid, thread) else { return .refused("message_not_found") }
      if parent.roomID.thread != nil { return .refused("invalid_field") }
      if isGone(parent.roomID, parent.place) { return .refused("message_deleted") }
      roomID = openThread(cid, parent.place)
      // R15: in a channel of two members both take part. Otherwise the sender and members mentioned by name do.
      let members = channels[cid]!.main.memberships.filter { !$0.hasLeft }
      if members.count == 2 { for member in members { joinThread(roomID, member.user) } }
      joinThread(roomID, sender)
      for user in mentions where user != sender && !isErasing(user) { joinThread(roomID, user) }
    }
    var message = Message(
      id: id,
      sender: sender,
      isSilent: isSilent,
      registeredAt: now,
      createdAt: created == 0 ? now : created,
      order: nextOrder()
    )
    message.moves = moves
    if requestsAcknowledgement {
      message.acknowledgementRequestRefusal =
        thread != nil ? "receipt_not_allowed" : acknowledgementRequestRefusal(cid, sender)
      message.hasAcknowledgementRequest = message.acknowledgementRequestRefusal.isEmpty
      if message.hasAcknowledgementRequest, let ttl = number("receipt_ttl", cid) {
        message.expiresAt = now + ttl * 1000
      }
    }
    if mentions == [everybody] {
      message.mentioned = Set(
        self[roomID].memberships.indices.filter { !self[roomID].memberships[$0].hasLeft }
      )
    } else {
      let named = mentions.filter { thread == nil || !isErasing($0) }
      message.mentioned = Set(named.compactMap { self[roomID].membership($0) })
    }
    if let own = self[roomID].membership(sender) { message.mentioned.remove(own) }
    self[roomID].places[id] = self[roomID].messages.count
    self[roomID].messages.append(message)
    let sequence = self[roomID].messages.count
    if moves, let row = self[roomID].membership(sender) {
      self[roomID].memberships[row].acts.append(
        .posted(
          sequence,
          at: now,
          hidesRead: hidesRead(sender),
          hidesDelivered: hidesDelivered(sender)
        )
      )
      if thread != nil { clearUnreadFlag(cid, sender) }
    }
    return .message(sequence: sequence, isNew: true, refusal: message.acknowledgementRequestRefusal)
  }

  /// R4: a read or a send in a thread clears the channel's unread flag too.
  private mutating func clearUnreadFlag(_ cid: String, _ user: String) {
    guard let row = membership(cid, user) else { return }
    channels[cid]!.main.memberships[row].acts.append(.readOrSentInThread)
  }

  /// R15: a channel member takes part in a thread, visible to others from the next reply on. A member with shown reads
  /// already takes part by reading. A member with hidden reads (R7, R8) takes part only now, at their current position.
  private mutating func joinThread(_ roomID: RoomID, _ user: String) {
    guard membership(roomID.cid, user) != nil else { return }
    guard let row = self[roomID].membership(user) else {
      return join(roomID, user, after: self[roomID].messages.count)
    }
    guard self[roomID].memberships[row].isByReading else { return }
    guard hidesRead(user) || settings(roomID.cid)["read_events"] == "false" else {
      self[roomID].memberships[row].isByReading = false
      return
    }
    let joinedAfter = self[roomID].memberships[row].joinedAfter
    let acts = self[roomID].memberships[row].acts
    self[roomID].memberships[row].hasLeft = true
    join(roomID, user, after: self[roomID].messages.count)
    let last = self[roomID].memberships.count - 1
    self[roomID].memberships[last].acts = acts
    self[roomID].memberships[last].droppedActTimes = acts.count
    self[roomID].memberships[last].unreadAfter = self[roomID].memberships[row].unreadAfter ?? joinedAfter
    // Members were already taking part where a message mentioned everybody.
    for place in self[roomID].messages.indices where self[roomID].messages[place].mentioned.contains(row) {
      self[roomID].messages[place].mentioned.insert(last)
    }
  }

  /// The thread of a parent message; the first reply begins it, with the parent's sender, who has read nothing of it
  /// (R15).
  private mutating func openThread(_ cid: String, _ parent: Int) -> RoomID {
    if let thread = thread(cid, of: parent) { return thread }
    channels[cid]!.threads.append(Room(parent: parent))
    let roomID = RoomID(cid: cid, thread: channels[cid]!.threads.count - 1)
    let sender = channels[cid]!.main.messages[parent].sender
    if membership(cid, sender) != nil { join(roomID, sender, after: 0) }
    return roomID
  }

  /// R9: why this sender may not request acknowledgement now.
  private func acknowledgementRequestRefusal(_ cid: String, _ sender: String) -> String {
    if let roles = roles("receipt_request_roles", cid) {
      let role = membership(cid, sender).map { channels[cid]!.main.memberships[$0].role } ?? ""
      if !roles.contains(role) { return "receipt_not_allowed" }
    }
    if let limit = number("receipt_daily_limit", cid) {
      let today = channels[cid]!.main.messages.filter {
        $0.hasAcknowledgementRequest && $0.registeredAt / 86_400_000 == now / 86_400_000
      }
      if today.count >= limit { return "receipt_limit_reached" }
    }
    return ""
  }

  /// The target of a mark that names no message.
  private enum Empty { case newest, firstReply }

  /// The effect of a mark by a channel member who is not in the thread.
  private enum Others { case join, ignore, refuse }

  private mutating func act(
    _ cid: String,
    _ thread: String?,
    _ user: String,
    _ message: String,
    empty: Empty,
    others: Others,
    isOff: Bool = false,
    _ make: (Int, Int) -> Act
  ) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    guard let member = membership(cid, user).map({ channels[cid]!.main.memberships[$0] }) else {
      return .refused("not_a_member")
    }
    var roomID = RoomID(cid: cid)
    if let thread {
      guard let parent = findParent(cid, thread, for: member) else { return .refused("message_not_found") }
      if parent.roomID.thread != nil { return .refused("invalid_field") }
      if isGone(parent.roomID, parent.place) { return .refused("message_deleted") }
      guard let found = self.thread(cid, of: parent.place) else {
        if isOff { return .refused("mark_unread_off") }
        return message.isEmpty ? .row(.zeros(user)) : .refused("message_not_found")
      }
      roomID = found
    } else if let found = find(cid, message, for: member) {
      // A reply's id alone identifies the thread.
      roomID = found.roomID
    }
    if isOff { return .refused("mark_unread_off") }
    if isClosed(roomID) { return .refused("message_deleted") }
    if others == .refuse, self[roomID].membership(user) == nil { return .refused("not_in_thread") }
    var sequence: Int
    let known = self[roomID].messages.indices.filter { exists(roomID, $0, for: member) }
    if let place = self[roomID].places[message], known.contains(place) {
      sequence = place + 1
    } else if message.isEmpty, empty == .newest {
      sequence = known.isEmpty ? 0 : self[roomID].messages.count
    } else if message.isEmpty {
      // For the channel: flag the channel as a whole.
      sequence = roomID.thread == nil ? 0 : known.first.map { $0 + 1 } ?? 1
    } else {
      return .refused("message_not_found")
    }
    if self[roomID].membership(user) == nil {
      switch others {
      case .join: join(roomID, user, after: self[roomID].messages.count, byReading: true)
      case .ignore: return .row(.zeros(user))
      case .refuse: return .refused("not_in_thread")
      }
    }
    let row = self[roomID].membership(user)!
    let act = make(sequence, now)
    if case .read(_, let epoch, _, _) = act, roomID.thread != nil,
      epoch ?? .max >= positions(self[roomID].memberships[row]).epoch
    {
      clearUnreadFlag(cid, user)
    }
    self[roomID].memberships[row].acts.append(act)
    if case .read = act, roomID.thread == nil, readAcknowledges(cid) {
      // Acknowledge each message separately; skip those that cannot be acknowledged.
      for message in channels[cid]!.main.messages[..<sequence] where message.hasAcknowledgementRequest {
        _ = acknowledge(cid, row, message.id, "")
      }
    }
    return .row((roomID.thread == nil ? answers(cid) : answers(roomID)).ownRow(user)!)
  }

  /// Mark every channel of the user read up to its newest message (R13).
  mutating func readAll(_ user: String) -> Outcome {
    let cids = channels.keys.sorted().filter { membership($0, user) != nil }
    for cid in cids {
      _ = performRoomCommand(.read(cid: cid, user: user, message: "", epoch: nil), thread: nil)
    }
    return .marked(cids)
  }

  /// Forget the times of all moves so far of some rows of a thread. The rules say only roughly when that happens, so
  /// the real shard reports it, and the model does not check whether it was due.
  mutating func dropTimes(_ cid: String, thread parent: Int, rows: Range<Int>) {
    guard let roomID = thread(cid, of: parent - 1) else { return }
    for row in rows.clamped(to: self[roomID].memberships.indices) {
      self[roomID].memberships[row].droppedActTimes = self[roomID].memberships[row].acts.count
    }
  }

  // MARK: Acknowledgements

  /// R9, `read_acks_receipts`.
  private func readAcknowledges(_ cid: String) -> Bool {
    switch settings(cid)["read_acks_receipts"]! {
    case "always": true
    case "direct": memberCount(cid) == 2
    default: false
    }
  }

  /// R9: `ok`, or the reason for the refusal.
  mutating func acknowledge(_ cid: String, _ row: Int, _ id: String, _ note: String) -> String {
    let member = channels[cid]!.main.memberships[row]
    guard let (roomID, place) = find(cid, id, for: member) else { return "message_not_found" }
    let message = self[roomID].messages[place]
    if isGone(roomID, place) { return "message_deleted" }
    // Replies have none (R15).
    if !message.hasAcknowledgementRequest { return "receipt_not_requested" }
    if message.sender == member.user { return "own_message" }
    if message.acknowledgements.contains(where: { $0.membership == row }) { return "ok" }
    // The member is neither expected nor a reader (R6).
    if member.joinedAfter > place { return "not_expected" }
    if let expires = message.expiresAt, now >= expires { return "receipt_expired" }
    let isHidden = hidesRead(member.user)
    let most = number("receipt_max_members", cid)
    channels[cid]!.main.messages[place].acknowledgements.append(
      Acknowledgement(membership: row, at: now, isHidden: isHidden, note: most == 0 ? "" : note)
    )
    // Hidden acknowledgements do not count, do not evict others and are not evicted. So the other acknowledgements do
    // not reveal a hidden one.
    guard let most, !isHidden else { return "ok" }
    while true {
      let kept = channels[cid]!.main.messages[place].acknowledgements.indices.filter {
        let other = channels[cid]!.main.messages[place].acknowledgements[$0]
        return !other.isHidden && !other.isForgotten
      }
      guard kept.count > most else { return "ok" }
      channels[cid]!.main.messages[place].acknowledgements[kept[0]].isForgotten = true
    }
  }
}

extension RowView {
  /// The row of a channel member who is not in the thread.
  static func zeros(_ user: String) -> RowView {
    RowView(
      user: user,
      lastReadAt: 0,
      lastRead: 0,
      lastReadID: "",
      lastDeliveredAt: 0,
      lastDelivered: 0,
      lastDeliveredID: "",
      own: OwnView(unread: 0, firstUnreadID: "", epoch: 0)
    )
  }
}

/// Push acks (R3, R20), by names and by tickets.
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
