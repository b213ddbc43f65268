internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Helpers for all requests: a command's position in its session, replies and refusals.
extension ShardEngine {
  // MARK: Sessions

  func sessionPosition(_ lane: ReplyLane) -> Int32 {
    let known = lane.sessionPositions[position]
    if known >= 0 { return known }
    let found = sessions.position(of: lane.session)
    lane.sessionPositions[position] = found
    return found
  }

  /// Read a command's counter, and look it up in its session: a duplicate is covered, and must not be applied again.
  @inline(__always)
  func begin(_ request: inout Request) throws(WireError) {
    begin(&request, try Request.counter(&request.fields))
  }

  func begin(_ request: inout Request, _ counter: UInt64) {
    swap(&request.effects, &effectsBuffer)
    let session = sessionPosition(request.lane)
    request.begin(
      counter,
      session: session,
      isDuplicate: sessions.covers(counter, at: session),
      outboxBefore: state.outbox.last
    )
  }

  /// Apply the command's decided effects, unless the command is a duplicate.
  @discardableResult
  func applyCommand(_ slot: ChannelSlot?, _ request: borrowing Request) -> ChannelSlot? {
    guard !request.isDuplicate else { return slot }
    recordDecision(request)
    guard !request.effects.isEmpty else { return slot }
    return applyEffects(request.effects, to: slot, session: request.session)
  }

  /// Record that a command was decided and not refused.
  func recordDecision(_ request: borrowing Request) {
    guard let counter = request.counter, !request.isDuplicate else { return }
    sessions.recordDecided(counter, at: request.session)
  }

  /// Record that a command was refused and not applied; a resend is decided then.
  func recordRefusal(_ request: borrowing Request) {
    guard let counter = request.counter, !request.isDuplicate else { return }
    sessions.recordRefused(counter, at: sessionPosition(request.lane))
  }

  /// Record that a request is dropped because its connection is gone. A command is resent on another connection, where
  /// it may have been refused already: applying it here would come after that refusal.
  func recordDrop(_ waiting: WaitingRequest) {
    if let counter = waiting.counter { sessions.recordDropped(counter, at: sessionPosition(waiting.lane)) }
  }

  // MARK: Replies

  @inline(__always)
  func reply(
    _ request: borrowing Request,
    _ replyTiming: ReplyLane.Timing,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    reply(request.header, replyTiming, request.lane, fields)
  }

  @inline(__always)
  @discardableResult
  func reply(
    _ header: FrameHeader,
    _ replyTiming: ReplyLane.Timing,
    _ lane: ReplyLane,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    let isFirst = lane.add(replyTiming) { buffer in
      let start = buffer.beginFrame(
        FrameHeader(header.kind.reply, shard: header.shard, correlation: header.correlation)
      )
      fields(&buffer)
      buffer.endFrame(start)
    }
    if isFirst { loop.replies.record(lane, replyTiming) }
    return .answered
  }

  func refuse(_ header: FrameHeader, _ refused: RefusedRequest, _ lane: ReplyLane) {
    let isFirst = lane.add(refused.replyTiming) { buffer in
      buffer.writeError(
        refused.code,
        shard: header.shard,
        correlation: header.correlation,
        retryAfterMilliseconds: refused.retryAfterMilliseconds,
        detail: refused.detail
      )
    }
    if isFirst { loop.replies.record(lane, refused.replyTiming) }
  }

  /// Refuse a request that waited, before it was decided.
  func refuse(_ waiting: WaitingRequest, _ refused: RefusedRequest) {
    recordDrop(waiting)
    refuse(waiting.header, refused, waiting.lane)
  }

  /// A refusal because of the state. Like any answer, it leaves when that state is durable.
  func refused(_ refusal: Refusal, _ slot: ChannelSlot?) -> Outcome {
    var detail = ""
    if case .limitReached(let limit) = refusal { detail = limit.rawValue }
    if refusal == .nestedReply { detail = "the parent is a reply, and a reply has no replies" }
    let last = slot.map(lastEffect) ?? max(dirty.typesLast, dirty.usersLast, deletions.last)
    return .refused(Self.code(refusal), detail, replyTiming(last))
  }

  static func code(_ refusal: Refusal) -> ErrorCode {
    switch refusal {
    case .channelNotFound: .channelNotFound
    case .notAMember: .notAMember
    case .notInThread: .notInThread
    case .messageNotFound: .messageNotFound
    case .messageDeleted: .messageDeleted
    case .messageConflict: .messageConflict
    case .markUnreadOff: .markUnreadOff
    case .limitReached: .limitReached
    case .tokenRevoked: .tokenRevoked
    case .orderNotAvailable: .orderNotAvailable
    case .countsNotVisible: .countsNotVisible
    case .receiptNotRequested: .receiptNotRequested
    case .ownMessage: .ownMessage
    case .receiptExpired: .receiptExpired
    case .notExpected: .notExpected
    case .invalidCursor: .invalidCursor
    case .userErased: .userErased
    case .nestedReply: .invalidField
    case .checkMismatch: .ticketInvalid
    }
  }

  /// Whether a request acts for this user with a revoked token.
  @inline(__always)
  func isRevoked(_ user: RawSpan, _ request: borrowing Request) -> Bool {
    guard let issued = request.issued else { return false }
    return state.isRevoked(user, issued: issued)
  }

  func isHome(_ name: RawSpan) -> Bool { ShardID.owning(name, count: shardCount) == state.id }

  static let userRange = "user: 1 to 255 bytes of UTF-8 without control characters"

  /// Text of an identifier that was validated.
  static func text(_ name: RawSpan) -> String {
    name.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }
}

extension ByteBuffer {
  /// Write *row* of Proto/frames.md in one pass: every mark is answered with a row.
  ///
  /// - Parameter includesJoin: include the newest message at the time of the member's join.
  mutating func writeRow(
    _ row: ShownRow,
    _ slot: ChannelSlot,
    in state: borrowing ShardState,
    includesJoin: Bool = true
  ) {
    let (read, delivered) = (row.named(row.lastReadSequence), row.named(row.lastDeliveredSequence))
    writeFields(byteCountMax: RowFields.byteCountMax) { fields in
      state.withUser(slot, row.row) { fields.string($0) }
      fields.time(row.lastRead)
      state.withMessage(slot, read) { fields.string($0) }
      fields.varint(UInt64(row.lastReadSequence.rawValue))
      fields.time(row.lastDelivered)
      state.withMessage(slot, delivered) { fields.string($0) }
      fields.varint(UInt64(row.lastDeliveredSequence.rawValue))
      var flags = includesJoin ? RowFieldFlags.joined : 0
      if let own = row.own {
        flags |= RowFieldFlags.details
        if own.isOwn { flags |= RowFieldFlags.own }
        if own.isFlaggedUnread { flags |= RowFieldFlags.flagged }
      }
      fields.varint(flags)
      if let own = row.own {
        fields.varint(UInt64(own.unreadMessages))
        state.withMessage(slot, own.firstUnread) { fields.string($0) }
        fields.varint(UInt64(own.unreadEpoch))
        if own.isOwn { fields.varint(UInt64(own.unreadMentions)) }
      }
      if includesJoin { fields.varint(UInt64(row.joined.rawValue)) }
    }
  }

  /// Write *channel* of Proto/frames.md.
  mutating func writeChannel(_ slot: ChannelSlot, in state: borrowing ShardState) {
    let newest = state[slot].messages.newest
    ChannelFields(
      cid: String(decoding: state[slot].cid, as: UTF8.self),
      created: state[slot].created,
      options: state.options(slot),
      memberCount: UInt32(state[slot].rows.activeCount),
      newest: newest,
      newestMessage: state[slot].messages.text(newest),
      newestRegistered: newest == .zero ? .none : state[slot].messages.registeredAt(newest)
    )
    .write(into: &self)
  }
}
