/// Where a message's receipt stands (R9).
extension ChannelState {
  /// `done` once every expected member who does not hide their reading has acknowledged it, of whom there has to be
  /// one; else `expired` or `processing`.
  ///
  /// - Parameter time: the shard's.
  package func receiptStatus(_ sequence: SequenceNumber, at time: Timestamp) -> ReceiptStatus {
    guard receipts.isRequested(sequence) else { return .none }
    return receiptProgress(sequence).isDone ? .done : unacknowledgedStatus(sequence, at: time)
  }

  /// The same for somebody who is not told who has acknowledged it (R10).
  func unacknowledgedStatus(_ sequence: SequenceNumber, at time: Timestamp) -> ReceiptStatus {
    guard receipts.isRequested(sequence) else { return .none }
    return isExpired(sequence, at: time) ? .expired : .processing
  }

  /// Whether the time of a message's receipt is over; a message without one, or one without an end, never is.
  func isExpired(_ sequence: SequenceNumber, at time: Timestamp) -> Bool {
    let expiry = receipts.expiresAt(sequence)
    return expiry != .none && time >= expiry
  }

  /// Looks at the rows that had joined before the message, 64 at a time, up to the first who has not acknowledged it.
  func receiptProgress(_ sequence: SequenceNumber) -> ReceiptTable.Progress {
    receipts.progress(
      sequence,
      awaited: rows.awaited,
      rowCount: rows.joinedBefore(sequence),
      excluding: rows.row(of: messages.sender(sequence))
    )
  }
}
