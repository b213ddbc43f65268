/// A channel's threads (R15).
extension ChannelState {
  /// Whether this is a thread within a channel.
  package var isThread: Bool { parent != .zero }

  /// Whether a thread's parent is deleted: then its replies are too, and none can be added.
  func isClosed(_ place: Int) -> Bool { messages.flags(threads[place].parent).contains(.deleted) }

  /// Assigns an effect to a thread, which is made with the first one.
  mutating func assign(_ effect: Effect, inThread parent: SequenceNumber) {
    threads.assign(effect, at: threads.place(of: parent) ?? makeThread(parent))
  }

  private mutating func makeThread(_ parent: SequenceNumber) -> Int {
    var thread = ChannelState(
      number: number,
      cid: cid,
      created: .none,
      ownOptions: OptionPatch(),
      type: type,
      parent: parent
    )
    thread.settingsSeen = settingsSeen
    return threads.insert(thread)
  }

  /// The effects that make a page of a thread.
  func effects(of page: PageID, inThread parent: SequenceNumber) -> [Effect] {
    guard let place = threads.place(of: parent) else { return [] }
    return threads[place].effects(of: page).map { .inThread(parent, $0) }
  }

  /// Whoever leaves the channel leaves its threads.
  func decideLeaveThreads(_ row: MemberOrdinal, at time: Timestamp, into effects: inout [Effect]) {
    if threads.isEmpty { return }
    let user = users.id(rows.user(row))
    for place in threads.places(of: user) {
      guard let row = threads[place].row(of: user) else { continue }
      let start = effects.count
      effects.append(.rowLeft(number, row, at: time))
      effects.putInThread(threads[place].parent, from: start)
    }
  }

  /// Who asks about this channel, as who asks about one of its threads.
  func viewer(_ viewer: ChannelViewer, inThread place: Int) -> ChannelViewer {
    let user = users.id(viewer.user)
    return ChannelViewer(
      row: threads[place].row(of: user),
      // Nobody would see everything where a server asks.
      user: threads[place].users.find(user) ?? .stranger,
      isServer: viewer.isServer,
      channelRow: viewer.channelRow,
      hiddenThrough: viewer.joinedAt == .none ? .zero : threads[place].repliesBefore(viewer.joinedAt),
      joinedAt: viewer.joinedAt
    )
  }

  /// Rows newest first, below a place; on the first page (none) the viewer's own row comes first (R12). Who is in the
  /// thread unseen is shown to themselves alone, and the cursor
  /// names a row by its user: its number would tell of those before it.
  func threadRows(
    _ viewer: ChannelViewer,
    limit: Int,
    below: Int?,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable
  ) -> (rows: [RowAnswer], next: ListCursor?) {
    var answers: [RowAnswer] = []
    if below == nil, let own = viewer.row {
      answers.append(ownRow(own, hiddenThrough: viewer.hiddenThrough))
    }
    guard options.countsVisibleTo == .members || viewer.seesAll else { return (answers, nil) }
    var last: MemberOrdinal?
    var position = min(below ?? rows.rowCount, rows.rowCount)
    while position > 0 {
      position -= 1
      let row = MemberOrdinal(UInt32(position))
      guard rows.isActive(row), row != viewer.row, !rows.isUnseen(row, options) else { continue }
      if answers.count == limit { return (answers, cursor(behind: last, viewer)) }
      answers.append(othersRow(row, to: viewer, options: options, settings: settings))
      last = row
    }
    return (answers, nil)
  }

  /// - Parameter row: the page's last; nil: it has the viewer's own alone.
  private func cursor(behind row: MemberOrdinal?, _ viewer: ChannelViewer) -> ListCursor {
    guard let row else { return .joined(Self.endOfTime, user: Array("-".utf8)) }
    let time = max(Timestamp(milliseconds: rows.joinedAt[Int(row.rawValue)]), viewer.joinedAt)
    return .joined(time, user: users.id(rows.user(row)).withUnsafeBytes { Array($0) })
  }

  /// Later than any row joins: the first row that is not the viewer's own comes next.
  private static let endOfTime = Timestamp(milliseconds: Int64(Int32.max) * 1_000_000)

  /// The place of the row with which a user joined at a time; where there is none any more, behind the last of that
  /// time, so that nobody is left out.
  ///
  /// - Parameter start: all that joined up to then did so at that time, for who asks (R6).
  func place(before user: RawSpan, joinedAt time: Timestamp, from start: Timestamp) -> Int {
    let time = max(time, start)
    func joined(_ place: Int) -> Timestamp { max(Timestamp(milliseconds: rows.joinedAt[place]), start) }
    var place = rows.rowCount
    while place > 0, joined(place - 1) > time { place -= 1 }
    let end = place
    while place > 0, joined(place - 1) == time {
      place -= 1
      let row = MemberOrdinal(UInt32(place))
      if users.id(rows.user(row)).isEqual(to: user) { return place }
    }
    return end
  }

  /// Unread replies that mention a member, in the threads where they have a row; of a deleted parent there are none.
  func unreadMentionsInThreads(_ row: MemberOrdinal) -> UInt32 {
    guard threads.hasMentions else { return 0 }
    let user = users.id(rows.user(row))
    var count: UInt32 = 0
    for place in threads.places(of: user) where !isClosed(place) {
      if let row = threads[place].row(of: user) { count += threads[place].unreadMentions(row) }
    }
    return count
  }

  /// Threads with unread replies, among those where this member has a row; of a deleted parent there are none.
  func unreadThreads(_ row: MemberOrdinal) -> UInt32 {
    if threads.isEmpty { return 0 }
    let user = users.id(rows.user(row))
    var count: UInt32 = 0
    for place in threads.places(of: user) where !isClosed(place) {
      guard let row = threads[place].row(of: user) else { continue }
      if threads[place].unreadMessages(row) > 0 { count += 1 }
    }
    return count
  }
}

#if DEBUG
  extension ChannelState {
    /// The threads, and that whoever has a row in one is a member of the channel.
    func checkThreads() -> String? {
      if let fault = threads.checkInvariants(newest: messages.newest) { return fault }
      for place in 0..<threads.count {
        for position in 0..<threads[place].rows.rowCount {
          let row = MemberOrdinal(UInt32(position))
          guard threads[place].rows.isActive(row) else { continue }
          if self.row(of: threads[place].users.text(threads[place].rows.user(row))) == nil {
            return "thread of \(threads[place].parent.rawValue), row \(position): of no member of the channel"
          }
        }
        for number in 0..<threads[place].messages.newest.rawValue
        where threads[place].messages.withID(SequenceNumber(number + 1), { messages.find($0) }) != nil {
          return "thread of \(threads[place].parent.rawValue): reply \(number + 1) has a message's id"
        }
      }
      return nil
    }

    /// What an effect on a thread touched.
    func checkThread(_ parent: SequenceNumber, touchedBy effect: Effect) -> String? {
      guard parent > .zero, parent <= messages.newest, let place = threads.place(of: parent) else {
        return "thread of \(parent.rawValue): not there"
      }
      return threads[place].checkInvariants(touchedBy: effect).map { "thread of \(parent.rawValue): \($0)" }
    }
  }
#endif
