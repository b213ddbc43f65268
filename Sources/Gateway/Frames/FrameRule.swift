internal import ReceiptModel
internal import ReceiptWire

/// A request frame that `POST /v1/frames` accepts.
struct FrameRule {
  /// A field, or several that belong together, with the range that the routes enforce.
  enum Field {
    case user
    case userOrNone
    case message
    case messageOrNone
    case roleOrNone
    case memberFlags
    /// Creation time of a message; required.
    case created
    /// Delivery time of a push; 0: now.
    case acked
    case optionalNumber
    /// With the users that the flags announce.
    case registrationFlags
    /// With the provider and the device that the flags announce.
    case pushFlags
    case viewer
    case limit
    case listCursor
    case memberList
    case listOrder
    case note
    case messages
    case users
    case members
    case removedMembers
    case options
  }

  /// The fields after the cid and the counter.
  let fields: [Field]
  /// Maximum size of a reply in bytes, besides names that the request also has.
  let replyBytesMax: Int
  /// Whether the flag `thread` may be set.
  let takesThread: Bool

  /// By the kind's number; nil: not accepted here.
  static let all: [FrameRule?] = {
    var rules = [FrameRule?](repeating: nil, count: 256)
    for kind in FrameKind.allCases { rules[Int(kind.rawValue)] = rule(of: kind) }
    return rules
  }()

  /// Return the rule of a kind; nil: not accepted here.
  private static func rule(of kind: FrameKind) -> FrameRule? {
    switch kind {
    case .putChannel: accept(kind, [.options, .members], replyBytes: channelBytes)
    case .changeMembers: accept(kind, [.members, .removedMembers], replyBytes: channelBytes)
    case .registerMessage: accept(kind, [.message, .userOrNone, .created, .registrationFlags], replyBytes: 12)
    case .deleteMessage: accept(kind, [.message], replyBytes: 5)
    case .markRead, .markUnread: accept(kind, [.user, .messageOrNone, .optionalNumber], replyBytes: rowBytes + 1)
    case .markDelivered: accept(kind, [.user, .messageOrNone], replyBytes: rowBytes + 1)
    case .acknowledge: accept(kind, [.user, .note, .messages], replyBytes: 256)
    case .deleteChannel: accept(kind, [], replyBytes: 1)
    case .truncateChannel: accept(kind, [.messageOrNone], replyBytes: channelBytes)
    case .getChannel: accept(kind, [], replyBytes: channelBytes)
    case .readState: accept(kind, [.viewer, .limit, .optionalNumber], replyBytes: WireLimits.pageMax * rowBytes)
    case .statuses: accept(kind, [.viewer, .messages], replyBytes: WireLimits.entriesMax * 64)
    case .listMembers:
      accept(
        kind,
        [.viewer, .message, .memberList, .listOrder, .limit, .listCursor],
        replyBytes: WireLimits.pageMax * 1_200
      )
    case .memberStatuses: accept(kind, [.viewer, .message, .users], replyBytes: WireLimits.entriesMax * 160)
    case .setMember: accept(kind, [.user, .roleOrNone, .memberFlags], replyBytes: 128)
    case .markUnreadSince: accept(kind, [.user, .created, .optionalNumber], replyBytes: rowBytes + 1)
    case .acknowledgePush: accept(kind, [.user, .message, .acked, .pushFlags], replyBytes: deliveryBytesMax)
    // Tickets have a parser of their own: they name no channel.
    case .presentTicket: nil
    case .patchChannelType, .assignChannelType, .patchUser, .assignUser, .settle, .eraseMember,
      .getChannelType, .listChannelTypes, .getUser, .listUnsettled, .listChannels, .unreadCounts, .purge,
      .rebuildIndex, .ticketPlace, .webhookKnown, .subscribe, .unsubscribe, .subscribeUser, .announceRow,
      .getToken, .listRevokedTokens, .threadReadState, .userReceipts, .userThreads, .redeemTicket,
      .noteWebhook, .listRoster, .listMessages, .revokeToken, .backupBegin, .backupRead, .backupDigest,
      .backupEnd, .listConsumers, .readFeed, .putConsumer, .removeConsumer, .openPartition, .commitConsumer,
      .leasePartitions, .importChannel, .importMessages, .importMembers, .importAcknowledgements,
      .listStoredChannels, .exportChannel, .listUsers, .putPushJob, .claimPushJobs, .updatePushJobs:
      nil
    case .hello, .challenge, .proof, .ready, .ping, .pong, .drain, .events, .shardMap, .error, .deliverChanges,
      .confirmChanges, .snapshotBegin, .snapshotRead, .recordKeys:
      nil
    }
  }

  private static func accept(_ kind: FrameKind, _ fields: [Field], replyBytes: Int) -> FrameRule {
    FrameRule(
      fields: fields,
      replyBytesMax: FrameHeader.byteCount + replyBytes,
      takesThread: kind.traits.contains(.thread)
    )
  }

  private static let rowBytes = RowFields.byteCountMax
  /// A channel with the maximum number of roles in its options.
  private static let channelBytes = 8 * 1_024

  /// A *delivery* without its names, and the maximum size of those.
  static let deliveryBytesMax = 32
  static let namesBytesMax = Identifier.cidLengthMax + Identifier.userLengthMax + Identifier.messageLengthMax + 6
  /// The end of the year 9999, the latest time that answers can show, in milliseconds since 1970.
  static let timeMax: Int64 = 253_402_300_799_999
}
