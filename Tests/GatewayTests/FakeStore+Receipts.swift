import NIOCore
import ReceiptModel
import ReceiptWire

/// Acknowledgements and lists, as much of them as the gateway's tests need: times are made up of places, and by time
/// means by place too.
extension FakeModel {
  func checkViewer(_ user: String, _ channel: Channel) throws {
    guard !user.isEmpty else { return }
    try checkToken(of: user)
    guard channel.members.contains(where: { $0.user == user }) else { throw Refused(code: .notAMember) }
  }

  func checkToken(of user: String) throws {
    guard let issued = revocation.issued else { return }
    let isErased = erased[revocation.shard]?.contains(user) ?? false
    let before = settings[revocation.shard]?[user]?.tokensRevokedBefore.milliseconds ?? 0
    if Int64(issued) * 1_000 < before || isErased && issued < Self.eraseSeconds {
      throw Refused(code: .tokenRevoked)
    }
  }

  func receiptRefusal(of sender: String, _ channel: Channel) -> ReceiptRefusal {
    if let roles = channel.options.receiptRequestRoles {
      let role = channel.members.first { $0.user == sender }?.row.role ?? ""
      if !roles.contains(role) { return .notAllowed }
    }
    if let limit = channel.options.receiptDailyLimit, channel.receipts.count >= limit { return .limitReached }
    return .none
  }

  func acknowledge(
    _ channel: inout Channel,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    let (user, note) = (try reader.text(), try reader.text())
    try checkToken(of: user)
    guard channel.members.contains(where: { $0.user == user }) else { throw Refused(code: .notAMember) }
    let count = try reader.count()
    fields.writeVarint(count)
    for _ in 0..<count {
      let id = try reader.text()
      let code = acknowledgementCode(id, user, channel)
      fields.writeVarint(UInt64(code?.rawValue ?? 0))
      if code == nil, channel.receipts[id]?[user] == nil { channel.receipts[id]?[user] = note }
    }
  }

  private func acknowledgementCode(_ id: String, _ user: String, _ channel: Channel) -> ErrorCode? {
    if channel.deleted.contains(id) { return .messageDeleted }
    guard let place = channel.messages.firstIndex(of: id) else { return .messageNotFound }
    if channel.receipts[id] == nil { return .receiptNotRequested }
    if channel.senders[place] == user { return .ownMessage }
    return channel.options.receiptTTL == 1 ? .receiptExpired : nil
  }

  private func place(of id: String, _ channel: Channel) throws -> Int {
    if channel.deleted.contains(id) { throw Refused(code: .messageDeleted) }
    guard let place = channel.messages.firstIndex(of: id) else { throw Refused(code: .messageNotFound) }
    return place
  }

  private func hidesCounts(_ channel: Channel, _ place: Int, from user: String, isServer: Bool) -> Bool {
    channel.options.countsVisibleTo == .sender && channel.senders[place] != user
      && !(isServer && user.isEmpty)
  }

  func listMembers(_ channel: Channel, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    let asked = try ListMembersRequest(&reader)
    let (user, id) = (text(asked.viewer.user), text(asked.message))
    try checkViewer(user, channel)
    let place = try place(of: id, channel)
    if hidesCounts(channel, place, from: user, isServer: asked.viewer.isServer) {
      throw Refused(code: .countsNotVisible)
    }
    if asked.order == 1, channel.members.count > 4 { throw Refused(code: .orderNotAvailable) }
    // Of both orders the cursor is the place, with something behind it in the order of time.
    let prefix = asked.order == 0 ? "j" : "t"
    var first = 0
    let cursor = text(asked.cursor)
    if !cursor.isEmpty {
      let digits = cursor.dropFirst().prefix(while: { $0 != "-" })
      guard cursor.hasPrefix(prefix), let number = Int(digits) else { throw Refused(code: .invalidCursor) }
      first = number
    }
    let found = channel.members.enumerated().filter { offset, member in
      guard member.user != channel.senders[place], member.row.joined <= place else { return false }
      let hasRead = member.row.read > place || channel.receipts[id]?[member.user] != nil
      switch asked.list {
      case 0: return hasRead
      case 1: return !hasRead && member.row.delivered > place
      default: return !hasRead
      }
    }.filter { $0.offset >= first }
    let page = found.prefix(Int(asked.limit))
    fields.writeVarint(page.count)
    for (offset, member) in page {
      let entry = ListEntry(
        row: MemberOrdinal(UInt32(offset)),
        at: asked.list == 2 ? .none : Timestamp(milliseconds: 1_000 + Int64(offset)),
        isExact: offset != 2,
        note: asked.list == 0 ? channel.receipts[id]?[member.user] ?? "" : ""
      )
      fields.writeListEntry(user: Array(member.user.utf8).span.bytes, entry)
    }
    let next = found.dropFirst(page.count).first.map { "\(prefix)\($0.offset)" } ?? ""
    fields.writeField(next.isEmpty || asked.order == 0 ? next : "\(next)-\(page.last?.element.user ?? "")")
    if asked.cursor.isEmpty { fields.writeVarint(found.count) }
  }

  func memberStatuses(_ channel: Channel, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    let asked = try MemberStatusesRequest(&reader)
    let (viewer, id) = (text(asked.viewer.user), text(asked.message))
    try checkViewer(viewer, channel)
    let place = try place(of: id, channel)
    let isHidden = hidesCounts(channel, place, from: viewer, isServer: asked.viewer.isServer)
    fields.writeVarint(asked.users.count)
    asked.users.forEach { name in
      let user = text(name)
      let bytes = Array(user.utf8)
      guard let row = channel.members.first(where: { $0.user == user })?.row else {
        return fields.writeMemberStatus(user: bytes.span.bytes, refused: .notAMember)
      }
      if isHidden && user != viewer {
        fields.writeMemberStatus(user: bytes.span.bytes, refused: .countsNotVisible)
      } else if row.joined > place {
        fields.writeMemberStatus(user: bytes.span.bytes, refused: .notExpected)
      } else {
        let (hasRead, hasIt) = (row.read > place, max(row.read, row.delivered) > place)
        let status = MemberStatus(
          status: hasRead ? .read : hasIt ? .delivered : .sent,
          readAt: hasRead ? Timestamp(milliseconds: 2_000) : .none,
          deliveredAt: hasIt ? Timestamp(milliseconds: 1_000) : .none,
          readIsExact: user != "dave",
          deliveredIsExact: user != "dave"
        )
        fields.writeMemberStatus(user: bytes.span.bytes, status)
      }
    }
  }

  private func text(_ bytes: RawSpan) -> String {
    bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }
}
