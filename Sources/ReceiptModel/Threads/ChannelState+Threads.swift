/// A channel's threads (R15).
extension ChannelState {
  /// Whether this is a thread within a channel.
  package var isThread: Bool { parent != .zero }

  /// Return whether a thread's parent is deleted: then its replies count as deleted, and none can be added.
  func isClosed(_ index: Int) -> Bool { messages.flags(threads[index].parent).contains(.deleted) }

  /// Assign an effect to a thread; the first effect creates the thread.
  mutating func assign(_ effect: ChannelEffect, inThread parent: SequenceNumber) {
    threads.assign(effect, at: threads.index(of: parent) ?? makeThread(parent))
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

  /// Return the effects that reproduce a page of a thread.
  func effects(of page: PageID, inThread parent: SequenceNumber) -> [Effect] {
    guard let index = threads.index(of: parent) else { return [] }
    var effects = threads[index].effects(of: page)
    effects.wrapInThread(parent, from: 0)
    return effects
  }

  /// Make a member who leaves the channel leave its threads.
  func decideLeaveThreads(_ row: MemberOrdinal, at time: Timestamp, into effects: inout [Effect]) {
    if threads.isEmpty { return }
    let user = users.id(rows.user(row))
    for index in threads.indices(of: user) {
      guard let row = threads[index].row(of: user) else { continue }
      let start = effects.count
      effects.append(.channel(number, .rowLeft(row, at: time)))
      effects.wrapInThread(threads[index].parent, from: start)
    }
  }

  /// Convert a viewer of this channel into a viewer of one of its threads.
  func viewer(_ viewer: ChannelViewer, inThread index: Int) -> ChannelViewer {
    let user = users.id(viewer.user)
    return ChannelViewer(
      row: threads[index].row(of: user),
      // `nobody` would make a server's viewer see everything.
      user: threads[index].users.find(user) ?? .stranger,
      isServer: viewer.isServer,
      channelRow: viewer.channelRow,
      hiddenThrough: viewer.joinedAt == .none ? .zero : threads[index].repliesBefore(viewer.joinedAt),
      joinedAt: viewer.joinedAt
    )
  }

  /// Return rows newest first, below an index; the first page (no index) begins with the viewer's own row (R12). An
  /// unseen member of the thread is shown only to themselves. The cursor names a row by its user, because its number
  /// would reveal how many came before it.
  func threadRows(
    _ viewer: ChannelViewer,
    limit: Int,
    below: Int?,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable
  ) -> (rows: [ShownRow], next: ListCursor?) {
    var shown: [ShownRow] = []
    if below == nil, let own = viewer.row {
      shown.append(ownRow(own, hiddenThrough: viewer.hiddenThrough))
    }
    guard options.countsVisibleTo == .members || viewer.isUnrestricted else { return (shown, nil) }
    var last: MemberOrdinal?
    var position = min(below ?? rows.rowCount, rows.rowCount)
    while position > 0 {
      position -= 1
      let row = MemberOrdinal(UInt32(position))
      guard rows.isActive(row), row != viewer.row, !rows.isUnseen(row, options) else { continue }
      if shown.count == limit { return (shown, cursor(behind: last, viewer)) }
      shown.append(othersRow(row, to: viewer, options: options, settings: settings))
      last = row
    }
    return (shown, nil)
  }

  /// - Parameter row: the page's last row; nil: the page has only the viewer's own row.
  private func cursor(behind row: MemberOrdinal?, _ viewer: ChannelViewer) -> ListCursor {
    guard let row else { return .joined(Self.endOfTime, user: Array("-".utf8)) }
    let time = max(rows.joinedAt(row), viewer.joinedAt)
    return .joined(time, user: users.id(rows.user(row)).withUnsafeBytes { Array($0) })
  }

  /// Later than any row joins, so that the first row that is not the viewer's own comes next.
  private static let endOfTime = Timestamp(milliseconds: Int64(Int32.max) * 1_000_000)

  /// Return the index of the row with which a user joined at a time. If there is no such row any more, the end of the
  /// rows of that time, so that no row is skipped.
  ///
  /// - Parameter start: earlier joins count as made at this time for this viewer (R6).
  func index(before user: RawSpan, joinedAt time: Timestamp, from start: Timestamp) -> Int {
    let time = max(time, start)
    func joined(_ index: Int) -> Timestamp { max(rows.joinedAt(MemberOrdinal(UInt32(index))), start) }
    var index = rows.rowCount
    while index > 0, joined(index - 1) > time { index -= 1 }
    let end = index
    while index > 0, joined(index - 1) == time {
      index -= 1
      let row = MemberOrdinal(UInt32(index))
      if users.id(rows.user(row)).equals(user) { return index }
    }
    return end
  }

  /// Return the number of unread replies that mention a member, in the threads where they have a row; without threads
  /// of deleted parents.
  func unreadMentionsInThreads(_ row: MemberOrdinal) -> UInt32 {
    guard threads.hasMentions else { return 0 }
    let user = users.id(rows.user(row))
    var count: UInt32 = 0
    for index in threads.indices(of: user) where !isClosed(index) {
      if let row = threads[index].row(of: user) { count += threads[index].unreadMentions(row) }
    }
    return count
  }

  /// Return the number of threads with unread replies in which this member has a row; without threads of deleted
  /// parents.
  func unreadThreads(_ row: MemberOrdinal) -> UInt32 {
    if threads.isEmpty { return 0 }
    let user = users.id(rows.user(row))
    var count: UInt32 = 0
    for index in threads.indices(of: user) where !isClosed(index) {
      guard let row = threads[index].row(of: user) else { continue }
      if threads[index].unreadMessages(row) > 0 { count += 1 }
    }
    return count
  }
}

#if DEBUG
  extension ChannelState {
    /// Check the threads, and that each user with a row in one is a member of the channel.
    func checkThreads() -> String? {
      if let fault = threads.checkInvariants(newest: messages.newest) { return fault }
      for index in 0..<threads.count {
        for position in 0..<threads[index].rows.rowCount {
          let row = MemberOrdinal(UInt32(position))
          guard threads[index].rows.isActive(row) else { continue }
          if self.row(of: threads[index].users.text(threads[index].rows.user(row))) == nil {
            return
              "thread of \(threads[index].parent.rawValue), row \(position): its user is not a member of the channel"
          }
        }
        for number in 0..<threads[index].messages.newest.rawValue
        where threads[index].messages.withID(SequenceNumber(number + 1), { messages.find($0) }) != nil {
          return "thread of \(threads[index].parent.rawValue): reply \(number + 1) has a message's id"
        }
      }
      return nil
    }

    /// Check the part of a thread that an effect changed.
    func checkThread(_ parent: SequenceNumber, changedBy effect: ChannelEffect) -> String? {
      guard parent > .zero, parent <= messages.newest, let index = threads.index(of: parent) else {
        return "thread of \(parent.rawValue): not there"
      }
      return threads[index].checkInvariants(changedBy: effect).map { "thread of \(parent.rawValue): \($0)" }
    }
  }
#endif
