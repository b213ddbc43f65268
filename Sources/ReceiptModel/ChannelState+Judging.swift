/// When a member had read a message, or had it delivered, as somebody is told (R9, R17).
struct ShownTime: Hashable, Sendable {
  var at: Timestamp
  /// False: then at the latest.
  var isExact: Bool
  /// Where it stands in an order of time: its own, or behind all where it is only a bound, which moves on with what the
  /// member does.
  var place: Timestamp

  init(at: Timestamp, isExact: Bool, isBound: Bool = false) {
    self.at = at
    self.isExact = isExact
    place = isBound ? .unknown : at
  }

  /// The earlier of two; of two at the same time, one that is exact makes it so.
  static func earlier(_ a: ShownTime?, _ b: ShownTime?) -> ShownTime? {
    guard let a, let b else { return a ?? b }
    var earlier = a.at < b.at || a.at == b.at && a.isExact ? a : b
    earlier.place = min(a.place, b.place)
    return earlier
  }
}

/// What members' times are made of, for one query.
package struct MemberTimes: Sendable {
  /// The shard's time: an acknowledgement of which no time is kept was made by then.
  package var now: Timestamp
  /// Segments of steps that were read for this query.
  package var segments: ReadSegments
  /// Segments that have to be read first: where there are any, the times are not to be used, and the query has to be
  /// asked again.
  package private(set) var missing: [StepTime.SegmentRange] = []

  package init(now: Timestamp, segments: ReadSegments = ReadSegments()) {
    self.now = now
    self.segments = segments
  }

  /// The latest that a time may have been.
  func latest(_ time: Timestamp) -> Timestamp { time == .unknown ? now : time }

  /// Rows are asked for page by page, so the same range is among the last.
  mutating func needs(_ range: StepTime.SegmentRange) {
    for known in missing.reversed() {
      if known == range { return }
      if known.rowPage != range.rowPage { break }
    }
    missing.append(range)
  }
}

/// Whose eyes a member's positions are seen with.
enum Eyes {
  /// Everybody's but their own: what the member and the channel show (R7, R8).
  case others
  /// Their own: everything is there, with its time.
  case own
}

/// One member and one message: whether, and when. All lists and members' statuses judge by these.
extension ChannelState {
  /// Whether a member counts for the message: had joined before it, is there, and did not send it (R1, R6, R15).
  func isExpected(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ options: ChannelTypeOptions) -> Bool {
    rows.isExpected(row, sequence, options) && rows.user(row) != messages.sender(sequence)
  }

  /// Whether others see that an expected member has read the message: by their position, or because they acknowledged
  /// it (R9).
  func hasRead(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ options: ChannelTypeOptions) -> Bool {
    guard options.readEvents, !rows.hidesRead(row) else { return false }
    return hasReached(row, sequence, options, .others) || hasAcknowledged(row, sequence)
  }

  /// Whether others see that an expected member has acknowledged the message (R7, R9): also where the channel does not
  /// show who has read it.
  func showsAcknowledgement(_ row: MemberOrdinal, _ sequence: SequenceNumber) -> Bool {
    !rows.hidesRead(row) && hasAcknowledged(row, sequence)
  }

  /// Whether others see that an expected member has had the message delivered: by their delivered position, or by their
  /// read watermark, whatever marker is set (R3, R4, R7, R8). Acknowledging is not looked at.
  func shownDelivered(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ options: ChannelTypeOptions) -> Bool
  {
    isDelivered(row, sequence, options, .others) || isReached(row, sequence, options, .others)
  }

  private func isDelivered(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ options: ChannelTypeOptions,
    _ eyes: Eyes
  ) -> Bool {
    (eyes == .own || rows.showsDelivered(row, options))
      && rows.delivered[Int(row.rawValue)] >= sequence.rawValue
  }

  /// The read watermark, without the marker.
  private func isReached(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ options: ChannelTypeOptions,
    _ eyes: Eyes
  ) -> Bool {
    (eyes == .own || rows.showsRead(row, options))
      && rows.read[Int(row.rawValue)] >= sequence.rawValue
  }

  /// When an expected member read the message: the earlier of the step that reached it and of their acknowledgement
  /// (R9, R17). Nil where neither is there.
  ///
  /// - Parameter eyes: for others' the caller has made sure that the kind is shown (``hasRead(_:_:_:)``).
  func readTime(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ options: ChannelTypeOptions,
    _ eyes: Eyes,
    settings: borrowing UserSettingsTable,
    _ times: inout MemberTimes
  ) -> ShownTime? {
    var byStep: ShownTime?
    if hasReached(row, sequence, options, eyes) {
      byStep = stepTime(.read, row, sequence, options, eyes, settings: settings, &times)
    }
    return ShownTime.earlier(
      byStep,
      acknowledgementTime(row, sequence, eyes, settings: settings)
    )
  }

  /// When an expected member had the message delivered, by the steps of either watermark that reached it (R4, R17). Nil
  /// where none has.
  func deliveredTime(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ options: ChannelTypeOptions,
    _ eyes: Eyes,
    settings: borrowing UserSettingsTable,
    _ times: inout MemberTimes
  ) -> ShownTime? {
    var delivered: ShownTime?
    if isDelivered(row, sequence, options, eyes) {
      delivered = stepTime(.delivered, row, sequence, options, eyes, settings: settings, &times)
    }
    guard isReached(row, sequence, options, eyes) else { return delivered }
    let read = stepTime(.read, row, sequence, options, eyes, settings: settings, &times)
    return ShownTime.earlier(read, delivered)
  }

  /// The note with which a reader acknowledged the message; empty: none, or it gave way.
  func note(_ row: MemberOrdinal, _ sequence: SequenceNumber) -> String {
    guard messages.flags(sequence).contains(.receipt) else { return "" }
    return receipts.record(sequence, row)?.note ?? ""
  }

  // MARK: Details

  /// A member sees their own position, which a marker holds down (R4); others the watermark, unless `mark_unread` is
  /// `public`.
  private func hasReached(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ options: ChannelTypeOptions,
    _ eyes: Eyes
  ) -> Bool {
    if eyes == .own || options.markUnread == .public { return rows.ownPosition(row) >= sequence }
    return rows.read[Int(row.rawValue)] >= sequence.rawValue
  }

  func hasAcknowledged(_ row: MemberOrdinal, _ sequence: SequenceNumber) -> Bool {
    // The flag first: it is asked of every row of a list that has not read the message.
    messages.flags(sequence).contains(.receipt) && receipts.hasAcknowledged(sequence, row)
  }

  private func stepTime(
    _ kind: StepKind,
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ options: ChannelTypeOptions,
    _ eyes: Eyes,
    settings: borrowing UserSettingsTable,
    _ times: inout MemberTimes
  ) -> ShownTime {
    let position = Int(row.rawValue)
    func shownSince() -> Timestamp {
      let since = settings.shownSince(users.id(rows.user(row)))
      return kind == .read ? since.read : since.delivered
    }
    let isHidden = kind == .read ? rows.readIsHidden(row) : rows.deliveredIsHidden(row)
    let last = kind == .read ? Timestamp(milliseconds: rows.readAt[position]) : rows.deliveredShownAt(row)
    let time = steps.time(
      kind,
      row,
      reaching: sequence,
      count: kind == .read ? rows.readSteps[position] : rows.deliveredSteps[position],
      last: isHidden && eyes == .others ? shownSince() : last,
      since: messages.registeredAt(sequence),
      kept: options.keptSteps,
      isOfThread: isThread,
      seesHidden: eyes == .own,
      in: times.segments
    )
    switch time {
    case .exact(let at): return ShownTime(at: at, isExact: true)
    case .latest(let at): return ShownTime(at: at, isExact: false, isBound: true)
    case .hidden(let at): return ShownTime(at: eyes == .own ? at : shownSince(), isExact: false)
    case .stored(let range):
      times.needs(range)
      return ShownTime(at: last, isExact: false)
    }
  }

  func acknowledgementTime(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ eyes: Eyes,
    settings: borrowing UserSettingsTable
  ) -> ShownTime? {
    guard messages.flags(sequence).contains(.receipt), let record = receipts.record(sequence, row) else {
      return nil
    }
    if record.isHidden, eyes == .others {
      return ShownTime(at: settings.shownSince(users.id(rows.user(row))).read, isExact: false)
    }
    if record.at != .none { return ShownTime(at: record.at, isExact: true) }
    // It gave way to newer ones, of which nothing is said here: their members may hide by now (R7).
    return ShownTime(at: .unknown, isExact: false, isBound: true)
  }
}
