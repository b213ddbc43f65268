import NIOCore
import ReceiptModel
import ReceiptWire

/// A user's channels and their unread counts. Index positions have gaps, as after leaving channels.
extension FakeModel {
  private func indexPosition(_ offset: Int) -> UInt64 { UInt64(offset) * 3 + 1 }

  private func knows(_ cid: String, _ user: String, all: Bool) -> Bool {
    guard let channel = channels[cid] else { return false }
    if channel.members.contains(where: { $0.user == user }) { return true }
    return all && (channel.senders.contains(user) || stale[user]?.contains(cid) ?? false)
  }

  func listChannels(
    _ header: FrameHeader,
    _ user: String,
    _ tokenIssued: UInt32?,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    let owner = ShardID.owning(Array(user.utf8).span.bytes, count: Int(shardCount))
    guard owner == header.shard else { throw Refused(code: .wrongShard) }
    let flags = try reader.varint()
    let all = flags & 1 == 1
    let limit = Int(try reader.varint())
    let cursor = try reader.optional() ?? 0
    let since = flags & 2 == 2 ? try reader.time().milliseconds : nil
    try reader.end()
    if let since, since < events.keepsDeletedSince { throw Refused(code: .limitReached) }
    guard (1...1_000).contains(limit) else { throw Refused(code: .invalidField) }
    revocation = (header.shard.rawValue, tokenIssued)
    try checkToken(of: user)
    let known = order.enumerated().filter {
      indexPosition($0.offset) >= cursor && knows($0.element, user, all: all)
    }
    let page = known.prefix(min(limit, listMax))
    let isLast = page.count == known.count
    let left = all && isLast ? events.left[user] ?? [] : []
    let deleted = (events.deleted[user] ?? []).filter { item in since.map { item.at >= $0 } ?? false }
    let gone = isLast ? deleted.filter { item in !page.contains { $0.element == item.cid } } : []
    fields.writeVarint(page.count + left.count + gone.count)
    for (_, cid) in page {
      let row = channels[cid]?.members.firstIndex { $0.user == user }
      ChannelEntryFields(
        cid: cid,
        row: row.map { UInt32($0) },
        isMember: row != nil,
        joinedAt: Timestamp(milliseconds: deleted.first { $0.cid == cid }?.at ?? 6),
        deletedAt: Timestamp(milliseconds: deleted.first { $0.cid == cid }?.at ?? 0)
      ).write(into: &fields)
    }
    for (cid, time) in gone {
      let deletedAt = Timestamp(milliseconds: time)
      ChannelEntryFields(cid: cid, row: nil, isMember: false, joinedAt: .none, deletedAt: deletedAt)
        .write(into: &fields)
    }
    for cid in left {
      let time = Timestamp(milliseconds: 6)
      ChannelEntryFields(cid: cid, row: nil, isMember: false, joinedAt: time).write(into: &fields)
    }
    fields.writeOptional(page.count < known.count ? page.last.map { indexPosition($0.offset) + 1 } ?? 0 : nil)
    // The index drops erased members a little later than their channels do.
    if all, cursor == 0 {
      staleLists -= 1
      if staleLists <= 0 { stale[user] = nil }
    }
  }

  func unreadCounts(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ mode: FakeStore.Mode,
    fields: inout ByteBuffer
  ) throws {
    let count = try reader.count()
    guard (1...1_024).contains(count) else { throw Refused(code: .invalidField) }
    countFrames.append(count)
    fields.writeVarint(count)
    for _ in 0..<count {
      let (cid, user) = (try reader.text(), try reader.text())
      _ = try reader.varint32()
      let owner = ShardID.owning(Array(cid.utf8).span.bytes, count: Int(shardCount))
      guard owner == header.shard else { throw Refused(code: .wrongShard) }
      unreadCount(cid, user, mode).write(into: &fields)
    }
    try reader.end()
  }

  private func unreadCount(_ cid: String, _ user: String, _ mode: FakeStore.Mode) -> UnreadCountFields {
    if case .refusingChannel(cid, let code) = mode { return .refused(code) }
    guard let channel = channels[cid] else { return .refused(.channelNotFound) }
    guard let member = channel.members.first(where: { $0.user == user })?.row else {
      return .refused(.notAMember)
    }
    let threads = channel.threads.values.count { ($0.read[user] ?? $0.replies.count) < $0.replies.count }
    let position = min(member.read, member.marker ?? member.read)
    return .found(
      UnreadCounts(
        messages: UInt32(channel.messages.count) - position,
        threads: UInt32(threads),
        mentions: member.mentions,
        isFlagged: member.isFlagged,
        isMuted: member.isMuted
      )
    )
  }
}

/// A thread: its replies, and how many of them each participant has read.
struct FakeThread {
  var replies: [String] = []
  var read: [String: Int] = [:]
}

extension FakeModel {
  /// The request's thread, which follows all other fields; nil for none.
  func thread(_ reader: inout FieldReader) throws -> String? {
    guard hasThread else { return nil }
    let parent = try reader.text()
    guard !parent.isEmpty else { throw Refused(code: .malformedFrame) }
    return parent
  }

  private func check(_ parent: String, _ channel: Channel) throws {
    if channel.threads.values.contains(where: { $0.replies.contains(parent) }) {
      throw Refused(code: .invalidField, detail: "parent_id: a reply has no replies")
    }
    if channel.deleted.contains(parent) { throw Refused(code: .messageDeleted) }
    guard channel.messages.contains(parent) else { throw Refused(code: .messageNotFound) }
  }

  /// Answer register_message for a reply.
  func reply(
    _ id: String,
    _ user: String,
    to parent: String,
    _ channel: inout Channel,
    fields: inout ByteBuffer
  ) throws {
    try check(parent, channel)
    let known = channel.threads[parent]?.replies.firstIndex(of: id)
    if known == nil {
      var thread = channel.threads[parent] ?? FakeThread()
      thread.replies.append(id)
      thread.read[user] = thread.replies.count
      if let index = channel.messages.firstIndex(of: parent), !channel.senders[index].isEmpty {
        let sender = channel.senders[index]
        thread.read[sender] = thread.read[sender] ?? 0
      }
      channel.threads[parent] = thread
    }
    RegistrationReply(
      isNew: known == nil,
      sequence: SequenceNumber(UInt32((known ?? (channel.threads[parent]?.replies.count ?? 0) - 1) + 1)),
      status: .sent,
      receiptRefusal: .none
    )
    .write(into: &fields)
  }

  /// A mark in a thread; its row has the thread's sequence numbers.
  func markThread(
    _ kind: FrameKind,
    _ parent: String,
    _ user: String,
    _ message: String,
    _ channel: inout Channel,
    fields: inout ByteBuffer
  ) throws {
    try check(parent, channel)
    let replies = channel.threads[parent]?.replies ?? []
    var sequence = replies.count
    if !message.isEmpty {
      guard let index = replies.firstIndex(of: message) else { throw Refused(code: .messageNotFound) }
      sequence = index + 1
    }
    switch kind {
    case .markRead:
      channel.threads[parent, default: FakeThread()].read[user] = sequence
    case .markUnread:
      guard channel.threads[parent]?.read[user] != nil else {
        throw Refused(code: .notInThread)
      }
      channel.threads[parent]?.read[user] = message.isEmpty ? 0 : sequence - 1
    default: break
    }
    let read = channel.threads[parent]?.read[user] ?? 0
    fields.write(
      ShownRow(
        row: MemberOrdinal(0),
        lastRead: Timestamp(milliseconds: 3),
        lastReadSequence: SequenceNumber(UInt32(read)),
        lastDelivered: .none,
        lastDeliveredSequence: .zero,
        own: ShownRow.OwnDetails(
          unreadMessages: UInt32(replies.count - read),
          firstUnread: .zero,
          unreadEpoch: 0,
          isOwn: true
        )
      ),
      user: user,
      lastReadMessage: read > 0 ? replies[read - 1] : "",
      firstUnreadMessage: read < replies.count ? replies[read] : ""
    )
  }
}
