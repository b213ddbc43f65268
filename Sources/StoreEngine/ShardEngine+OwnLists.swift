import NIOCore
import ReceiptModel
import ReceiptWire

/// A member's own receipts and threads in one channel (Proto/frames.md, 0x38 and 0x39; R9, R15).
extension ShardEngine {
  /// The fields of both behind the cid.
  private struct OwnListFields: ~Escapable {
    let user: RawSpan
    let wanted: UInt8
    let limit: UInt64
    let below: SequenceNumber?

    @_lifetime(copy reader)
    init(_ reader: inout FieldReader) throws(WireError) {
      user = try reader.string()
      wanted = try reader.byte()
      limit = try reader.varint()
      below = try reader.optional32().map { SequenceNumber($0) }
      try reader.end()
    }
  }

  func userReceipts(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let fields = try OwnListFields(&reader)
    guard let wanted = ShardState.ReceiptState(rawValue: fields.wanted) else {
      return refuse(header, .invalidField, "state: 0 or 1", lane)
    }
    guard (1...100).contains(fields.limit) else {
      return refuse(header, .invalidField, "limit: 1 to 100", lane)
    }
    guard !isRevoked(fields.user) else { return refuse(header, .tokenRevoked, slot, lane) }
    _ = state.advance(clock: loop.clock)
    let page: (receipts: [ShardState.OwnReceipt], next: SequenceNumber?)
    do throws(Refusal) {
      page = try state.receipts(
        slot,
        of: fields.user,
        wanted,
        below: fields.below,
        limit: Int(fields.limit)
      )
    } catch {
      return refuse(header, error, slot, lane)
    }
    reply(header, departure(slot), lane) { buffer in
      buffer.writeVarint(page.receipts.count)
      for receipt in page.receipts {
        buffer.writeSequence(receipt.sequence)
        state.withMessage(slot, receipt.sequence) { buffer.writeField($0) }
        state.withSender(slot, of: receipt.sequence) { buffer.writeField($0) }
        buffer.writeTime(state.createdAt(slot, of: receipt.sequence))
        buffer.writeInteger(receipt.status.rawValue)
        buffer.writeTime(receipt.expiresAt)
        buffer.writeTime(receipt.acknowledgedAt)
        buffer.writeInteger(UInt8(receipt.isExact ? 1 : 0))
        buffer.writeField(receipt.note)
      }
      buffer.writeOptional(page.next.map { UInt64($0.rawValue) })
    }
  }

  func userThreads(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let fields = try OwnListFields(&reader)
    guard let wanted = ShardState.ThreadSelection(rawValue: fields.wanted) else {
      return refuse(header, .invalidField, "threads: 0 to 2", lane)
    }
    guard (1...100).contains(fields.limit) else {
      return refuse(header, .invalidField, "limit: 1 to 100", lane)
    }
    guard !isRevoked(fields.user) else { return refuse(header, .tokenRevoked, slot, lane) }
    let page: (threads: [ShardState.OwnThread], next: SequenceNumber?)
    do throws(Refusal) {
      page = try state.threads(slot, of: fields.user, wanted, below: fields.below, limit: Int(fields.limit))
    } catch {
      return refuse(header, error, slot, lane)
    }
    reply(header, departure(slot), lane) { buffer in
      buffer.writeVarint(page.threads.count)
      for thread in page.threads {
        buffer.writeSequence(thread.parent)
        state.withMessage(slot, thread.parent) { buffer.writeField($0) }
        buffer.writeVarint(thread.unreadReplies)
        state.withMessage(thread.place, thread.lastRead) { buffer.writeField($0) }
        state.withMessage(thread.place, thread.firstUnread) { buffer.writeField($0) }
        state.withMessage(thread.place, state.newest(thread.place)) { buffer.writeField($0) }
      }
      buffer.writeOptional(page.next.map { UInt64($0.rawValue) })
    }
  }
}
