internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The kinds of marks.
enum MarkKind {
  case read
  case delivered
  case unread
}

/// A mark, as its kind and its message define it.
private enum Mark {
  case read
  case delivered
  case unread
  /// Mark-unread without a message: of the whole channel (R4).
  case flagUnread

  @inline(__always)
  init(_ kind: MarkKind, _ message: RawSpan) {
    switch kind {
    case .read: self = .read
    case .delivered: self = .delivered
    case .unread: self = message.isEmpty ? .flagUnread : .unread
    }
  }

  @inline(__always)
  var isUnread: Bool {
    switch self {
    case .unread, .flagUnread: true
    case .read, .delivered: false
    }
  }
}

/// Marks: read, delivered and unread, in channels and in threads (Proto/frames.md, flag `thread`; R4, R15).
extension ShardEngine {
  /// Perform mark-read, mark-unread and mark-delivered, in a channel or in one of its threads.
  func markInChannel(_ request: inout Request, _ kind: MarkKind, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try MarkRequest(&request.fields, hasEpoch: kind != .delivered)
    let (user, message) = (fields.user, fields.message)
    let mark = Mark(kind, message)
    let parent = try Self.thread(&request)
    try request.fields.end()
    if let refusal = refusal(of: user, request, slot) { return refusal }
    guard parent.isEmpty else { return markUnderParent(&request, mark, slot, parent, fields) }
    let marked: ShardState.MarkResult
    do throws(Refusal) {
      let time = advanceTime()
      switch mark {
      case .read:
        marked = try state.decideRead(
          slot,
          user: user,
          message: message,
          epoch: fields.epoch,
          at: time,
          into: &request.effects
        )
      case .delivered:
        marked = try state.decideDelivered(slot, user: user, message: message, at: time, into: &request.effects)
      case .unread:
        marked = ShardState.MarkResult(
          row: try state.decideUnread(
            slot,
            user: user,
            message: message,
            epoch: fields.epoch,
            at: time,
            into: &request.effects
          )
        )
      case .flagUnread:
        marked = ShardState.MarkResult(
          row: try state.decideFlagUnread(slot, user: user, epoch: fields.epoch, at: time, into: &request.effects)
        )
      }
    } catch {
      // A reply's id alone identifies its thread.
      if error == .messageNotFound, let thread = self.thread(withReply: message, in: slot, for: user) {
        return markInThread(&request, mark, slot, thread, fields)
      }
      return refused(error, slot)
    }
    // If this duplicate names its message and still moves a watermark, the original was not applied. Without a message
    // the newest may differ by now; a marker may have been set again.
    guard !request.isDuplicate || message.isEmpty || !request.effects.contains(where: \.movesWatermark) else {
      return .unknownOutcome
    }
    applyCommand(slot, request)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeMarkReply(state.uncounted(marked, in: slot)) {
        $0.writeRow(state.ownRow(slot, marked.row), slot, in: state)
      }
    }
  }

  /// Read the parent of the request's thread, which follows the kind's fields; empty if the request is about no
  /// thread.
  @inline(__always)
  @_lifetime(copy request)
  @_lifetime(request: copy request)
  static func thread(_ request: inout Request) throws(WireError) -> RawSpan {
    guard request.header.flags.contains(.thread) else { return try request.fields.raw(0) }
    let parent = try request.fields.string()
    guard !parent.isEmpty else { throw .badValue(.parent) }
    return parent
  }

  /// Mark in the thread under a message.
  private func markUnderParent(
    _ request: inout Request,
    _ mark: Mark,
    _ slot: ChannelSlot,
    _ parent: RawSpan,
    _ fields: borrowing MarkRequest
  ) -> Outcome {
    do throws(Refusal) {
      let member = try state.member(fields.user, in: slot)
      if let thread = try self.thread(of: parent, in: slot, for: member) {
        return markInThread(&request, mark, slot, thread, fields)
      }
      try state.checkMark(
        withoutThread: slot,
        user: fields.user,
        message: fields.message,
        isUnread: mark.isUnread
      )
    } catch {
      return refused(error, slot)
    }
    return replyWithoutThread(request, slot, user: fields.user)
  }

  /// Answer a mark in a thread that does not exist yet, because the message has no reply: it changes nothing.
  private func replyWithoutThread(_ request: borrowing Request, _ slot: ChannelSlot, user: RawSpan) -> Outcome {
    applyCommand(slot, request)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeMarkReply(.noReplies) {
        $0.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot))
      }
    }
  }

  /// Mark in a thread, which the parent or the id of a reply names.
  private func markInThread(
    _ request: inout Request,
    _ mark: Mark,
    _ slot: ChannelSlot,
    _ thread: ChannelSlot,
    _ fields: borrowing MarkRequest
  ) -> Outcome {
    let (user, message) = (fields.user, fields.message)
    do throws(Refusal) {
      let time = advanceTime()
      switch mark {
      case .read:
        try state.decideRead(
          inThread: thread,
          user: user,
          message: message,
          epoch: fields.epoch,
          at: time,
          into: &request.effects
        )
      case .delivered:
        try state.decideDelivered(inThread: thread, user: user, message: message, at: time, into: &request.effects)
      case .unread, .flagUnread:
        try state.decideUnread(
          inThread: thread,
          user: user,
          message: message,
          epoch: fields.epoch,
          at: time,
          into: &request.effects
        )
      }
    } catch {
      return refused(error, slot)
    }
    applyCommand(slot, request)
    // Look the row up again: a duplicate's original may have added the member, who may have left since.
    let row = state[thread].row(of: user)
    let uncounted = mark.isUnread ? nil : state.uncounted(thread, user: user, message: message)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeMarkReply(uncounted) {
        guard let row else { return $0.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot)) }
        $0.writeRow(state.ownRow(thread, row), thread, in: state)
      }
    }
  }

  func markUnreadSince(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try MarkUnreadSinceRequest(&request.fields)
    let user = fields.user
    let parent = try Self.thread(&request)
    try request.fields.end()
    if let refusal = refusal(of: user, request, slot) { return refusal }
    let time = advanceTime()
    var targetSlot = slot
    do throws(Refusal) {
      let member = try state.member(user, in: slot)
      if !parent.isEmpty {
        guard let thread = try self.thread(of: parent, in: slot, for: member) else {
          let none = parent.extracting(first: 0)
          try state.checkMark(withoutThread: slot, user: user, message: none, isUnread: true)
          return replyWithoutThread(request, slot, user: user)
        }
        targetSlot = thread
      }
      try state.decideUnread(
        targetSlot,
        user: user,
        since: fields.since,
        epoch: fields.epoch,
        at: time,
        into: &request.effects
      )
    } catch {
      return refused(error, slot)
    }
    // The messages in question are scanned one by one.
    loop.budget.useEntries(Int(state[targetSlot].messages.newest.rawValue) / Self.messagesPerEntry)
    applyCommand(slot, request)
    let row = state[targetSlot].row(of: user)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeMarkReply(nil) {
        guard let row else { return $0.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot)) }
        $0.writeRow(state.ownRow(targetSlot, row), targetSlot, in: state)
      }
    }
  }

  /// Messages whose times are compared per unit of the loop's budget; a unit is one channel's unread count.
  private static let messagesPerEntry = 1_024
}
