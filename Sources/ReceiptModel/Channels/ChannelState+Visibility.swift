/// When a member read a message, or had it delivered, as shown to a viewer (R9, R17).
struct ShownTime: Hashable, Sendable {
  var at: Timestamp
  /// False: the time is an upper bound.
  var isExact: Bool
  /// The key for sorting by time: the time itself, or after all others if it is only a bound, because a bound moves
  /// with the member's later actions.
  var sortTime: Timestamp

  init(at: Timestamp, isExact: Bool, isBound: Bool = false) {
    self.at = at
    self.isExact = isExact
    sortTime = isBound ? .unknown : at
  }

  /// Return the earlier of two times; of two equal times, an exact one.
  static func earlier(_ a: ShownTime?, _ b: ShownTime?) -> ShownTime? {
    guard let a, let b else { return a ?? b }
    var earlier = a.at < b.at || a.at == b.at && a.isExact ? a : b
    earlier.sortTime = min(a.sortTime, b.sortTime)
    return earlier
  }
}

/// Inputs for members' times, for one query.
package struct MemberTimes: Sendable {
  /// The shard's time: an upper bound for acknowledgements without a kept time.
  package var now: Timestamp
  /// The step segments read for this query.
  package var segments: ReadSegments
  /// Segments that must be read first. If there are any, discard the times and repeat the query after reading them.
  package private(set) var missing: [StepTime.SegmentRange] = []

  package init(now: Timestamp, segments: ReadSegments = ReadSegments()) {
    self.now = now
    self.segments = segments
  }

  /// Return the latest that a time may have been.
  func latest(_ time: Timestamp) -> Timestamp { time == .unknown ? now : time }

  /// Record a missing range. Rows are processed page by page, so a repeated range is among the last.
  mutating func needs(_ range: StepTime.SegmentRange) {
    for known in missing.reversed() {
      if known == range { return }
      if known.rowPage != range.rowPage { break }
    }
    missing.append(range)
  }
}

/// The viewpoint from which a member's positions are seen.
struct Viewpoint {
  /// The viewer is the member, who sees everything, with its time. Otherwise the viewer is another user, who sees what
  /// the member and the channel show (R7, R8).
  let isOwn: Bool
  /// The channel's.
  let options: ChannelTypeOptions

  static func own(_ options: ChannelTypeOptions) -> Viewpoint { Viewpoint(isOwn: true, options: options) }
  static func others(_ options: ChannelTypeOptions) -> Viewpoint { Viewpoint(isOwn: false, options: options) }
}

/// The status of one member for one message, with its time. All lists and member statuses derive from these.
extension ChannelState {
  /// Return whether a member counts for the message: a current member who joined before it and did not send it (R1, R6,
  /// R15).
  func isExpected(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ options: ChannelTypeOptions) -> Bool {
    rows.isExpected(row, sequence, options) && rows.user(row) != messages.sender(sequence)
  }

  /// Return whether others see that a recipient has read the message: by position or by acknowledgement (R9).
  func hasRead(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ others: Viewpoint) -> Bool {
    guard others.options.readEvents, !rows.hidesRead(row) else { return false }
    return hasReached(row, sequence, others) || hasAcknowledged(row, sequence)
  }

  /// Return whether others see that a recipient has acknowledged the message (R7, R9), even if the channel hides reads.
  func showsAcknowledgement(_ row: MemberOrdinal, _ sequence: SequenceNumber) -> Bool {
    !rows.hidesRead(row) && hasAcknowledged(row, sequence)
  }

  /// Return whether others see that a recipient has had the message delivered: by the delivered position, or by the
  /// read watermark regardless of a marker (R3, R4, R7, R8). Ignores acknowledgements.
  func shownDelivered(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ others: Viewpoint) -> Bool {
    isDelivered(row, sequence, others) || isReached(row, sequence, others)
  }

  private func isDelivered(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ viewpoint: Viewpoint) -> Bool {
    (viewpoint.isOwn || rows.showsDelivered(row, viewpoint.options)) && rows.delivered[row] >= sequence
  }

  /// Return whether the read watermark, without the marker, has reached the message.
  private func isReached(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ viewpoint: Viewpoint) -> Bool {
    (viewpoint.isOwn || rows.showsRead(row, viewpoint.options)) && rows.read[row] >= sequence
  }

  /// Return when a recipient read the message: the earlier of the step that reached it and of their acknowledgement
  /// (R9, R17). Nil if there is neither.
  ///
  /// - Parameter viewpoint: for others, the caller ensures that the kind is shown (``hasRead(_:_:_:)``).
  func readTime(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ viewpoint: Viewpoint,
    settings: borrowing UserSettingsTable,
    times: inout MemberTimes
  ) -> ShownTime? {
    var byStep: ShownTime?
    if hasReached(row, sequence, viewpoint) {
      byStep = stepTime(.read, row, sequence, viewpoint, settings: settings, times: &times)
    }
    return ShownTime.earlier(byStep, acknowledgementTime(row, sequence, viewpoint, settings: settings))
  }

  /// Return when a recipient had the message delivered, by the steps of either watermark that reached it (R4, R17). Nil
  /// if none has.
  func deliveredTime(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ viewpoint: Viewpoint,
    settings: borrowing UserSettingsTable,
    times: inout MemberTimes
  ) -> ShownTime? {
    var delivered: ShownTime?
    if isDelivered(row, sequence, viewpoint) {
      delivered = stepTime(.delivered, row, sequence, viewpoint, settings: settings, times: &times)
    }
    guard isReached(row, sequence, viewpoint) else { return delivered }
    let read = stepTime(.read, row, sequence, viewpoint, settings: settings, times: &times)
    return ShownTime.earlier(read, delivered)
  }

  /// Return the note of a reader's acknowledgement; empty: no note, or its record was dropped.
  package func note(_ row: MemberOrdinal, _ sequence: SequenceNumber) -> String {
    guard messages.flags(sequence).contains(.requestsAcknowledgement) else { return "" }
    return acknowledgementTable.record(sequence, row)?.note ?? ""
  }

  // MARK: Details

  /// Return whether the position has reached the message. Members see their own position, which a marker lowers (R4);
  /// others see the watermark, unless `mark_unread` is `public`.
  private func hasReached(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ viewpoint: Viewpoint) -> Bool {
    if viewpoint.isOwn || viewpoint.options.markUnread == .public { return rows.ownPosition(row) >= sequence }
    return rows.read[row] >= sequence
  }

  func hasAcknowledged(_ row: MemberOrdinal, _ sequence: SequenceNumber) -> Bool {
    // Check the flag first: a list asks this of every row that has not read the message.
    messages.flags(sequence).contains(.requestsAcknowledgement) && acknowledgementTable.hasAcknowledged(sequence, row)
  }

  private func stepTime(
    _ kind: StepKind,
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ viewpoint: Viewpoint,
    settings: borrowing UserSettingsTable,
    times: inout MemberTimes
  ) -> ShownTime {
    func shownSince() -> Timestamp {
      let since = settings.shownSince(users.id(rows.user(row)))
      return kind == .read ? since.read : since.delivered
    }
    let isHidden = kind == .read ? rows.readIsHidden(row) : rows.deliveredIsHidden(row)
    let last = kind == .read ? rows.read.time(row) : rows.deliveredShownAt(row)
    let time = steps.time(
      kind,
      row,
      reaching: sequence,
      count: kind == .read ? rows.read.stepCount(row) : rows.delivered.stepCount(row),
      last: isHidden && !viewpoint.isOwn ? shownSince() : last,
      since: messages.registeredAt(sequence),
      kept: viewpoint.options.keptSteps,
      isOfThread: isThread,
      seesHidden: viewpoint.isOwn,
      in: times.segments
    )
    switch time {
    case .exact(let at): return ShownTime(at: at, isExact: true)
    case .latest(let at): return ShownTime(at: at, isExact: false, isBound: true)
    case .hidden(let at): return ShownTime(at: viewpoint.isOwn ? at : shownSince(), isExact: false)
    case .stored(let range):
      times.needs(range)
      return ShownTime(at: last, isExact: false)
    }
  }

  func acknowledgementTime(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ viewpoint: Viewpoint,
    settings: borrowing UserSettingsTable
  ) -> ShownTime? {
    guard messages.flags(sequence).contains(.requestsAcknowledgement),
      let record = acknowledgementTable.record(sequence, row)
    else {
      return nil
    }
    if record.isHidden, !viewpoint.isOwn {
      return ShownTime(at: settings.shownSince(users.id(rows.user(row))).read, isExact: false)
    }
    if record.at != .none { return ShownTime(at: record.at, isExact: true) }
    // The record was dropped for newer ones. Their times must not show here: their members may hide by now (R7).
    return ShownTime(at: .unknown, isExact: false, isBound: true)
  }
}
