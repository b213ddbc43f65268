/// An effect on the shard's own pages.
package enum ShardEffect: Hashable, Sendable {
  indirect case channelTypeAssigned(ChannelTypeRecord)
  /// In the type's home shard: every shard now has this version of the channel type.
  case typeSettled(name: String, version: UInt64)
  /// A user's settings; the number is the user's index among this shard's users with settings.
  indirect case userAssigned(UInt32, UserSettings)
  /// In the user's home shard: every shard now has this version of the user's settings.
  case userSettled(UInt32, version: UInt64)
  /// An erased user's settings (R16). Only a hash of the id and the version remain, to recognise changes that are still
  /// in flight.
  indirect case userErased(UInt32, version: UInt64, hash: UInt64, at: Timestamp)
  case countersAssigned(nextChannel: ChannelNumber, time: Timestamp)
  /// A webhook was accepted: its key's XXH64 is remembered up to and including this time.
  case webhookNoted(UInt64, until: Timestamp)
  /// A token is revoked, or its revocation is lifted.
  indirect case tokenRevoked(TokenRevocation)
  indirect case sessionAssigned(SessionRecord)
  /// This shard holds ids that builds without wide ids (before 0.9.0, see CHANGELOG.md) reject. Those builds do not
  /// know this effect, and so refuse to open the directory.
  case idsWidened

  // The index of users' channels (R13, R14)
  /// A membership change to deliver to its user's home shard; numbered from 1 without gaps.
  indirect case membershipQueued(UInt64, MembershipChange)
  /// The shard `by` has confirmed the changes for it up to this number.
  case membershipsConfirmed(by: ShardID, through: UInt64)
  /// The index includes the changes from the shard `from` up to this number.
  case membershipsReceived(from: ShardID, through: UInt64)
  /// Changes queued from here on carry this epoch: the index is being rebuilt.
  case indexEpochAssigned(UInt64)

  /// A consumer of the feed (R21).
  indirect case consumer(FeedConsumerEffect)

  /// A pending reminder or expiry; numbered from 1 (R9, R22).
  indirect case timerAssigned(UInt64, MessageTimer)
  /// The timer was due. What it tells is in the feed.
  case timerRemoved(UInt64)

  /// A push job that no worker has finished.
  case pushJob(PushJobEffect)
}

extension ShardEffect {
  // MARK: Traits

  /// The yes-or-no properties of an effect.
  package struct Traits: FlagSet {
    package let rawValue: UInt8

    @inlinable @inline(__always) package init(rawValue: UInt8) { self.rawValue = rawValue }

    /// The effect may be an event for the viewers of channels, or for a user.
    package static let hasEvent = Traits(rawValue: 1)
    /// The effect may be a record of the feed (R21).
    package static let isInFeed = Traits(rawValue: 2)
    /// What storage has of the effect is valid only under conditions, such as its order.
    package static let hasConditions = Traits(rawValue: 4)
    /// At recovery the effect concerns other parts of the shard than the state that it is assigned to.
    package static let hasRecovery = Traits(rawValue: 8)
  }

  /// The traits say which parts of the model and the engine handle the effect. Each of these has a `default` case, with
  /// an assertion that the effect does not have its trait.
  package var traits: Traits {
    switch self {
    case .channelTypeAssigned: .hasEvent
    case .userAssigned, .userErased: .hasEvent.union(.isInFeed).union(.hasConditions)
    case .userSettled, .tokenRevoked, .membershipsReceived: .hasConditions
    case .membershipQueued, .membershipsConfirmed: .hasConditions.union(.hasRecovery)
    case .sessionAssigned, .consumer: .hasRecovery
    case .typeSettled, .countersAssigned, .webhookNoted, .idsWidened, .indexEpochAssigned, .timerAssigned,
      .timerRemoved, .pushJob:
      Traits()
    }
  }

  /// The ids that the effect stores; nil: none.
  var ids: StoredIDs? {
    switch self {
    case .userAssigned(_, let settings): StoredIDs(user: settings.user)
    case .membershipQueued(_, let change): StoredIDs(user: change.user, channel: change.membership.cid)
    case .channelTypeAssigned, .typeSettled, .userSettled, .userErased, .countersAssigned, .webhookNoted,
      .tokenRevoked, .sessionAssigned, .idsWidened, .membershipsConfirmed, .membershipsReceived, .indexEpochAssigned,
      .consumer, .timerAssigned, .timerRemoved, .pushJob:
      nil
    }
  }

  // MARK: Addressing

  /// The page this effect is addressed to.
  package var page: PageID {
    switch self {
    case .channelTypeAssigned, .typeSettled: .types
    case .userAssigned(let number, _), .userSettled(let number, _), .userErased(let number, _, _, _):
      .users(number / PageID.usersPerPage)
    case .countersAssigned, .sessionAssigned, .idsWidened: .shardHead
    case .webhookNoted(let key, _): .webhooks(PageID.webhookPage(of: key))
    case .tokenRevoked: .tokens
    case .membershipQueued(let number, _): .outbox(PageID.outboxPage(of: number))
    case .membershipsConfirmed, .membershipsReceived, .indexEpochAssigned: .index
    case .consumer: .consumers
    case .timerAssigned(let number, _), .timerRemoved(let number): .timers(PageID.timerPage(of: number))
    case .pushJob(let effect): .pushJob(effect.number)
    }
  }

  // MARK: Times

  /// Return the effect with its times clamped, and the category that a repair counts it in; nil if it has no times.
  func clamped(by repair: TimeRepair) -> (ShardEffect, TimeRepair.Kind?) {
    switch self {
    case .channelTypeAssigned(var record):
      record.appliedAt = repair.clamped(record.appliedAt)
      return (.channelTypeAssigned(record), .channelTypes)
    case .membershipQueued(let number, var change):
      change.membership = repair.clamped(change.membership)
      return (.membershipQueued(number, change), .memberships)
    case .userAssigned(let number, let settings): return (.userAssigned(number, repair.clamped(settings)), .users)
    case .userErased(let number, let version, let hash, let at):
      return (.userErased(number, version: version, hash: hash, at: repair.clamped(at)), .users)
    case .webhookNoted(let key, let until):
      // A webhook is remembered for a limited time after it was accepted.
      let last = Timestamp(milliseconds: repair.limit.milliseconds + WebhookTable.lifetimeMax)
      return (.webhookNoted(key, until: min(until, last)), .webhooks)
    case .tokenRevoked(var revocation):
      // A revocation may end years after it was made.
      let last = Timestamp(milliseconds: repair.limit.milliseconds + RevokedTokenTable.lifetimeMax)
      revocation.until = min(revocation.until, last)
      return (.tokenRevoked(revocation), .tokens)
    case .sessionAssigned(var session):
      session.lastWritten = repair.clamped(session.lastWritten)
      return (.sessionAssigned(session), .sessions)
    case .countersAssigned(let nextChannel, let time):
      return (.countersAssigned(nextChannel: nextChannel, time: repair.clamped(time)), .shardTimes)
    case .consumer(let effect): return (.consumer(effect.clamped(by: repair)), .consumers)
    case .timerAssigned(let number, var timer):
      // It keeps its distance to the registration.
      let registered = Timestamp(milliseconds: timer.dueAt.milliseconds - Int64(timer.after) * 1_000)
      timer.dueAt.milliseconds -= registered.milliseconds - repair.clamped(registered).milliseconds
      return (.timerAssigned(number, timer), .timers)
    case .pushJob(let effect): return (.pushJob(effect.clamped(by: repair)), .pushJobs)
    case .typeSettled, .userSettled, .idsWidened, .membershipsConfirmed, .membershipsReceived, .indexEpochAssigned,
      .timerRemoved:
      return (self, nil)
    }
  }
}

/// A shard's record of a gateway session, so that a resent command is applied exactly once
/// (docs/contribute/architecture.md).
package struct SessionRecord: Hashable, Sendable {
  package var session: SessionID
  /// The highest counter whose command the shard has begun.
  package var highest: UInt64
  /// Counters at or below `highest` whose commands are not applied, in rising order. The commands wait for a channel to
  /// load, or were refused or dropped; a resend is decided.
  package var notApplied: [UInt64]
  package var lastWritten: Timestamp

  package init(session: SessionID, highest: UInt64 = 0, notApplied: [UInt64] = [], lastWritten: Timestamp = .none) {
    self.session = session
    self.highest = highest
    self.notApplied = notApplied
    self.lastWritten = lastWritten
  }

  /// Return whether the command with this counter counts as applied.
  package func hasApplied(_ counter: UInt64) -> Bool { counter <= highest && !notApplied.contains(counter) }
}
