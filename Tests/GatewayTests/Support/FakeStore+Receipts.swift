import NIOCore
import ReceiptModel
import ReceiptWire

/// The part of acknowledgements and lists that the gateway's tests need. Times are derived from member indexes, so
/// order by time is order by index.
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
    var codes: [ErrorCode?] = []
    for _ in 0..<count {
      let id = try reader.text()
      let code = acknowledgementCode(id, user, channel)
      codes.append(code)
      if code == nil, channel.receipts[id]?[user] == nil { channel.receipts[id]?[user] = note }
    }
    AcknowledgeReply(codes: codes).write(into: &fields)
  }

  private func acknowledgementCode(_ id: String, _ user: String, _ channel: Channel) -> ErrorCode? {
    if channel.deleted.contains(id) { return .messageDeleted }
    guard let index = channel.messages.firstIndex(of: id) else { return .messageNotFound }
    if channel.receipts[id] == nil { return .receiptNotRequested }
    if channel.senders[index] == user { return .ownMessage }
    return channel.options.receiptTTL == 1 ? .receiptExpired : nil
  }

  private func messageIndex(of id: String, _ channel: Channel) throws -> Int {
    if channel.deleted.contains(id) { throw Refused(code: .messageDeleted) }
    guard let index = channel.messages.firstIndex(of: id) else { throw Refused(code: .messageNotFound) }
    return index
  }

  private func hidesCounts(_ channel: Channel, _ index: Int, from user: String, isServer: Bool) -> Bool {
    channel.options.countsVisibleTo == .sender && channel.senders[index] != user
      && !(isServer && user.isEmpty)
  }

  func listMembers(_ channel: Channel, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    let request = try ListMembersRequest(&reader)
    let (user, id) = (text(request.viewer.user), text(request.message))
    try checkViewer(user, channel)
    let index = try messageIndex(of: id, channel)
    if hidesCounts(channel, index, from: user, isServer: request.viewer.isServer) {
      throw Refused(code: .countsNotVisible)
    }
    if request.order == 1, channel.members.count > 4 { throw Refused(code: .orderNotAvailable) }
    // In both orders the cursor is the member's index. In time order it has a suffix.
    let prefix = request.order == 0 ? "j" : "t"
    var first = 0
    let cursor = text(request.cursor)
    if !cursor.isEmpty {
      let digits = cursor.dropFirst().prefix(while: { $0 != "-" })
      guard cursor.hasPrefix(prefix), let number = Int(digits) else { throw Refused(code: .invalidCursor) }
      first = number
    }
    let found = channel.members.enumerated().filter { offset, member in
      guard member.user != channel.senders[index], member.row.joined <= index else { return false }
      let hasRead = member.row.read > index || channel.receipts[id]?[member.user] != nil
      switch request.list {
      case 0: return hasRead
      case 1: return !hasRead && member.row.delivered > index
      default: return !hasRead
      }
    }.filter { $0.offset >= first }
    let page = found.prefix(Int(request.limit))
    fields.writeVarint(page.count)
    for (offset, member) in page {
      let entry = ListEntry(
        row: MemberOrdinal(UInt32(offset)),
        at: request.list == 2 ? .none : Timestamp(milliseconds: 1_000 + Int64(offset)),
        isExact: offset != 2,
        note: request.list == 0 ? channel.receipts[id]?[member.user] ?? "" : ""
      )
      fields.writeListEntry(user: Array(member.user.utf8).span.bytes, entry)
    }
    let next = found.dropFirst(page.count).first.map { "\(prefix)\($0.offset)" } ?? ""
    fields.writeField(next.isEmpty || request.order == 0 ? next : "\(next)-\(page.last?.element.user ?? "")")
    if request.cursor.isEmpty { fields.writeVarint(found.count) }
  }

  func memberStatuses(_ channel: Channel, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    let request = try MemberStatusesRequest(&reader)
    let (viewer, id) = (text(request.viewer.user), text(request.message))
    try checkViewer(viewer, channel)
    let index = try messageIndex(of: id, channel)
    let isHidden = hidesCounts(channel, index, from: viewer, isServer: request.viewer.isServer)
    fields.writeVarint(request.users.count)
    request.users.forEach { name in
      let user = text(name)
      let bytes = Array(user.utf8)
      guard let row = channel.members.first(where: { $0.user == user })?.row else {
        return fields.writeMemberStatus(user: bytes.span.bytes, refused: .notAMember)
      }
      if isHidden && user != viewer {
        fields.writeMemberStatus(user: bytes.span.bytes, refused: .countsNotVisible)
      } else if row.joined > index {
        fields.writeMemberStatus(user: bytes.span.bytes, refused: .notExpected)
      } else {
        let (hasRead, isDelivered) = (row.read > index, max(row.read, row.delivered) > index)
        let status = MemberStatus(
          status: hasRead ? .read : isDelivered ? .delivered : .sent,
          readAt: hasRead ? Timestamp(milliseconds: 2_000) : .none,
          deliveredAt: isDelivered ? Timestamp(milliseconds: 1_000) : .none,
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
