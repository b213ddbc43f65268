/// The oracle's answers to queries and commands.
extension NaiveShard {
  func query(_ content: RequestContent, at time: Int64) -> Reply {
    if let cid = content.cid, channels[cid] == nil { return .refused(Code.channelNotFound) }
    switch content {
    case .getChannel(let cid): return channel(cid, isNew: nil)
    case .readState(let cid, let viewer, let isServer, let limit, let cursor):
      return readState(cid, viewer, isServer, limit, cursor)
    case .statuses(let cid, let ids): return .statuses(ids.map { status(cid, $0) })
    case .getType(let name): return .type(type(name))
    case .getUser(let user): return .settings(settings(user))
    case .known(let key): return .known(isKnown(key, at: time))
    case .token(let token): return tokens.answer(token, at: time)
    case .tokens(let known, let after): return tokens.list(known: known, after: after, at: time)
    case .listTypes: return .types(types.values.sorted { $0.name < $1.name })
    default: preconditionFailure("not a query")
    }
  }

  func answer(
    _ cid: String,
    _ user: String,
    _ message: String,
    emptyIsNewest: Bool = false,
    isUnread: Bool = false
  ) -> Outcome {
    guard let channel = channels[cid] else { return .refused(Code.channelNotFound) }
    guard let row = channel.memberRows[user] else { return .refused(Code.notAMember) }
    if isUnread, options(cid).markUnread == 2 { return .refused(Code.markUnreadOff) }
    let known =
      channel.messageIndexes[message].map { $0 >= hiddenCount(RoomID(cid: cid), from: user) } ?? false
    guard (emptyIsNewest && message.isEmpty) || known else { return .refused(Code.messageNotFound) }
    let at = RoomID(cid: cid)
    return Outcome(reply: isUnread ? ownRow(at, row) : marked(at, row, position(at, message, user) ?? 0))
  }

  func position(_ at: RoomID, _ message: String, _ user: String) -> Int? {
    let hidden = hiddenCount(at, from: user)
    let count = self[at].messages.count
    if message.isEmpty { return count > hidden ? count : 0 }
    return self[at].messageIndexes[message].flatMap { $0 >= hidden ? $0 + 1 : nil }
  }

  /// The number of a room's first messages that do not exist for a member who joined under hidden history (R6).
  func hiddenCount(_ at: RoomID, from user: String) -> Int {
    guard let memberRow = channels[at.cid]!.memberRows[user] else { return 0 }
    let row = channels[at.cid]!.rows[memberRow]
    if !row.hidesHistory { return 0 }
    return at.thread == nil ? row.joined : self[at].messages.filter { $0.registered < row.joinedAt }.count
  }

  func type(_ name: String) -> TypeView {
    types[name] ?? TypeView(name: name, version: 0, options: OptionView())
  }

  func options(_ cid: String) -> OptionView {
    type(String(cid.prefix { $0 != ":" })).options.changed(by: channels[cid]!.own)
  }

  func channel(_ cid: String, isNew: Bool?) -> Reply {
    let channel = channels[cid]!
    return .channel(
      ChannelView(
        cid: cid,
        created: channel.created,
        options: options(cid),
        members: channel.memberRows.count,
        newest: channel.messages.count,
        newestID: channel.messages.last?.id ?? "",
        newestAt: channel.messages.last?.registered ?? 0
      ),
      isNew: isNew
    )
  }

  func registered(_ at: RoomID, _ index: Int, isNew: Bool) -> Reply {
    let status = status(at.cid, self[at].messages[index].id)
    return .message(isNew: isNew, sequence: index + 1, status: status.status)
  }

  func ownRow(_ at: RoomID, _ number: Int) -> Reply {
    let row = self[at].rows[number]
    var view = view(
      at,
      row,
      read: row.own,
      delivered: row.delivered,
      implied: row.read,
      hasOwn: true,
      unnamed: hiddenCount(at, from: row.user)
    )
    view.own?.isFlagged = row.isFlagged
    view.own?.mentions = mentions(at, number)
    return .row(view)
  }

  /// Unread messages that mention a member; for the channel's row also unread replies in its threads.
  private func mentions(_ at: RoomID, _ number: Int) -> Int {
    let row = self[at].rows[number]
    var count = unread(at, row).count { self[at].messages[$0].mentioned.contains(number) }
    if at.thread == nil {
      for thread in channels[at.cid]!.threads.indices {
        let thread = RoomID(cid: at.cid, thread: thread)
        if let number = self[thread].memberRows[row.user] { count += mentions(thread, number) }
      }
    }
    return count
  }

  /// The indexes of the messages that a member has not read (R14).
  private func unread(_ at: RoomID, _ row: Row) -> [Int] {
    if isClosed(at) { return [] }
    // In a thread, replies from before the member took part are unread only if the member marked them unread.
    let isAfterJoining = row.hidesHistory || at.thread != nil && row.marker == nil
    let floor = isAfterJoining ? max(row.own, row.unreadAfter ?? row.joined) : row.own
    return self[at].messages.indices.dropFirst(floor).filter {
      let message = self[at].messages[$0]
      return !message.isSilent && !message.isDeleted && message.sender != row.user
    }
  }

  private func view(
    _ at: RoomID,
    _ row: Row,
    read: Int,
    delivered: Int,
    implied: Int,
    hasOwn: Bool,
    showsReadTime: Bool = true,
    unnamed: Int = 0
  ) -> RowView {
    let messages = self[at].messages
    let readAt = showsReadTime && row.readAt != 0 ? row.readAt : row.joinedAt
    let received = max(delivered, implied)
    var view = RowView(
      user: row.user,
      readAt: readAt,
      readID: read <= unnamed ? "" : messages[read - 1].id,
      read: read,
      deliveredAt: received == 0 ? 0 : delivered >= implied ? row.deliveredAt : readAt,
      deliveredID: received <= unnamed ? "" : messages[received - 1].id,
      delivered: received
    )
    if hasOwn {
      let unread = unread(at, row)
      let first = unread.first.map { messages[$0].id } ?? ""
      view.own = RowView.Own(unread: unread.count, firstUnread: first, epoch: row.epoch)
    }
    return view
  }

  /// Others see watermarks, or own positions where `mark_unread` is public (R4), of the shown kinds. A hidden kind
  /// shows the position set by joining (R8).
  private func shown(_ row: Row, _ options: OptionView, isInThread: Bool = false) -> (
    read: Int, delivered: Int, implied: Int
  ) {
    let start = row.hidesHistory || isInThread ? 0 : row.joined
    let hides = settings(row.user)
    let showsRead = options.readEvents && !hides.hidesRead
    let read = showsRead ? (options.markUnread == 1 ? row.own : row.read) : start
    // In a thread, deliveries from before the member took part never count (R15).
    let counts = !isInThread || row.delivered > row.joined
    let delivered = options.deliveryEvents && !hides.hidesDelivered && counts ? row.delivered : 0
    // Marking unread reverts no delivery (R4).
    return (read, delivered, showsRead ? row.read : start)
  }

  func status(_ cid: String, _ id: String) -> StatusView {
    guard let (at, index) = find(cid, id) else { return StatusView(code: UInt8(Code.messageNotFound)) }
    let channel = self[at]
    let message = channel.messages[index]
    if isGone(at, index) { return StatusView(code: UInt8(Code.messageDeleted)) }
    let options = options(cid)
    var status = StatusView(code: 0, sequence: index + 1, created: message.created)
    var (awaited, missing) = (0, 0)
    /// Members who have received it and do not hide that: the status follows from them (R19).
    var receivers = 0
    for (number, row) in channel.rows.enumerated()
    where !row.hasLeft && row.user != message.sender
      && (row.joined <= index
        || options.readEvents && !settings(row.user).hidesRead && hadReadBeforeTakingPart(at, row, index))
      && !(row.isByReading && (settings(row.user).hidesRead || !options.readEvents))
    {
      let (read, delivered, implied) = shown(row, options, isInThread: at.thread != nil)
      let hides = settings(row.user).hidesRead
      let hasAcknowledged = message.acknowledged.contains(number)
      let hasRead = read > index || hasAcknowledged && options.readEvents && !hides
      status.members += 1
      if hasRead { status.read += 1 }
      if hasRead || max(delivered, implied) > index {
        status.delivered += 1
        if !settings(row.user).hidesDelivered { receivers += 1 }
      }
      if !hides { awaited += 1 }
      if !hides, !hasAcknowledged { missing += 1 }
      if !hides, hasAcknowledged { status.acknowledged += 1 }
    }
    if message.hasAcknowledgementRequest { status.receipt = awaited > 0 && missing == 0 ? 2 : 1 }
    status.status = status.read > 0 ? 2 : receivers > 0 ? 1 : 0
    status.flags = (options.readEvents ? 1 : 0) | (options.deliveryEvents ? 2 : 0)
    return status
  }

  private func readState(
    _ cid: String,
    _ viewer: String,
    _ isServer: Bool,
    _ limit: Int,
    _ cursor: UInt32?
  ) -> Reply {
    let channel = channels[cid]!
    let options = options(cid)
    var rows: [RowView] = []
    let own = viewer.isEmpty ? nil : channel.memberRows[viewer]
    if !viewer.isEmpty, own == nil { return .refused(Code.notAMember) }
    if let own, cursor == nil, case .row(let view) = ownRow(RoomID(cid: cid), own) { rows.append(view) }
    for number in (0..<min(Int(cursor ?? .max), channel.rows.count)).reversed() {
      let row = channel.rows[number]
      guard !row.hasLeft, number != own else { continue }
      if rows.count == limit { return .rows(rows, next: UInt32(number + 1)) }
      let (read, delivered, implied) = shown(row, options)
      // Moves made while hidden count from the time of showing again.
      let hides = settings(row.user)
      var shownRow = row
      if row.readIsHidden { shownRow.readAt = hides.readShownSince }
      if row.deliveredIsHidden { shownRow.deliveredAt = hides.deliveredShownSince }
      let hidden = hiddenCount(RoomID(cid: cid), from: viewer)
      var seen = view(
        RoomID(cid: cid),
        shownRow,
        read: read,
        delivered: delivered,
        implied: implied,
        hasOwn: isServer && hidden == 0,
        showsReadTime: options.readEvents && !hides.hidesRead,
        unnamed: hidden
      )
      if hidden > 0, let own {
        if seen.read <= hidden { (seen.read, seen.readAt) = (hidden, channel.rows[own].joinedAt) }
        if seen.delivered <= hidden {
          (seen.delivered, seen.deliveredAt) = (hidden, channel.rows[own].joinedAt)
        }
      }
      rows.append(seen)
    }
    return .rows(rows, next: nil)
  }
}
