internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Read states, member lists of one message, the status of chosen members, and a member's own acknowledgement requests
/// and threads (Proto/frames.md, 0x27, 0x28 and 0x37 to 0x39; R9, R11, R15).
extension ShardEngine {
  func listMembers(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try ListMembersRequest(&request.fields)
    guard fields.viewer.isValid else { return Self.refusedViewer }
    guard let list = MemberList(rawValue: fields.list) else {
      return .refused(.invalidField, "list: 0 to 4")
    }
    guard let order = ListOrder(rawValue: fields.order) else {
      return .refused(.invalidField, "order: 0 to 2")
    }
    guard Self.pageRange.contains(fields.limit) else { return Self.refusedLimit }
    guard !isRevoked(fields.viewer.user, request) else { return refused(.tokenRevoked, slot) }
    var sliced: MemberListScan?
    if case .list(let scan)? = request.attempt?.progress { sliced = scan }
    do throws(Refusal) {
      let asker = try state.viewer(fields.viewer.user, isServer: fields.viewer.isServer, in: slot)
      // A reply's readers are those of its thread.
      let targetSlot = self.targetSlot(of: fields.message, in: slot)
      let viewer = state.viewer(asker, in: targetSlot)
      var scan: MemberListScan
      if let known = sliced.take() {
        scan = known
      } else {
        scan = try state.beginList(
          targetSlot,
          viewer: viewer,
          message: fields.message,
          ShardState.ListQuery(list, order, limit: Int(fields.limit)),
          cursor: fields.cursor,
          times: MemberTimes(now: advanceTime(), segments: request.segments)
        )
      }
      var isDone = false
      try withRows { rows throws(Refusal) in
        isDone = try state.advance(&scan, targetSlot, viewer: viewer, budget: &rows)
      }
      guard isDone else { return waiting.add(request, for: .slice(slot), progress: .list(scan)) }
      guard scan.times.missing.isEmpty else {
        return steps.wait(&request, slot, for: scan.times.missing)
      }
      let isFirst = fields.cursor.isEmpty
      let total = isFirst ? state.total(list, targetSlot, scan.message, viewer: viewer) : 0
      return reply(request, replyTiming(slot)) { buffer in
        buffer.writeVarint(scan.page.count)
        for entry in scan.page {
          state.withUser(targetSlot, entry.row) { buffer.writeListEntry(user: $0, entry) }
        }
        buffer.writeField(scan.next?.text ?? "")
        if isFirst { buffer.writeVarint(total) }
      }
    } catch {
      return refused(error, slot)
    }
  }

  func memberStatuses(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try MemberStatusesRequest(&request.fields)
    var results: [Result<MemberStatus, Refusal>] = []
    guard fields.viewer.isValid else { return Self.refusedViewer }
    guard (1...WireLimits.entriesMax).contains(fields.users.count) else {
      return .refused(.invalidField, "users: 1 to \(WireLimits.entriesMax)")
    }
    guard !isRevoked(fields.viewer.user, request) else { return refused(.tokenRevoked, slot) }
    var times = MemberTimes(now: advanceTime(), segments: request.segments)
    do throws(Refusal) {
      let asker = try state.viewer(fields.viewer.user, isServer: fields.viewer.isServer, in: slot)
      let targetSlot = self.targetSlot(of: fields.message, in: slot)
      let viewer = state.viewer(asker, in: targetSlot)
      let message = try state.shownMessage(fields.message, in: targetSlot, viewer)
      results.reserveCapacity(fields.users.count)
      fields.users.forEach { user in
        do throws(Refusal) {
          let status = try state.memberStatus(targetSlot, viewer: viewer, message, user: user, times: &times)
          results.append(.success(status))
        } catch {
          results.append(.failure(error))
        }
      }
    } catch {
      return refused(error, slot)
    }
    guard times.missing.isEmpty else { return steps.wait(&request, slot, for: times.missing) }
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeVarint(results.count)
      var index = 0
      fields.users.forEach { user in
        switch results[index] {
        case .success(let status): buffer.writeMemberStatus(user: user, status)
        case .failure(let refusal): buffer.writeMemberStatus(user: user, refused: Self.code(refusal))
        }
        index += 1
      }
    }
  }

  /// Let the current query scan as many rows as this turn has left.
  ///
  /// - Parameter body: subtracts the rows that it scanned.
  func withRows(_ body: (inout Int) throws(Refusal) -> Void) throws(Refusal) {
    let granted = max(loop.budget.rows, configuration.shortRows)
    var remaining = granted
    defer { loop.budget.useRows(granted - remaining) }
    try body(&remaining)
  }

  /// Rows of a page.
  static let pageRange = 1...UInt64(WireLimits.pageMax)
  static let refusedLimit = Outcome.refused(.invalidField, "limit: 1 to \(WireLimits.pageMax)")
  static let refusedViewer = Outcome.refused(.invalidField, "viewer flags: 0 or 1")

  func readState(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try RowPageRequest(&request.fields)
    guard fields.viewer.isValid else { return Self.refusedViewer }
    guard Self.pageRange.contains(fields.limit) else { return Self.refusedLimit }
    guard !isRevoked(fields.viewer.user, request) else { return refused(.tokenRevoked, slot) }
    let page: (rows: [ShownRow], next: UInt32?)
    do {
      page = try state.readState(
        slot,
        viewer: fields.viewer.user,
        isServer: fields.viewer.isServer,
        limit: Int(fields.limit),
        cursor: fields.cursor
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

  /// Answer with a page of a thread's read state (0x37).
  func threadReadState(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try ThreadReadStateRequest(&request.fields)
    guard fields.viewer.isValid else { return Self.refusedViewer }
    guard Self.pageRange.contains(fields.limit) else { return Self.refusedLimit }
    guard !isRevoked(fields.viewer.user, request) else { return refused(.tokenRevoked, slot) }
    var threadSlot: ChannelSlot?
    var page: (rows: [ShownRow], next: ListCursor?) = ([], nil)
    do throws(Refusal) {
      let viewer = try state.viewer(fields.viewer.user, isServer: fields.viewer.isServer, in: slot)
      threadSlot = try thread(of: fields.parent, in: slot, for: viewer.row)
      if let threadSlot {
        page = try state.readState(
          ofThread: threadSlot,
          viewer: state.viewer(viewer, in: threadSlot),
          limit: Int(fields.limit),
          cursor: fields.cursor
        )
      }
    } catch {
      return refused(error, slot)
    }
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeVarint(page.rows.count)
      if let threadSlot { for row in page.rows { buffer.writeRow(row, threadSlot, in: state) } }
      buffer.writeField(page.next?.text ?? "")
    }
  }

  // MARK: Own acknowledgement requests and threads

  func userReceipts(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try OwnListRequest(&request.fields)
    guard let wanted = ShardState.AcknowledgementState(rawValue: fields.selection) else {
      return .refused(.invalidField, "state: 0 or 1")
    }
    guard Self.pageRange.contains(fields.limit) else { return Self.refusedLimit }
    guard !isRevoked(fields.user, request) else { return refused(.tokenRevoked, slot) }
    advanceTime()
    let page: (requests: [ShardState.OwnAcknowledgement], next: SequenceNumber?)
    do throws(Refusal) {
      page = try state.acknowledgementRequests(
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
      buffer.writeVarint(page.requests.count)
      for entry in page.requests {
        state.withMessage(slot, entry.sequence) { message in
          state.withSender(slot, of: entry.sequence) { sender in
            OwnReceiptFields.write(
              entry,
              message: message,
              sender: sender,
              createdAt: state[slot].messages.createdAt(entry.sequence),
              into: &buffer
            )
          }
        }
      }
      buffer.writeOptional(page.next.map { UInt64($0.rawValue) })
    }
  }

  func userThreads(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try OwnListRequest(&request.fields)
    guard let wanted = ShardState.ThreadSelection(rawValue: fields.selection) else {
      return .refused(.invalidField, "threads: 0 to 2")
    }
    guard Self.pageRange.contains(fields.limit) else { return Self.refusedLimit }
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
        state.withMessage(slot, thread.parent) { message in
          state.withMessage(thread.slot, thread.lastRead) { lastRead in
            state.withMessage(thread.slot, thread.firstUnread) { firstUnread in
              state.withMessage(thread.slot, state[thread.slot].messages.newest) { newest in
                OwnThreadFields.write(
                  parent: thread.parent,
                  message: message,
                  unreadReplies: thread.unreadReplies,
                  lastRead: lastRead,
                  firstUnread: firstUnread,
                  newest: newest,
                  into: &buffer
                )
              }
            }
          }
        }
      }
      buffer.writeOptional(page.next.map { UInt64($0.rawValue) })
    }
  }
}
