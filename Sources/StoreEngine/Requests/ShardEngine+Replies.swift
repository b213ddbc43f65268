internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Replies and refusals of all requests.
extension ShardEngine {
  /// Return the refusal of a query while its connection has too many unwritten replies on this loop (Proto/frames.md,
  /// "Sessions and resending"); nil where it has not.
  func refusalForUnreadReplies(_ lane: ReplyLane) -> RefusedRequest? {
    let unwritten = lane.unwrittenBytes
    guard unwritten > configuration.unwrittenReplyBytesMax else { return nil }
    return RefusedRequest(
      .busy,
      retryAfterMilliseconds: 100,
      "the connection has \(unwritten >> 20) MiB of replies that were not read"
    )
  }

  @inline(__always)
  func reply(
    _ request: borrowing Request,
    _ replyTiming: ReplyLane.Timing,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    assert((request.counter != nil) == request.kind.isCommand)
    return reply(request.header, isCommand: request.counter != nil, replyTiming, request.lane, fields)
  }

  @discardableResult
  func reply(
    _ header: FrameHeader,
    _ replyTiming: ReplyLane.Timing,
    _ lane: ReplyLane,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    reply(header, isCommand: header.kind.isCommand, replyTiming, lane, fields)
  }

  @inline(__always)
  private func reply(
    _ header: FrameHeader,
    isCommand: Bool,
    _ replyTiming: ReplyLane.Timing,
    _ lane: ReplyLane,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Outcome {
    let isFirst = lane.add(replyTiming, refusable: isCommand ? nil : header) { buffer in
      let start = buffer.beginFrame(
        header.reply
      )
      fields(&buffer)
      buffer.endFrame(start)
    }
    if isFirst { loop.replies.record(lane, replyTiming) }
    return .answered
  }

  func refuse(_ header: FrameHeader, _ refused: RefusedRequest, _ lane: ReplyLane) {
    let isFirst = lane.add(refused.replyTiming, refusable: refused.code == .outcomeUnknown ? nil : header) { buffer in
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
    sessions.recordDrop(waiting)
    refuse(waiting.header, refused, waiting.lane)
  }

  /// Return a refusal because of the state. Like any answer, it leaves when that state is durable.
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
    case .acknowledgementNotRequested: .receiptNotRequested
    case .ownMessage: .ownMessage
    case .acknowledgementExpired: .receiptExpired
    case .notExpected: .notExpected
    case .invalidCursor: .invalidCursor
    case .userErased: .userErased
    case .nestedReply: .invalidField
    case .checkMismatch: .ticketInvalid
    case .importConflict: .importConflict
    case .importGap: .importGap
    case .importOrder: .importOrder
    case .timeInFuture: .timeInFuture
    }
  }

  /// Return whether a request acts for this user with a revoked token.
  @inline(__always)
  func isRevoked(_ user: RawSpan, _ request: borrowing Request) -> Bool {
    guard let issued = request.issued else { return false }
    return state.settings.isRevoked(user, issued: issued)
  }

  func isHome(_ name: RawSpan) -> Bool { ShardID.owning(name, count: shardCount) == state.id }

  /// Return the text of an identifier that was validated.
  static func text(_ name: RawSpan) -> String {
    name.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }
}

extension ByteBuffer {
  /// Write *row* of Proto/frames.md.
  ///
  /// - Parameter includesJoin: include the newest message at the time of the member's join.
  mutating func writeRow(
    _ row: ShownRow,
    _ slot: ChannelSlot,
    in state: borrowing ShardState,
    includesJoin: Bool = true
  ) {
    state.withUser(slot, row.row) { user in
      state.withMessage(slot, row.named(row.lastReadSequence)) { read in
        state.withMessage(slot, row.named(row.lastDeliveredSequence)) { delivered in
          state.withMessage(slot, row.own?.firstUnread ?? .zero) { firstUnread in
            RowFields.write(
              row,
              user: user,
              lastReadMessage: read,
              lastDeliveredMessage: delivered,
              firstUnreadMessage: firstUnread,
              includesJoin: includesJoin,
              into: &self
            )
          }
        }
      }
    }
  }

  /// Write the *row* of a channel's member who has none in a thread: nothing read, nothing unread.
  mutating func writeEmptyRow(user: RawSpan, joinedAt: Timestamp) {
    let none = user.extracting(first: 0)
    RowFields.write(
      ShownRow(
        row: MemberOrdinal(0),
        lastRead: joinedAt,
        lastReadSequence: .zero,
        lastDelivered: .none,
        lastDeliveredSequence: .zero,
        own: ShownRow.OwnDetails(unreadMessages: 0, firstUnread: .zero, unreadEpoch: 0, isOwn: true)
      ),
      user: user,
      lastReadMessage: none,
      lastDeliveredMessage: none,
      firstUnreadMessage: none,
      includesJoin: true,
      into: &self
    )
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
