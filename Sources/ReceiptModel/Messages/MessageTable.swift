/// A channel's messages: the data that acknowledgement requests need, and which messages count as unread. Columns over
/// the whole channel; 256 messages form a segment, the unit of a page and of the counts.
package struct MessageTable: ~Copyable, Sendable {
  private var ids = MessageIDColumn()
  private var senders: [UInt32] = []
  private var flags: [UInt8] = []
  private var registeredAt: [Int64] = []
  /// The time of creation, or of the deletion of a message that was deleted individually, not by truncation. Zero: the
  /// time of registration.
  private var createdOrDeletedAt: [Int64] = []
  private var countable = CountableMessages()
  private var own = OwnMessageTable()
  private var flagged = FlaggedSegments()
  private(set) var mentions = MentionTable()
  private(set) var deletions = MessageDeletions()

  package init() {}

  /// The newest message's sequence number; zero: no message.
  package var newest: SequenceNumber { SequenceNumber(UInt32(senders.count)) }

  /// Whether another message can be assigned.
  var hasRoom: Bool { ids.hasRoom && senders.count < Int(UInt32.max) - 1 }

  /// Number of segments begun.
  var segmentCount: Int { countable.segmentCount }

  /// The messages up to here are gone, including those assigned later (R16).
  var truncatedThrough: SequenceNumber { deletions.truncatedThrough }

  // MARK: Looking up

  /// Return the sequence number of a message id, including deleted messages.
  func find(_ id: RawSpan) -> SequenceNumber? { ids.find(id) }

  /// Call `body` with a message's id; an empty one for position 0.
  func withID<Result>(_ sequence: SequenceNumber, _ body: (RawSpan) -> Result) -> Result {
    ids.withID(sequence, body)
  }

  /// Return the id of a message as text; empty for position 0.
  package func text(_ sequence: SequenceNumber) -> String {
    withID(sequence) { id in id.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
  }

  func sender(_ sequence: SequenceNumber) -> UserNumber { UserNumber(senders[Self.position(sequence)]) }

  package func flags(_ sequence: SequenceNumber) -> MessageRecord.Flags {
    MessageRecord.Flags(rawValue: flags[Self.position(sequence)])
  }

  package func registeredAt(_ sequence: SequenceNumber) -> Timestamp {
    Timestamp(milliseconds: registeredAt[Self.position(sequence)])
  }

  /// When the newest message was registered; none: no message.
  var newestRegisteredAt: Timestamp { Timestamp(milliseconds: registeredAt.last ?? 0) }

  /// Return the time for display: as given, otherwise the registration time (R20).
  package func createdAt(_ sequence: SequenceNumber) -> Timestamp {
    let created = createdOrDeletedAt[Self.position(sequence)]
    return created == 0 ? registeredAt(sequence) : Timestamp(milliseconds: created)
  }

  /// Return when an individually deleted message was deleted.
  func deletedAt(_ sequence: SequenceNumber) -> Timestamp { createdAt(sequence) }

  /// Return the first message registered at or after a time; otherwise the position after the newest. Messages are in
  /// this order because a shard's time never goes back.
  func first(registeredSince time: Timestamp) -> SequenceNumber {
    var low = 0
    var high = registeredAt.count
    while low < high {
      let middle = (low + high) / 2
      if registeredAt[middle] < time.milliseconds { low = middle + 1 } else { high = middle }
    }
    return SequenceNumber(UInt32(low) + 1)
  }

  /// Return the first message after `start` that was created at or after a time and is not deleted; nil if there is
  /// none. Creation times are the callers', in no order.
  func first(createdSince time: Timestamp, after start: SequenceNumber) -> SequenceNumber? {
    for position in Int(start.rawValue)..<max(Int(start.rawValue), senders.count)
    where flags[position] & MessageRecord.Flags.deleted.rawValue == 0 {
      let created = createdOrDeletedAt[position] == 0 ? registeredAt[position] : createdOrDeletedAt[position]
      if created >= time.milliseconds { return SequenceNumber(UInt32(position) + 1) }
    }
    return nil
  }

  /// Size in bytes.
  var byteCount: Int {
    ids.byteCount + heapBytes(senders) + heapBytes(flags) + heapBytes(registeredAt) + heapBytes(createdOrDeletedAt)
      + countable.byteCount + own.byteCount + flagged.byteCount + mentions.byteCount + deletions.byteCount
  }

  private static func position(_ sequence: SequenceNumber) -> Int { Int(sequence.rawValue) - 1 }

  // MARK: Counting

  /// Return the number of countable messages among 1 through `sequence`.
  func countable(through sequence: SequenceNumber) -> UInt32 { countable.count(through: sequence) }

  /// Whether any user's own messages are tracked.
  var tracksOwn: Bool { !own.isEmpty }

  /// Return the number of countable messages after `sequence`, an unread floor, that `user` sent. Sending moves the own
  /// position past everything that the user sent (R5). After it are only messages after an unread marker, and messages
  /// that did not move the position.
  func countable(after sequence: SequenceNumber, sentBy user: UserNumber) -> UInt32 {
    own.count(of: user, after: sequence)
  }

  /// A note (``SegmentFlags``) for each segment of which a peek needs more than its count.
  var segmentFlags: [SegmentFlags] { flagged.list }

  /// Number of countable messages in each segment.
  var countablePerSegment: [UInt32] { countable.countPerSegment(through: newest) }

  /// Return the first countable message after `sequence` that `user` did not send; nil if there is none.
  func firstCountable(after sequence: SequenceNumber, notSentBy user: UserNumber) -> SequenceNumber? {
    let start = own.endOfRun(of: user, after: sequence) { countable.count(through: $0) }
    return countable.first(from: Int(start.rawValue)) { senders[$0] != user.rawValue }
      .map { SequenceNumber(UInt32($0) + 1) }
  }

  /// Track the countable messages that `user` sent after `marker`, because the user's own row needs them repeatedly
  /// while a marker is set. Each message is examined once per such user while the channel is loaded, however often the
  /// marker moves.
  mutating func trackOwn(_ user: UserNumber, after marker: SequenceNumber) {
    guard user != .nobody else { return }
    guard let positions = own.untracked(user, after: marker, through: newest) else { return }
    var sequences: [UInt32] = []
    for position in positions where senders[position] == user.rawValue && countable.contains(position) {
      sequences.append(UInt32(position) + 1)
    }
    own.track(user, after: marker, sequences)
  }

  var hasMentions: Bool { !mentions.isEmpty }

  /// Return the number of countable messages after `floor`, an unread floor, that mention a row (R14).
  ///
  /// - Parameter joined: a message that mentions all counts only if it came after the row joined.
  func mentions(
    of row: MemberOrdinal,
    _ user: UserNumber,
    joined: SequenceNumber,
    after floor: SequenceNumber
  ) -> UInt32 {
    let own = mentions.count(of: row, after: floor)
    let start = max(floor, joined)
    guard countable(after: start, sentBy: user) > 0 else { return own + mentions.countToAll(after: start) }
    return own + mentions.countToAll(after: start) { sender($0) != user }
  }

  // MARK: Assignment

  /// Assign a message. New messages come in rising order without gaps; an older one may be assigned again only with
  /// the same id.
  mutating func assign(_ sequence: SequenceNumber, _ record: MessageRecord, sender: UserNumber) {
    let position = Self.position(sequence)
    // Mentions are stored separately.
    var flags = record.flags.setting(.mentions, false)
    if sequence <= truncatedThrough { flags.insert(.deleted) }
    if sequence <= newest {
      self.flags[position] = flags.rawValue
      createdOrDeletedAt[position] = record.createdAt.milliseconds
      recordDeleted(sequence, record)
      setCountable(sequence, flags.isCountable)
      if !flags.isCountable { mentions.remove(sequence) }
      return
    }
    if flags.contains(.keepsSenderPosition) {
      flagged.recordUnmovedSender(of: sequence)
      // No other message of the sender lies between their own position and the first of these.
      trackOwn(sender, after: newest)
    }
    precondition(sequence == newest.next, "messages are assigned without gaps")
    countable.append(after: newest)
    ids.append(record.id)
    senders.append(sender.rawValue)
    self.flags.append(flags.rawValue)
    registeredAt.append(record.registeredAt.milliseconds)
    createdOrDeletedAt.append(record.createdAt.milliseconds)
    recordDeleted(sequence, record)
    setCountable(sequence, flags.isCountable)
    if flags.isCountable, record.mentions != .nobody {
      flagged.recordMention(in: sequence)
      mentions.insert(sequence, record.mentions)
    }
  }

  private mutating func recordDeleted(_ sequence: SequenceNumber, _ record: MessageRecord) {
    guard record.flags.contains(.deleted) else { return }
    deletions.delete(sequence, at: record.createdAt.or(record.registeredAt))
  }

  mutating func delete(_ sequence: SequenceNumber, at time: Timestamp) {
    let position = Self.position(sequence)
    createdOrDeletedAt[position] = time.milliseconds
    deletions.delete(sequence, at: time)
    flags[position] |= MessageRecord.Flags.deleted.rawValue
    setCountable(sequence, false)
    mentions.remove(sequence)
  }

  /// Delete the messages up to `sequence`, whether assigned already or later: one pass over the assigned ones.
  mutating func truncate(through sequence: SequenceNumber, at time: Timestamp) {
    guard let before = deletions.truncate(through: sequence, at: time) else { return }
    mentions.remove(through: sequence)
    let start = Int(before.rawValue)
    let end = min(Int(sequence.rawValue), senders.count)
    guard start < end else { return }
    for position in start..<end { flags[position] |= MessageRecord.Flags.deleted.rawValue }
    countable.remove(start..<end)
    own.remove(through: sequence)
  }

  /// Clear a message's sender.
  mutating func eraseSender(_ sequence: SequenceNumber) {
    let position = Self.position(sequence)
    if countable.contains(position), !own.isEmpty {
      own.assign(sequence, sender: sender(sequence), isCountable: false)
    }
    senders[position] = UserNumber.nobody.rawValue
  }

  /// Return the first message that a user sent after `start` and up to `end`; nil if there is none.
  func first(sentBy user: UserNumber, after start: SequenceNumber, through end: SequenceNumber) -> SequenceNumber? {
    senders[Int(start.rawValue)..<Int(end.rawValue)].firstIndex(of: user.rawValue)
      .map { SequenceNumber(UInt32($0) + 1) }
  }

  /// Assign the mentions by name of a message, unless it is not countable (``ChannelEffect/mentionsAssigned``).
  mutating func assignMentions(_ sequence: SequenceNumber, rows: [UInt32], pending: [UInt64]) {
    guard flags(sequence).isCountable else { return }
    if !rows.isEmpty { flagged.recordMention(in: sequence) }
    mentions.assign(sequence, rows: rows, pending: pending)
  }

  /// Return the effect that reproduces the mentions of users who have no row yet; nil: there are none.
  func pendingMentions(of sequence: SequenceNumber) -> ChannelEffect? {
    let pending = mentions.pendingUsers(of: sequence)
    guard !pending.isEmpty else { return nil }
    var rows: [UInt32] = []
    if case .rows(let known) = mentions.mentions(sequence) { rows = known }
    return .mentionsAssigned(sequence, rows: rows, pending: pending)
  }

  private mutating func setCountable(_ sequence: SequenceNumber, _ isCountable: Bool) {
    let position = Self.position(sequence)
    guard countable.contains(position) != isCountable else { return }
    countable.toggle(position)
    if !own.isEmpty { own.assign(sequence, sender: sender(sequence), isCountable: isCountable) }
  }
}

#if DEBUG
  extension MessageTable {
    /// Check all messages: segments in order, prefix counts, bits and ids.
    func checkInvariants() -> String? {
      if let fault = countable.checkInvariants(newest: newest) { return fault }
      for position in 0..<newest.rawValue {
        if let fault = checkMessage(SequenceNumber(position + 1)) { return fault }
      }
      return nil
    }

    /// Check one message.
    func checkMessage(_ sequence: SequenceNumber) -> String? {
      guard sequence > .zero, sequence <= newest else { return "message \(sequence.rawValue): not there" }
      if let fault = ids.check(sequence) { return fault }
      let before = countable(through: SequenceNumber(sequence.rawValue - 1))
      if countable(through: sequence) - before != (flags(sequence).isCountable ? 1 : 0) {
        return "message \(sequence.rawValue): its bit and its flags disagree"
      }
      return nil
    }
  }
#endif
