/// The state of a message's receipt (R9).
extension ChannelState {
  /// The status of a receipt. It is `done` once every expected member who does not hide reads has acknowledged it, of
  /// whom there must be at least one; otherwise `expired` or `processing`.
  ///
  /// - Parameter time: the shard's.
  package func receiptStatus(_ sequence: SequenceNumber, at time: Timestamp) -> ReceiptStatus {
    guard receipts.isRequested(sequence) else { return .none }
    return receiptProgress(sequence).isDone ? .done : unacknowledgedStatus(sequence, at: time)
  }

  /// The status for viewers who may not see who has acknowledged the message (R10).
  func unacknowledgedStatus(_ sequence: SequenceNumber, at time: Timestamp) -> ReceiptStatus {
    guard receipts.isRequested(sequence) else { return .none }
    return isExpired(sequence, at: time) ? .expired : .processing
  }

  /// Whether a message's receipt has expired. False for a message without a receipt, or with one that never expires.
  func isExpired(_ sequence: SequenceNumber, at time: Timestamp) -> Bool {
    let expiry = receipts.expiresAt(sequence)
    return expiry != .none && time >= expiry
  }

  /// Compare the rows that joined before the message, 64 at a time, up to the first that has not acknowledged it.
  func receiptProgress(_ sequence: SequenceNumber) -> ReceiptTable.Progress {
    receipts.progress(
      sequence,
      awaited: rows.flags.awaited,
      rowCount: rows.joinedBefore(sequence),
      excluding: rows.row(of: messages.sender(sequence))
    )
  }
}
