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
    return clamped(time)
  }

  package mutating func repaired(_ session: SessionRecord) -> SessionRecord {
    var session = session
    if session.lastWritten > limit { count(.sessions) }
    session.lastWritten = clamped(session.lastWritten)
    return session
  }

  /// Repairs an effect.
  ///
  /// - Throws: ``Damage`` if its steps cannot be read.
  package mutating func repaired(_ effect: Effect) throws(Damage) -> Effect {
    let (repaired, kind) = try clamped(effect)
    if let kind, repaired != effect { count(kind) }
    return repaired
  }

  /// The steps of a row page were not written by a store.
  package struct Damage: Error {}

  private func clamped(_ time: Timestamp) -> Timestamp { min(time, limit) }

  /// Caps an effect's times and gives its category; nil if it has no times. The switch is exhaustive, so that a new
  /// effect must declare its times.
  private func clamped(_ effect: Effect) throws(Damage) -> (Effect, Kind?) {
    switch effect {
    case .channelAssigned(let number, let cid, let created, let own):
      return (.channelAssigned(number, cid: cid, created: clamped(created), own: own), .channels)
    case .optionsChanged(let number, let at):
      return (.optionsChanged(number, at: clamped(at)), .channels)
    case .truncated(let number, let through, let at):
      return (.truncated(number, through: through, at: clamped(at)), .channels)
    case .channelTypeAssigned(var record):
      record.takenAt = clamped(record.takenAt)
      return (.channelTypeAssigned(record), .channelTypes)
    case .rowAssigned(let number, let row, let record):
      return (.rowAssigned(number, row, clamped(record)), .members)
    case .rowLeft(let number, let row, let at):
      return (.rowLeft(number, row, at: clamped(at)), .members)
    case .rowErased(let number, let row, let at):
      return (.rowErased(number, row, at: clamped(at)), .members)
    case .readMoved(let number, let row, let to, let at, let isHidden):
      return (.readMoved(number, row, to: to, at: clamped(at), isHidden: isHidden), .positions)
    case .deliveredMoved(let number, let row, let to, let at, let isHidden):
      return (.deliveredMoved(number, row, to: to, at: clamped(at), isHidden: isHidden), .positions)
    case .deliveredAcked(let number, let row, let to, let at, let acked, let isHidden):
      // Keep the acknowledged time only if it is before the move's own time.
      guard at <= limit || acked < limit else {
        return (.deliveredMoved(number, row, to: to, at: limit, isHidden: isHidden), .positions)
      }
      return (
        .deliveredAcked(number, row, to: to, at: clamped(at), acked: acked, isHidden: isHidden), .positions
      )
    case .markerAssigned(let number, let row, let marker, let epoch, let at):
      return (.markerAssigned(number, row, marker: marker, epoch: epoch, at: clamped(at)), .positions)
    case .unreadFlagAssigned(let number, let row, let isSet, let epoch, let at):
      return (.unreadFlagAssigned(number, row, isSet: isSet, epoch: epoch, at: clamped(at)), .positions)
    case .stepsSealed(let number, let rowPage, let segment, let bytes):
      let steps = try clamped(steps: bytes)
      return (.stepsSealed(number, rowPage: rowPage, segment: segment, bytes: steps), .steps)
    case .stepTailCut(let number, let rowPage, let end):
      return (.stepTailCut(number, rowPage: rowPage, end: clamped(end)), .steps)
    case .stepTailAssigned(let number, let rowPage, var record):
      record.ends = record.ends.map { clamped($0) }
      record.tail = try clamped(steps: record.tail)
      return (.stepTailAssigned(number, rowPage: rowPage, record), .steps)
    case .messageAssigned(let number, let sequence, let record):
      return (.messageAssigned(number, sequence, clamped(record)), .messages)
    case .messageDeleted(let number, let sequence, let at):
      return (.messageDeleted(number, sequence, at: clamped(at)), .messages)
    case .acknowledged(let number, let sequence, var record):
      record.at = clamped(record.at)
      return (.acknowledged(number, sequence, record), .acknowledgements)
    case .membershipAssigned(let number, let place, let membership):
      return (.membershipAssigned(number, place: place, clamped(membership)), .memberships)
    case .membershipQueued(let number, var change):
      change.membership = clamped(change.membership)
      return (.membershipQueued(number, change), .memberships)
    case .userAssigned(let number, let settings):
      return (.userAssigned(number, clamped(settings)), .users)
    case .userErased(let number, let version, let hash, let at):
      return (.userErased(number, version: version, hash: hash, at: clamped(at)), .users)
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
      session.lastWritten = clamped(session.lastWritten)
      return (.sessionAssigned(session), .sessions)
    case .countersAssigned(let nextChannel, let time):
      return (.countersAssigned(nextChannel: nextChannel, time: clamped(time)), .shardTimes)
    case .inThread(let parent, let effect):
      let (repaired, kind) = try clamped(effect)
      return (.inThread(parent, repaired), kind)
    case .roleAssigned, .muteAssigned, .acknowledgementForgotten, .acknowledgedThrough, .stepsTrimmed,
      .typeSettled, .userSettled, .idsWidened, .deletionBegun, .channelDeleted, .senderErased,
      .messageCountsAssigned, .segmentsNoted, .membershipRemoved, .membershipsSent, .membershipsTaken,
      .indexEpochAssigned:
      return (effect, nil)
    }
  }

  private func clamped(_ row: RowRecord) -> RowRecord {
    var row = row
    row.joinedAt = clamped(row.joinedAt)
    row.readAt = clamped(row.readAt)
    if row.deliveredAt > limit, row.ackedAt >= limit { row.ackedAt = .none }
    row.deliveredAt = clamped(row.deliveredAt)
    row.markedAt = clamped(row.markedAt)
    row.flaggedAt = clamped(row.flaggedAt)
    return row
  }

  private func clamped(_ message: MessageRecord) -> MessageRecord {
    var message = message
    let ahead = message.registeredAt.milliseconds - clamped(message.registeredAt).milliseconds
    message.registeredAt = clamped(message.registeredAt)
    message.createdAt = clamped(message.createdAt)
    if message.receiptExpiresAt != .none { message.receiptExpiresAt.milliseconds -= ahead }
    return message
  }

  private func clamped(_ membership: Membership) -> Membership {
    var membership = membership
    membership.joinedAt = clamped(membership.joinedAt)
    membership.deletedAt = clamped(membership.deletedAt)
    return membership
  }

  private func clamped(_ settings: UserSettings) -> UserSettings {
    var settings = settings
    settings.readShownSince = clamped(settings.readShownSince)
    settings.deliveredShownSince = clamped(settings.deliveredShownSince)
    settings.tokensRevokedBefore = clamped(settings.tokensRevokedBefore)
    settings.takenAt = clamped(settings.takenAt)
    return settings
  }

  private func clamped(steps bytes: [UInt8]) throws(Damage) -> [UInt8] {
    guard let steps = StepBytes.steps(bytes) else { throw Damage() }
    guard steps.contains(where: { $0.time > limit }) else { return bytes }
    return StepBytes.bytes(
      steps.map { step in
        var step = step
        if step.time > limit, step.acked >= limit { step.acked = .none }
        step.time = clamped(step.time)
        return step
      }
    )
  }
}
