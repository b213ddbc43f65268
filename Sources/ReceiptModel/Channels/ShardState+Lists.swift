/// Lists of one message's members, and the status of chosen members (R11).
extension ShardState {
  /// The parameters of a list query.
  package struct ListQuery: Hashable, Sendable {
    package var list: MemberList
    package var order: ListOrder
    /// Number of entries in a page, 1 to 100.
    package var limit: Int

    package init(_ list: MemberList, _ order: ListOrder, limit: Int) {
      self.list = list
      self.order = order
      self.limit = limit
    }
  }

  /// Begin a page of a list; ``advance(_:slot:viewer:budget:)`` fills it.
  ///
  /// - Parameters:
  ///   - cursor: empty for the first page.
  ///   - times: the shard's time, and the step segments read for this page.
  package func beginList(
    _ slot: ChannelSlot,
    viewer: ChannelViewer,
    message: RawSpan,
    _ query: ListQuery,
    cursor: RawSpan,
    times: MemberTimes
  ) throws(Refusal) -> MemberListScan {
    let sequence = try shownMessage(message, in: slot, viewer)
    try checkList(slot, of: sequence, for: viewer, order: query.order)
    if query.list == .acknowledged || query.list == .unacknowledged {
      guard self[slot].acknowledgementTable.isRequested(sequence) else { throw .receiptNotRequested }
    }
    var scan = MemberListScan(
      message: sequence,
      list: query.list,
      order: query.order,
      limit: query.limit,
      cursor: cursor.isEmpty ? nil : try ListCursor(cursor, order: query.order, isThread: slot.isThread),
      times: times
    )
    scan.historyStart = viewer.joinedAt
    if case .joined(let time, let user) = scan.cursor {
      scan.row = self[slot].row(behind: user.span.bytes, joinedAt: time, from: viewer.joinedAt)
    }
    return scan
  }

  /// Continue a page. Throws if the list must not be shown any more, which may have changed since the last slice.
  ///
  /// - Parameter budget: the number of rows that may be examined; reduced by those examined.
  /// - Returns: whether the page is complete.
  package func advance(
    _ scan: inout MemberListScan,
    _ slot: ChannelSlot,
    viewer: ChannelViewer,
    budget: inout Int
  ) throws(Refusal) -> Bool {
    // The viewer may have left and joined again.
    guard viewer.sees(scan.message) else { throw .messageNotFound }
    guard !isDeleted(scan.message, in: slot) else { throw .messageDeleted }
    try checkList(slot, of: scan.message, for: viewer, order: scan.order)
    return self[slot].advance(&scan, budget: &budget, options(slot), settings: settings)
  }

  /// Return the number of entries in a list, as the viewer's status counts them.
  package func total(
    _ list: MemberList,
    _ slot: ChannelSlot,
    _ sequence: SequenceNumber,
    viewer: ChannelViewer
  ) -> UInt32 {
    let status = status(slot, sequence, viewer: viewer)
    switch list {
    case .readers: return status.readCount
    case .delivered: return status.deliveredCount - status.readCount
    case .unread: return status.unreadCount
    case .acknowledged: return status.acknowledgedCount ?? 0
    case .unacknowledged: return status.memberCount - (status.acknowledgedCount ?? 0)
    }
  }

  private func checkList(
    _ slot: ChannelSlot,
    of sequence: SequenceNumber,
    for viewer: ChannelViewer,
    order: ListOrder
  ) throws(Refusal) {
    guard self[slot].showsCounts(of: sequence, to: viewer, options(slot)) else { throw .countsNotVisible }
    guard order == .joined || self[slot].rows.activeCount <= ChannelState.timeOrderMembersMax else {
      throw .orderNotAvailable
    }
  }

  /// Return one user's status for a message, as the viewer sees it. Viewers see their own entry regardless of their
  /// privacy settings.
  package func memberStatus(
    _ slot: ChannelSlot,
    viewer: ChannelViewer,
    _ sequence: SequenceNumber,
    user: RawSpan,
    times: inout MemberTimes
  ) throws(Refusal) -> MemberStatus {
    guard let row = self[slot].row(of: user) else {
      guard slot.isThread else { throw .notAMember }
      throw try nonParticipantRefusal(slot, viewer: viewer, sequence, user: user)
    }
    let isOwn = row == viewer.row
    let options = options(slot)
    guard isOwn || self[slot].showsCounts(of: sequence, to: viewer, options) else { throw .countsNotVisible }
    // Members see their own reads, even hidden ones.
    let end = isOwn ? self[slot].rows.read[row].rawValue : self[slot].rows.countedThrough(row, options)
    guard self[slot].rows.counts(row, sequence, through: end),
      isOwn || !self[slot].rows.isUnseen(row, options)
    else {
      throw .notExpected
    }
    return self[slot].memberStatus(
      row,
      sequence,
      options: options,
      viewpoint: isOwn ? .own : .others,
      settings: settings,
      times: &times
    )
  }

  /// Return whether a message was registered with an acknowledgement request.
  package func hasAcknowledgementRequest(_ slot: ChannelSlot, _ sequence: SequenceNumber) -> Bool {
    self[slot].messages.flags(sequence).contains(.requestsAcknowledgement)
  }
}
