/// The record of an effect, for the feed (R21). What members and servers cannot see gives no record (R7, R8).
extension ShardState {
  /// Return the record of an effect on a channel or a user's index; nil: the effect tells nothing new. Call this before
  /// the effect is assigned.
  ///
  /// - Parameters:
  ///   - number: the effect's channel.
  ///   - slot: nil: the effect creates the channel.
  ///   - last: the record before this one, if it is of the same command. The effects of one move follow each other.
  package func feedRecord(
    of effect: ChannelEffect,
    on number: ChannelNumber,
    in slot: ChannelSlot?,
    after last: inout FeedRecord?
  ) -> FeedRecord? {
    guard let slot else {
      guard case .channelAssigned(let cid, _, _) = effect, !IndexName.isIndex(Array(cid.utf8)) else { return nil }
      return FeedRecord(.channelCreated, on: number, at: time)
    }
    guard !self[slot].isIndex, !self[slot].isBeingDeleted else { return nil }
    guard case .inThread(let parent, let effect) = effect else {
      return feedRecord(of: effect, FeedContext(number: number, slot: slot, thread: .zero), &last)
    }
    let thread = self[slot].threads.index(of: parent).map { slot.thread($0) }
    return feedRecord(of: effect, FeedContext(number: number, slot: thread, thread: parent), &last)
  }

  /// The place of a change.
  private struct FeedContext {
    var number: ChannelNumber
    /// The slot of the channel or thread; nil: a thread that its first reply is about to create.
    var slot: ChannelSlot?
    var thread: SequenceNumber
  }

  private func feedRecord(
    of effect: ChannelEffect,
    _ context: FeedContext,
    _ last: inout FeedRecord?
  ) -> FeedRecord? {
    let isThread = context.thread != .zero
    switch effect {
    case .readMoved(let row, let sequence, let time, let isHidden):
      if addMove(.read, row, to: sequence, context, to: &last) { return nil }
      guard !isHidden, shows(.read, row, context) else { return nil }
      return record(.read, context, row, sequence, at: time)
    case .deliveredMoved(let row, let sequence, let time, let isHidden):
      if addMove(.delivered, row, to: sequence, context, to: &last) { return nil }
      guard !isHidden, shows(.delivered, row, context) else { return nil }
      return record(.delivered, context, row, sequence, at: time)
    case .deliveredByPushAck(let row, let sequence, let time, let ackedAt, let isHidden):
      guard !isHidden, shows(.delivered, row, context) else { return nil }
      var record = record(.delivered, context, row, sequence, at: time)
      record.first = UInt64(max(0, ackedAt.milliseconds))
      return record
    case .markerAssigned(let row, let marker, let epoch, _):
      if isMarkUnread(row, marker, epoch: epoch, context) {
        var record = record(.markedUnread, context, row, marker ?? .zero, at: time)
        record.first = UInt64(epoch)
        return record
      }
      return unmarked(row, to: marker, context, last)
    case .unreadFlagAssigned(let row, let isSet, let epoch, let time):
      guard isSet else { return unmarked(row, to: nil, context, last) }
      var record = record(.markedUnread, context, row, .zero, at: time)
      (record.first, record.second) = (UInt64(epoch), 1)
      return record
    case .rowAssigned(let row, _):
      // A thread's rows follow from reading and writing in it.
      guard !isThread, let slot = context.slot else { return nil }
      if Int(row.rawValue) < self[slot].rows.rowCount, self[slot].rows.isActive(row) { return nil }
      return record(.memberAdded, context, row, .zero, at: time)
    case .rowLeft(let row, let time), .rowErased(let row, let time):
      guard !isThread, let slot = context.slot, self[slot].rows.isActive(row) else { return nil }
      return record(.memberRemoved, context, row, .zero, at: time)
    case .messageAssigned(let sequence, _): return record(.messageRegistered, context, nil, sequence, at: time)
    case .messageDeleted(let sequence, let time): return record(.messageDeleted, context, nil, sequence, at: time)
    case .truncated(let sequence, let time): return record(.channelTruncated, context, nil, sequence, at: time)
    case .acknowledged(let sequence, let acknowledgement):
      // An acknowledgement made while hidden changes nothing for others (R7).
      guard let slot = context.slot, !acknowledgement.isHidden, !self[slot].rows.hidesRead(acknowledgement.row)
      else { return nil }
      return record(.acknowledged, context, acknowledgement.row, sequence, at: acknowledgement.at.or(time))
    case .channelAssigned(_, _, let own):
      guard let slot = context.slot, own != self[slot].ownOptions else { return nil }
      return record(.channelUpdated, context, nil, .zero, at: time)
    case .deletionBegun, .channelDeleted:
      guard let slot = context.slot else { return nil }
      var record = record(.channelDeleted, context, nil, .zero, at: time)
      record.text = String(decoding: self[slot].cid, as: UTF8.self)
      return record
    default:
      assert(!effect.traits.contains(.isInFeed))
      return nil
    }
  }

  private func record(
    _ kind: FeedRecordKind,
    _ context: FeedContext,
    _ row: MemberOrdinal?,
    _ sequence: SequenceNumber,
    at time: Timestamp
  ) -> FeedRecord {
    var record = FeedRecord(kind, on: context.number, at: time)
    record.thread = context.thread
    record.member = row?.rawValue
    record.sequence = sequence
    return record
  }

  private func shows(_ move: Move, _ row: MemberOrdinal, _ context: FeedContext) -> Bool {
    guard let slot = context.slot, Int(row.rawValue) < self[slot].rows.rowCount else { return false }
    return self[slot].rows.shows(move, row, options(slot))
  }

  /// Let a message's record say that it moved its sender's position (R5).
  ///
  /// - Returns: whether the move is a send's.
  private func addMove(
    _ move: ChannelEvent.SenderMoves,
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    _ context: FeedContext,
    to last: inout FeedRecord?
  ) -> Bool {
    guard isSend(row, to: sequence, context, last), let slot = context.slot else { return false }
    let isShown = self[slot].rows.shows(move == .read ? .read : .delivered, row, options(slot))
    last?.first |= UInt64((isShown ? move : []).rawValue)
    return true
  }

  /// Return whether a row's move comes from its member sending the message of the last record.
  private func isSend(
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    _ context: FeedContext,
    _ last: FeedRecord?
  ) -> Bool {
    guard let last, last.kind == .messageRegistered, last.channel == context.number, last.thread == context.thread,
      last.sequence == sequence, let slot = context.slot
    else { return false }
    return self[slot].isSender(row, of: sequence)
  }

  /// Return the record of a marker or flag that a read or a send has raised or cleared; nil if the last record tells it
  /// already.
  private func unmarked(
    _ row: MemberOrdinal,
    to marker: SequenceNumber?,
    _ context: FeedContext,
    _ last: FeedRecord?
  ) -> FeedRecord? {
    guard let slot = context.slot, Int(row.rawValue) < self[slot].rows.rowCount else { return nil }
    if let last, last.channel == context.number, last.thread == context.thread {
      if last.kind == .read, last.member == row.rawValue { return nil }
      if last.kind == .messageRegistered, self[slot].isSender(row, of: last.sequence) { return nil }
    }
    guard self[slot].rows.showsRead(row, options(slot)) else { return nil }
    return record(.read, context, row, marker ?? self[slot].rows.read[row], at: time)
  }

  private func isMarkUnread(
    _ row: MemberOrdinal,
    _ marker: SequenceNumber?,
    epoch: UInt32,
    _ context: FeedContext
  ) -> Bool {
    guard let slot = context.slot else { return true }
    return self[slot].rows.isMarkUnread(row, marker, epoch: epoch)
  }

  /// Return the record of an effect on the shard; nil: the effect tells nothing. Users have records in their home
  /// shards only, while their settings are in all shards. Call this before the effect is assigned.
  package func feedRecord(of effect: ShardEffect, shardCount: Int) -> FeedRecord? {
    switch effect {
    case .userAssigned(let number, let changed):
      let known = settings[changed.user]
      guard isHome(changed.user, shardCount),
        (known.hidesRead, known.hidesDelivered) != (changed.hidesRead, changed.hidesDelivered)
      else { return nil }
      var record = FeedRecord(.userUpdated, at: time)
      record.member = number
      return record
    case .userErased(let number, _, _, let time):
      guard Int(number) < settings.count, !settings.isNameless(number) else { return nil }
      let user = settings[number].user
      guard isHome(user, shardCount) else { return nil }
      var record = FeedRecord(.userErased, at: time)
      record.text = user
      return record
    default:
      assert(!effect.traits.contains(.isInFeed))
      return nil
    }
  }

  private func isHome(_ user: String, _ shardCount: Int) -> Bool {
    var user = user
    return user.withUTF8 { ShardID.owning($0.span.bytes, count: shardCount) } == id
  }

  /// Return the records of what follows from a batch's changes: rows that look different to others, statuses that have
  /// crossed the rule, and receipts that are done.
  package mutating func feedRecords(_ pending: PendingChannelEvents, in slot: ChannelSlot) -> [FeedRecord] {
    let number = self[slot].number
    return events(pending, in: slot).compactMap { event in
      switch event {
      case .row(let row) where row.showsRow:
        var record = FeedRecord(.rowChanged, on: number, at: row.at)
        record.thread = row.thread
        record.member = row.row.rawValue
        return record
      case .status(let thread, let run, let time):
        var record = FeedRecord(.status, on: number, at: time)
        record.thread = thread
        record.sequence = run.to
        record.first = UInt64(run.from.rawValue)
        record.second = UInt64(run.status.rawValue)
        return record
      case .acknowledgement(let sequence, _, let time):
        // A timer tells the expiry.
        guard self[slot].acknowledgementStatus(sequence, at: time) == .done else { return nil }
        var record = FeedRecord(.receiptDone, on: number, at: time)
        record.sequence = sequence
        return record
      case .row, .messageNew, .messageDeleted, .truncated, .updated, .memberAdded, .memberRemoved: return nil
      }
    }
  }
}

extension FeedRecord {
  init(_ kind: FeedRecordKind, on channel: ChannelNumber, at time: Timestamp) {
    self.init(kind, at: time)
    self.channel = channel
  }
}
