package import NIOCore
package import ReceiptModel

/// The kind of a frame, which defines its payload (Proto/frames.md). A reply has its request's kind with bit 7 set.
package enum FrameKind: UInt8, Sendable, CaseIterable {
  case hello = 0x01
  case challenge = 0x02
  case proof = 0x03
  case ready = 0x04
  case ping = 0x05
  case pong = 0x06
  case drain = 0x07
  case events = 0x08
  case error = 0x0F
  case putChannel = 0x10
  case changeMembers = 0x11
  case registerMessage = 0x12
  case deleteMessage = 0x13
  case markRead = 0x14
  case markUnread = 0x15
  case markDelivered = 0x16
  case patchChannelType = 0x17
  case assignChannelType = 0x18
  case acknowledge = 0x19
  case patchUser = 0x1A
  case assignUser = 0x1B
  case settle = 0x1C
  case deleteChannel = 0x1D
  case truncateChannel = 0x1E
  case eraseMember = 0x1F
  case getChannel = 0x20
  case readState = 0x21
  case statuses = 0x22
  case getChannelType = 0x23
  case listChannelTypes = 0x24
  case getUser = 0x25
  case listUnsettled = 0x26
  case listMembers = 0x27
  case memberStatuses = 0x28
  case listChannels = 0x29
  case unreadCounts = 0x2A
  case purge = 0x2B
  case rebuildIndex = 0x2C
  case ticketPlace = 0x2D
  case webhookKnown = 0x2E
  case subscribe = 0x30
  case unsubscribe = 0x31
  case subscribeUser = 0x32
  case announceRow = 0x33
  case getToken = 0x34
  case listRevokedTokens = 0x35
  case threadReadState = 0x37
  case userReceipts = 0x38
  case userThreads = 0x39
  case setMember = 0x3A
  case markUnreadSince = 0x3B
  case acknowledgePush = 0x40
  case redeemTicket = 0x41
  case noteWebhook = 0x42
  case presentTicket = 0x43
  case listRoster = 0x44
  case listMessages = 0x45
  case revokeToken = 0x46
  case backupBegin = 0x4C
  case backupRead = 0x4D
  case backupDigest = 0x4E
  case backupEnd = 0x4F
  case putChannelReply = 0x90
  case changeMembersReply = 0x91
  case registerMessageReply = 0x92
  case deleteMessageReply = 0x93
  case markReadReply = 0x94
  case markUnreadReply = 0x95
  case markDeliveredReply = 0x96
  case patchChannelTypeReply = 0x97
  case assignChannelTypeReply = 0x98
  case acknowledgeReply = 0x99
  case patchUserReply = 0x9A
  case assignUserReply = 0x9B
  case settleReply = 0x9C
  case deleteChannelReply = 0x9D
  case truncateChannelReply = 0x9E
  case eraseMemberReply = 0x9F
  case getChannelReply = 0xA0
  case readStateReply = 0xA1
  case statusesReply = 0xA2
  case getChannelTypeReply = 0xA3
  case listChannelTypesReply = 0xA4
  case getUserReply = 0xA5
  case listUnsettledReply = 0xA6
  case listMembersReply = 0xA7
  case memberStatusesReply = 0xA8
  case listChannelsReply = 0xA9
  case unreadCountsReply = 0xAA
  case purgeReply = 0xAB
  case rebuildIndexReply = 0xAC
  case ticketPlaceReply = 0xAD
  case webhookKnownReply = 0xAE
  case subscribeReply = 0xB0
  case unsubscribeReply = 0xB1
  case subscribeUserReply = 0xB2
  case announceRowReply = 0xB3
  case getTokenReply = 0xB4
  case listRevokedTokensReply = 0xB5
  case threadReadStateReply = 0xB7
  case userReceiptsReply = 0xB8
  case userThreadsReply = 0xB9
  case setMemberReply = 0xBA
  case markUnreadSinceReply = 0xBB
  case acknowledgePushReply = 0xC0
  case redeemTicketReply = 0xC1
  case noteWebhookReply = 0xC2
  case presentTicketReply = 0xC3
  case listRosterReply = 0xC4
  case listMessagesReply = 0xC5
  case revokeTokenReply = 0xC6
  case backupBeginReply = 0xCC
  case backupReadReply = 0xCD
  case backupDigestReply = 0xCE
  case backupEndReply = 0xCF

  /// Whether this is a command: 0x10 to 0x1F, 0x3A to 0x3C and 0x40 to 0x4B, except the queries among them. A command
  /// carries the session's counter and may change state.
  package var isCommand: Bool { Self.isCommand(rawValue) }
  /// Whether a kind's number is a command's.
  package static func isCommand(_ number: UInt8) -> Bool {
    number & 0xF0 == 0x10 || isLateCommand(number) || number &- 0x40 < 0x0C && !isQuery(number)
  }
  /// Whether this is a query: the other kinds of 0x20 to 0x3F, 0x44 and 0x45. A query carries no counter; repeating it
  /// is harmless.
  package var isQuery: Bool { Self.isQuery(rawValue) }
  private static func isQuery(_ number: UInt8) -> Bool {
    number & 0xE0 == 0x20 && !isLateCommand(number) || number & 0xFE == 0x44
  }
  /// Whether a number is a command's within the range of queries.
  private static func isLateCommand(_ number: UInt8) -> Bool { (0x3A...0x3C).contains(number) }
  package var isRequest: Bool { isCommand || isQuery }
  /// Whether this is the reply to a query.
  package var isReplyToQuery: Bool { rawValue & 0x80 != 0 && Self.isQuery(rawValue & 0x7F) }
  /// Whether this is a backup request, 0x4C to 0x4F. It is about the whole store and names no shard; it carries no
  /// counter and is never resent.
  package var isBackup: Bool { rawValue & 0xFC == 0x4C }

  /// The kind of the reply to this request.
  package var reply: FrameKind {
    precondition(isRequest || isBackup, "only requests have replies")
    return FrameKind(rawValue: rawValue | 0x80)!
  }
}

/// The 12-byte header before a payload.
package struct FrameHeader: Hashable, Sendable {
  package static let byteCount = 12
  /// Offsets of the fields after the length, which is at offset 0.
  package static let kindOffset = 4
  package static let flagsOffset = 5
  package static let shardOffset = 6
  package static let correlationOffset = 8
  /// Size of the suffix of a frame with the flag `issued`.
  package static let issuedByteCount = 4
  /// Number of bytes besides the payload that the length field counts.
  static let lengthOverhead = 8
  /// The longest frame that this build accepts and sends, as counted by the length field.
  package static let lengthLimitDefault: UInt32 = 1 << 20

  @usableFromInline
  package struct Flags: FlagSet {
    @usableFromInline package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    /// The frame was sent before, on a connection that was lost.
    package static let resend = Flags(rawValue: 1)
    /// Requests only: the payload ends with ``issuedByteCount`` more bytes, the issue time of the user's token in
    /// seconds since 1970, in network order.
    package static let issued = Flags(rawValue: 2)
    /// Requests only: after the kind's fields comes the thread's parent message, a string that is not empty.
    package static let thread = Flags(rawValue: 4)
    static let known: UInt8 = 7
    /// The flags that only requests may have.
    package static let ofRequests = Flags(rawValue: 6)
  }

  package var kind: FrameKind
  package var flags: Flags
  package var shard: ShardID
  package var correlation: UInt32

  package init(
    _ kind: FrameKind,
    flags: Flags = Flags(),
    shard: ShardID = ShardID(0),
    correlation: UInt32 = 0
  ) {
    self.kind = kind
    self.flags = flags
    self.shard = shard
    self.correlation = correlation
  }

  /// Store the header in the first ``byteCount`` bytes of `target`, with a length of 0. Inlined: most of a request's
  /// cost is writing it.
  @inline(__always)
  package func store(in target: UnsafeMutableRawBufferPointer) {
    target.storeBytes(of: 0, as: UInt32.self)
    target[Self.kindOffset] = kind.rawValue
    target[Self.flagsOffset] = flags.rawValue
    target.storeBytes(of: shard.rawValue.bigEndian, toByteOffset: Self.shardOffset, as: UInt16.self)
    target.storeBytes(of: correlation.bigEndian, toByteOffset: Self.correlationOffset, as: UInt32.self)
  }
}

extension ByteBuffer {
  /// Write a frame: the header, then the output of `fields`, then fill in the length.
  package mutating func writeFrame(_ header: FrameHeader, _ fields: (inout ByteBuffer) -> Void) {
    let start = beginFrame(header)
    fields(&self)
    endFrame(start)
  }

  /// Write a header whose length is not known yet; return the frame's start, for `endFrame`.
  package mutating func beginFrame(_ header: FrameHeader) -> Int {
    let start = writerIndex
    writeWithUnsafeMutableBytes(minimumWritableBytes: FrameHeader.byteCount) { target in
      header.store(in: target)
      return FrameHeader.byteCount
    }
    return start
  }

  /// Fill in the length of the frame that began at `start`.
  package mutating func endFrame(_ start: Int) {
    setInteger(UInt32(writerIndex - start - 4), at: start)
  }

  /// Maximum length of an error's detail, in bytes.
  private static let detailBytesMax = 256

  /// Write an error frame; truncate the detail to 256 bytes, at the boundary of a Unicode scalar.
  package mutating func writeError(
    _ code: ErrorCode,
    shard: ShardID = ShardID(0),
    correlation: UInt32 = 0,
    retryAfterMilliseconds: UInt32 = 0,
    detail: String = ""
  ) {
    writeFrame(FrameHeader(.error, shard: shard, correlation: correlation)) { buffer in
      buffer.writeVarint(UInt64(code.rawValue))
      buffer.writeVarint(retryAfterMilliseconds)
      buffer.writeField(Self.truncatedDetail(detail))
    }
  }

  private static func truncatedDetail(_ detail: String) -> String {
    guard detail.utf8.count > detailBytesMax else { return detail }
    var end = detail.utf8.index(detail.startIndex, offsetBy: detailBytesMax)
    while end.samePosition(in: detail.unicodeScalars) == nil { end = detail.utf8.index(before: end) }
    return String(detail[..<end])
  }
}

/// Splits a byte stream into frames. Lengths, kinds and flags are checked at the header, before any payload is awaited.
package struct FrameDecoder: Sendable {
  /// The largest length field accepted.
  package var lengthLimit: UInt32

  package init(lengthLimit: UInt32 = FrameHeader.lengthLimitDefault) { self.lengthLimit = lengthLimit }

  /// The result of looking at the start of a buffer.
  package enum Next: Equatable {
    /// A whole frame: its header, and the number of payload bytes after the 12 header bytes.
    case frame(FrameHeader, payloadCount: Int)
    /// The buffer must have at least this many bytes to continue.
    case needs(Int)
  }

  /// Decode the frame that starts at `offset` in `bytes`.
  ///
  /// - Throws: ``WireError`` if the header is refused; the stream cannot be read further.
  package func next(_ bytes: RawSpan, at offset: Int) throws(WireError) -> Next {
    let available = bytes.byteCount - offset
    guard available >= 4 else { return .needs(FrameHeader.byteCount) }
    let length = UInt32(bigEndian: bytes.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt32.self))
    guard length >= FrameHeader.lengthOverhead else { throw .lengthTooSmall }
    guard length <= lengthLimit else { throw .lengthTooLarge(length) }
    guard available >= 6 else { return .needs(FrameHeader.byteCount) }
    let rawKind = bytes.unsafeLoad(fromByteOffset: offset + FrameHeader.kindOffset, as: UInt8.self)
    guard let kind = FrameKind(rawValue: rawKind) else { throw .unknownKind(rawKind) }
    let rawFlags = bytes.unsafeLoad(fromByteOffset: offset + FrameHeader.flagsOffset, as: UInt8.self)
    let flags = FrameHeader.Flags(rawValue: rawFlags)
    guard rawFlags & ~FrameHeader.Flags.known == 0,
      kind.isRequest || flags.isDisjoint(with: FrameHeader.Flags.ofRequests)
    else {
      throw .badFlags(rawFlags)
    }
    guard available >= Int(length) + 4 else { return .needs(Int(length) + 4) }
    let shard = UInt16(
      bigEndian: bytes.unsafeLoadUnaligned(fromByteOffset: offset + FrameHeader.shardOffset, as: UInt16.self)
    )
    let correlation = UInt32(
      bigEndian: bytes.unsafeLoadUnaligned(
        fromByteOffset: offset + FrameHeader.correlationOffset,
        as: UInt32.self
      )
    )
    let header = FrameHeader(
      kind,
      flags: flags,
      shard: ShardID(shard),
      correlation: correlation
    )
    return .frame(header, payloadCount: Int(length) - FrameHeader.lengthOverhead)
  }
}
