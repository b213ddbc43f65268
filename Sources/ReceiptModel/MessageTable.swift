/// A channel's messages in segments of 256: what a receipt needs to know of them, and which of them count as unread.
package struct MessageTable: Sendable {
  /// 256 messages; the unit that becomes a page.
  struct Segment: Sendable {
    private(set) var ids: [UInt8] = []
    private(set) var idEnds: [UInt16] = []
    fileprivate(set) var senders: [UInt32] = []
    fileprivate(set) var flags: [UInt8] = []
    fileprivate(set) var registeredAt: [Int64] = []
    fileprivate(set) var createdAt: [Int64] = []
    /// A bit for each message that counts as unread for those who have not read it.
    fileprivate var countable: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
    /// Countable messages of the segments before.
    fileprivate var countableBefore: UInt32 = 0

    fileprivate mutating func append(_ record: MessageRecord, sender: UserNumber) {
      ids.append(contentsOf: record.id.utf8)
      idEnds.append(UInt16(ids.count))
      senders.append(sender.rawValue)
      flags.append(record.flags.rawValue)
      registeredAt.append(record.registeredAt.milliseconds)
      createdAt.append(record.createdAt.milliseconds)
    }

    private func idRange(_ offset: Int) -> Range<Int> {
      (offset == 0 ? 0 : Int(idEnds[offset - 1]))..<Int(idEnds[offset])
    }

    fileprivate func hasID(_ id: RawSpan, at offset: Int) -> Bool {
      ids.span.bytes.extracting(idRange(offset)).isEqual(to: id)
    }

    fileprivate func withID<Result>(_ offset: Int, _ body: (RawSpan) -> Result) -> Result {
      body(ids.span.bytes.extracting(idRange(offset)))
    }

    fileprivate func word(_ number: Int) -> UInt64 {
      switch number {
      case 0: countable.0
      case 1: countable.1
      case 2: countable.2
      default: countable.3
      }
    }

    fileprivate mutating func setCountable(_ offset: Int, _ isCountable: Bool) {
      let bit: UInt64 = 1 << UInt64(offset & 63)
      func apply(_ word: inout UInt64) { if isCountable { word |= bit } else { word &= ~bit } }
      switch offset >> 6 {
      case 0: apply(&countable.0)
      case 1: apply(&countable.1)
      case 2: apply(&countable.2)
      default: apply(&countable.3)
      }
    }

    /// Countable messages among the first `count` of the segment.
    fileprivate func countable(first count: Int) -> UInt32 {
      var total = 0
      for number in 0..<(count >> 6) { total += word(number).nonzeroBitCount }
      if count & 63 != 0 { total += (word(count >> 6) & ((1 << UInt64(count & 63)) - 1)).nonzeroBitCount }
      return UInt32(total)
    }

    fileprivate func countable(from offset: Int, sentBy user: UserNumber) -> UInt32 {
      var total: UInt32 = 0
      for place in offset..<senders.count where senders[place] == user.rawValue {
        total += word(place >> 6) >> UInt64(place & 63) & 1 == 1 ? 1 : 0
      }
      return total
    }

    fileprivate func firstCountable(from offset: Int, notSentBy user: UserNumber) -> Int? {
      for number in (offset >> 6)..<4 {
        var bits = word(number)
        if number == offset >> 6 { bits &= UInt64.max << UInt64(offset & 63) }
        while bits != 0 {
          let place = number << 6 + bits.trailingZeroBitCount
          if senders[place] != user.rawValue { return place }
          bits &= bits - 1
        }
      }
      return nil
    }
  }

  /// The last sequence number that may be given.
  static let sequenceMax = UInt32.max - 1

  private(set) var segments: [Segment] = []
  private var index = HashIndex()
  /// The newest message's sequence number; zero: there is none yet.
  package private(set) var newest = SequenceNumber.zero

  package init() {}

  // MARK: Looking up

  /// The sequence number of a message id, deleted ones included.
  func find(_ id: RawSpan) -> SequenceNumber? {
    index.find(StableHash.hash(id)) { position in
      segments[Int(position >> 8)].hasID(id, at: Int(position & 255))
    }
    .map { SequenceNumber($0 + 1) }
  }

  /// Hands over the id of a message; an empty one for position 0.
  func withID<Result>(_ sequence: SequenceNumber, _ body: (RawSpan) -> Result) -> Result {
    guard sequence > .zero else { return body(RawSpan()) }
    let (segment, offset) = Self.place(sequence)
    return segments[segment].withID(offset, body)
  }

  /// The id of a message as text; empty for position 0.
  package func text(_ sequence: SequenceNumber) -> String {
    withID(sequence) { id in id.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
  }

  func sender(_ sequence: SequenceNumber) -> UserNumber {
    let (segment, offset) = Self.place(sequence)
    return UserNumber(segments[segment].senders[offset])
  }

  func flags(_ sequence: SequenceNumber) -> MessageRecord.Flags {
    let (segment, offset) = Self.place(sequence)
    return MessageRecord.Flags(rawValue: segments[segment].flags[offset])
  }

  package func registeredAt(_ sequence: SequenceNumber) -> Timestamp {
    let (segment, offset) = Self.place(sequence)
    return Timestamp(milliseconds: segments[segment].registeredAt[offset])
  }

  /// For display: as given, else the time of registration (R20).
  func createdAt(_ sequence: SequenceNumber) -> Timestamp {
    let (segment, offset) = Self.place(sequence)
    let created = segments[segment].createdAt[offset]
    return created == 0 ? registeredAt(sequence) : Timestamp(milliseconds: created)
  }

  // MARK: Counting

  /// Messages that count as unread among 1 through `sequence`.
  func countable(through sequence: SequenceNumber) -> UInt32 {
    guard sequence > .zero else { return 0 }
    let (segment, offset) = Self.place(sequence)
    return segments[segment].countableBefore + segments[segment].countable(first: offset + 1)
  }

  /// Countable messages after `position` that `user` sent. Walks them, so it is asked only where an unread marker is set: without
  /// one, sending has moved the own position past everything the user sent (R5).
  func countable(after position: SequenceNumber, sentBy user: UserNumber) -> UInt32 {
    var total: UInt32 = 0
    var sequence = position.next
    while sequence <= newest {
      let (number, offset) = Self.place(sequence)
      total += segments[number].countable(from: offset, sentBy: user)
      sequence = SequenceNumber(UInt32(number + 1) * PageID.messagesPerSegment + 1)
    }
    return total
  }

  /// The first countable message after `position` that `user` did not send; nil where there is none.
  func firstCountable(after position: SequenceNumber, notSentBy user: UserNumber) -> SequenceNumber? {
    guard position < newest else { return nil }
    let (first, offset) = Self.place(position.next)
    for number in first..<segments.count {
      if let place = segments[number].firstCountable(from: number == first ? offset : 0, notSentBy: user) {
        return SequenceNumber(UInt32(number) * PageID.messagesPerSegment + UInt32(place) + 1)
      }
    }
    return nil
  }

  // MARK: Assignment

  /// Assigns a message. New ones come in rising order, without gaps; an older one is assigned again only with the same id.
  mutating func assign(_ sequence: SequenceNumber, _ record: MessageRecord, sender: UserNumber) {
    let (number, offset) = Self.place(sequence)
    if sequence <= newest {
      segments[number].flags[offset] = record.flags.rawValue
      setCountable(sequence, record.flags.isEmpty)
      return
    }
    precondition(sequence == newest.next, "messages are assigned without gaps")
    if number == segments.count {
      var segment = Segment()
      if let last = segments.last {
        segment.countableBefore = last.countableBefore + last.countable(first: last.senders.count)
      }
      segments.append(segment)
    }
    segments[number].append(record, sender: sender)
    if record.flags.isEmpty { segments[number].setCountable(offset, true) }
    var id = record.id
    id.withUTF8 { index.insert(StableHash.hash($0.span.bytes), sequence.rawValue - 1) }
    newest = sequence
  }

  mutating func delete(_ sequence: SequenceNumber) {
    let (number, offset) = Self.place(sequence)
    segments[number].flags[offset] |= MessageRecord.Flags.deleted.rawValue
    setCountable(sequence, false)
  }

  private mutating func setCountable(_ sequence: SequenceNumber, _ isCountable: Bool) {
    let (number, offset) = Self.place(sequence)
    let was = segments[number].word(offset >> 6) >> UInt64(offset & 63) & 1 == 1
    guard was != isCountable else { return }
    segments[number].setCountable(offset, isCountable)
    for later in (number + 1)..<max(number + 1, segments.count) {
      if isCountable { segments[later].countableBefore += 1 } else { segments[later].countableBefore -= 1 }
    }
  }

  private static func place(_ sequence: SequenceNumber) -> (segment: Int, offset: Int) {
    let position = Int(sequence.rawValue) - 1
    return (position >> 8, position & 255)
  }
}
