/// Replaces logged times that lie after now: the operation that `tidemark repair-clock` applies to each effect, in
/// pages and log alike (R20).
///
/// Every time is clamped to one limit. Clamping keeps the order of times, on which the store relies: a time that was
/// not later than another stays so. Times that may lie in the future differ: an acknowledgement request's expiry and a
/// timer keep their distance to the registration, a push job keeps its lifetime, and the end of a webhook or a
/// revocation is clamped to its maximum distance to the limit.
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
    case consumers
    case timers
    case pushJobs = "push_jobs"
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

  /// Repair the time of a batch.
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

  /// Repair an effect.
  ///
  /// - Throws: ``Damage`` if its steps cannot be read.
  package mutating func repaired(_ effect: Effect) throws(Damage) -> Effect {
    let repaired: Effect
    let kind: Kind?
    switch effect {
    case .channel(let number, let channelEffect):
      let (clamped, category) = try channelEffect.clamped(by: self)
      (repaired, kind) = (.channel(number, clamped), category)
    case .shard(let shardEffect):
      let (clamped, category) = shardEffect.clamped(by: self)
      (repaired, kind) = (.shard(clamped), category)
    }
    if let kind, repaired != effect { count(kind) }
    return repaired
  }

  /// The steps of a row page were not written by a store.
  package struct Damage: Error {}

  func clamped(_ time: Timestamp) -> Timestamp { min(time, limit) }

  func clamped(_ row: RowRecord) -> RowRecord {
    var row = row
    row.joinedAt = clamped(row.joinedAt)
    row.readAt = clamped(row.readAt)
    if row.deliveredAt > limit, row.ackedAt >= limit { row.ackedAt = .none }
    row.deliveredAt = clamped(row.deliveredAt)
    row.markedAt = clamped(row.markedAt)
    row.flaggedAt = clamped(row.flaggedAt)
    return row
  }

  func clamped(_ message: MessageRecord) -> MessageRecord {
    var message = message
    let ahead = message.registeredAt.milliseconds - clamped(message.registeredAt).milliseconds
    message.registeredAt = clamped(message.registeredAt)
    message.createdAt = clamped(message.createdAt)
    if message.acknowledgementExpiresAt != .none { message.acknowledgementExpiresAt.milliseconds -= ahead }
    return message
  }

  func clamped(_ membership: Membership) -> Membership {
    var membership = membership
    membership.joinedAt = clamped(membership.joinedAt)
    membership.deletedAt = clamped(membership.deletedAt)
    return membership
  }

  func clamped(_ settings: UserSettings) -> UserSettings {
    var settings = settings
    settings.readShownSince = clamped(settings.readShownSince)
    settings.deliveredShownSince = clamped(settings.deliveredShownSince)
    settings.tokensRevokedBefore = clamped(settings.tokensRevokedBefore)
    settings.appliedAt = clamped(settings.appliedAt)
    return settings
  }

  func clamped(steps bytes: [UInt8]) throws(Damage) -> [UInt8] {
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
