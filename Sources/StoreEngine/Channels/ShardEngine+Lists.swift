import NIOCore
import ReceiptModel
import ReceiptWire

/// Read states, member lists of one message, the status of chosen members, and a member's own receipts and threads
/// (Proto/frames.md, 0x27, 0x28 and 0x37 to 0x39; R9, R11, R15).
extension ShardEngine {
  func listMembers(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try ListMembersFields(&request.fields)
    guard fields.viewerFlags <= 1 else {
      return .refused(.invalidField, "viewer flags: 0 or 1")
    }
    guard let list = MemberList(rawValue: fields.list) else {
      return .refused(.invalidField, "list: 0 to 4")
    }
    guard let order = ListOrder(rawValue: fields.order) else {
      return .refused(.invalidField, "order: 0 to 2")
    }
    guard (1...100).contains(fields.limit) else {
      return .refused(.invalidField, "limit: 1 to 100")
    }
    guard !isRevoked(fields.viewer, request) else { return refused(.tokenRevoked, slot) }
    var going: MemberListScan?
    if case .list(let scan)? = request.attempt?.progress { going = scan }
    do throws(Refusal) {
      let asker = try state.viewer(fields.viewer, isServer: fields.viewerFlags == 1, in: slot)
      // A reply's readers are those of its thread.
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
          times: MemberTimes(now: state.advance(clock: loop.clock), segments: request.segments)
        )
      }
      var isDone = false
      try withRows { rows throws(Refusal) in
        isDone = try state.advance(&scan, place, viewer: viewer, budget: &rows)
      }
      guard isDone else { return waiting.add(request, for: .slice(slot), progress: .list(scan)) }
      guard scan.times.missing.isEmpty else {
        return steps.needSteps(&request, slot, scan.times.missing)
      }
      let isFirst = fields.cursor.isEmpty
      let total = isFirst ? state.total(list, place, scan.message, viewer: viewer) : 0
      return reply(request, replyTiming(slot)) { buffer in
        buffer.writeVarint(scan.page.count)
        for entry in scan.page {
          state.withUser(place, entry.row) { buffer.writeListEntry(user: $0, entry) }
        }
        buffer.writeField(scan.next?.text ?? "")
        if isFirst { buffer.writeVarint(total) }
      }
    } catch {
      return refused(error, slot)
    }
  }

  func memberStatuses(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try MemberStatusesFields(&request.fields)
    let users = request.fields
    var answers: [Result<MemberStatus, Refusal>] = []
    for _ in 0..<fields.userCount { _ = try request.fields.string() }
    try request.fields.end()
    guard fields.viewerFlags <= 1 else {
      return .refused(.invalidField, "viewer flags: 0 or 1")
    }
    guard (1...100).contains(fields.userCount) else {
      return .refused(.invalidField, "users: 1 to 100")
    }
    guard !isRevoked(fields.viewer, request) else { return refused(.tokenRevoked, slot) }
    var times = MemberTimes(now: state.advance(clock: loop.clock), segments: request.segments)
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
      return refused(error, slot)
    }
    guard times.missing.isEmpty else { return steps.needSteps(&request, slot, times.missing) }
    return reply(request, replyTiming(slot)) { buffer in
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

  /// Lets the current query scan as many rows as this turn has left.
  ///
  /// - Parameter body: subtracts the rows that it scanned.
  func withRows(_ body: (inout Int) throws(Refusal) -> Void) throws(Refusal) {
    let granted = max(loop.budget.rows, configuration.shortRows)
    var left = granted
    defer { loop.budget.useRows(granted - left) }
    try body(&left)
  }

  func readState(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let viewerFlags = try request.fields.varint()
    let viewer = try request.fields.string()
    let limit = try request.fields.varint()
    let cursor = try request.fields.optional32()
    try request.fields.end()
    guard viewerFlags <= 1 else { return .refused(.invalidField, "viewer flags: 0 or 1") }
    guard (1...100).contains(limit) else { return .refused(.invalidField, "limit: 1 to 100") }
    guard !isRevoked(viewer, request) else { return refused(.tokenRevoked, slot) }
    let page: (rows: [RowAnswer], next: UInt32?)
    do {
      page = try state.readState(
        slot,
        viewer: viewer,
        isServer: viewerFlags == 1,
        limit: Int(limit),
        cursor: cursor
      )
    } catch {
      return refused(error, slot)
    }
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeVarint(page.rows.count)
      for row in page.rows { buffer.writeRow(row, slot, in: state) }
      buffer.writeOptional(page.next.map(UInt64.init))
    }
  }

  /// Answers with a page of a thread's read state (0x37).
  func threadReadState(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let viewerFlags = try request.fields.varint()
    let user = try request.fields.string()
    let parent = try request.fields.string()
    let limit = try request.fields.varint()
    let cursor = try request.fields.string()
    try request.fields.end()
    guard viewerFlags <= 1 else { return .refused(.invalidField, "viewer flags: 0 or 1") }
    guard (1...100).contains(limit) else { return .refused(.invalidField, "limit: 1 to 100") }
    guard !isRevoked(user, request) else { return refused(.tokenRevoked, slot) }
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
      return refused(error, slot)
    }
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeVarint(page.rows.count)
      if let place { for row in page.rows { buffer.writeRow(row, place, in: state) } }
      buffer.writeField(page.next?.text ?? "")
    }
  }

  // MARK: Own receipts and threads

  /// The fields of both requests, after the cid.
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

  func userReceipts(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try OwnListFields(&request.fields)
    guard let wanted = ShardState.ReceiptState(rawValue: fields.wanted) else {
      return .refused(.invalidField, "state: 0 or 1")
    }
    guard (1...100).contains(fields.limit) else {
      return .refused(.invalidField, "limit: 1 to 100")
    }
    guard !isRevoked(fields.user, request) else { return refused(.tokenRevoked, slot) }
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
      return refused(error, slot)
    }
    return reply(request, replyTiming(slot)) { buffer in
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

  func userThreads(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try OwnListFields(&request.fields)
    guard let wanted = ShardState.ThreadSelection(rawValue: fields.wanted) else {
      return .refused(.invalidField, "threads: 0 to 2")
    }
    guard (1...100).contains(fields.limit) else {
      return .refused(.invalidField, "limit: 1 to 100")
    }
    guard !isRevoked(fields.user, request) else { return refused(.tokenRevoked, slot) }
    let page: (threads: [ShardState.OwnThread], next: SequenceNumber?)
    do throws(Refusal) {
      page = try state.threads(slot, of: fields.user, wanted, below: fields.below, limit: Int(fields.limit))
    } catch {
      return refused(error, slot)
    }
    return reply(request, replyTiming(slot)) { buffer in
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
