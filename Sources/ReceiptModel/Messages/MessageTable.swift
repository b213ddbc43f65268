/// A channel's messages: the data that receipts need, and which messages count as unread. Columns over the whole
/// channel; 256 messages form a segment, the unit of a page and of the counts.
package struct MessageTable: ~Copyable, Sendable {
  /// Maximum size of all ids of a channel together, in bytes. With ids of ordinary length it fits a few hundred million
  /// messages.
  static let idBytesMax = Int(UInt32.max) - Identifier.messageLengthMax
  /// A segment's bits fill four words.
  private static let wordsPerSegment = Int(PageID.messagesPerSegment) / 64

  /// All ids, concatenated.
  private var ids: [UInt8] = []
  private var idEnds: [UInt32] = []
  private var senders: [UInt32] = []
  private var flags: [UInt8] = []
  private var registeredAt: [Int64] = []
  /// For a message deleted individually, not by truncation: the time of deletion.
  private var createdAt: [Int64] = []
  /// No message was deleted individually after this.
  private(set) var deletedLast = Timestamp.none
  /// The same for each segment; only as long as the last segment with a deletion.
  private var deletedLastOfSegments: [Int64] = []
  /// A bit for each message that counts as unread for members who have not read it.
  private var countable: [UInt64] = []
  /// For each segment, the number of countable messages in the segments before it.
  private var countableBefore: [UInt32] = []
  private var index = HashIndex()
  /// By user number, for users who set an unread marker or sent without moving their position (R5).
  private var own: [UInt32: OwnMessages] = [:]
  /// A bit for each segment with a message that did not move its sender's position (R5); only as long as needed.
  private var leavingSegments: [UInt64] = []
  /// A bit for each segment with a message that mentions somebody; only as long as needed.
  private var mentioningSegments: [UInt64] = []
  private(set) var mentions = MentionTable()
  /// Heap bytes of ``own``.
  private var ownBytes = 0
  /// The messages up to here are gone, including those assigned later (R16).
  private(set) var truncatedThrough = SequenceNumber.zero

  package init() {}

  /// The newest message's sequence number; zero: no message.
  package var newest: SequenceNumber { SequenceNumber(UInt32(senders.count)) }

  /// Whether another message can be assigned.
  var hasRoom: Bool { ids.count <= Self.idBytesMax && senders.count < Int(UInt32.max) - 1 }

  /// Number of segments begun.
  var segmentCount: Int { countableBefore.count }

  // MARK: Looking up

  /// The sequence number of a message id, including deleted messages.
  func find(_ id: RawSpan) -> SequenceNumber? {
    index.find(StableHash.hash(id)) { position in
      ids.span.bytes.extracting(idRange(Int(position))).isEqual(to: id)
    }
    .map { SequenceNumber($0 + 1) }
  }

  /// Calls `body` with a message's id; an empty one for position 0.
  func withID<Result>(_ sequence: SequenceNumber, _ body: (RawSpan) -> Result) -> Result {
    guard sequence > .zero else { return body(RawSpan()) }
    return body(ids.span.bytes.extracting(idRange(Self.position(sequence))))
  }

  /// The id of a message as text; empty for position 0.
  package func text(_ sequence: SequenceNumber) -> String {
    withID(sequence) { id in id.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
  }

  func sender(_ sequence: SequenceNumber) -> UserNumber { UserNumber(senders[Self.position(sequence)]) }

  func flags(_ sequence: SequenceNumber) -> MessageRecord.Flags {
    MessageRecord.Flags(rawValue: flags[Self.position(sequence)])
  }

  package func registeredAt(_ sequence: SequenceNumber) -> Timestamp {
    Timestamp(milliseconds: registeredAt[Self.position(sequence)])
  }

  /// When the newest message was registered; none: no message.
  var newestRegisteredAt: Timestamp { Timestamp(milliseconds: registeredAt.last ?? 0) }

  /// The time for display: as given, otherwise the registration time (R20).
  func createdAt(_ sequence: SequenceNumber) -> Timestamp {
    let created = createdAt[Self.position(sequence)]
    return created == 0 ? registeredAt(sequence) : Timestamp(milliseconds: created)
  }

  /// When an individually deleted message was deleted.
  func deletedAt(_ sequence: SequenceNumber) -> Timestamp { createdAt(sequence) }

  /// The first message registered at or after a time; otherwise the position after the newest. Messages are in this
  /// order because a shard's time never goes back.
  func first(registeredSince time: Timestamp) -> SequenceNumber {
    var low = 0
    var high = registeredAt.count
    while low < high {
      let middle = (low + high) / 2
      if registeredAt[middle] < time.milliseconds { low = middle + 1 } else { high = middle }
    }
    return SequenceNumber(UInt32(low) + 1)
  }

  /// The first message after `start` that was created at or after a time and is not deleted; nil if there is none.
  /// Creation times are the callers', in no order.
  func first(createdSince time: Timestamp, after start: SequenceNumber) -> SequenceNumber? {
    for position in Int(start.rawValue)..<max(Int(start.rawValue), senders.count)
    where flags[position] & MessageRecord.Flags.deleted.rawValue == 0 {
      let created = createdAt[position] == 0 ? registeredAt[position] : createdAt[position]
      if created >= time.milliseconds { return SequenceNumber(UInt32(position) + 1) }
    }
    return nil
  }

  /// The last message of this message's segment, if no message of the segment was deleted individually at or after a
  /// time; otherwise nil.
  func endOfSegment(_ sequence: SequenceNumber, withoutDeletionSince time: Timestamp) -> SequenceNumber? {
    let segment = Self.position(sequence) / Int(PageID.messagesPerSegment)
    if segment < deletedLastOfSegments.count, deletedLastOfSegments[segment] >= time.milliseconds {
      return nil
    }
    return SequenceNumber(UInt32(segment + 1) * PageID.messagesPerSegment)
  }

  /// Size in bytes.
  var byteCount: Int {
    heapBytes(ids) + heapBytes(idEnds) + heapBytes(senders) + heapBytes(flags) + heapBytes(registeredAt)
      + heapBytes(createdAt) + heapBytes(deletedLastOfSegments) + heapBytes(countable)
      + heapBytes(countableBefore) + heapBytes(leavingSegments) + heapBytes(mentioningSegments)
      + mentions.byteCount + index.byteCount + ownBytes
  }

  private func idRange(_ position: Int) -> Range<Int> {
    (position == 0 ? 0 : Int(idEnds[position - 1]))..<Int(idEnds[position])
  }

  private static func position(_ sequence: SequenceNumber) -> Int { Int(sequence.rawValue) - 1 }

  // MARK: Counting

  /// Number of countable messages among 1 through `sequence`.
  func countable(through sequence: SequenceNumber) -> UInt32 {
    guard sequence > .zero else { return 0 }
    let position = Self.position(sequence)
    let segment = position / Int(PageID.messagesPerSegment)
    var total = Int(countableBefore[segment])
    let last = position >> 6
    for word in (segment * Self.wordsPerSegment)..<last { total += countable[word].nonzeroBitCount }
    // The word that contains the message itself, up to its bit.
    total += (countable[last] << UInt64(63 - position & 63)).nonzeroBitCount
    return UInt32(total)
  }

  /// Whether any user's own messages are tracked.
  var tracksOwn: Bool { !own.isEmpty }

  /// Number of countable messages after `sequence`, an unread floor, that `user` sent. Sending moves the own position
  /// past everything that the user sent (R5). After it are only messages after an unread marker, and messages that did
  /// not move the position.
  func countable(after sequence: SequenceNumber, sentBy user: UserNumber) -> UInt32 {
    guard let own = own[user.rawValue] else { return 0 }
    return UInt32(own.sequences.count - own.place(after: sequence))
  }

  /// A note (``SegmentNote``) for each segment of which a peek needs more than its count.
  var segmentNotes: [SegmentNote] {
    (0..<UInt32(segmentCount)).compactMap { segment in
      let note = SegmentNote(
        segment: segment,
        hasUnmovedSender: leavingSegments.hasBit(Int(segment)),
        hasMentions: mentioningSegments.hasBit(Int(segment))
      )
      return note.isEmpty ? nil : note
    }
  }

  /// Number of countable messages in each segment.
  var countablePerSegment: [UInt32] {
    guard newest > .zero else { return [] }
    let ends = countableBefore.dropFirst() + [countable(through: newest)]
    return zip(ends, countableBefore).map { $0 - $1 }
  }

  /// The first countable message after `sequence` that `user` did not send; nil if there is none.
  func firstCountable(after sequence: SequenceNumber, notSentBy user: UserNumber) -> SequenceNumber? {
    var start = sequence
    if let own = own[user.rawValue] { start = own.endOfRun(after: sequence) { countable(through: $0) } }
    let first = Int(start.rawValue)
    guard first < senders.count else { return nil }
    for word in (first >> 6)..<countable.count {
      var bits = countable[word]
      if word == first >> 6 { bits &= UInt64.max << UInt64(first & 63) }
      while bits != 0 {
        let position = word << 6 + bits.trailingZeroBitCount
        if senders[position] != user.rawValue { return SequenceNumber(UInt32(position) + 1) }
        bits &= bits - 1
      }
    }
    return nil
  }

  /// Tracks the countable messages that `user` sent after `marker`, because the user's own row needs them repeatedly
  /// while a marker is set. Each message is examined once per such user while the channel is loaded, however often the
  /// marker moves.
  mutating func trackOwn(_ user: UserNumber, after marker: SequenceNumber) {
    guard user != .nobody else { return }
    let known = own[user.rawValue]
    let end = min(Int(known?.after.rawValue ?? .max), senders.count)
    let start = Int(marker.rawValue)
    if let known, known.after <= marker { return }
    var sequences: [UInt32] = []
    if start < end {
      for position in start..<end where senders[position] == user.rawValue && isCountable(position) {
        sequences.append(UInt32(position) + 1)
      }
    }
    ownBytes += sequences.count * MemoryLayout<UInt32>.stride + (known == nil ? OwnMessages.overheadBytes : 0)
    own[user.rawValue] = OwnMessages(after: marker, sequences: sequences + (known?.sequences ?? []))
  }

  private func isCountable(_ position: Int) -> Bool {
    countable[position >> 6] >> UInt64(position & 63) & 1 == 1
  }

  var hasMentions: Bool { !mentions.isEmpty }

  /// Number of countable messages after `floor`, an unread floor, that mention a row (R14).
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

  /// Assigns a message. New messages come in rising order without gaps; an older one may be assigned again only with
  /// the same id.
  mutating func assign(_ sequence: SequenceNumber, _ record: MessageRecord, sender: UserNumber) {
    let position = Self.position(sequence)
    // Mentions are stored separately.
    var flags = record.flags.setting(.mentions, false)
    if sequence <= truncatedThrough { flags.insert(.deleted) }
    if sequence <= newest {
      self.flags[position] = flags.rawValue
      createdAt[position] = record.createdAt.milliseconds
      noteDeleted(position, record)
      setCountable(position, flags.isCountable)
      if !flags.isCountable { mentions.remove(sequence) }
      return
    }
    if flags.contains(.keepsSenderPosition) {
      leavingSegments.setBit(position / Int(PageID.messagesPerSegment))
      // No other message of the sender lies between their own position and the first of these.
      trackOwn(sender, after: newest)
    }
    precondition(sequence == newest.next, "messages are assigned without gaps")
    if position % Int(PageID.messagesPerSegment) == 0 {
      countableBefore.append(countable(through: newest))
      countable.append(contentsOf: repeatElement(0, count: Self.wordsPerSegment))
    }
    ids.append(contentsOf: record.id.utf8)
    idEnds.append(UInt32(ids.count))
    senders.append(sender.rawValue)
    self.flags.append(flags.rawValue)
    registeredAt.append(record.registeredAt.milliseconds)
    createdAt.append(record.createdAt.milliseconds)
    noteDeleted(position, record)
    setCountable(position, flags.isCountable)
    if flags.isCountable, record.mentions != .nobody {
      mentioningSegments.setBit(position / Int(PageID.messagesPerSegment))
      mentions.insert(sequence, record.mentions)
    }
    var id = record.id
    id.withUTF8 { index.insert(StableHash.hash($0.span.bytes), UInt32(position)) }
  }

  private mutating func noteDeleted(_ position: Int, _ record: MessageRecord) {
    guard record.flags.contains(.deleted) else { return }
    noteDeleted(position, at: record.createdAt.or(record.registeredAt))
  }

  private mutating func noteDeleted(_ position: Int, at time: Timestamp) {
    deletedLast = max(deletedLast, time)
    let segment = position / Int(PageID.messagesPerSegment)
    let missing = segment + 1 - deletedLastOfSegments.count
    if missing > 0 { deletedLastOfSegments.append(contentsOf: repeatElement(0, count: missing)) }
    deletedLastOfSegments[segment] = max(deletedLastOfSegments[segment], time.milliseconds)
  }

  mutating func delete(_ sequence: SequenceNumber, at time: Timestamp) {
    let position = Self.position(sequence)
    createdAt[position] = time.milliseconds
    noteDeleted(position, at: time)
    flags[position] |= MessageRecord.Flags.deleted.rawValue
    setCountable(position, false)
    mentions.remove(sequence)
  }

  /// Deletes the messages up to `sequence`, whether assigned already or later: one pass over the assigned ones.
  mutating func truncate(through sequence: SequenceNumber) {
    guard sequence > truncatedThrough else { return }
    let start = Int(truncatedThrough.rawValue)
    truncatedThrough = sequence
    mentions.remove(through: sequence)
    let end = min(Int(sequence.rawValue), senders.count)
    guard start < end else { return }
    for position in start..<end {
      flags[position] |= MessageRecord.Flags.deleted.rawValue
      countable[position >> 6] &= ~(1 << UInt64(position & 63))
    }
    var before: UInt32 = 0
    for segment in 0..<segmentCount {
      countableBefore[segment] = before
      for word in (segment * Self.wordsPerSegment)..<((segment + 1) * Self.wordsPerSegment) {
        before += UInt32(countable[word].nonzeroBitCount)
      }
    }
    for user in own.keys {
      own[user]!.sequences.removeFirst(own[user]!.place(after: sequence))
    }
  }

  /// Clears a message's sender.
  mutating func eraseSender(_ sequence: SequenceNumber) {
    let position = Self.position(sequence)
    if isCountable(position), !own.isEmpty { setOwn(position, false) }
    senders[position] = UserNumber.nobody.rawValue
  }

  /// The first message that a user sent after `start` and up to `end`; nil if there is none.
  func first(sentBy user: UserNumber, after start: SequenceNumber, through end: SequenceNumber)
    -> SequenceNumber?
  {
    senders[Int(start.rawValue)..<Int(end.rawValue)].firstIndex(of: user.rawValue)
      .map { SequenceNumber(UInt32($0) + 1) }
  }

  private mutating func setCountable(_ position: Int, _ isCountable: Bool) {
    guard self.isCountable(position) != isCountable else { return }
    countable[position >> 6] ^= 1 << UInt64(position & 63)
    if !own.isEmpty { setOwn(position, isCountable) }
    let segment = position / Int(PageID.messagesPerSegment)
    for later in (segment + 1)..<max(segment + 1, segmentCount) {
      if isCountable { countableBefore[later] += 1 } else { countableBefore[later] -= 1 }
    }
  }

  private mutating func setOwn(_ position: Int, _ isCountable: Bool) {
    let sequence = SequenceNumber(UInt32(position) + 1)
    let found = own[senders[position]].flatMap { known in
      known.after < sequence ? known.place(after: SequenceNumber(sequence.rawValue - 1)) : nil
    }
    guard let place = found else { return }
    if isCountable {
      own[senders[position]]!.sequences.insert(sequence.rawValue, at: place)
      ownBytes += MemoryLayout<UInt32>.stride
    } else {
      own[senders[position]]!.sequences.remove(at: place)
    }
  }
}

/// The countable messages that one user sent after a position, in rising order.
private struct OwnMessages: Sendable {
  /// The dictionary entry and the array's header.
  static let overheadBytes = 96

  var after: SequenceNumber
  var sequences: [UInt32]

  /// Number of messages at or below `sequence`.
  func place(after sequence: SequenceNumber) -> Int {
    var low = 0
    var high = sequences.count
    while low < high {
      let middle = (low + high) / 2
      if sequences[middle] <= sequence.rawValue { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// The end of the run of countable messages after `sequence` that are all this user's: its last message, or
  /// `sequence` itself if the run is empty.
  ///
  /// - Parameter countable: number of countable messages through a position.
  func endOfRun(after sequence: SequenceNumber, countable: (SequenceNumber) -> UInt32) -> SequenceNumber {
    let first = place(after: sequence)
    let before = Int(countable(sequence))
    // Within the run, the number of countable messages equals the number of own ones.
    var low = first
    var high = sequences.count
    while low < high {
      let middle = (low + high) / 2
      let through = Int(countable(SequenceNumber(sequences[middle]))) - before
      if through == middle - first + 1 { low = middle + 1 } else { high = middle }
    }
    return low == first ? sequence : SequenceNumber(sequences[low - 1])
  }
}
