/// Replaces logged times that lie after now: the operation that `tidemark repair-clock` applies to each effect, in
/// pages and log alike (R20).
///
/// Every time is capped at one limit. Capping keeps the order of times, on which the store relies: a time that was not
/// later than another stays so. Times that may lie in the future differ: a receipt's expiry keeps its distance to the
/// registration, and the end of a webhook or a revocation is capped at its maximum distance to the limit.
package struct TimeRepair: Sendable {
  /// The categories that a repair counts; each changed effect or record counts once.
  package enum Kind: String, CaseIterable, Sendable {
    case channels
    case channelTypes = "channel_types"
    case members
    case positions
    case steps
    case messages
    case acknowledgements
    case memberships
    case users
    case sessions
    case webhooks
    case tokens
    case shardTimes = "shard_times"
    case erasures
  }

  /// No time after this remains.
  package let limit: Timestamp
  package private(set) var counts: [Kind: Int] = [:]

  package init(limit: Timestamp) { self.limit = limit }

  /// Whether anything was changed.
  package var hasChanged: Bool { !counts.isEmpty }

  package mutating func count(_ kind: Kind, _ count: Int = 1) {
    if count > 0 { counts[kind, default: 0] += count }
  }

  /// Repairs the time of a batch.
  package mutating func repairedBatchTime(_ time: Timestamp) -> Timestamp {
    if time > limit { count(.shardTimes) }
    return held(time)
  }

  package mutating func repaired(_ session: SessionRecord) -> SessionRecord {
    var session = session
    if session.lastWritten > limit { count(.sessions) }
    session.lastWritten = held(session.lastWritten)
    return session
  }

  /// Repairs an effect.
  ///
  /// - Throws: ``Damage`` if its steps cannot be read.
  package mutating func repaired(_ effect: Effect) throws(Damage) -> Effect {
    let (repaired, kind) = try held(effect)
    if let kind, repaired != effect { count(kind) }
    return repaired
  }

  /// The steps of a row page were not written by a store.
  package struct Damage: Error {}

  private func held(_ time: Timestamp) -> Timestamp { min(time, limit) }

  /// Caps an effect's times and gives its category; nil if it has no times. The switch is exhaustive, so that a new
  /// effect must declare its times.
  private func held(_ effect: Effect) throws(Damage) -> (Effect, Kind?) {
    switch effect {
    case .channelAssigned(let number, let cid, let created, let own):
      return (.channelAssigned(number, cid: cid, created: held(created), own: own), .channels)
    case .optionsChanged(let number, let at):
      return (.optionsChanged(number, at: held(at)), .channels)
    case .truncated(let number, let through, let at):
      return (.truncated(number, through: through, at: held(at)), .channels)
    case .channelTypeAssigned(var record):
      record.takenAt = held(record.takenAt)
      return (.channelTypeAssigned(record), .channelTypes)
    case .rowAssigned(let number, let row, let record):
      return (.rowAssigned(number, row, held(record)), .members)
    case .rowLeft(let number, let row, let at):
      return (.rowLeft(number, row, at: held(at)), .members)
    case .rowErased(let number, let row, let at):
      return (.rowErased(number, row, at: held(at)), .members)
    case .readMoved(let number, let row, let to, let at, let isHidden):
      return (.readMoved(number, row, to: to, at: held(at), isHidden: isHidden), .positions)
    case .deliveredMoved(let number, let row, let to, let at, let isHidden):
      return (.deliveredMoved(number, row, to: to, at: held(at), isHidden: isHidden), .positions)
    case .deliveredAcked(let number, let row, let to, let at, let acked, let isHidden):
      // Keep the acknowledged time only if it is before the move's own time.
      guard at <= limit || acked < limit else {
        return (.deliveredMoved(number, row, to: to, at: limit, isHidden: isHidden), .positions)
      }
      return (
        .deliveredAcked(number, row, to: to, at: held(at), acked: acked, isHidden: isHidden), .positions
      )
    case .markerAssigned(let number, let row, let marker, let epoch, let at):
      return (.markerAssigned(number, row, marker: marker, epoch: epoch, at: held(at)), .positions)
    case .unreadFlagAssigned(let number, let row, let isSet, let epoch, let at):
      return (.unreadFlagAssigned(number, row, isSet: isSet, epoch: epoch, at: held(at)), .positions)
    case .stepsSealed(let number, let rowPage, let segment, let bytes):
      let steps = try held(steps: bytes)
      return (.stepsSealed(number, rowPage: rowPage, segment: segment, bytes: steps), .steps)
    case .stepTailCut(let number, let rowPage, let end):
      return (.stepTailCut(number, rowPage: rowPage, end: held(end)), .steps)
    case .stepTailAssigned(let number, let rowPage, var record):
      record.ends = record.ends.map { held($0) }
      record.tail = try held(steps: record.tail)
      return (.stepTailAssigned(number, rowPage: rowPage, record), .steps)
    case .messageAssigned(let number, let sequence, let record):
      return (.messageAssigned(number, sequence, held(record)), .messages)
    case .messageDeleted(let number, let sequence, let at):
      return (.messageDeleted(number, sequence, at: held(at)), .messages)
    case .acknowledged(let number, let sequence, var record):
      record.at = held(record.at)
      return (.acknowledged(number, sequence, record), .acknowledgements)
    case .membershipAssigned(let number, let place, let membership):
      return (.membershipAssigned(number, place: place, held(membership)), .memberships)
    case .membershipQueued(let number, var change):
      change.membership = held(change.membership)
      return (.membershipQueued(number, change), .memberships)
    case .userAssigned(let number, let settings):
      return (.userAssigned(number, held(settings)), .users)
    case .userErased(let number, let version, let hash, let at):
      return (.userErased(number, version: version, hash: hash, at: held(at)), .users)
    case .webhookNoted(let key, let until):
      // A webhook is remembered for a limited time after it was accepted.
      let last = Timestamp(milliseconds: limit.milliseconds + WebhookTable.lifetimeMax)
      return (.webhookNoted(key, until: min(until, last)), .webhooks)
    case .tokenRevoked(var revocation):
      // A revocation may end years after it was made.
      let last = Timestamp(milliseconds: limit.milliseconds + RevokedTokenTable.lifetimeMax)
      revocation.until = min(revocation.until, last)
      return (.tokenRevoked(revocation), .tokens)
    case .sessionAssigned(var session):
      session.lastWritten = held(session.lastWritten)
      return (.sessionAssigned(session), .sessions)
    case .countersAssigned(let nextChannel, let time):
      return (.countersAssigned(nextChannel: nextChannel, time: held(time)), .shardTimes)
    case .inThread(let parent, let effect):
      let (repaired, kind) = try held(effect)
      return (.inThread(parent, repaired), kind)
    case .roleAssigned, .muteAssigned, .acknowledgementForgotten, .acknowledgedThrough, .stepsTrimmed,
      .typeSettled, .userSettled, .idsWidened, .deletionBegun, .channelDeleted, .senderErased,
      .messageCountsAssigned, .segmentsNoted, .membershipRemoved, .membershipsSent, .membershipsTaken,
      .indexEpochAssigned:
      return (effect, nil)
    }
  }

  private func held(_ row: RowRecord) -> RowRecord {
    var row = row
    row.joinedAt = held(row.joinedAt)
    row.readAt = held(row.readAt)
    if row.deliveredAt > limit, row.ackedAt >= limit { row.ackedAt = .none }
    row.deliveredAt = held(row.deliveredAt)
    row.markedAt = held(row.markedAt)
    row.flaggedAt = held(row.flaggedAt)
    return row
  }

  private func held(_ message: MessageRecord) -> MessageRecord {
    var message = message
    let ahead = message.registeredAt.milliseconds - held(message.registeredAt).milliseconds
    message.registeredAt = held(message.registeredAt)
    message.createdAt = held(message.createdAt)
    if message.receiptExpiresAt != .none { message.receiptExpiresAt.milliseconds -= ahead }
    return message
  }

  private func held(_ membership: Membership) -> Membership {
    var membership = membership
    membership.joinedAt = held(membership.joinedAt)
    membership.deletedAt = held(membership.deletedAt)
    return membership
  }

  private func held(_ settings: UserSettings) -> UserSettings {
    var settings = settings
    settings.readShownSince = held(settings.readShownSince)
    settings.deliveredShownSince = held(settings.deliveredShownSince)
    settings.tokensRevokedBefore = held(settings.tokensRevokedBefore)
    settings.takenAt = held(settings.takenAt)
    return settings
  }

  private func held(steps bytes: [UInt8]) throws(Damage) -> [UInt8] {
    guard let steps = StepBytes.steps(bytes) else { throw Damage() }
    guard steps.contains(where: { $0.time > limit }) else { return bytes }
    return StepBytes.bytes(
      steps.map { step in
        var step = step
        if step.time > limit, step.acked >= limit { step.acked = .none }
        step.time = held(step.time)
        return step
      }
    )
  }
}
