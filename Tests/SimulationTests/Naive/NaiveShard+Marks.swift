/// The oracle's marks and acknowledgements (R2, R3, R4, R9).
extension NaiveShard {
  mutating func read(
    _ at: RoomID,
    _ user: String,
    _ message: String,
    _ epoch: UInt32?,
    _ time: Int64
  ) -> Outcome {
    guard let row = self[at].memberRows[user] else { return .refused(Code.notAMember) }
    guard let target = position(at, message, user) else { return .refused(Code.messageNotFound) }
    var hasChanged = false
    var its = self[at].rows[row]
    if target > its.read {
      its.read = target
      its.readAt = time
      its.readIsHidden = settings(user).hidesRead
      hasChanged = true
    }
    if let marker = its.marker, epoch.map({ Int($0) >= its.epoch }) ?? true {
      its.marker = max(marker, target) >= its.read ? nil : max(marker, target)
      if its.marker != marker { hasChanged = true }
    }
    let isCurrent = epoch.map { Int($0) >= its.epoch } ?? true
    self[at].rows[row] = its
    if isCurrent, clearFlag(at.cid, user) { hasChanged = true }
    // In channels of two, mark-read acknowledges (R9); these simulations never set `read_acks_receipts`.
    if at.thread == nil, self[at].memberRows.count == 2 {
      for index in self[at].rows[row]
        .acknowledgedThrough..<max(
          target,
          self[at].rows[row].acknowledgedThrough
        ) where self[at].messages[index].hasAcknowledgementRequest
      {
        self[at].rows[row].acknowledgedThrough = target
        hasChanged = true
        _ = acknowledge(at.cid, row, self[at].messages[index].id)
      }
    }
    return Outcome(reply: marked(at, row, target), hasChanged: hasChanged)
  }

  /// A read or a send in the channel or one of its threads clears the flag (R4).
  mutating func clearFlag(_ cid: String, _ user: String) -> Bool {
    guard let memberRow = channels[cid]!.memberRows[user], channels[cid]!.rows[memberRow].isFlagged else {
      return false
    }
    channels[cid]!.rows[memberRow].isFlagged = false
    return true
  }

  mutating func acknowledge(_ cid: String, _ user: String, _ ids: [String]) -> Outcome {
    guard channels[cid] != nil else { return .refused(Code.channelNotFound) }
    guard let row = channels[cid]!.memberRows[user] else { return .refused(Code.notAMember) }
    let results = ids.map { acknowledge(cid, row, $0) }
    return Outcome(
      reply: .acknowledged(results.map(\.code)),
      hasChanged: results.contains(where: \.hasChanged)
    )
  }

  private mutating func acknowledge(_ cid: String, _ row: Int, _ id: String) -> (
    code: UInt64, hasChanged: Bool
  ) {
    guard let (at, index) = find(cid, id, for: channels[cid]!.rows[row].user) else {
      return (Code.messageNotFound, false)
    }
    if isGone(at, index) { return (Code.messageDeleted, false) }
    // Replies have no acknowledgement requests.
    if at.thread != nil { return (Code.receiptNotRequested, false) }
    let message = channels[cid]!.messages[index]
    if !message.hasAcknowledgementRequest { return (Code.receiptNotRequested, false) }
    if message.sender == channels[cid]!.rows[row].user { return (Code.ownMessage, false) }
    if message.acknowledged.contains(row) { return (0, false) }
    if channels[cid]!.rows[row].joined > index { return (Code.notExpected, false) }
    channels[cid]!.messages[index].acknowledged.insert(row)
    return (0, true)
  }

  mutating func delivered(_ at: RoomID, _ user: String, _ message: String, _ time: Int64) -> Outcome {
    guard let row = self[at].memberRows[user] else { return .refused(Code.notAMember) }
    guard let target = position(at, message, user) else { return .refused(Code.messageNotFound) }
    let hasChanged = target > self[at].rows[row].delivered
    if hasChanged {
      self[at].rows[row].delivered = target
      self[at].rows[row].deliveredAt = time
      self[at].rows[row].deliveredIsHidden = settings(user).hidesDelivered
    }
    return Outcome(reply: marked(at, row, target), hasChanged: hasChanged)
  }

  /// The reply to a read or a delivery in a channel: the row, and that a position up to the member's join counts for
  /// nothing (R6).
  func marked(_ at: RoomID, _ row: Int, _ target: Int) -> Reply {
    guard case .row(var view) = ownRow(at, row) else { preconditionFailure("a row") }
    if at.thread == nil, target > 0, target <= self[at].rows[row].joined { view.uncounted = 3 }
    return .row(view)
  }

  mutating func unread(_ at: RoomID, _ user: String, _ message: String, _ epoch: UInt32?) -> Outcome {
    guard let row = self[at].memberRows[user] else { return .refused(Code.notAMember) }
    if options(at.cid).markUnread == 2 { return .refused(Code.markUnreadOff) }
    if at.thread == nil, message.isEmpty {
      let its = self[at].rows[row]
      let hasChanged = !its.isFlagged && epoch.map { Int($0) >= its.epoch } ?? true
      if hasChanged {
        self[at].rows[row].isFlagged = true
        self[at].rows[row].epoch += 1
      }
      return Outcome(reply: ownRow(at, row), hasChanged: hasChanged)
    }
    var index = hiddenCount(at, from: user)
    if !message.isEmpty {
      guard let found = self[at].messageIndexes[message], found >= index else {
        return .refused(Code.messageNotFound)
      }
      index = found
    }
    let its = self[at].rows[row]
    let isStale = epoch.map { Int($0) < its.epoch } ?? false
    let hasChanged = index + 1 <= its.read && its.marker != index && !isStale
    if hasChanged {
      self[at].rows[row].marker = index
      self[at].rows[row].epoch += 1
    }
    return Outcome(reply: ownRow(at, row), hasChanged: hasChanged)
  }
}
