extension NaiveModel {
  /// Collect everything that can be queried about one channel at one moment, in one pass over the members' histories.
  func answers(_ cid: String) -> Answers {
    var answers = answers(RoomID(cid: cid))
    answers.threads = roomIDs(cid).filter { $0.thread != nil }.map { self.answers($0) }
    return answers
  }

  /// The answers of one room: a channel without its threads, or a thread.
  func answers(_ roomID: RoomID) -> Answers {
    let room = self[roomID]
    let members = room.memberships.indices.filter { !room.memberships[$0].hasLeft }.map { number in
      let membership = room.memberships[number]
      return Answers.Member(
        number: number,
        membership: membership,
        at: positions(membership),
        settings: settings(of: membership.user),
        countedAfter: countedAfter(roomID, membership.user)
      )
    }
    return Answers(
      now: now,
      room: room,
      isClosed: isClosed(roomID),
      settings: settings(roomID.cid),
      members: members,
      homes: channels[roomID.cid]!.main.memberships.filter { !$0.hasLeft }
    )
  }

  /// For a thread: the number of replies registered before the member joined the channel (R6).
  private func countedAfter(_ roomID: RoomID, _ user: String) -> Int {
    guard roomID.thread != nil, let row = membership(roomID.cid, user) else { return 0 }
    let joinedAt = channels[roomID.cid]!.main.memberships[row].joinedAt
    return self[roomID].messages.filter { $0.registeredAt < joinedAt }.count
  }

  struct Answers {
    let now: Int
    let room: Room
    /// Whether this is a thread whose parent is deleted.
    let isClosed: Bool
    let settings: Settings
    /// In join order.
    let members: [Member]
    /// The channel's memberships, also where this is one of its threads.
    let homes: [Membership]
    /// For a channel: the answers of its threads.
    var threads: [Answers] = []

    struct Member {
      /// The membership's index among all memberships, ended ones included: its row.
      let number: Int
      let membership: Membership
      let at: Positions
      let settings: UserView
      let countedAfter: Int

      var user: String { membership.user }
    }

    private var readEvents: Bool { settings["read_events"] == "true" }
    private var deliveryEvents: Bool { settings["delivery_events"] == "true" }
    private var keptSteps: Int { Int(settings["kept_steps"]!)! }

    // MARK: Messages that exist for a member (R6)

    private func exists(_ place: Int, for user: String?) -> Bool {
      guard let home = homes.first(where: { $0.user == user }), home.hidesHistory else { return true }
      return room.messages[place].order > home.order
    }

    /// The number of the room's first messages that do not exist for the user.
    private func hiddenCount(from user: String?) -> Int {
      room.messages.indices.filter { !exists($0, for: user) }.count
    }

    // MARK: Positions that others see (R4, R7, R8)

    private func showsRead(_ member: Member) -> Bool { readEvents && !member.settings.hidesRead }
    private func showsDelivered(_ member: Member) -> Bool {
      deliveryEvents && !member.settings.hidesDelivered
    }

    private func shownRead(_ member: Member) -> Int {
      if !showsRead(member) { return member.at.start }
      return settings["mark_unread"] == "public" ? member.at.own : member.at.watermark
    }

    /// In a thread, deliveries from before the member took part never count (R15).
    private func shownDelivered(_ member: Member) -> Int {
      if member.membership.isInThread, member.at.delivered <= member.membership.joinedAfter { return 0 }
      return showsDelivered(member) ? member.at.delivered : 0
    }

    /// A message delivered by reading it stays delivered, whatever the member marks unread (R4).
    private func shownWatermark(_ member: Member) -> Int {
      showsRead(member) ? member.at.watermark : member.at.start
    }

    private func acknowledgement(_ member: Member, _ n: Int) -> Acknowledgement? {
      room.messages[n - 1].acknowledgements.first { $0.membership == member.number }
    }

    /// R9. Called only for members who joined before message `n`.
    private func hasRead(_ member: Member, _ n: Int) -> Bool {
      shownRead(member) >= n || showsRead(member) && acknowledgement(member, n) != nil
    }

    /// R9: an acknowledgement is shown apart from reading, also where the channel hides reads.
    private func showsAcknowledgement(_ member: Member, _ n: Int) -> Bool {
      !member.settings.hidesRead && acknowledgement(member, n) != nil
    }

    private func hasReceived(_ member: Member, _ n: Int) -> Bool {
      hasRead(member, n) || shownDelivered(member) >= n || shownWatermark(member) >= n
    }

    /// The read time that others see: the earlier of the times of the member's steps and acknowledgement.
    private func readTime(_ member: Member, _ n: Int) -> Moment {
      let since = member.settings.readShownSince
      var byStep: Moment?
      if shownRead(member) >= n {
        byStep = NaiveModel.reached(n, member.at.readSteps, kept: keptSteps, shownSince: since)
      }
      let byHand = acknowledgement(member, n).map { shownTime($0, of: member, n) }
      return Moment.earlier(byStep, byHand)!
    }

    /// The acknowledgement time that others see.
    private func shownTime(_ made: Acknowledgement, of member: Member, _ n: Int) -> Moment {
      made.isHidden
        ? Moment(at: member.settings.readShownSince, isExact: false) : acknowledgementTime(made, n)
    }

    /// The time of an acknowledgement that was not hidden. An acknowledgement whose time was evicted has only a bound.
    private func acknowledgementTime(_ made: Acknowledgement, _ n: Int) -> Moment {
      made.isForgotten ? Moment(at: now, isExact: false, isBound: true) : Moment(at: made.at)
    }

    private func deliveredTime(_ member: Member, _ n: Int) -> Moment? {
      var times: [Moment?] = [nil, nil]
      if shownDelivered(member) >= n {
        let since = member.settings.deliveredShownSince
        times[0] = NaiveModel.reached(n, member.at.deliveredSteps, kept: keptSteps, shownSince: since)
      }
      if shownWatermark(member) >= n {
        let since = member.settings.readShownSince
        times[1] = NaiveModel.reached(n, member.at.readSteps, kept: keptSteps, shownSince: since)
      }
      return Moment.earlier(times[1], times[0])
    }

    /// When a member's watermark reached message `n`; nil where it has not, or where joining put it there.
    func stepTime(_ user: String, isRead: Bool, _ n: Int, seesHidden: Bool) -> Moment? {
      guard let member = member(user), member.membership.joinedAfter < n else { return nil }
      let steps = isRead ? member.at.readSteps : member.at.deliveredSteps
      guard (steps.last?.to ?? 0) >= n else { return nil }
      let since = isRead ? member.settings.readShownSince : member.settings.deliveredShownSince
      return NaiveModel.reached(n, steps, kept: keptSteps, shownSince: seesHidden ? nil : since)
    }

    // MARK: Rows (R12)

    private func member(_ user: String) -> Member? { members.first { $0.user == user } }

    func ownRow(_ user: String) -> RowView? {
      guard let member = member(user) else { return nil }
      let (read, delivered) = (member.at.watermark, member.at.delivered)
      let readAt = member.at.readSteps.last?.at ?? member.membership.joinedAt
      return row(
        member,
        read: member.at.own,
        readAt: readAt,
        received: max(delivered, read),
        receivedAt: delivered >= read ? member.at.deliveredSteps.last?.at ?? 0 : readAt,
        hasOwn: true,
        isOwn: true,
        unnamed: hiddenCount(from: user)
      )
    }

    /// The row as seen by a member for whom the first messages do not exist.
    private func shownRow(_ user: String, _ viewer: Viewer) -> RowView? {
      let hidden = hiddenCount(from: viewer.user)
      guard hidden > 0, var row = shownRow(user, hasOwn: false),
        let home = homes.first(where: { $0.user == viewer.user })
      else { return shownRow(user, hasOwn: viewer.isServer) }
      row.joined = max(row.joined, hidden)
      if row.lastRead <= hidden {
        (row.lastRead, row.lastReadID, row.lastReadAt) = (hidden, "", home.joinedAt)
      }
      if row.lastDelivered <= hidden {
        (row.lastDelivered, row.lastDeliveredID, row.lastDeliveredAt) = (hidden, "", home.joinedAt)
      }
      return row
    }

    func shownRow(_ user: String, hasOwn: Bool) -> RowView? {
      guard let member = member(user) else { return nil }
      let (read, delivered) = (shownRead(member), shownDelivered(member))
      func time(_ step: Step?, _ since: Int) -> Int? { step.map { $0.isHidden ? since : $0.at } }
      let lastRead = showsRead(member) ? member.at.readSteps.last : nil
      let readAt = time(lastRead, member.settings.readShownSince) ?? member.membership.joinedAt
      let deliveredAt = time(member.at.deliveredSteps.last, member.settings.deliveredShownSince) ?? 0
      let received = max(delivered, shownWatermark(member))
      return row(
        member,
        read: read,
        readAt: readAt,
        received: received,
        receivedAt: received == 0 ? 0 : delivered == received ? deliveredAt : readAt,
        hasOwn: hasOwn
      )
    }

    private func row(
      _ member: Member,
      read: Int,
      readAt: Int,
      received: Int,
      receivedAt: Int,
      hasOwn: Bool,
      isOwn: Bool = false,
      unnamed: Int = 0
    ) -> RowView {
      func id(_ n: Int) -> String { n <= unnamed ? "" : room.messages[n - 1].id }
      var own: RowView.OwnView?
      if hasOwn {
        // Replies to a deleted message count nowhere.
        let unread = room.messages.indices.filter { place in
          let message = room.messages[place]
          return place + 1 > member.at.own
            && !(member.membership.hidesHistory && place < member.membership.joinedAfter)
            // Replies from before the member took part are unread only if the member marked them unread.
            && !(member.membership.isInThread && member.at.marker == nil
              && place < member.membership.unreadAfter ?? member.membership.joinedAfter)
            && message.sender != member.user && !message.isSilent && !message.isDeleted && !isClosed
        }
        own = RowView.OwnView(
          unread: unread.count,
          firstUnreadID: unread.first.map { room.messages[$0].id } ?? "",
          epoch: member.at.epoch,
          isFlagged: isOwn && member.at.isFlagged,
          mentions: isOwn
            ? unread.count { room.messages[$0].mentioned.contains(member.number) } + mentionsInThreads(member)
            : 0
        )
      }
      return RowView(
        user: member.user,
        joined: member.membership.joinedAfter,
        lastReadAt: readAt,
        lastRead: read,
        lastReadID: id(read),
        lastDeliveredAt: receivedAt,
        lastDelivered: received,
        lastDeliveredID: id(received),
        own: own
      )
    }

    /// For a channel's member: unread replies in its threads that mention the member.
    private func mentionsInThreads(_ member: Member) -> Int {
      threads.reduce(0) { $0 + ($1.ownRow(member.user)?.own?.mentions ?? 0) }
    }

    /// All rows, in the order of R12, or the refusal's wire name.
    func readState(_ viewer: Viewer) -> Result<[RowView], NamedRefusal> {
      var rows: [RowView] = []
      if let user = viewer.user {
        guard let own = ownRow(user) else { return .failure(NamedRefusal(name: "not_a_member")) }
        rows.append(own)
        // R10: the viewer sees only their own row.
        if settings["counts_visible_to"] == "sender" { return .success(rows) }
      }
      for member in members.reversed() where member.user != viewer.user {
        rows.append(shownRow(member.user, viewer)!)
      }
      return .success(rows)
    }

    // MARK: Statuses (R1, R9, R10, R19)

    private func isExpected(_ member: Member, _ n: Int) -> Bool {
      member.user != room.messages[n - 1].sender && !isUnseen(member)
        && (member.membership.joinedAfter < n || showsRead(member) && hadReadBeforeTakingPart(member, n))
    }

    /// R15: the reply is older than the member's part in the thread, and the member had read it.
    private func hadReadBeforeTakingPart(_ member: Member, _ n: Int) -> Bool {
      member.membership.isInThread && member.at.watermark >= n && n > member.countedAfter
    }

    /// R7, R8: the member is in the thread by reading only, and their reads are not shown.
    private func isUnseen(_ member: Member) -> Bool {
      member.membership.isByReading && !showsRead(member)
    }

    /// R10: whether the viewer may see the counts of message `n`.
    private func seesCounts(_ viewer: Viewer, _ n: Int) -> Bool {
      guard settings["counts_visible_to"] == "sender", let user = viewer.user else { return true }
      return room.messages[n - 1].sender == user
    }

    func status(_ id: String, _ viewer: Viewer = .server) -> StatusResult {
      switch find(id, viewer) {
      case .failure(let refusal): .refused(refusal.name)
      case .success(let (room, n)): .status(room.status(at: n, viewer))
      }
    }

    /// The room and position of an existing message, in the channel or in a thread. The viewer's channel membership
    /// decides access.
    private func find(_ id: String, _ viewer: Viewer) -> Result<(Answers, Int), NamedRefusal> {
      if let user = viewer.user, member(user) == nil {
        return .failure(NamedRefusal(name: "not_a_member"))
      }
      for holder in [self] + threads {
        guard let place = holder.room.places[id], holder.exists(place, for: viewer.user) else { continue }
        if holder.room.messages[place].isDeleted || holder.isClosed {
          return .failure(NamedRefusal(name: "message_deleted"))
        }
        return .success((holder, place + 1))
      }
      return .failure(NamedRefusal(name: "message_not_found"))
    }

    private func status(at n: Int, _ viewer: Viewer) -> StatusView {
      let sees = seesCounts(viewer, n)
      // Without access to the counts, the recipients count as none, and so do the readers.
      let expected = sees ? members.filter { isExpected($0, n) } : []
      let readers = expected.filter { hasRead($0, n) }
      let receivers = expected.filter { hasReceived($0, n) }
      let readable = expected.filter { !$0.settings.hidesRead }
      let deliverable = expected.filter { !$0.settings.hidesDelivered }
      let isRead = readEvents && readable.filter { hasRead($0, n) }.count >= needed(of: readable.count)
      let isDelivered =
        deliverable.filter { hasReceived($0, n) }.count >= needed(of: deliverable.count)
      return StatusView(
        sequence: n,
        word: isRead ? "read" : isDelivered ? "delivered" : "sent",
        receipt: receipt(n, readable),
        readCount: readers.count,
        deliveredCount: receivers.count,
        unreadCount: expected.count - readers.count,
        memberCount: expected.count,
        readEvents: readEvents,
        deliveryEvents: deliveryEvents,
        createdAt: room.messages[n - 1].createdAt,
        acknowledgedCount: room.messages[n - 1].hasAcknowledgementRequest
          ? expected.filter { showsAcknowledgement($0, n) }.count : nil
      )
    }

    /// R19.
    private func needed(of expected: Int) -> Int {
      let rule = settings["status_rule"]!
      if rule == "any" { return 1 }
      if rule == "all" { return max(1, expected) }
      if rule.hasSuffix("%") {
        let percentage = Int(rule.dropLast())!
        // The least whole number that is at least `percentage` hundredths of `expected`.
        return max(1, (0...expected).first { $0 * 100 >= expected * percentage }!)
      }
      return max(1, min(Int(rule)!, expected))
    }

    /// R9.
    private func receipt(_ n: Int, _ expected: [Member]) -> String {
      let message = room.messages[n - 1]
      if !message.hasAcknowledgementRequest { return "none" }
      if !expected.isEmpty, expected.allSatisfy({ acknowledgement($0, n) != nil }) { return "done" }
      return message.expiresAt.map { now >= $0 } ?? false ? "expired" : "processing"
    }

    // MARK: Lists (R11)

    /// A whole list, or the refusal's wire name.
    func list(_ id: String, _ viewer: Viewer, _ list: ListName, _ order: OrderName)
      -> Result<[EntryView], NamedRefusal>
    {
      find(id, viewer).flatMap { $0.entries($1, viewer, list, order) }
    }

    private func entries(_ n: Int, _ viewer: Viewer, _ list: ListName, _ order: OrderName)
      -> Result<[EntryView], NamedRefusal>
    {
      guard seesCounts(viewer, n) else { return .failure(NamedRefusal(name: "counts_not_visible")) }
      if order != .joined, members.count > 1000 {
        return .failure(NamedRefusal(name: "order_not_available"))
      }
      if list == .acknowledged || list == .unacknowledged, !room.messages[n - 1].hasAcknowledgementRequest {
        return .failure(NamedRefusal(name: "receipt_not_requested"))
      }
      var entries: [EntryView] = []
      /// The time that each entry is sorted by.
      var places: [String: Int] = [:]
      for member in members where isExpected(member, n) {
        switch list {
        case .readers:
          guard hasRead(member, n) else { continue }
          let time = readTime(member, n)
          let made = acknowledgement(member, n)
          let note = made.map { $0.isForgotten ? "" : $0.note } ?? ""
          places[member.user] = time.place
          entries.append(EntryView(user: member.user, at: time.at, isExact: time.isExact, note: note))
        case .delivered:
          guard !hasRead(member, n), let time = deliveredTime(member, n) else { continue }
          places[member.user] = time.place
          entries.append(EntryView(user: member.user, at: time.at, isExact: time.isExact))
        case .unread:
          if !hasRead(member, n) { entries.append(EntryView(user: member.user)) }
        case .acknowledged:
          guard showsAcknowledgement(member, n), let made = acknowledgement(member, n) else { continue }
          let time = shownTime(made, of: member, n)
          places[member.user] = time.place
          let note = made.isForgotten ? "" : made.note
          entries.append(EntryView(user: member.user, at: time.at, isExact: time.isExact, note: note))
        case .unacknowledged:
          if !showsAcknowledgement(member, n) { entries.append(EntryView(user: member.user)) }
        }
      }
      if order != .joined {
        func place(_ entry: EntryView) -> Int { places[entry.user] ?? entry.at }
        entries.sort { (place($0), Array($0.user.utf8)) < (place($1), Array($1.user.utf8)) }
        if order == .timeDescending { entries.reverse() }
      }
      return .success(entries)
    }

    // MARK: Members of one message

    func memberStatuses(_ id: String, _ viewer: Viewer, _ users: [String])
      -> Result<[MemberStatusResult], NamedRefusal>
    {
      find(id, viewer).map { holder, n in
        users.map { user in
          member(user) == nil ? .refused("not_a_member") : holder.memberStatus(n, viewer, user)
        }
      }
    }

    /// The status of a channel member, who may not be in the thread.
    private func memberStatus(_ n: Int, _ viewer: Viewer, _ user: String) -> MemberStatusResult {
      if user != viewer.user, !seesCounts(viewer, n) { return .refused("counts_not_visible") }
      guard let member = member(user), user == viewer.user || !isUnseen(member),
        member.membership.joinedAfter < n
          || (user == viewer.user || showsRead(member)) && hadReadBeforeTakingPart(member, n)
      else { return .refused("not_expected") }
      return .status(user == viewer.user ? ownStatus(member, n) : shownStatus(member, n))
    }

    private func shownStatus(_ member: Member, _ n: Int) -> MemberStatusView {
      let read = hasRead(member, n) ? readTime(member, n) : nil
      let made = showsAcknowledgement(member, n) ? acknowledgement(member, n) : nil
      return memberStatus(
        read: read,
        delivered: deliveredTime(member, n),
        acknowledged: made.map { shownTime($0, of: member, n) }
      )
    }

    /// The status as the member sees it: hidden positions and all times included.
    private func ownStatus(_ member: Member, _ n: Int) -> MemberStatusView {
      var read: Moment?
      if member.at.own >= n {
        read = NaiveModel.reached(n, member.at.readSteps, kept: keptSteps, shownSince: nil)
      }
      if let made = acknowledgement(member, n) {
        read = Moment.earlier(read, acknowledgementTime(made, n))
      }
      var delivered: Moment?
      if member.at.delivered >= n {
        delivered = NaiveModel.reached(n, member.at.deliveredSteps, kept: keptSteps, shownSince: nil)
      }
      if member.at.watermark >= n {
        let reached = NaiveModel.reached(n, member.at.readSteps, kept: keptSteps, shownSince: nil)
        delivered = Moment.earlier(reached, delivered)
      }
      let made = acknowledgement(member, n).map { acknowledgementTime($0, n) }
      return memberStatus(read: read, delivered: delivered, acknowledged: made)
    }

    private func memberStatus(read: Moment?, delivered: Moment?, acknowledged: Moment?) -> MemberStatusView {
      // Reading implies delivery (R3).
      let received = Moment.earlier(read, delivered)
      return MemberStatusView(
        word: read != nil ? "read" : received != nil ? "delivered" : "sent",
        readAt: read?.at ?? 0,
        deliveredAt: received?.at ?? 0,
        readIsExact: read?.isExact ?? true,
        deliveredIsExact: received?.isExact ?? true,
        acknowledgedAt: acknowledged?.at ?? 0
      )
    }
  }
}

/// Lexicographic order, as for ids.
private func < (a: (Int, [UInt8]), b: (Int, [UInt8])) -> Bool {
  a.0 != b.0 ? a.0 < b.0 : a.1.lexicographicallyPrecedes(b.1)
}

/// A user's index and totals over all channels (R13, R14).
extension NaiveModel {
  /// Every channel that knows a user's id, in the order of the cids.
  func index(of user: String) -> [MembershipView] {
    channels.keys.sorted().filter { knows($0, user) }.map { cid in
      let rows = channels[cid]!.main.memberships
      let last = rows.lastIndex { $0.user == user }
      return MembershipView(
        cid: cid,
        row: last,
        isMember: last.map { !rows[$0].hasLeft } ?? false,
        joinedAt: last.map { rows[$0].joinedAt } ?? 0
      )
    }
  }

  /// The unread counts of a member of one channel; nil for other users.
  func unread(_ cid: String, _ user: String) -> UnreadView? {
    guard let own = answers(cid).ownRow(user)?.own else { return nil }
    var unread = UnreadView(messages: own.unread, mentions: own.mentions, isFlagged: own.isFlagged)
    if let row = membership(cid, user) { unread.isMuted = channels[cid]!.main.memberships[row].isMuted }
    for roomID in roomIDs(cid) where roomID.thread != nil && !isClosed(roomID) {
      if let own = answers(roomID).ownRow(user)?.own, own.unread > 0 { unread.threads += 1 }
    }
    return unread
  }

  func totals(_ user: String) -> TotalsView {
    var totals = TotalsView()
    for cid in channels.keys {
      guard let unread = unread(cid, user), !unread.isMuted else { continue }
      totals.messages += unread.messages
      totals.channels += unread.messages > 0 || unread.isFlagged ? 1 : 0
      totals.threads += unread.threads
      totals.mentions += unread.mentions
    }
    return totals
  }
}
