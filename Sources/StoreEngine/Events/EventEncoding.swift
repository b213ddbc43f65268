internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Prefer ReceiptModel's type to NIO's.
typealias ChannelEvent = ReceiptModel.ChannelEvent

/// Encoding of events in frames (Proto/frames.md, "Events"), written directly from the state.
extension ByteBuffer {
  /// Write an event after its *limits*, if it has any (R6).
  ///
  /// - Returns: number of elements written; 0 for an event of a thread that does not exist, which has no limits either.
  mutating func writeLimitedEvent(_ event: ChannelEvent, _ slot: ChannelSlot, in state: borrowing ShardState) -> Int {
    let limits = state.historyLimits(of: event, in: slot)
    if !limits.isEmpty { writeLimits(limits) }
    return writeEvent(event, slot, in: state) ? (limits.isEmpty ? 1 : 2) : 0
  }

  /// Write *event* of Proto/frames.md.
  ///
  /// - Parameter slot: slot of the channel, refreshed with its members' settings.
  /// - Returns: false for an event of a thread that does not exist; nothing is written then.
  private mutating func writeEvent(_ event: ChannelEvent, _ slot: ChannelSlot, in state: borrowing ShardState) -> Bool {
    switch event {
    case .row(let row):
      guard let targetSlot = state.targetSlot(ofThread: row.thread, in: slot) else { return false }
      writeRowEvent(row, slot, targetSlot, in: state)
    case .messageNew(let thread, let sequence, let moves):
      guard let targetSlot = state.targetSlot(ofThread: thread, in: slot) else { return false }
      begin(.messageNew)
      writeMessageID(slot, thread, in: state)
      writeSequence(sequence)
      writeMessageID(targetSlot, sequence, in: state)
      state.withSender(targetSlot, of: sequence) { writeField($0) }
      writeTime(state[targetSlot].messages.registeredAt(sequence))
      writeTime(state[targetSlot].messages.createdAt(sequence))
      let flags = state[targetSlot].messages.flags(sequence)
      var eventFlags = MessageEventFields.Flags(rawValue: moves.rawValue << 2)
      if flags.contains(.silent) { eventFlags.insert(.silent) }
      if flags.contains(.requestsAcknowledgement) { eventFlags.insert(.requestsAcknowledgement) }
      // R10: only servers see others' rows.
      let isShown = !eventFlags.isDisjoint(with: .shown)
      if isShown, state.options(slot).countsVisibleTo == .sender { eventFlags.insert(.serversOnly) }
      writeByte(eventFlags.rawValue)
    case .messageDeleted(let thread, let sequence, let time):
      guard let targetSlot = state.targetSlot(ofThread: thread, in: slot) else { return false }
      begin(.messageDeleted)
      writeMessageID(slot, thread, in: state)
      writeSequence(sequence)
      writeMessageID(targetSlot, sequence, in: state)
      writeTime(time)
    case .truncated(let sequence, let time):
      begin(.truncated)
      writeSequence(sequence)
      writeTime(time)
    case .updated(let time):
      begin(.channelUpdated)
      writeTime(time)
      writeChannel(slot, in: state)
    case .memberAdded(let row, let time):
      let read = state[slot].positionOfJoining(row)
      begin(.memberAdded)
      state.withUser(slot, row) { writeField($0) }
      writeField(state[slot].rows.role(row) ?? "")
      writeTime(time)
      writeVarint(state[slot].rows.activeCount)
      writeSequence(read)
      writeMessageID(slot, read, in: state)
      writeSequence(state[slot].rows.joined(row))
    case .memberRemoved(let user, let time):
      begin(.memberRemoved)
      writeField(user)
      writeTime(time)
      writeVarint(state[slot].rows.activeCount)
    case .status(let thread, let run, let time):
      guard let targetSlot = state.targetSlot(ofThread: thread, in: slot) else { return false }
      begin(.status)
      writeMessageID(slot, thread, in: state)
      state.withUser(targetSlot, run.sender) { writeField($0) }
      writeSequence(run.from)
      writeSequence(run.to)
      writeMessageID(targetSlot, run.to, in: state)
      writeByte(run.status.rawValue)
      writeTime(time)
    case .acknowledgement(let sequence, let row, let time):
      writeReceiptEvent(sequence, by: row, at: time, slot, in: state)
    }
    return true
  }

  /// Write that a channel, or one of its incarnations, was deleted.
  mutating func writeDeletedEvent(at time: Timestamp) {
    begin(.channelDeleted)
    writeTime(time)
  }

  private mutating func begin(_ kind: EventFields.Kind) { writeByte(kind.rawValue) }

  private mutating func writeMessageID(
    _ slot: ChannelSlot,
    _ sequence: SequenceNumber,
    in state: borrowing ShardState
  ) {
    state.withMessage(slot, sequence) { writeField($0) }
  }

  /// - Parameter targetSlot: slot of the row: the channel or the thread.
  private mutating func writeRowEvent(
    _ event: ChannelEvent.RowEvent,
    _ slot: ChannelSlot,
    _ targetSlot: ChannelSlot,
    in state: borrowing ShardState
  ) {
    // A literal would go through the generic protocol, at 2,000 instructions a row.
    var own = RowEventFields.Own(rawValue: 0)
    if event.isRead { own.insert(.read) }
    if event.isUnread { own.insert(.unread) }
    var shown = RowEventFields.Shown(rawValue: 0)
    if event.showsRead { shown.insert(.read) }
    if event.showsDelivered { shown.insert(.delivered) }
    if event.showsRow { shown.insert(.row) }
    // R10: only servers see others' rows.
    if !shown.isEmpty, state.options(slot).countsVisibleTo == .sender { shown.insert(.serversOnly) }
    begin(.row)
    writeMessageID(slot, event.thread, in: state)
    writeByte(own.rawValue)
    writeByte(shown.rawValue)
    writeTime(event.at)
    writeOptional(
      event.isRead && targetSlot.isThread ? UInt64(state.unreadMessagesOfChannel(targetSlot, event.row)) : nil
    )
    writeRow(state.ownRow(targetSlot, event.row), targetSlot, in: state)
    if !shown.isEmpty {
      writeRow(
        state.shownRow(targetSlot, event.row, withOwnDetails: false),
        targetSlot,
        in: state,
        includesJoin: state.includesJoin(in: targetSlot)
      )
    }
  }

  private mutating func writeReceiptEvent(
    _ sequence: SequenceNumber,
    by row: MemberOrdinal?,
    at time: Timestamp,
    _ slot: ChannelSlot,
    in state: borrowing ShardState
  ) {
    // As the sender sees it, from whom R10 hides nothing.
    let status = state.status(slot, sequence)
    begin(.receipt)
    writeSequence(sequence)
    writeMessageID(slot, sequence, in: state)
    state.withSender(slot, of: sequence) { writeField($0) }
    writeByte(status.acknowledgement.rawValue)
    writeVarint(status.readCount)
    writeVarint(status.unreadCount)
    if let row {
      state.withUser(slot, row) { writeField($0) }
      writeField(state[slot].note(row, sequence))
    } else {
      writeEmptyField()
      writeEmptyField()
    }
    writeTime(time)
    writeVarint(status.acknowledgedCount ?? 0)
    // If the row's own time is not kept, the event's time stands in.
    writeTime(row.map { (state[slot].acknowledgementTable.record(sequence, $0)?.at ?? .none).or(time) } ?? .none)
  }

  /// Write *user event* of Proto/frames.md.
  mutating func writeUserEvent(_ event: UserEvent) {
    switch event {
    case .membership(let membership, let time, let isGone):
      let entry = ChannelEntryFields(
        cid: membership.cid,
        row: membership.row?.rawValue,
        isMember: membership.isMember && !isGone,
        joinedAt: membership.joinedAt
      )
      UserEventFields.membership(entry, at: time, isGone: isGone).write(into: &self)
    case .tokensRevoked(let time): UserEventFields.tokensRevoked(before: time).write(into: &self)
    }
  }
}

/// Events of channels and users, encoded once for all watchers, in parts that fit into a frame.
struct EventParts {
  /// Size at which a part is closed; one more event still fits.
  private static let partBytes = 48 << 10

  private(set) var bytes = ByteBuffer()
  private var events = ByteBuffer()

  var isEmpty: Bool { bytes.readableBytes == 0 }

  /// Capacity that is kept between uses.
  private static let keptBytes = 1 << 20

  mutating func clear() {
    if bytes.capacity > Self.keptBytes { bytes = ByteBuffer() } else { bytes.clear() }
  }

  /// Add *channel events*, in as many parts as they need.
  ///
  /// - Parameter deletedAt: time at which an incarnation of the channel was deleted, before the events; none if none
  ///   was.
  mutating func add(
    _ cid: [UInt8],
    deletedAt: Timestamp,
    _ newEvents: [ChannelEvent],
    _ slot: ChannelSlot?,
    in state: borrowing ShardState
  ) -> [Subscriptions.Part] {
    var parts: [Subscriptions.Part] = []
    var count = 0
    events.clear()
    if deletedAt != .none {
      events.writeDeletedEvent(at: deletedAt)
      count += 1
    }
    if let slot {
      for event in newEvents {
        let written = events.writeLimitedEvent(event, slot, in: state)
        if written == 0 { continue }
        count += written
        if events.readableBytes >= Self.partBytes {
          parts.append(close(cid, count))
          count = 0
        }
      }
    }
    if count > 0 { parts.append(close(cid, count)) }
    return parts
  }

  /// Add *user events*, in as many parts as they need.
  mutating func add(user: [UInt8], _ newEvents: [UserEvent]) -> [Subscriptions.Part] {
    var parts: [Subscriptions.Part] = []
    var count = 0
    events.clear()
    for event in newEvents {
      events.writeUserEvent(event)
      count += 1
      if events.readableBytes >= Self.partBytes {
        parts.append(close(user, count))
        count = 0
      }
    }
    if count > 0 { parts.append(close(user, count)) }
    return parts
  }

  private mutating func close(_ name: [UInt8], _ count: Int) -> Subscriptions.Part {
    let start = bytes.writerIndex
    bytes.writeField(name.span.bytes)
    bytes.writeVarint(count)
    bytes.writeBuffer(&events)
    events.clear()
    return Subscriptions.Part(bytes: start..<bytes.writerIndex, events: count)
  }

  /// Write parts in order.
  func write(_ parts: ArraySlice<Subscriptions.Part>, into buffer: inout ByteBuffer) {
    for part in parts {
      bytes.withUnsafeReadableBytes { all in
        _ = buffer.writeBytes(UnsafeRawBufferPointer(rebasing: all[part.bytes]))
      }
    }
  }
}
