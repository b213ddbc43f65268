import NIOCore
import ReceiptModel
import ReceiptWire

extension FrameKind {
  /// Whether the flag `thread` may be set: its fields are followed by a thread's parent message.
  var takesThread: Bool {
    switch self {
    case .registerMessage, .markRead, .markUnread, .markUnreadSince, .markDelivered: true
    default: false
    }
  }
}

/// Marks in threads (Proto/frames.md, flag `thread`; R15).
extension ShardEngine {
  /// The parent of the thread that a request means, which stands behind its kind's fields; empty where it means none.
  @inline(__always)
  @_lifetime(copy reader)
  static func thread(_ header: FrameHeader, _ reader: inout FieldReader) throws(WireError) -> RawSpan {
    guard header.flags.contains(.thread) else { return try reader.raw(0) }
    let parent = try reader.string()
    guard !parent.isEmpty else { throw .badValue(.text) }
    return parent
  }

  /// A mark in the thread under a message.
  func mark(
    _ header: FrameHeader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane,
    _ command: CommandPlace,
    under parent: RawSpan,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?
  ) {
    do throws(Refusal) {
      let member = try state.member(user, in: slot)
      if let thread = try state.thread(of: parent, in: slot, for: member) {
        return mark(header, slot, lane, command, in: thread, user: user, message: message, epoch: epoch)
      }
      try state.checkMark(
        withoutThread: slot,
        user: user,
        message: message,
        isUnread: header.kind == .markUnread
      )
    } catch {
      return refuse(header, error, slot, lane, command)
    }
    finish(slot, command)
    reply(header, departure(slot), lane) { buffer in
      buffer.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot))
      buffer.writeInteger(ShardState.Uncounted.noReplies.rawValue)
    }
  }

  /// A mark in a thread.
  func mark(
    _ header: FrameHeader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane,
    _ command: CommandPlace,
    in thread: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?
  ) {
    do throws(Refusal) {
      let time = state.advance(clock: loop.clock)
      switch header.kind {
      case .markRead:
        try state.decideRead(
          inThread: thread,
          user: user,
          message: message,
          epoch: epoch,
          at: time,
          into: &effects
        )
      case .markDelivered:
        try state.decideDelivered(inThread: thread, user: user, message: message, at: time, into: &effects)
      default:
        try state.decideUnread(inThread: thread, user: user, message: message, epoch: epoch, into: &effects)
      }
    } catch {
      return refuse(header, error, slot, lane, command)
    }
    finish(slot, command)
    // Looked up once more: one that was applied before may have joined then, and left since.
    let row = state[thread].row(of: user)
    let uncounted = state.uncounted(thread, user: user, message: message)
    reply(header, departure(slot), lane) { buffer in
      if let row {
        buffer.writeRow(state.ownRow(thread, row), thread, in: state)
      } else {
        buffer.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot))
      }
      if let uncounted, header.kind != .markUnread { buffer.writeInteger(uncounted.rawValue) }
    }
  }

  /// A page of a thread's read state (0x37).
  func threadReadState(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let viewerFlags = try reader.varint()
    let user = try reader.string()
    let parent = try reader.string()
    let limit = try reader.varint()
    let cursor = try reader.string()
    try reader.end()
    guard viewerFlags <= 1 else { return refuse(header, .invalidField, "viewer flags: 0 or 1", lane) }
    guard (1...100).contains(limit) else { return refuse(header, .invalidField, "limit: 1 to 100", lane) }
    guard !isRevoked(user) else { return refuse(header, .tokenRevoked, slot, lane) }
    var place: ChannelSlot?
    var page: (rows: [RowAnswer], next: ListCursor?) = ([], nil)
    do throws(Refusal) {
      let viewer = try state.viewer(user, isServer: viewerFlags == 1, in: slot)
      place = try state.thread(of: parent, in: slot, for: viewer.row)
      if let place {
        page = try state.readState(
          ofThread: place,
          viewer: state.viewer(viewer, in: place),
          limit: Int(limit),
          cursor: cursor
        )
      }
    } catch {
      return refuse(header, error, slot, lane)
    }
    reply(header, departure(slot), lane) { buffer in
      buffer.writeVarint(page.rows.count)
      if let place { for row in page.rows { buffer.writeRow(row, place, in: state) } }
      buffer.writeField(page.next?.text ?? "")
    }
  }
}

extension ByteBuffer {
  /// The *row* of a member of the channel who has none in a thread: nothing read, nothing unread.
  mutating func writeEmptyRow(user: RawSpan, joinedAt: Timestamp) {
    writeFields(byteCountMax: RowFields.byteCountMax) { fields in
      fields.string(user)
      fields.time(joinedAt)
      // The message that is read and its sequence number; the same of what is delivered, behind its time.
      for _ in 0..<5 { fields.byte(0) }
      fields.varint(RowFlags.details | RowFlags.own | RowFlags.joined)
      // Unread messages, first unread one, epoch, mentions, and where they joined.
      for _ in 0..<5 { fields.byte(0) }
    }
  }
}
