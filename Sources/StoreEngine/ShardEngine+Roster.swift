import NIOCore
import ReceiptModel
import ReceiptWire

/// Who is in a channel, and what is registered in it (Proto/frames.md, 0x44 and 0x45).
extension ShardEngine {
  func listRoster(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let fields = try ListRosterFields(&reader)
    guard fields.viewerFlags <= 1 else { return refuse(header, .invalidField, "viewer flags: 0 or 1", lane) }
    guard (1...100).contains(fields.limit) else {
      return refuse(header, .invalidField, "limit: 1 to 100", lane)
    }
    guard !isRevoked(fields.viewer) else { return refuse(header, .tokenRevoked, slot, lane) }
    let viewer: ChannelViewer
    do throws(Refusal) {
      viewer = try state.viewer(fields.viewer, isServer: fields.viewerFlags == 1, in: slot)
    } catch {
      return refuse(header, error, slot, lane)
    }
    let page = state.roster(slot, limit: Int(fields.limit), cursor: fields.cursor)
    reply(header, departure(slot), lane) { buffer in
      buffer.writeVarint(page.rows.count)
      for row in page.rows {
        state.withUser(slot, row) { buffer.writeField($0) }
        buffer.writeField(state.role(slot, row))
        buffer.writeTime(state.joinedAt(slot, row))
        // Nobody else learns of it (R14), also where a server looks as a user (R6).
        let showsMuted = fields.viewerFlags == 1 && fields.viewer.isEmpty || row == viewer.row
        buffer.writeInteger(UInt8(showsMuted && state[slot].rows.isMuted(row) ? 1 : 0))
      }
      buffer.writeOptional(page.next.map(UInt64.init))
    }
  }

  func listMessages(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let fields = try ListMessagesFields(&reader)
    guard (1...100).contains(fields.limit) else {
      return refuse(header, .invalidField, "limit: 1 to 100", lane)
    }
    let page = state.listedMessages(slot, limit: Int(fields.limit), cursor: fields.cursor)
    reply(header, departure(slot), lane) { buffer in
      buffer.writeVarint(page.messages.count)
      for entry in page.messages {
        let flags = state.flags(entry.place, of: entry.sequence)
        buffer.writeSequence(entry.sequence)
        state.withMessage(entry.place, entry.sequence) { buffer.writeField($0) }
        state.withMessage(slot, entry.parent) { buffer.writeField($0) }
        state.withSender(entry.place, of: entry.sequence) { buffer.writeField($0) }
        buffer.writeTime(state.createdAt(entry.place, of: entry.sequence))
        buffer.writeVarint(UInt64((flags.contains(.silent) ? 1 : 0) | (flags.contains(.receipt) ? 2 : 0)))
      }
      buffer.writeMessageListCursor(page.next)
    }
  }
}
