/// The oracle's threads (R15).
extension NaiveShard {
  /// The index of a message: ids are unique in a channel and all its threads together.
  func find(_ cid: String, _ id: String) -> (at: RoomID, index: Int)? {
    let channel = channels[cid]!
    if let index = channel.messageIndexes[id] { return (RoomID(cid: cid), index) }
    for (thread, room) in channel.threads.enumerated() {
      if let index = room.messageIndexes[id] { return (RoomID(cid: cid, thread: thread), index) }
    }
    return nil
  }

  /// The same for a member.
  func find(_ cid: String, _ id: String, for user: String) -> (at: RoomID, index: Int)? {
    find(cid, id).flatMap { $0.index >= hiddenCount($0.at, from: user) ? $0 : nil }
  }

  /// A thread whose parent message is deleted.
  func isClosed(_ at: RoomID) -> Bool {
    self[at].parent.map { channels[at.cid]!.messages[$0].isDeleted } ?? false
  }

  func isGone(_ at: RoomID, _ index: Int) -> Bool { self[at].messages[index].isDeleted || isClosed(at) }

  func isReply(_ cid: String, _ id: String) -> Bool {
    channels[cid] != nil && find(cid, id).map { $0.at.thread != nil } ?? false
  }

  /// The thread that a member's reply id identifies.
  func threadMarked(_ cid: String, _ user: String, _ message: String) -> RoomID? {
    guard channels[cid]!.memberRows[user] != nil, let (at, _) = find(cid, message, for: user) else {
      return nil
    }
    return at.thread == nil ? nil : at
  }

  /// Perform a mark or a reply with the flag `thread`.
  mutating func inThread(_ parent: String, _ content: RequestContent, _ time: Int64) -> Outcome {
    let cid = content.cid!
    var user = ""
    var message = ""
    switch content {
    case .register(
      _,
      let id,
      let sender,
      let created,
      let isSilent,
      let requestsAcknowledgement,
      let moves,
      let mentions
    ):
      if id.contains("\u{7}") { return .refused(Code.invalidField) }
      if let known = repeated(content, parent: parent) { return known }
      if let refusal = refusal(cid, parent) { return .refused(refusal) }
      let at = opened(cid, parent, sender, time, moves: moves)
      // Members mentioned by name take part.
      for user in mentions where user != sender { joinThread(at, user, time) }
      return register(
        at,
        id,
        sender,
        created,
        isSilent,
        requestsAcknowledgement,
        moves: moves,
        mentions,
        time
      )
    case .read(_, let named, let to, _), .unread(_, let named, let to, _), .delivered(_, let named, let to):
      (user, message) = (named, to)
    default: preconditionFailure("not in a thread")
    }
    if channels[cid]!.memberRows[user] == nil { return .refused(Code.notAMember) }
    if let (at, index) = find(cid, parent), index < hiddenCount(at, from: user) {
      // Replies since the member's join exist for them.
      guard at.thread == nil, let thread = thread(cid, parent),
        self[thread].messages.count > hiddenCount(thread, from: user)
      else { return .refused(Code.messageNotFound) }
    }
    if let refusal = refusal(cid, parent) { return .refused(refusal) }
    if let at = thread(cid, parent) { return markInThread(content, at, user, message, time) }
    if case .unread = content, options(cid).markUnread == 2 { return .refused(Code.markUnreadOff) }
    return message.isEmpty
      ? Outcome(reply: .row(emptyRow(cid, user, uncounted: 2))) : .refused(Code.messageNotFound)
  }

  /// The error for a message that can have no thread.
  private func refusal(_ cid: String, _ parent: String) -> UInt64? {
    guard let (at, index) = find(cid, parent) else { return Code.messageNotFound }
    if at.thread != nil { return Code.invalidField }
    return isGone(at, index) ? Code.messageDeleted : nil
  }

  private func thread(_ cid: String, _ parent: String) -> RoomID? {
    let channel = channels[cid]!
    return channel.threads.firstIndex { $0.parent == channel.messageIndexes[parent]! }
      .map { RoomID(cid: cid, thread: $0) }
  }

  /// The thread for a reply by this sender. The first reply creates it, with the parent's sender. A member who replies
  /// is in it from then on.
  private mutating func opened(
    _ cid: String,
    _ parent: String,
    _ sender: String,
    _ time: Int64,
    moves: Bool
  ) -> RoomID {
    let at: RoomID
    if let known = thread(cid, parent) {
      at = known
    } else {
      let index = channels[cid]!.messageIndexes[parent]!
      channels[cid]!.threads.append(Channel(created: time, own: OptionChange(), parent: index))
      at = RoomID(cid: cid, thread: channels[cid]!.threads.count - 1)
      join(at, channels[cid]!.messages[index].sender, after: 0, time)
    }
    // In a channel of two both take part.
    let members = channels[cid]!.memberRows
    if members.count == 2 {
      for user in members.keys.sorted(by: { members[$0]! < members[$1]! }) { joinThread(at, user, time) }
    }
    joinThread(at, sender, time)
    return at
  }

  /// Take part from the next reply on, visibly to others.
  private mutating func joinThread(_ at: RoomID, _ user: String, _ time: Int64) {
    guard let row = self[at].memberRows[user], self[at].rows[row].isByReading else {
      return join(at, user, after: self[at].messages.count, time)
    }
    guard users[user]?.hidesRead ?? false || !options(at.cid).readEvents else {
      self[at].rows[row].isByReading = false
      return
    }
    // A member who was an invisible reader joins it again, at their current position.
    var rejoined = self[at].rows[row]
    rejoined.unreadAfter = rejoined.unreadAfter ?? rejoined.joined
    (rejoined.isByReading, rejoined.joined, rejoined.joinedAt) = (false, self[at].messages.count, time)
    self[at].rows[row] = Row(
      user: user,
      role: "",
      hasLeft: true,
      hidesHistory: false,
      joined: self[at].rows[row].joined,
      joinedAt: self[at].rows[row].joinedAt,
      read: 0
    )
    self[at].memberRows[user] = self[at].rows.count
    // Mentions of everybody included them already.
    for index in self[at].messages.indices where self[at].messages[index].mentioned.contains(row) {
      self[at].messages[index].mentioned.insert(self[at].rows.count)
    }
    self[at].rows.append(rejoined)
  }

  private mutating func join(
    _ at: RoomID,
    _ user: String,
    after joined: Int,
    _ time: Int64,
    byReading: Bool = false
  ) {
    guard channels[at.cid]!.memberRows[user] != nil, self[at].memberRows[user] == nil else { return }
    self[at].memberRows[user] = self[at].rows.count
    self[at].rows.append(
      Row(
        user: user,
        role: "",
        isByReading: byReading,
        hidesHistory: false,
        joined: joined,
        joinedAt: time,
        read: 0
      )
    )
  }

  /// Whether a member has read a reply from before they took part, and since they joined the channel (R6, R15).
  func hadReadBeforeTakingPart(_ at: RoomID, _ row: Row, _ index: Int) -> Bool {
    let channel = channels[at.cid]!
    guard at.thread != nil, let memberRow = channel.memberRows[row.user] else { return false }
    return row.read > index && self[at].messages[index].registered >= channel.rows[memberRow].joinedAt
  }

  /// The row of a channel member who is not in the thread, with the time when they joined the channel.
  private func emptyRow(_ cid: String, _ user: String, uncounted: UInt8 = 0) -> RowView {
    let channel = channels[cid]!
    return RowView(
      user: user,
      readAt: channel.memberRows[user].map { channel.rows[$0].joinedAt } ?? 0,
      readID: "",
      read: 0,
      deliveredAt: 0,
      deliveredID: "",
      delivered: 0,
      own: RowView.Own(unread: 0, firstUnread: "", epoch: 0),
      uncounted: uncounted
    )
  }

  /// The reply to a mark in a thread: the row, and why a read or a delivery counts for nothing.
  private func answer(_ at: RoomID, _ user: String, _ message: String, isUnread: Bool) -> Reply {
    guard let number = self[at].memberRows[user] else {
      return .row(emptyRow(at.cid, user, uncounted: isUnread ? 0 : 1))
    }
    guard case .row(var view) = ownRow(at, number) else { preconditionFailure("a row") }
    let row = self[at].rows[number]
    let index = self[at].messageIndexes[message] ?? self[at].messages.count - 1
    if !isUnread, row.joined > index, !hadReadBeforeTakingPart(at, row, index) { view.uncounted = 3 }
    return .row(view)
  }

  /// A mark by a channel member. Reading joins the thread.
  mutating func markInThread(
    _ content: RequestContent,
    _ at: RoomID,
    _ user: String,
    _ message: String,
    _ time: Int64
  )
    -> Outcome
  {
    if case .unread = content, options(at.cid).markUnread == 2 { return .refused(Code.markUnreadOff) }
    if isClosed(at) { return .refused(Code.messageDeleted) }
    let hidden = hiddenCount(at, from: user)
    let isKnown = message.isEmpty || self[at].messageIndexes[message].map { $0 >= hidden } ?? false
    let isIn = self[at].memberRows[user] != nil
    switch content {
    case .read(_, _, _, let epoch):
      guard isKnown else { return .refused(Code.messageNotFound) }
      join(at, user, after: self[at].messages.count, time, byReading: true)
      var outcome = read(at, user, message, epoch, time)
      outcome.reply = answer(at, user, message, isUnread: false)
      if !isIn { outcome.hasChanged = true }
      return outcome
    case .delivered:
      guard isKnown else { return .refused(Code.messageNotFound) }
      var outcome = Outcome(reply: .row(emptyRow(at.cid, user)))
      if isIn { outcome = delivered(at, user, message, time) }
      outcome.reply = answer(at, user, message, isUnread: false)
      return outcome
    case .unread(_, _, _, let epoch):
      return isIn ? unread(at, user, message, epoch) : .refused(Code.notInThread)
    default: preconditionFailure("not a mark")
    }
  }

  /// The reply to a duplicate mark: refused if it would be refused now, otherwise the current row.
  func answerInThread(_ content: RequestContent, _ user: String, at time: Int64) -> Outcome {
    if channels[content.cid!] == nil { return .refused(Code.channelNotFound) }
    var copy = self
    let outcome = copy.perform(content, at: time)
    guard !outcome.isRefused else { return outcome }
    let cid = content.cid!
    var at: RoomID?
    if case .inThread(let parent, _) = content { at = thread(cid, parent) }
    var isUnread = false
    if case .unread = content.withoutThread { isUnread = true }
    var named = ""
    switch content.withoutThread {
    case .read(_, _, let message, _), .unread(_, _, let message, _), .delivered(_, _, let message):
      named = message
    default: break
    }
    if case .inThread = content {} else { at = find(cid, named)?.at }
    guard let at else { return Outcome(reply: .row(emptyRow(cid, user, uncounted: 2))) }
    return Outcome(reply: answer(at, user, named, isUnread: isUnread))
  }
}
