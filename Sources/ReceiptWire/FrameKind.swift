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
  case shardMap = 0x09
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
  case markReplicated = 0x1C
  case deleteChannel = 0x1D
  case truncateChannel = 0x1E
  case eraseMember = 0x1F
  case getChannel = 0x20
  case readState = 0x21
  case statuses = 0x22
  case getChannelType = 0x23
  case listChannelTypes = 0x24
  case getUser = 0x25
  case listUnreplicated = 0x26
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
  case deliverChanges = 0x50
  case confirmChanges = 0x51
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
  case markReplicatedReply = 0x9C
  case deleteChannelReply = 0x9D
  case truncateChannelReply = 0x9E
  case eraseMemberReply = 0x9F
  case getChannelReply = 0xA0
  case readStateReply = 0xA1
  case statusesReply = 0xA2
  case getChannelTypeReply = 0xA3
  case listChannelTypesReply = 0xA4
  case getUserReply = 0xA5
  case listUnreplicatedReply = 0xA6
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
  /// Return whether a kind's number is a command's.
  package static func isCommand(_ number: UInt8) -> Bool {
    number & 0xF0 == 0x10 || isLateCommand(number) || number &- 0x40 < 0x0C && !isQuery(number)
  }
  /// Whether this is a query: the other kinds of 0x20 to 0x3F, 0x44 and 0x45. A query carries no counter; repeating it
  /// is harmless.
  package var isQuery: Bool { Self.isQuery(rawValue) }
  private static func isQuery(_ number: UInt8) -> Bool {
    number & 0xE0 == 0x20 && !isLateCommand(number) || number & 0xFE == 0x44
  }
  /// Return whether a number is a command's within the range of queries.
  private static func isLateCommand(_ number: UInt8) -> Bool { (0x3A...0x3C).contains(number) }
  package var isRequest: Bool { isCommand || isQuery }
  /// Whether this is the reply to a query.
  package var isReplyToQuery: Bool { rawValue & 0x80 != 0 && Self.isQuery(rawValue & 0x7F) }
  /// Whether this is a backup request, 0x4C to 0x4F. It is about the whole store and names no shard; it carries no
  /// counter and is never resent.
  package var isBackup: Bool { rawValue & 0xFC == 0x4C }
  /// Whether this is a message between the nodes of a cluster, 0x50 to 0x57. It has no reply and no counter.
  package var isBetweenNodes: Bool { rawValue & 0xF8 == 0x50 }

  /// The kind of the reply to this request.
  package var reply: FrameKind {
    precondition(isRequest || isBackup, "only requests have replies")
    return FrameKind(rawValue: rawValue | 0x80)!
  }
}
