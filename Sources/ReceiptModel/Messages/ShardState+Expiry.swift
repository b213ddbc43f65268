/// Expiring acknowledgement requests (R9). The shard's time (R20) expires an acknowledgement request, not an effect. A
/// channel's subscribers are notified once that time has come.
extension ShardState {
  /// Record the acknowledgement requests of a channel that have expired between two times without being done. Requires
  /// ``refresh(_:)``.
  ///
  /// - Parameters:
  ///   - after: acknowledgement requests that expired up to then were recorded before.
  ///   - end: at most the shard's time.
  /// - Returns: whether there are any.
  package func recordExpiries(
    in slot: ChannelSlot,
    after: Timestamp,
    through end: Timestamp,
    _ pending: inout PendingChannelEvents
  ) -> Bool {
    guard after < end, !self[slot].acknowledgementTable.isEmpty else { return false }
    let first = Timestamp(milliseconds: after.milliseconds + 1)
    let expired = self[slot].expired(in: first...end)
    for sequence in expired {
      pending.expire(sequence, at: self[slot].acknowledgementTable.expiresAt(sequence))
    }
    return !expired.isEmpty
  }

  /// Return when the channel's next acknowledgement request after a time expires; none: no acknowledgement request
  /// does.
  package func nextExpiry(in slot: ChannelSlot, after time: Timestamp) -> Timestamp {
    self[slot].acknowledgementTable.isEmpty ? .none : self[slot].acknowledgementTable.nextExpiry(after: time)
  }

  /// Return when the channel's last expired acknowledgement request expired; none: none has.
  package func lastExpiry(in slot: ChannelSlot) -> Timestamp {
    guard time > .none else { return .none }
    let expired = self[slot].acknowledgementTable.expiring(in: Timestamp(milliseconds: 1)...time)
    return expired.map { self[slot].acknowledgementTable.expiresAt($0) }.max() ?? .none
  }
}

extension ChannelState {
  /// Return the messages whose acknowledgement requests expire in a range of times and are not done.
  func expired(in times: ClosedRange<Timestamp>) -> [SequenceNumber] {
    acknowledgementTable.expiring(in: times).filter { !isGone($0) && !acknowledgementProgress($0).isDone }
  }
}
