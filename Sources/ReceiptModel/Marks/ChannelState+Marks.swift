/// The decisions of marks on one row of a channel or thread (R2, R4).
extension ChannelState {
  /// Decide mark-read for one row (R2).
  func decideRead(
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let read = max(rows.read[row], sequence)
    if read > rows.read[row] {
      effects.append(.channel(number, .readMoved(row, to: read, at: time, isHidden: rows.hidesRead(row))))
    }
    decideUnflag(row, epoch: epoch, at: time, into: &effects)
    guard let marker = rows.marker(row), !isStale(epoch, row) else { return }
    let moved = max(marker, sequence)
    // The marker is cleared once it reaches the watermark.
    let left = moved >= read ? nil : moved
    if left != marker {
      effects.append(.channel(number, .markerAssigned(row, marker: left, epoch: rows.epoch(row), at: time)))
    }
  }

  /// Decide mark-unread for one row (R4); do nothing if the message is above the watermark already.
  func decideUnread(
    _ row: MemberOrdinal,
    from sequence: SequenceNumber,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let marker = SequenceNumber(sequence.rawValue - 1)
    guard sequence <= rows.read[row], rows.marker(row) != marker, !isStale(epoch, row) else {
      return
    }
    let epoch = rows.markers.raisedEpoch(row)
    effects.append(.channel(number, .markerAssigned(row, marker: marker, epoch: epoch, at: time)))
  }

  /// Flag the channel unread as a whole (R4); do nothing if the flag is set already.
  func decideFlagUnread(_ row: MemberOrdinal, epoch: UInt32?, at time: Timestamp, into effects: inout [Effect]) {
    guard !rows.isFlaggedUnread(row), !isStale(epoch, row) else { return }
    let epoch = rows.markers.raisedEpoch(row)
    effects.append(.channel(number, .unreadFlagAssigned(row, isSet: true, epoch: epoch, at: time)))
  }

  /// Clear the unread flag, as any read or send in the channel or one of its threads does, even one that moves nothing
  /// (R4).
  func decideUnflag(_ row: MemberOrdinal, epoch: UInt32?, at time: Timestamp, into effects: inout [Effect]) {
    guard rows.isFlaggedUnread(row), !isStale(epoch, row) else { return }
    effects.append(.channel(number, .unreadFlagAssigned(row, isSet: false, epoch: rows.epoch(row), at: time)))
  }

  /// Return whether a read or unread carries an older epoch than the row's: its device has not seen the latest choice
  /// (R4).
  func isStale(_ epoch: UInt32?, _ row: MemberOrdinal) -> Bool { rows.markers.isStale(epoch, row) }
}
