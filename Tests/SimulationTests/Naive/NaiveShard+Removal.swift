/// The oracle's removals (R16).
extension NaiveShard {
  /// Delete the messages before one; their ids still mark positions.
  mutating func truncate(_ cid: String, _ before: String) -> Outcome {
    guard let through = position(cid, before: before) else { return .refused(Code.messageNotFound) }
    let hasChanged = through > channels[cid]!.truncated
    if hasChanged {
      channels[cid]!.truncated = through
      for index in 0..<through { channels[cid]!.messages[index].isDeleted = true }
    }
    return Outcome(reply: channel(cid, isNew: nil), hasChanged: hasChanged)
  }

  private func position(_ cid: String, before: String) -> Int? {
    before.isEmpty ? channels[cid]!.messages.count : channels[cid]!.messageIndexes[before]
  }

  /// Rows and messages stay without a name. A user with settings is not erased before the settings are, which these
  /// simulations never do.
  mutating func erase(_ cid: String, _ user: String) -> Outcome {
    guard users[user] == nil else { return Outcome(reply: .removed(false)) }
    var isKnown = channels[cid]!.erase(user)
    for thread in channels[cid]!.threads.indices {
      if channels[cid]!.threads[thread].erase(user) { isKnown = true }
    }
    return Outcome(reply: .removed(isKnown), hasChanged: isKnown)
  }

  /// The reply to a duplicate removal.
  func answerRemoved(_ content: RequestContent) -> Outcome {
    switch content {
    case .truncate(let cid, let before):
      if channels[cid] == nil { return .refused(Code.channelNotFound) }
      guard position(cid, before: before) != nil else { return .refused(Code.messageNotFound) }
      return Outcome(reply: channel(cid, isNew: nil))
    case .eraseMember(let cid, let user):
      return Outcome(reply: .removed(channels[cid] == nil || users[user] == nil))
    default:
      return Outcome(reply: .removed(true))
    }
  }
}

extension NaiveShard.Channel {
  mutating func erase(_ user: String) -> Bool {
    var isKnown = false
    for row in rows.indices where rows[row].user == user {
      rows[row].user = ""
      rows[row].hasLeft = true
      isKnown = true
    }
    for index in messages.indices where messages[index].sender == user {
      messages[index].sender = ""
      isKnown = true
    }
    memberRows[user] = nil
    return isKnown
  }
}
