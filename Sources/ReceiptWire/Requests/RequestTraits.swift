import ReceiptModel

/// The properties of a kind of request. A new kind of request states here what store and gateway do with it, and in
/// ``RequestSpec`` which fields it has.
package struct RequestTraits: FlagSet {
  package let rawValue: UInt8
  package init(rawValue: UInt8) { self.rawValue = rawValue }

  /// Carries the session's counter and may change state.
  package static let command = RequestTraits(rawValue: 1)
  /// Carries no counter; repeating it is harmless.
  package static let query = RequestTraits(rawValue: 2)
  /// About the whole store; names no shard, carries no counter and is never resent.
  package static let backup = RequestTraits(rawValue: 4)
  /// Begins with the name of what it is about: of a command the counter is the second field, else the first.
  package static let named = RequestTraits(rawValue: 8)
  /// Waits behind postponed requests of the channel that its first field or its ticket names.
  package static let orderedByChannel = RequestTraits(rawValue: 16)
  /// May have the flag `thread`: a thread's parent message follows the fields.
  package static let thread = RequestTraits(rawValue: 32)
  /// One request may name very many members or channels.
  package static let wide = RequestTraits(rawValue: 64)
}

/// The action of a request about a channel if the channel does not exist.
package enum AbsentChannelAction: Sendable {
  /// Create the channel.
  case create
  /// Succeed without a change: a repeat of the command that has removed the channel must succeed.
  case succeed
  /// Refuse the request.
  case refuse
  /// Check the token of the user that the fields after the cid and the counter begin with, then refuse the request.
  case checkUser
  /// Check the token of the viewer that the fields after the cid begin with, then refuse the request.
  case checkViewer
}

extension FrameKind {
  /// The action of a request about a channel if the channel does not exist.
  package var absentChannelAction: AbsentChannelAction {
    switch self {
    case .putChannel: .create
    case .deleteChannel, .eraseMember: .succeed
    case .markRead, .markUnread, .markDelivered, .acknowledge, .markUnreadSince, .setMember, .userReceipts,
      .userThreads:
      .checkUser
    case .readState, .statuses, .listMembers, .memberStatuses, .listRoster, .threadReadState:
      .checkViewer
    default: .refuse
    }
  }

  /// The properties of a request's kind; empty for other frames.
  package var traits: RequestTraits {
    switch self {
    case .putChannel, .changeMembers: [.command, .named, .orderedByChannel, .wide]
    case .registerMessage, .markRead, .markUnread, .markDelivered, .markUnreadSince:
      [.command, .named, .orderedByChannel, .thread]
    case .deleteMessage, .acknowledge, .deleteChannel, .truncateChannel, .eraseMember, .setMember,
      .acknowledgePush:
      [.command, .named, .orderedByChannel]
    case .patchChannelType, .assignChannelType, .patchUser, .assignUser, .markReplicated, .noteWebhook,
      .revokeToken:
      [.command, .named]
    case .redeemTicket: [.command, .orderedByChannel]
    case .presentTicket: [.command]
    case .getChannel, .readState, .statuses, .listMembers, .memberStatuses, .listRoster, .listMessages,
      .threadReadState, .userReceipts, .userThreads, .ticketPlace, .subscribeUser, .announceRow:
      [.query, .named, .orderedByChannel]
    case .subscribe, .unsubscribe: [.query, .orderedByChannel]
    case .getChannelType, .getUser, .listChannels, .webhookKnown, .getToken: [.query, .named]
    case .unreadCounts: [.query, .wide]
    case .listChannelTypes, .listUnreplicated, .purge, .rebuildIndex, .listRevokedTokens: [.query]
    case .backupBegin, .backupRead, .backupDigest, .backupEnd: [.backup]
    default: []
    }
  }
}
