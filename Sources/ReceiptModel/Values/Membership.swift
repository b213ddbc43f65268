/// A user's membership in one channel, as stored in the user's index. An ended membership stays while the channel still
/// knows the user's name.
package struct Membership: Hashable, Sendable {
  package var cid: String
  /// The channel's incarnation.
  package var channel: ChannelNumber
  /// The user's last row in the channel; nil: never a member, only a sender.
  package var row: MemberOrdinal?
  package var isMember: Bool
  package var joinedAt: Timestamp
  /// The epoch of the change that assigned this entry. After a rebuild, entries with an older epoch are wrong.
  package var epoch: UInt64
  /// When the user ceased to be a member of a deleted channel of this name, by the channel shard's time: at its
  /// deletion, or earlier by leaving. None: no such channel, or the time is no longer kept.
  package var deletedAt: Timestamp
  /// A tombstone: no channel of this name knows the user any more. It is not a membership, and is kept to replay the
  /// removal to clients that were away.
  package var isGone: Bool

  package init(
    cid: String,
    channel: ChannelNumber,
    row: MemberOrdinal?,
    isMember: Bool,
    joinedAt: Timestamp,
    epoch: UInt64,
    deletedAt: Timestamp = .none,
    isGone: Bool = false
  ) {
    self.cid = cid
    self.channel = channel
    self.row = row
    self.isMember = isMember
    self.joinedAt = joinedAt
    self.epoch = epoch
    self.deletedAt = deletedAt
    self.isGone = isGone
  }

  /// Return the tombstone that replaces this entry once no channel of its name knows the user.
  func tombstone(at time: Timestamp) -> Membership {
    Membership(
      cid: cid,
      channel: channel,
      row: nil,
      isMember: false,
      joinedAt: .none,
      epoch: epoch,
      deletedAt: time,
      isGone: true
    )
  }
}

/// A membership change that a channel's shard sends to a user's home shard.
package struct MembershipChange: Hashable, Sendable {
  package var user: String
  /// The entry that the index must hold.
  package var membership: Membership
  /// The channel no longer knows the user. Either the channel was deleted, and `membership` says when the user's
  /// membership ended, or the user was erased there.
  package var isGone: Bool

  package init(user: String, _ membership: Membership, isGone: Bool = false) {
    self.user = user
    self.membership = membership
    self.isGone = isGone
  }
}
