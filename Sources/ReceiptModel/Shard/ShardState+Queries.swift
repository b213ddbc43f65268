/// The queries. They change nothing; their results are numbers whose names are looked up at encoding. Call
/// ``refresh(_:)`` on the channel before a query.
extension ShardState {
  /// Return a member's own row (R2, R4, R18).
  package func ownRow(_ slot: ChannelSlot, _ row: MemberOrdinal) -> ShownRow {
    self[slot].ownRow(row, hiddenThrough: hiddenThrough(slot, ofRow: row))
  }

  /// Return when a user joined a channel; none: not a member.
  package func joinedAt(_ user: RawSpan, in slot: ChannelSlot) -> Timestamp {
    guard let row = self[slot].row(of: user) else { return .none }
    return self[slot].rows.joinedAt(row)
  }

  /// Return the position up to which hidden history hides messages from a row's member. In a thread, the row differs
  /// from the member's row in the channel.
  func hiddenThrough(_ slot: ChannelSlot, ofRow row: MemberOrdinal) -> SequenceNumber {
    guard slot.isThread else { return hiddenThrough(slot, row) }
    guard self[slot.channel].rows.hidingHistoryCount > 0,
      let member = withUser(slot, row, { self[slot.channel].row(of: $0) })
    else { return .zero }
    return hiddenThrough(slot, member)
  }

  /// Return a member's row as others see it (R4, R7, R8).
  package func shownRow(_ slot: ChannelSlot, _ row: MemberOrdinal, withOwnDetails: Bool) -> ShownRow {
    self[slot].shownRow(row, options: options(slot), settings: settings, withOwnDetails: withOwnDetails)
  }

  /// Return a page of a channel's read state (R12).
  ///
  /// - Parameters:
  ///   - viewer: the user whose own row comes first on the first page; must be a member. Empty for none.
  ///   - isServer: every row includes the member's own details.
  ///   - limit: rows in the page, 1 to 100.
  ///   - cursor: only rows below this number.
  package func readState(
    _ slot: ChannelSlot,
    viewer: RawSpan,
    isServer: Bool,
    limit: Int,
    cursor: UInt32?
  ) throws(Refusal) -> (rows: [ShownRow], next: UInt32?) {
    self[slot].readState(
      try self.viewer(viewer, isServer: isServer, in: slot),
      limit: limit,
      cursor: cursor,
      options: options(slot),
      settings: settings
    )
  }

  /// Return the status and counts of a registered message that is not deleted (R1, R10).
  package func status(_ slot: ChannelSlot, _ sequence: SequenceNumber, viewer: ChannelViewer = .server) -> ShownStatus {
    self[slot].status(sequence, viewer, options(slot), at: time)
  }

  /// Begin the result for one of several messages; ``statuses(_:viewer:_:)`` completes it with the counts.
  ///
  /// - Parameters:
  ///   - targetSlot: from ``targetSlot(of:in:)``.
  ///   - viewer: the viewer of the channel.
  package func askedStatus(
    _ targetSlot: ChannelSlot,
    message: RawSpan,
    viewer: ChannelViewer
  ) -> Result<ShownStatus, Refusal> {
    do throws(Refusal) {
      let viewer = self.viewer(viewer, in: targetSlot)
      return .success(ShownStatus(asked: try shownMessage(message, in: targetSlot, viewer), thread: targetSlot.thread))
    } catch {
      return .failure(error)
    }
  }

  /// Compute the statuses and counts of several messages, counted together (R10).
  ///
  /// - Parameter answers: from ``askedStatus(_:message:viewer:)``, at most 255.
  package func statuses(_ slot: ChannelSlot, viewer: ChannelViewer, _ results: inout [Result<ShownStatus, Refusal>]) {
    guard !self[slot].threads.isEmpty else {
      return self[slot].statuses(&results, viewer, options(slot), at: time)
    }
    // Replies are counted individually, in their threads.
    var replies: [(index: Int, asked: ShownStatus)] = []
    for index in results.indices {
      guard case .success(let asked) = results[index], asked.thread > 0 else { continue }
      replies.append((index, asked))
      results[index] = .failure(.messageNotFound)
    }
    self[slot].statuses(&results, viewer, options(slot), at: time)
    for (index, asked) in replies {
      let thread = slot.thread(Int(asked.thread) - 1)
      results[index] = .success(status(thread, asked.sequence, viewer: self.viewer(viewer, in: thread)))
    }
  }

  /// Return a message with a status: registered, not hidden from the viewer, and not deleted.
  package func shownMessage(
    _ message: RawSpan,
    in slot: ChannelSlot,
    _ viewer: ChannelViewer
  ) throws(Refusal) -> SequenceNumber {
    guard let sequence = find(message, in: slot, hiddenThrough: viewer.hiddenThrough) else {
      throw .messageNotFound
    }
    guard !isDeleted(sequence, in: slot) else { throw .messageDeleted }
    return sequence
  }
}

extension ShownStatus {
  /// A result for a requested message that is not counted yet.
  fileprivate init(asked sequence: SequenceNumber, thread: UInt32) {
    self.init(
      sequence: sequence,
      status: .sent,
      readCount: 0,
      deliveredCount: 0,
      memberCount: 0,
      readEvents: false,
      deliveryEvents: false,
      createdAt: .none
    )
    self.thread = thread
  }
}

/// Look-ups for encoding: names of users, in the channel or thread of the slot.
extension ShardState {
  /// Call `body` with a user's id, as bytes; empty for nobody.
  package func withUser<Result>(_ slot: ChannelSlot, _ user: UserNumber, _ body: (RawSpan) -> Result) -> Result {
    body(self[slot].users.id(user))
  }

  /// Call `body` with the id of a message's sender, as bytes; empty for nobody.
  package func withSender<Result>(
    _ slot: ChannelSlot,
    of sequence: SequenceNumber,
    _ body: (RawSpan) -> Result
  ) -> Result {
    body(self[slot].users.id(self[slot].messages.sender(sequence)))
  }

  /// Return the slot of the thread under a message, or of the channel itself for zero. Nil if there is no such thread.
  /// Does not apply the users' settings to the thread.
  package func targetSlot(ofThread parent: SequenceNumber, in slot: ChannelSlot) -> ChannelSlot? {
    if parent == .zero { return slot }
    return self[slot].threads.index(of: parent).map { slot.thread($0) }
  }
}
