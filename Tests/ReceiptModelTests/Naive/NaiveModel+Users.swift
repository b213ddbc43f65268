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
