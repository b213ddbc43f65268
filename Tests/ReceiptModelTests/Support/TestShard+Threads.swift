@testable import NaiveReceiptModel
@testable import ReceiptModel

/// Commands and queries about threads (R15), as a store performs them, in plain text and integers.
extension TestShard {
  /// The parent message given by a frame's flag `thread`; nil where the flag is not set.
  typealias Parent = String

  // MARK: Commands

  func reply(
    _ cid: String,
    to parent: Parent,
    _ id: String,
    by sender: String,
    isSilent: Bool = false,
    requestsAcknowledgement: Bool = false,
    movesPosition: Bool = true,
    mentions: [String] = [],
    clock: Int
  ) -> Outcome {
    deciding(cid, clock) { slot, time, effects throws(Refusal) in
      let (parent, id, sender) = (Array(parent.utf8), Array(id.utf8), Array(sender.utf8))
      let message = NewMessage(
        id: id.span.bytes,
        sender: sender.span.bytes,
        parent: parent.span.bytes,
        isSilent: isSilent,
        requestsAcknowledgement: requestsAcknowledgement,
        movesPosition: movesPosition,
        mentions: .init(mentions)
      )
      let registration = try state.decideRegister(slot, message, at: time, into: &effects)
      apply(effects)
      let place = state.targetSlot(of: id.span.bytes, in: slot)
      var isNew = false
      if case .created = registration { isNew = true }
      return .message(
        sequence: Int(registration.sequence.rawValue),
        isNew: isNew,
        refusal: state.acknowledgementRequestRefusal(place, registration.sequence).wireName
      )
    }
  }

  /// Perform a mark by name: `read`, `delivered`, `unread`.
  ///
  /// - Parameter parent: nil: `message` is a reply, which identifies the thread.
  func mark(
    _ kind: String,
    _ cid: String,
    _ user: String,
    under parent: Parent?,
    _ message: String = "",
    epoch: Int? = nil,
    clock: Int
  ) -> Outcome {
    deciding(cid, clock) { slot, time, effects throws(Refusal) in
      let (user, message) = (Array(user.utf8), Array(message.utf8))
      let member = try state.member(user.span.bytes, in: slot)
      var found: ChannelSlot?
      if let parent {
        let parent = Array(parent.utf8)
        found = try state.thread(of: parent.span.bytes, in: slot, for: member)
      } else {
        found = state.thread(withReply: message.span.bytes, in: slot, for: user.span.bytes)
        if found == nil {
          // A message that is no reply, or invisible to this member, is looked up in the channel, like an unknown id.
          if kind == "unread", state.options(slot).markUnread == .off { throw .markUnreadOff }
          throw .messageNotFound
        }
      }
      guard let thread = found else {
        try state.checkMark(
          withoutThread: slot,
          user: user.span.bytes,
          message: message.span.bytes,
          isUnread: kind == "unread"
        )
        apply([])
        return .row(Self.zeroRow(user))
      }
      let epoch = epoch.map(UInt32.init)
      switch kind {
      case "read":
        try state.decideRead(
          inThread: thread,
          user: user.span.bytes,
          message: message.span.bytes,
          epoch: epoch,
          at: time,
          into: &effects
        )
      case "delivered":
        try state.decideDelivered(
          inThread: thread,
          user: user.span.bytes,
          message: message.span.bytes,
          at: time,
          into: &effects
        )
      default:
        try state.decideUnread(
          inThread: thread,
          user: user.span.bytes,
          message: message.span.bytes,
          epoch: epoch,
          at: time,
          into: &effects
        )
      }
      apply(effects)
      guard let row = state[thread].row(of: user.span.bytes) else { return .row(Self.zeroRow(user)) }
      return .row(view(thread, state.ownRow(thread, row)))
    }
  }

  func deciding(
    _ cid: String,
    _ clock: Int,
    _ decide: (ChannelSlot, Timestamp, inout [Effect]) throws(Refusal) -> Outcome
  ) -> Outcome {
    let time = state.advance(clock: Timestamp(milliseconds: Int64(clock)))
    var effects: [Effect] = []
    do throws(Refusal) {
      return try decide(try loaded(cid), time, &effects)
    } catch {
      if !effects.isEmpty { faults.append("refused with \(error), but left \(effects.count) effects") }
      apply([])
      return .refused(error.wireName)
    }
  }

  private static func zeroRow(_ user: [UInt8]) -> RowView {
    RowView(
      user: String(decoding: user, as: UTF8.self),
      lastReadAt: 0,
      lastRead: 0,
      lastReadID: "",
      lastDeliveredAt: 0,
      lastDelivered: 0,
      lastDeliveredID: "",
      own: RowView.OwnView(unread: 0, firstUnreadID: "", epoch: 0)
    )
  }

  // MARK: Queries

  /// A member's own row in a thread; nil if they have none.
  func threadRow(_ cid: String, _ user: String, under parent: Parent) -> RowView? {
    let (user, parent) = (Array(user.utf8), Array(parent.utf8))
    guard let slot = slot(cid), let member = try? state.member(user.span.bytes, in: slot),
      let thread = try? state.thread(of: parent.span.bytes, in: slot, for: member),
      let row = state[thread].row(of: user.span.bytes)
    else { return nil }
    return view(thread, state.ownRow(thread, row))
  }

  /// The numbers of unread messages and threads of a member; nil for other users.
  func unread(_ cid: String, _ user: String) -> UnreadView? {
    let (slot, user) = (slot(cid)!, Array(user.utf8))
    guard let unread = try? state.unread(slot, user.span.bytes) else { return nil }
    return UnreadView(
      messages: Int(unread.messages),
      threads: Int(unread.threads),
      mentions: Int(unread.mentions),
      isFlagged: unread.isFlagged,
      isMuted: unread.isMuted
    )
  }

  /// A list for a reply, queried as the store does: by the reply's id alone.
  func replyList(_ cid: String, _ id: String, _ viewer: Viewer, _ list: ListName) -> Result<
    [EntryView], NamedRefusal
  > {
    let (slot, id, user) = (slot(cid)!, Array(id.utf8), Array((viewer.user ?? "").utf8))
    do throws(Refusal) {
      let asker = try state.viewer(user.span.bytes, isServer: viewer.isServer, in: slot)
      let place = state.targetSlot(of: id.span.bytes, in: slot)
      let viewer = state.viewer(asker, in: place)
      var scan = try state.beginList(
        place,
        viewer: viewer,
        message: id.span.bytes,
        ShardState.ListQuery(MemberList(list), .joined, limit: 100),
        cursor: RawSpan(),
        times: MemberTimes(now: state.time)
      )
      var budget = Int.max
      _ = try state.advance(&scan, place, viewer: viewer, budget: &budget)
      if !scan.times.missing.isEmpty { faults.append("a thread's steps are nowhere but in memory") }
      return .success(
        scan.page.map { entry in
          EntryView(
            user: state.withUser(place, entry.row) { bytes in
              bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
            },
            at: Int(entry.at.milliseconds),
            isExact: entry.isExact,
            note: entry.note
          )
        }
      )
    } catch {
      return .failure(NamedRefusal(name: error.wireName))
    }
  }

  /// One user's status of a reply.
  func replyStatus(_ cid: String, _ id: String, _ viewer: Viewer, of user: String) -> MemberStatusResult {
    let (slot, id) = (slot(cid)!, Array(id.utf8))
    let (asking, user) = (Array((viewer.user ?? "").utf8), Array(user.utf8))
    do throws(Refusal) {
      let asker = try state.viewer(asking.span.bytes, isServer: viewer.isServer, in: slot)
      let place = state.targetSlot(of: id.span.bytes, in: slot)
      let viewer = state.viewer(asker, in: place)
      let message = try state.shownMessage(id.span.bytes, in: place, viewer)
      var times = MemberTimes(now: state.time)
      let status = try state.memberStatus(
        place,
        viewer: viewer,
        message,
        user: user.span.bytes,
        times: &times
      )
      return .status(MemberStatusView(status))
    } catch {
      return .refused(error.wireName)
    }
  }

  // MARK: Pages

  func threadPages(_ slot: ChannelSlot) -> [PageID] { state.threadPages(slot) }
}

extension ShardState {
  /// The pages of a channel's threads.
  func threadPages(_ slot: ChannelSlot) -> [PageID] {
    (0..<self[slot].threads.count).map { slot.thread($0) }.sorted { self[$0].parent < self[$1].parent }
      .flatMap { thread -> [PageID] in
        let rowPages = UInt32((self[thread].rows.rowCount + 255) / 256)
        let segments = UInt32(self[thread].messages.segmentCount)
        return (0..<rowPages).map { .threadRows(self[thread].parent, $0) }
          + (0..<segments).map { .threadSegment(self[thread].parent, $0) }
      }
  }

  /// The contents of the pages of a channel's threads.
  func threadContents(_ slot: ChannelSlot) -> [[Effect]] {
    threadPages(slot).map { effects(of: $0, in: slot) }
  }
}

extension NewMessage.Mentions {
  init(_ users: [String]) {
    self = users.isEmpty ? .nobody : users == [everybody] ? .all : .users(users)
  }
}
