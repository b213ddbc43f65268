import NIOCore
import ReceiptModel
import ReceiptWire

/// Lists of the members of one message, and what chosen members have of it (Proto/frames.md, 0x27 and 0x28; R11).
extension ShardEngine {
  func listMembers(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let fields = try ListMembersFields(&reader)
    guard fields.viewerFlags <= 1 else {
      return refuse(header, .invalidField, "viewer flags: 0 or 1", lane)
    }
    guard let list = MemberList(rawValue: fields.list) else {
      return refuse(header, .invalidField, "list: 0 to 4", lane)
    }
    guard let order = ListOrder(rawValue: fields.order) else {
      return refuse(header, .invalidField, "order: 0 to 2", lane)
    }
    guard (1...100).contains(fields.limit) else {
      return refuse(header, .invalidField, "limit: 1 to 100", lane)
    }
    guard !isRevoked(fields.viewer) else { return refuse(header, .tokenRevoked, slot, lane) }
    var going: MemberListScan?
    if case .list(let scan)? = progress { going = scan }
    progress = nil
    do throws(Refusal) {
      let asker = try state.viewer(fields.viewer, isServer: fields.viewerFlags == 1, in: slot)
      // A reply's readers are its thread's.
      let place = state.place(of: fields.message, in: slot)
      let viewer = state.viewer(asker, in: place)
      var scan: MemberListScan
      if let known = going.take() {
        scan = known
      } else {
        scan = try state.beginList(
          place,
          viewer: viewer,
          message: fields.message,
          ShardState.ListQuery(list, order, limit: Int(fields.limit)),
          cursor: fields.cursor,
          times: MemberTimes(now: state.advance(clock: loop.clock), segments: readSegments)
        )
      }
      var isDone = false
      try withRows { rows throws(Refusal) in
        isDone = try state.advance(&scan, place, viewer: viewer, budget: &rows)
      }
      guard isDone else { return goesOn(header, reader, slot, lane, .list(scan)) }
      guard scan.times.missing.isEmpty else {
        return needSteps(header, reader, lane, slot, scan.times.missing)
      }
      let isFirst = fields.cursor.isEmpty
      let total = isFirst ? state.total(list, place, scan.message, viewer: viewer) : 0
      reply(header, departure(slot), lane) { buffer in
        buffer.writeVarint(scan.page.count)
        for entry in scan.page {
          state.withUser(place, entry.row) { buffer.writeListEntry(user: $0, entry) }
        }
        buffer.writeField(scan.next?.text ?? "")
        if isFirst { buffer.writeVarint(total) }
      }
    } catch {
      refuse(header, error, slot, lane)
    }
  }

  func memberStatuses(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let fields = try MemberStatusesFields(&reader)
    let users = reader
    var answers: [Result<MemberStatus, Refusal>] = []
    for _ in 0..<fields.userCount { _ = try reader.string() }
    try reader.end()
    guard fields.viewerFlags <= 1 else {
      return refuse(header, .invalidField, "viewer flags: 0 or 1", lane)
    }
    guard (1...100).contains(fields.userCount) else {
      return refuse(header, .invalidField, "users: 1 to 100", lane)
    }
    guard !isRevoked(fields.viewer) else { return refuse(header, .tokenRevoked, slot, lane) }
    var times = MemberTimes(now: state.advance(clock: loop.clock), segments: readSegments)
    do throws(Refusal) {
      let asker = try state.viewer(fields.viewer, isServer: fields.viewerFlags == 1, in: slot)
      let place = state.place(of: fields.message, in: slot)
      let viewer = state.viewer(asker, in: place)
      let message = try state.shownMessage(fields.message, in: place, viewer)
      var asked = users
      answers.reserveCapacity(fields.userCount)
      for _ in 0..<fields.userCount {
        guard let user = try? asked.string() else { break }
        do throws(Refusal) {
          let status = try state.memberStatus(place, viewer: viewer, message, user: user, times: &times)
          answers.append(.success(status))
        } catch {
          answers.append(.failure(error))
        }
      }
    } catch {
      return refuse(header, error, slot, lane)
    }
    guard times.missing.isEmpty else { return needSteps(header, reader, lane, slot, times.missing) }
    reply(header, departure(slot), lane) { buffer in
      var asked = users
      buffer.writeVarint(answers.count)
      for answer in answers {
        guard let user = try? asked.string() else { break }
        switch answer {
        case .success(let status): buffer.writeMemberStatus(user: user, status)
        case .failure(let refusal): buffer.writeMemberStatus(user: user, refused: Self.code(refusal))
        }
      }
    }
  }
}
