/// A channel's rows as viewers see them (R2, R4).
extension ChannelState {
  // MARK: Row views

  /// Return the member's own row: own positions and unread count, regardless of what others may see (R2, R4, R8, R18).
  ///
  /// - Parameter hiddenThrough: messages up to here are hidden from the member (R6).
  func ownRow(_ row: MemberOrdinal, hiddenThrough: SequenceNumber = .zero) -> ShownRow {
    let own = rows.ownPosition(row)
    let read = rows.read[row]
    let delivered = rows.delivered[row]
    let readTime = self.readTime(row)
    var shown = ShownRow(
      row: row,
      joined: rows.joined(row),
      lastRead: readTime,
      lastReadSequence: own,
      lastDelivered: delivered >= read ? rows.deliveredShownAt(row) : readTime,
      lastDeliveredSequence: max(delivered, read),
      own: ownDetails(row, isOwn: true)
    )
    shown.idsHiddenThrough = hiddenThrough
    return shown
  }

  /// Return a row as other members see it (R3, R4, R7, R8). It has the watermarks, or the own position where
  /// `mark_unread` is `public`, of the kinds that the channel and the member show. The shown delivered position is at
  /// least the read watermark, if that may be shown. A hidden kind shows the position at the join. A thread member whom
  /// others cannot see has an empty row.
  ///
  /// - Parameter settings: the shard's, as copied into the rows.
  func shownRow(
    _ row: MemberOrdinal,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable,
    withOwnDetails: Bool
  ) -> ShownRow {
    if rows.isUnseen(row, options) { return .unseen(row, own: withOwnDetails ? ownDetails(row) : nil) }
    var since = UserSettingsTable.ShownSince()
    if rows.readIsHidden(row) || rows.deliveredIsHidden(row) {
      since = settings.shownSince(users.id(rows.user(row)))
    }
    let joined = rows.joinedAt(row)
    var read = positionOfJoining(row)
    var reached = read
    var readTime = joined
    if rows.showsRead(row, options) {
      reached = rows.read[row]
      read = options.markUnread == .public ? rows.ownPosition(row) : reached
      readTime = rows.readIsHidden(row) ? since.read.or(joined) : self.readTime(row)
    }
    var delivered = SequenceNumber.zero
    var deliveredTime = Timestamp.none
    if rows.showsDelivered(row, options) {
      delivered = rows.delivered[row]
      deliveredTime = rows.deliveredIsHidden(row) ? since.delivered.or(joined) : rows.deliveredShownAt(row)
    }
    if delivered < reached { deliveredTime = readTime }
    return ShownRow(
      row: row,
      joined: rows.joined(row),
      lastRead: readTime,
      lastReadSequence: read,
      lastDelivered: max(delivered, reached) == .zero ? .none : deliveredTime,
      lastDeliveredSequence: max(delivered, reached),
      own: withOwnDetails ? ownDetails(row) : nil
    )
  }

  /// Return a member's position at the join (R6); in a thread always before the first reply.
  package func positionOfJoining(_ row: MemberOrdinal) -> SequenceNumber {
    isThread || rows.hidesHistory(row) ? .zero : rows.joined(row)
  }

  private func readTime(_ row: MemberOrdinal) -> Timestamp {
    rows.read.time(row).or(rows.joinedAt(row))
  }

  /// - Parameter isOwn: the viewer is the member, not a server that looks at others' rows.
  private func ownDetails(_ row: MemberOrdinal, isOwn: Bool = false) -> ShownRow.OwnDetails {
    let floor = unreadFloor(row)
    let unread = unreadMessages(row, after: floor)
    let first = unread == 0 ? nil : messages.firstCountable(after: floor, notSentBy: rows.user(row))
    return ShownRow.OwnDetails(
      unreadMessages: unread,
      firstUnread: first ?? .zero,
      unreadEpoch: rows.epoch(row),
      isOwn: isOwn,
      isFlaggedUnread: isOwn && rows.isFlaggedUnread(row),
      unreadMentions: isOwn ? unreadMentions(row, after: floor) : 0
    )
  }

  /// Return the number of messages that the member has not read (R14).
  func unreadMessages(_ row: MemberOrdinal) -> UInt32 { unreadMessages(row, after: unreadFloor(row)) }

  /// Return the number of unread messages that mention the member, including replies in the channel's threads (R14).
  func unreadMentions(_ row: MemberOrdinal) -> UInt32 { unreadMentions(row, after: unreadFloor(row)) }

  @inline(__always)
  private func unreadMentions(_ row: MemberOrdinal, after floor: SequenceNumber) -> UInt32 {
    let own = messages.hasMentions ? mentionsInMessages(row, after: floor) : 0
    return threads.isEmpty ? own : own + unreadMentionsInThreads(row)
  }

  private func mentionsInMessages(_ row: MemberOrdinal, after floor: SequenceNumber) -> UInt32 {
    messages.mentions(
      of: row,
      rows.user(row),
      joined: isThread ? rows.bounds.unreadAfter(row) : rows.joined(row),
      after: floor
    )
  }

  @inline(__always)
  private func unreadMessages(_ row: MemberOrdinal, after floor: SequenceNumber) -> UInt32 {
    let unread = messages.countable(through: messages.newest) - messages.countable(through: floor)
    guard unread > 0, messages.tracksOwn else { return unread }
    return unread - messages.countable(after: floor, sentBy: rows.user(row))
  }

  /// Return the position up to which messages do not count as unread for this member (R6, R15). In a thread, an unread
  /// marker overrides this, even before the reply from which the member takes part.
  private func unreadFloor(_ row: MemberOrdinal) -> SequenceNumber {
    let own = rows.ownPosition(row)
    if isThread {
      let floor = rows.bounds.unreadAfter(row)
      return rows.marker(row) == nil ? max(own, floor) : own
    }
    return rows.hidesHistory(row) ? max(own, rows.joined(row)) : own
  }

  /// Return the rows of the members that a message mentions.
  func resolve(_ mentions: NewMessage.Mentions, sender: String) -> MessageMentions {
    switch mentions {
    case .nobody: return .nobody
    case .all: return .all
    case .users(let users):
      let rows = Set(users.filter { !$0.isExactly(sender) }.compactMap { row(of: $0)?.rawValue })
      return rows.isEmpty ? .nobody : .rows(rows.sorted())
    }
  }

  // MARK: Read state

  /// Return rows newest first, below `cursor`. On the first page (no cursor) the viewer's own row comes first and is
  /// not repeated (R12). It is the only row if others are not shown (R10).
  ///
  /// - Returns: the rows, and the cursor of the next page if there is one.
  func readState(
    _ viewer: ChannelViewer,
    limit: Int,
    cursor: UInt32?,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable
  ) -> (rows: [ShownRow], next: UInt32?) {
    var shown: [ShownRow] = []
    let showsOthers = options.countsVisibleTo == .members || viewer.isUnrestricted
    shown.reserveCapacity(showsOthers ? min(limit, rows.activeCount) : 1)
    if cursor == nil, let own = viewer.row {
      shown.append(ownRow(own, hiddenThrough: viewer.hiddenThrough))
    }
    guard showsOthers else { return (shown, nil) }
    var below = min(cursor.map(Int.init) ?? rows.rowCount, rows.rowCount)
    while below > 0 {
      let row = MemberOrdinal(UInt32(below - 1))
      if rows.isActive(row), row != viewer.row {
        if shown.count == limit { return (shown, UInt32(below)) }
        shown.append(othersRow(row, to: viewer, options: options, settings: settings))
      }
      below -= 1
    }
    return (shown, nil)
  }

  /// Return another member's row as a viewer sees it (R4, R6, R7, R8).
  func othersRow(
    _ row: MemberOrdinal,
    to viewer: ChannelViewer,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable
  ) -> ShownRow {
    let shown = shownRow(row, options: options, settings: settings, withOwnDetails: viewer.seesOwnDetails)
    return viewer.hiddenThrough == .zero ? shown : shown.seen(since: viewer.hiddenThrough, at: viewer.joinedAt)
  }
}
