/// The state of a message's acknowledgement request (R9).
extension ChannelState {
  /// Return the status of an acknowledgement request. It is `done` once every recipient who does not hide reads has
  /// acknowledged it, of whom there must be at least one; otherwise `expired` or `processing`.
  ///
  /// - Parameter time: the shard's.
  package func acknowledgementStatus(_ sequence: SequenceNumber, at time: Timestamp) -> AcknowledgementStatus {
    guard acknowledgementTable.isRequested(sequence) else { return .none }
    return acknowledgementProgress(sequence).isDone ? .done : unacknowledgedStatus(sequence, at: time)
  }

  /// Return the status for viewers who may not see who has acknowledged the message (R10).
  func unacknowledgedStatus(_ sequence: SequenceNumber, at time: Timestamp) -> AcknowledgementStatus {
    guard acknowledgementTable.isRequested(sequence) else { return .none }
    return isExpired(sequence, at: time) ? .expired : .processing
  }

  /// Return whether a message's acknowledgement request has expired. False for a message without an acknowledgement
  /// request, or with one that never expires.
  func isExpired(_ sequence: SequenceNumber, at time: Timestamp) -> Bool {
    let expiry = acknowledgementTable.expiresAt(sequence)
    return expiry != .none && time >= expiry
  }

  /// Compare the rows that joined before the message, 64 at a time, up to the first that has not acknowledged it.
  func acknowledgementProgress(_ sequence: SequenceNumber) -> AcknowledgementTable.Progress {
    acknowledgementTable.progress(
      sequence,
      awaited: rows.flags.awaited,
      rowCount: rows.joinedBefore(sequence),
      excluding: rows.row(of: messages.sender(sequence))
    )
  }
}
