/// Changes of a user's index, decided in the user's home shard (R13, R14). The index's number and name address the
/// effects.
extension MembershipTable {
  // MARK: Queued changes

  /// Apply a queued change.
  ///
  /// - Parameters:
  ///   - isErased: the user is being erased (R16).
  ///   - number: the index's number.
  ///   - name: the index's name.
  func decideApply(
    _ change: MembershipChange,
    isErased: Bool,
    at time: Timestamp,
    _ number: ChannelNumber,
    _ name: [UInt8],
    into effects: inout [Effect]
  ) {
    let known = position(of: change.membership.cid)
    let start = effects.count
    if change.isGone {
      guard let known else { return }
      decideRemoval(change, known, isErased: isErased, at: time, number, name, into: &effects)
    } else {
      guard let position = known ?? nextPosition else { return }
      var membership = change.membership
      // The deletion of an earlier channel of this name is reported with this entry.
      membership.deletedAt = known.map { deletion($0, keptAt: time) } ?? .none
      guard self[position] != membership else { return }
      effects.append(.channel(number, .membershipAssigned(position: position, membership)))
    }
    decideForget(behind: start, at: time, number, name, into: &effects)
  }

  /// Apply the change that a channel no longer knows the user. If it was deleted, and the user was a member of it or
  /// of an earlier channel of its name, the deletion is kept. It is not kept for a user who is being erased (R16).
  private func decideRemoval(
    _ change: MembershipChange,
    _ position: UInt32,
    isErased: Bool,
    at time: Timestamp,
    _ number: ChannelNumber,
    _ name: [UInt8],
    into effects: inout [Effect]
  ) {
    guard let known = self[position], !known.isGone else { return }
    var deletedAt = change.membership.deletedAt
    if Self.isForgotten(deletedAt, at: time) { deletedAt = .none }
    deletedAt = max(deletedAt, deletion(position, keptAt: time))
    guard isErased || deletedAt == .none else {
      effects.append(.channel(number, .membershipAssigned(position: position, known.tombstone(at: deletedAt))))
      return
    }
    effects.append(.channel(number, .membershipRemoved(position: position)))
    let isLast = knownCount == 1
    if isErased && isLast {
      effects.append(.channel(number, .channelDeleted(cid: String(decoding: name, as: UTF8.self))))
    }
  }

  // MARK: Deletions

  /// Return the deletion kept with an entry; none: there is none, or it has expired.
  private func deletion(_ position: UInt32, keptAt time: Timestamp) -> Timestamp {
    let at = deletedAt(position)
    return Self.isForgotten(at, at: time) ? .none : at
  }

  /// Return whether a deletion is too old to be reported.
  private static func isForgotten(_ deletion: Timestamp, at time: Timestamp) -> Bool {
    time.milliseconds - deletion.milliseconds > deletionsKeptMilliseconds
  }

  /// Maximum number of deletions that one change drops; more than a change can add.
  private static let forgottenPerChange = 2

  /// Drop the oldest deletions, if they have expired or there are too many. Drops the index itself if it becomes empty,
  /// because it would keep the name of an erased user.
  ///
  /// - Parameter start: where the change's effects begin.
  private func decideForget(
    behind start: Int,
    at time: Timestamp,
    _ number: ChannelNumber,
    _ name: [UInt8],
    into effects: inout [Effect]
  ) {
    var left = count
    var changed: UInt32?
    var room = Self.deletionsMax - deletions.count
    for effect in effects[start...] {
      switch effect {
      case .channel(_, .membershipAssigned(let position, let membership)):
        changed = position
        if self.position(of: membership.cid) == nil { left += 1 }
        let isCounted = position < positionCount && deletedAt(position) != .none
        if membership.deletedAt != .none, !isCounted { room -= 1 }
      case .channel(_, .membershipRemoved(let position)):
        changed = position
        left -= 1
      default: return
      }
    }
    for deletion in deletions.prefix(Self.forgottenPerChange)
    where deletion.position != changed && (room < 0 || Self.isForgotten(deletion.at, at: time)) {
      guard var entry = self[deletion.position] else { continue }
      room += 1
      if entry.isGone {
        left -= 1
        effects.append(.channel(number, .membershipRemoved(position: deletion.position)))
      } else {
        entry.deletedAt = .none
        effects.append(.channel(number, .membershipAssigned(position: deletion.position, entry)))
      }
    }
    if left == 0 {
      effects.append(.channel(number, .channelDeleted(cid: String(decoding: name, as: UTF8.self))))
    }
  }

  // MARK: Rebuilding

  /// Remove the entries that a rebuild has not confirmed, and expired tombstones. Other tombstones stay: no channel
  /// confirms them.
  ///
  /// - Parameters:
  ///   - position: the first position to examine; advanced.
  ///   - limit: maximum number of positions to examine.
  /// - Returns: whether all positions were examined.
  func decideRemoveUnconfirmed(
    from position: inout UInt32,
    epoch: UInt64,
    limit: Int,
    at time: Timestamp,
    _ number: ChannelNumber,
    into effects: inout [Effect]
  ) -> Bool {
    var left = limit
    while position < positionCount, left > 0 {
      let isWrong =
        isKnown(position)
        ? self.epoch(position) < epoch : isOccupied(position) && deletion(position, keptAt: time) == .none
      if isWrong { effects.append(.channel(number, .membershipRemoved(position: position))) }
      position += 1
      left -= 1
    }
    return position >= positionCount
  }
}
