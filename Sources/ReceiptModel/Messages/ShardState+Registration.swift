/// A message to register.
package struct NewMessage: ~Escapable {
  package let id: RawSpan
  /// Empty: the system.
  package let sender: RawSpan
  /// For a reply: the id of the message that it replies to, its thread's parent (R15). Empty: no reply.
  package let parent: RawSpan
  /// When it was created, for display (R20); none: when it is registered.
  package let created: Timestamp
  package let isSilent: Bool
  /// Requests acknowledgement; ``ShardState/acknowledgementRequestRefusal(_:_:)`` says whether it was granted (R9).
  /// Replies never get one.
  package let requestsAcknowledgement: Bool
  /// If false, the sender's positions and marker stay unchanged (R5). The sender of a reply joins the thread anyway.
  package let movesPosition: Bool
  package let mentions: Mentions
  /// Its own reminders; nil: those of its channel (R22).
  package let reminders: [ReminderRule]?

  /// The users that the message mentions (R14).
  package enum Mentions: Hashable, Sendable {
    case nobody
    case all
    /// Only those who are members at registration count, and never the sender.
    case users([String])
  }

  @_lifetime(copy id, copy sender, copy parent)
  package init(
    id: RawSpan,
    sender: RawSpan,
    parent: RawSpan = RawSpan(),
    created: Timestamp = .none,
    isSilent: Bool = false,
    requestsAcknowledgement: Bool = false,
    movesPosition: Bool = true,
    mentions: Mentions = .nobody,
    reminders: [ReminderRule]? = nil
  ) {
    self.id = id
    self.sender = sender
    self.parent = parent
    self.created = created
    self.isSilent = isSilent
    self.requestsAcknowledgement = requestsAcknowledgement
    self.movesPosition = movesPosition
    self.mentions = mentions
    self.reminders = reminders
  }

  /// The record to store, without what the channel decides about it: acknowledgement request and mentions.
  ///
  /// - Parameter time: the time of the registration.
  func record(at time: Timestamp) -> MessageRecord {
    MessageRecord(
      id: ShardState.text(id),
      sender: ShardState.text(sender),
      flags: MessageRecord.Flags().setting(.silent, isSilent).setting(.keepsSenderPosition, !movesPosition),
      registeredAt: time,
      createdAt: created
    )
  }
}

/// Registers and deletes messages (R5, R16). `ShardState+ThreadReplies.swift` does so for replies.
extension ShardState {
  /// The result of registering a message.
  package enum Registration: Hashable, Sendable {
    case created(SequenceNumber)
    case known(SequenceNumber)

    package var sequence: SequenceNumber {
      switch self {
      case .created(let sequence), .known(let sequence): sequence
      }
    }
  }

  /// Register a message or a reply. If the sender is a member, marks it read and delivered for them (R5). Repeating it
  /// with the same id and fields changes nothing.
  package func decideRegister(
    _ slot: ChannelSlot,
    _ message: borrowing NewMessage,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> Registration {
    if !message.parent.isEmpty { return try decideReply(slot, message, at: time, into: &effects) }
    if let known = self[slot].messages.find(message.id) {
      guard !self[slot].messages.flags(known).contains(.deleted) else { throw .messageDeleted }
      try checkRepeat(of: known, in: slot, message)
      return .known(known)
    }
    if try knownReply(message.id, in: slot) != nil { throw .messageConflict }
    guard self[slot].messages.hasRoom else { throw .limitReached(.messagesPerChannel) }
    if settings.isErasing(message.sender) { throw .userErased }
    let number = self[slot].number
    let sequence = self[slot].messages.newest.next
    var record = message.record(at: time)
    if message.requestsAcknowledgement {
      let grant = acknowledgementGrant(slot, sender: message.sender, at: time)
      record.flags.formUnion(grant.flags)
      record.acknowledgementExpiresAt = grant.expiresAt
    }
    if message.mentions != .nobody, record.flags.isCountable {
      record.mentions = self[slot].resolve(message.mentions, sender: record.sender)
    }
    effects.append(.channel(number, .messageAssigned(sequence, record)))
    try decideTimers(of: sequence, record, rules: message.reminders, in: slot, into: &effects)
    guard !message.sender.isEmpty, let row = self[slot].row(of: message.sender) else {
      decideSender(message.sender, in: slot, into: &effects)
      return .created(sequence)
    }
    guard message.movesPosition else { return .created(sequence) }
    let (hidesRead, hidesDelivered) = (self[slot].rows.hidesRead(row), self[slot].rows.hidesDelivered(row))
    decideSealTail(slot, row, .read, to: sequence, into: &effects)
    effects.append(.channel(number, .readMoved(row, to: sequence, at: time, isHidden: hidesRead)))
    effects.append(.channel(number, .deliveredMoved(row, to: sequence, at: time, isHidden: hidesDelivered)))
    if self[slot].rows.marker(row) != nil {
      let epoch = self[slot].rows.epoch(row)
      effects.append(.channel(number, .markerAssigned(row, marker: nil, epoch: epoch, at: time)))
    }
    self[slot].decideUnflag(row, epoch: nil, at: time, into: &effects)
    return .created(sequence)
  }

  /// Refuse a repeated registration whose fields differ from the first: the caller means another message. Whether an
  /// acknowledgement was requested is compared, not whether it was granted.
  ///
  /// - Parameter slot: the channel's, or that of the reply's thread.
  func checkRepeat(of known: SequenceNumber, in slot: ChannelSlot, _ message: borrowing NewMessage) throws(Refusal) {
    let flags = self[slot].messages.flags(known)
    guard flags.contains(.silent) == message.isSilent, flags.askedForAcknowledgement == message.requestsAcknowledgement,
      flags.contains(.keepsSenderPosition) != message.movesPosition,
      self[slot].users.id(self[slot].messages.sender(known)).equals(message.sender)
    else { throw .messageConflict }
  }

  /// Delete a message: it no longer counts and has no status, but still marks a position (R16).
  package func decideDelete(
    _ slot: ChannelSlot,
    id: RawSpan,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> SequenceNumber {
    guard let sequence = self[slot].messages.find(id) else {
      if let reply = decideDelete(reply: id, in: slot, at: time, into: &effects) { return reply }
      throw .messageNotFound
    }
    if !self[slot].messages.flags(sequence).contains(.deleted) {
      effects.append(.channel(self[slot].number, .messageDeleted(sequence, at: time)))
    }
    return sequence
  }

  static func text(_ bytes: RawSpan) -> String {
    bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }
}
