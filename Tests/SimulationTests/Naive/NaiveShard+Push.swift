/// The oracle's push acks and webhooks (R3, R20).
extension NaiveShard {
  /// An acknowledgement by names. A duplicate moves nothing, and gets the current answer.
  mutating func push(_ content: RequestContent, at time: Int64, isDuplicate: Bool) -> Outcome {
    guard case .push(let cid, let user, let message, let acked) = content else {
      preconditionFailure("a push")
    }
    guard channels[cid] != nil else { return .refused(Code.channelNotFound) }
    guard channels[cid]!.memberRows[user] != nil else { return .refused(Code.notAMember) }
    guard let (at, index) = find(cid, message, for: user) else { return .refused(Code.messageNotFound) }
    if isClosed(at) { return .refused(Code.messageDeleted) }
    let sent = self[at].messages[index].registered
    // In a thread only members of it are acknowledged.
    guard let number = self[at].memberRows[user] else {
      return Outcome(reply: .delivery(moved: false, sent: sent, delivered: 0, [cid, user, message]))
    }
    let row = self[at].rows[number]
    let moves = index + 1 > row.delivered
    // A duplicate is not applied again: where it would change something now, its original result is unknown.
    if moves, isDuplicate { return .refused(Code.outcomeUnknown) }
    if moves {
      var shown = time
      if acked != 0 {
        let since = users[user]?.deliveredShownSince ?? 0
        shown = min(max(acked, sent, row.deliveredAt, since), time)
      }
      self[at].rows[number].delivered = index + 1
      self[at].rows[number].deliveredAt = shown
      self[at].rows[number].deliveredIsHidden = users[user]?.hidesDelivered ?? false
    }
    let delivered = self[at].rows[number].deliveredAt
    return Outcome(
      reply: .delivery(moved: moves, sent: sent, delivered: delivered, [cid, user, message]),
      hasChanged: moves
    )
  }

  /// Whether a webhook is known, up to and including its time.
  func isKnown(_ key: String, at time: Int64) -> Bool { webhooks[key].map { $0 >= time } ?? false }

  /// A webhook that is known already is treated like a refusal.
  mutating func note(_ key: String, until: Int64, at time: Int64, isDuplicate: Bool) -> Outcome {
    // As above: it may have been forgotten, or never recorded.
    if isDuplicate {
      return isKnown(key, at: time) ? Outcome(reply: .known(true)) : .refused(Code.outcomeUnknown)
    }
    if isKnown(key, at: time) { return Outcome(reply: .known(false), isOpen: true) }
    guard until >= time else { return Outcome(reply: .known(true)) }
    webhooks[key] = min(until, time + 3_600_000)
    return Outcome(reply: .known(true), hasChanged: true)
  }
}
