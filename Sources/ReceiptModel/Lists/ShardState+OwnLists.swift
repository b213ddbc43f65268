/// A member's own lists in a channel: the acknowledgements requested from them, and the threads in which they take part
/// (R9, R15).
extension ShardState {
  /// The selection of a member's acknowledgement requests.
  package enum AcknowledgementState: UInt8, Sendable {
    /// The member can still acknowledge the message.
    case pending = 0
    case acknowledged = 1
  }

  /// A message that requests acknowledgement from a member.
  package struct OwnAcknowledgement: Hashable, Sendable {
    package let sequence: SequenceNumber
    package let status: AcknowledgementStatus
    /// None: never.
    package let expiresAt: Timestamp
    /// None: not acknowledged. An upper bound if the time is not kept.
    package let acknowledgedAt: Timestamp
    package let isExact: Bool
    package let note: String

    package init(
      sequence: SequenceNumber,
      status: AcknowledgementStatus,
      expiresAt: Timestamp,
      acknowledgedAt: Timestamp,
      isExact: Bool,
      note: String
    ) {
      self.sequence = sequence
      self.status = status
      self.expiresAt = expiresAt
      self.acknowledgedAt = acknowledgedAt
      self.isExact = isExact
      self.note = note
    }
  }

  /// The selection of a member's threads.
  package enum ThreadSelection: UInt8, Sendable {
    case all = 0
    /// Threads with unread replies.
    case unread = 1
    case read = 2
  }

  /// A thread in which a member takes part.
  package struct OwnThread: Hashable, Sendable {
    /// The thread's own slot.
    package let slot: ChannelSlot
    package let parent: SequenceNumber
    package let unreadReplies: UInt32
    package let lastRead: SequenceNumber
    /// Zero: no unread reply.
    package let firstUnread: SequenceNumber
  }

  /// Scan limit of one page, in messages with acknowledgement requests; a page that reaches it may have fewer entries
  /// than requested.
  package static let acknowledgementScanLimit = 4_096

  /// Return the messages of a channel that request acknowledgement from a member, newest first.
  ///
  /// - Parameters:
  ///   - below: only messages before this one; nil: all.
  ///   - limit: at least 1.
  /// - Returns: the acknowledgement requests, and the next page's start if there may be more; the page can then be
  ///   shorter than
  ///   `limit`.
  package func acknowledgementRequests(
    _ slot: ChannelSlot,
    of user: RawSpan,
    _ wanted: AcknowledgementState,
    below: SequenceNumber?,
    limit: Int
  ) throws(Refusal) -> (requests: [OwnAcknowledgement], next: SequenceNumber?) {
    let row = try member(user, in: slot)
    let last = below.map { SequenceNumber($0.rawValue - min(1, $0.rawValue)) } ?? self[slot].messages.newest
    let joined = self[slot].rows.joined(row)
    let options = options(slot)
    let viewer = ChannelViewer(row: row, user: self[slot].rows.user(row), isServer: false)
    var found: [OwnAcknowledgement] = []
    var examined = 0
    for index in self[slot].acknowledgementTable.indices(after: joined, through: last).reversed() {
      let sequence = self[slot].acknowledgementTable.sequence(at: index)
      if found.count == limit || examined == Self.acknowledgementScanLimit { return (found, sequence.next) }
      examined += 1
      guard !self[slot].isGone(sequence), self[slot].acknowledgementTable.isRequested(sequence),
        self[slot].messages.sender(sequence) != self[slot].rows.user(row)
      else { continue }
      let isAcknowledged = self[slot].hasAcknowledged(row, sequence)
      guard isAcknowledged == (wanted == .acknowledged), isAcknowledged || !self[slot].isExpired(sequence, at: time)
      else { continue }
      let made = self[slot].acknowledgementTime(row, sequence, .own(options), settings: settings)
      let isShown = self[slot].showsCounts(of: sequence, to: viewer, options)
      found.append(
        OwnAcknowledgement(
          sequence: sequence,
          status: isShown
            ? self[slot].acknowledgementStatus(sequence, at: time)
            : self[slot].unacknowledgedStatus(sequence, at: time),
          expiresAt: self[slot].acknowledgementTable.expiresAt(sequence),
          acknowledgedAt: made.map { $0.at == .unknown ? time : $0.at } ?? .none,
          isExact: made?.isExact ?? true,
          note: self[slot].note(row, sequence)
        )
      )
    }
    return (found, nil)
  }

  /// Return the threads of a channel in which a member takes part, newest parent first; without threads of deleted
  /// parents.
  ///
  /// - Parameters:
  ///   - below: only threads of parents before this one; nil: all.
  ///   - limit: at least 1.
  /// - Returns: the threads, and the next page's start if there are more.
  package func threads(
    _ slot: ChannelSlot,
    of user: RawSpan,
    _ wanted: ThreadSelection,
    below: SequenceNumber?,
    limit: Int
  ) throws(Refusal) -> (threads: [OwnThread], next: SequenceNumber?) {
    let member = try member(user, in: slot)
    var indices = self[slot].threads.indices(of: user)
    if let below { indices.removeAll { self[slot].threads[$0].parent >= below } }
    indices.sort { self[slot].threads[$0].parent > self[slot].threads[$1].parent }
    var found: [OwnThread] = []
    for index in indices where !self[slot].isClosed(index) {
      let thread = slot.thread(index)
      guard let row = self[slot].threads[index].row(of: user), exists(thread, for: member) else { continue }
      let parent = self[slot].threads[index].parent
      let unread = self[slot].threads[index].unreadMessages(row)
      guard wanted == .all || (unread > 0) == (wanted == .unread) else { continue }
      if found.count == limit { return (found, parent.next) }
      let own = self[slot].threads[index].ownRow(row)
      found.append(
        OwnThread(
          slot: thread,
          parent: parent,
          unreadReplies: unread,
          // A reply from before the join has no id for the member (R6).
          lastRead: own.lastReadSequence > hiddenThrough(thread, member) ? own.lastReadSequence : .zero,
          firstUnread: own.own?.firstUnread ?? .zero
        )
      )
    }
    return (found, nil)
  }
}
