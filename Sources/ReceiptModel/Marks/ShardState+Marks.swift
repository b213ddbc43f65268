/// Marks in a channel: read, delivered and unread (R2, R3, R4).
///
/// Like each command, a mark is decided against memory: it is refused, or it appends its effects; nothing changes here.
/// The caller assigns the effects and logs them. A command that appends no effect changes nothing, and has succeeded.
extension ShardState {
  /// Why a successful mark counts for no message.
  package enum Uncounted: UInt8, Sendable, CaseIterable {
    /// The member does not take part in the thread.
    case notInThread = 1
    /// The message has no replies.
    case noReplies = 2
    /// The member joined the channel after the message, or joined the thread after it and has not read it.
    case registeredBefore = 3
  }

  /// The result of a mark in a channel.
  package struct MarkResult {
    package let row: MemberOrdinal
    /// The target position of a read or a delivery, even if the watermark had reached it already; zero: no position.
    package let sequence: SequenceNumber

    package init(row: MemberOrdinal, sequence: SequenceNumber = .zero) {
      self.row = row
      self.sequence = sequence
    }
  }

  /// Return why a successful read or delivery in a channel does not count: the message precedes the member's join (R6).
  /// Nil: it counts, as far as the member's privacy settings show it.
  package func uncounted(_ marked: MarkResult, in slot: ChannelSlot) -> Uncounted? {
    let joined = self[slot].rows.joined(marked.row)
    return marked.sequence == .zero || marked.sequence > joined ? nil : .registeredBefore
  }

  /// Mark a channel read up to a message, or up to the newest if `message` is empty (R2).
  ///
  /// - Parameter epoch: the unread epoch that the caller knows; an older one leaves the marker unchanged (R4).
  /// - Returns: the member's row and the target position.
  package func decideRead(
    _ slot: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> MarkResult {
    let row = try member(user, in: slot)
    let sequence = try position(message, in: slot, hiddenThrough: hiddenThrough(slot, ofRow: row))
    decideSealTail(slot, row, .read, to: sequence, into: &effects)
    self[slot].decideRead(row, to: sequence, epoch: epoch, at: time, into: &effects)
    decideReadAcknowledges(slot, row, through: sequence, at: time, into: &effects)
    return MarkResult(row: row, sequence: sequence)
  }

  /// Mark messages delivered up to `message`, or up to the newest if it is empty (R3).
  package func decideDelivered(
    _ slot: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> MarkResult {
    let row = try member(user, in: slot)
    let sequence = try position(message, in: slot, hiddenThrough: hiddenThrough(slot, ofRow: row))
    if sequence > self[slot].rows.delivered[row] {
      let isHidden = self[slot].rows.hidesDelivered(row)
      decideSealTail(slot, row, .delivered, to: sequence, into: &effects)
      effects.append(.channel(self[slot].number, .deliveredMoved(row, to: sequence, at: time, isHidden: isHidden)))
    }
    return MarkResult(row: row, sequence: sequence)
  }

  /// Mark a channel unread from a message on (R4).
  package func decideUnread(
    _ slot: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> MemberOrdinal {
    let row = try member(user, in: slot)
    guard options(slot).markUnread != .off else { throw .markUnreadOff }
    guard let sequence = find(message, in: slot, hiddenThrough: hiddenThrough(slot, row)) else {
      throw .messageNotFound
    }
    self[slot].decideUnread(row, from: sequence, epoch: epoch, at: time, into: &effects)
    return row
  }

  /// Mark a channel or thread unread from the first visible message created at or after `since`. Does nothing if there
  /// is none (R4).
  ///
  /// - Parameter slot: the channel, or one of its threads.
  package func decideUnread(
    _ slot: ChannelSlot,
    user: RawSpan,
    since: Timestamp,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let start = effects.count
    let member = try member(user, in: slot.channel)
    guard options(slot).markUnread != .off else { throw .markUnreadOff }
    if slot.isThread, isClosed(slot) { throw .messageDeleted }
    guard let row = self[slot].row(of: user) else { throw .notInThread }
    // Messages from before the join do not exist for the member (R6).
    let hidden = hiddenThrough(slot, member)
    guard let first = self[slot].messages.first(createdSince: since, after: hidden) else {
      return
    }
    self[slot].decideUnread(row, from: first, epoch: epoch, at: time, into: &effects)
    if slot.isThread { effects.wrapInThread(self[slot].parent, from: start) }
  }

  /// Flag a channel unread as a whole for one of its members (R4).
  package func decideFlagUnread(
    _ slot: ChannelSlot,
    user: RawSpan,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> MemberOrdinal {
    let row = try member(user, in: slot)
    guard options(slot).markUnread != .off else { throw .markUnreadOff }
    self[slot].decideFlagUnread(row, epoch: epoch, at: time, into: &effects)
    return row
  }

  /// Return the row of a current member.
  package func member(_ user: RawSpan, in slot: ChannelSlot) throws(Refusal) -> MemberOrdinal {
    guard let row = self[slot].row(of: user) else { throw .notAMember }
    return row
  }

  /// Return the position that a mark names. Zero if the mark means the newest message and none exists for the member.
  func position(
    _ message: RawSpan,
    in slot: ChannelSlot,
    hiddenThrough: SequenceNumber
  ) throws(Refusal) -> SequenceNumber {
    if message.isEmpty {
      let newest = self[slot].messages.newest
      return newest > hiddenThrough ? newest : .zero
    }
    guard let sequence = find(message, in: slot, hiddenThrough: hiddenThrough) else { throw .messageNotFound }
    return sequence
  }
}
