import ReceiptModel

/// The kind of a frame, which defines its payload (Proto/frames.md). A reply has the kind of its request
/// (``FrameHeader/isReply``).
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
  case listConsumers = 0x3C
  case readFeed = 0x3D
  case acknowledgePush = 0x40
  case redeemTicket = 0x41
  case noteWebhook = 0x42
  case presentTicket = 0x43
  case listRoster = 0x44
  case listMessages = 0x45
  case revokeToken = 0x46
  case putConsumer = 0x47
  case removeConsumer = 0x48
  case openPartition = 0x49
  case commitConsumer = 0x4A
  case leasePartitions = 0x4B
  case backupBegin = 0x4C
  case backupRead = 0x4D
  case backupDigest = 0x4E
  case backupEnd = 0x4F
  case deliverChanges = 0x50
  case confirmChanges = 0x51
  case snapshotBegin = 0x52
  case snapshotRead = 0x53
  case recordKeys = 0x54
  case importChannel = 0x60
  case importMessages = 0x61
  case importMembers = 0x62
  case importAcknowledgements = 0x63
  case listStoredChannels = 0x64
  case exportChannel = 0x65
  case listUsers = 0x66
  case putPushJob = 0x67
  case claimPushJobs = 0x68
  case updatePushJobs = 0x69

  /// Whether this is a command, which carries the session's counter and may change state.
  package var isCommand: Bool { traits.contains(.command) }
  /// Whether this is a request without a counter; repeating it is harmless.
  package var isIdempotent: Bool { traits.contains(.idempotent) }
  /// Whether this is a request of a session: with a counter, or idempotent.
  package var isRequest: Bool { !traits.isDisjoint(with: .request) }
  /// Whether this is a backup request. It is about the whole store and names no shard. It carries no counter and is
  /// never resent.
  package var isBackup: Bool { traits.contains(.backup) }
  /// Whether this is a node's request for another's data or keys. It is about a group and names no shard. It carries
  /// no counter and is never resent.
  package var isSnapshot: Bool { traits.contains(.snapshot) }
  /// Whether this is a message between the nodes of a cluster. It has no reply and no counter.
  package var isBetweenNodes: Bool { self == .deliverChanges || self == .confirmChanges }

  /// Whether this is a request of any class, so that there are replies of this kind.
  package var hasReply: Bool { !traits.isEmpty }

  /// The properties of a request's kind; empty for other frames. Not literals, which ``FlagSet`` avoids: every request
  /// asks for them.
  package var traits: RequestTraits {
    switch self {
    case .putChannel, .changeMembers, .importMessages, .importMembers, .importAcknowledgements:
      .command.union(.named).union(.orderedByChannel).union(.wide)
    case .registerMessage, .markRead, .markUnread, .markDelivered, .markUnreadSince:
      .command.union(.named).union(.orderedByChannel).union(.thread)
    case .deleteMessage, .acknowledge, .deleteChannel, .truncateChannel, .eraseMember, .setMember, .acknowledgePush,
      .importChannel, .putPushJob:
      .command.union(.named).union(.orderedByChannel)
    case .patchChannelType, .assignChannelType, .patchUser, .assignUser, .settle, .noteWebhook, .revokeToken,
      .putConsumer, .removeConsumer, .openPartition, .commitConsumer, .leasePartitions:
      .command.union(.named)
    case .redeemTicket: .command.union(.orderedByChannel)
    case .presentTicket, .updatePushJobs: .command
    case .getChannel, .readState, .statuses, .listMembers, .memberStatuses, .listRoster, .listMessages,
      .threadReadState, .userReceipts, .userThreads, .ticketPlace, .subscribeUser, .announceRow, .exportChannel:
      .idempotent.union(.named).union(.orderedByChannel)
    case .subscribe, .unsubscribe: .idempotent.union(.orderedByChannel)
    case .getChannelType, .getUser, .listChannels, .webhookKnown, .getToken, .listConsumers, .readFeed:
      .idempotent.union(.named)
    case .unreadCounts: .idempotent.union(.wide)
    case .listChannelTypes, .listUnsettled, .purge, .rebuildIndex, .listRevokedTokens, .listStoredChannels, .listUsers,
      .claimPushJobs:
      .idempotent
    case .backupBegin, .backupRead, .backupDigest, .backupEnd: .backup
    case .snapshotBegin, .snapshotRead, .recordKeys: .snapshot
    case .hello, .challenge, .proof, .ready, .ping, .pong, .drain, .events, .shardMap, .error: RequestTraits()
    case .deliverChanges, .confirmChanges: RequestTraits()
    }
  }
}
