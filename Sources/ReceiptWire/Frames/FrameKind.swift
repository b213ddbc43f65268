import ReceiptModel

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
  case deliverChanges = 0x50
  case confirmChanges = 0x51
  case snapshotBegin = 0x52
  case snapshotRead = 0x53
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
  case snapshotBeginReply = 0xD2
  case snapshotReadReply = 0xD3

  /// Whether this is a command, which carries the session's counter and may change state.
  package var isCommand: Bool { traits.contains(.command) }
  /// Whether this is a request without a counter; repeating it is harmless.
  package var isIdempotent: Bool { traits.contains(.idempotent) }
  /// Whether this is a request of a session: with a counter, or idempotent.
  package var isRequest: Bool { !traits.isDisjoint(with: .request) }
  /// Whether this is a backup request. It is about the whole store and names no shard. It carries no counter and is
  /// never resent.
  package var isBackup: Bool { traits.contains(.backup) }
  /// Whether this is a node's request for another's data. It is about a group and names no shard. It carries no counter
  /// and is never resent.
  package var isSnapshot: Bool { traits.contains(.snapshot) }
  /// Whether this is a message between the nodes of a cluster. It has no reply and no counter.
  package var isBetweenNodes: Bool { self == .deliverChanges || self == .confirmChanges }

  /// The bit that a reply's kind has besides the bits of its request's kind.
  package static let replyBit: UInt8 = 0x80

  package var isReply: Bool { rawValue & Self.replyBit != 0 }

  /// Whether this is the reply to an idempotent request.
  package var isReplyToIdempotent: Bool {
    isReply && FrameKind(rawValue: rawValue & ~Self.replyBit)?.isIdempotent == true
  }

  /// Return whether this is the reply to a request of `kind`. Cheaper than a comparison with ``reply``, which checks
  /// the kind.
  @inline(__always)
  package func isReply(to kind: FrameKind) -> Bool { rawValue == kind.rawValue | Self.replyBit }

  /// Whether this is a request of any class, whose reply has a kind of its own.
  package var hasReply: Bool { !traits.isEmpty }

  /// The kind of the reply to this request.
  package var reply: FrameKind {
    precondition(hasReply, "only requests have replies")
    return FrameKind(rawValue: rawValue | Self.replyBit)!
  }

  /// The properties of a request's kind; empty for other frames.
  package var traits: RequestTraits {
    switch self {
    case .putChannel, .changeMembers: [.command, .named, .orderedByChannel, .wide]
    case .registerMessage, .markRead, .markUnread, .markDelivered, .markUnreadSince:
      [.command, .named, .orderedByChannel, .thread]
    case .deleteMessage, .acknowledge, .deleteChannel, .truncateChannel, .eraseMember, .setMember, .acknowledgePush:
      [.command, .named, .orderedByChannel]
    case .patchChannelType, .assignChannelType, .patchUser, .assignUser, .settle, .noteWebhook, .revokeToken:
      [.command, .named]
    case .redeemTicket: [.command, .orderedByChannel]
    case .presentTicket: [.command]
    case .getChannel, .readState, .statuses, .listMembers, .memberStatuses, .listRoster, .listMessages,
      .threadReadState, .userReceipts, .userThreads, .ticketPlace, .subscribeUser, .announceRow:
      [.idempotent, .named, .orderedByChannel]
    case .subscribe, .unsubscribe: [.idempotent, .orderedByChannel]
    case .getChannelType, .getUser, .listChannels, .webhookKnown, .getToken: [.idempotent, .named]
    case .unreadCounts: [.idempotent, .wide]
    case .listChannelTypes, .listUnsettled, .purge, .rebuildIndex, .listRevokedTokens: [.idempotent]
    case .backupBegin, .backupRead, .backupDigest, .backupEnd: [.backup]
    case .snapshotBegin, .snapshotRead: [.snapshot]
    case .hello, .challenge, .proof, .ready, .ping, .pong, .drain, .events, .shardMap, .error: []
    case .deliverChanges, .confirmChanges: []
    case .putChannelReply, .changeMembersReply, .registerMessageReply, .deleteMessageReply, .markReadReply,
      .markUnreadReply, .markDeliveredReply, .patchChannelTypeReply, .assignChannelTypeReply, .acknowledgeReply,
      .patchUserReply, .assignUserReply, .settleReply, .deleteChannelReply, .truncateChannelReply, .eraseMemberReply,
      .getChannelReply, .readStateReply, .statusesReply, .getChannelTypeReply, .listChannelTypesReply, .getUserReply,
      .listUnsettledReply, .listMembersReply, .memberStatusesReply, .listChannelsReply, .unreadCountsReply, .purgeReply,
      .rebuildIndexReply, .ticketPlaceReply, .webhookKnownReply, .subscribeReply, .unsubscribeReply,
      .subscribeUserReply, .announceRowReply, .getTokenReply, .listRevokedTokensReply, .threadReadStateReply,
      .userReceiptsReply, .userThreadsReply, .setMemberReply, .markUnreadSinceReply, .acknowledgePushReply,
      .redeemTicketReply, .noteWebhookReply, .presentTicketReply, .listRosterReply, .listMessagesReply,
      .revokeTokenReply, .backupBeginReply, .backupReadReply, .backupDigestReply, .backupEndReply, .snapshotBeginReply,
      .snapshotReadReply:
      []
    }
  }
}
