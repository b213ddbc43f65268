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
      _ = try state.member(user, in: slot)
      if let thread = try state.thread(of: parent, in: slot) {
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
    reply(header, departure(slot), lane) { $0.writeZeroRow(user: user) }
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
    reply(header, departure(slot), lane) { buffer in
      guard let row else { return buffer.writeZeroRow(user: user) }
      buffer.writeRow(state.ownRow(thread, row), thread, in: state)
    }
  }
}

extension ByteBuffer {
  /// The *row* of a member who has none: nothing read, nothing unread.
  mutating func writeZeroRow(user: RawSpan) {
    writeFields(byteCountMax: RowFields.byteCountMax) { fields in
      fields.string(user)
      // Read and delivered: time, message, sequence number.
      for _ in 0..<6 { fields.byte(0) }
      fields.byte(UInt8(RowFlags.details | RowFlags.own))
      // Unread messages, first unread one, epoch, mentions.
      for _ in 0..<4 { fields.byte(0) }
    }
  }
}
