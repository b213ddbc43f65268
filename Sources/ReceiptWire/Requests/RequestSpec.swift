/// A field of a request: its notation, and the range that `POST /v1/frames` holds it to.
package struct RequestField: Sendable {
  /// The range of a field, where a frame that has it is accepted by `POST /v1/frames`.
  package enum Range: Sendable {
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
    /// 1: the answer names the channel, the user and the message.
    case namesFlag
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

  /// Name and encoding, as `name`, `name:encoding` or `name:[fields]`. Without an encoding it is a string where the
  /// name is one of a string, else a varint; `=x` is a value for probes, `@x` names a compound field of
  /// Proto/frames.md.
  package let notation: String
  /// Nil: in no frame that `POST /v1/frames` accepts.
  package let range: Range?

  fileprivate init(_ notation: String, _ range: Range?) {
    self.notation = notation
    self.range = range
  }
}

/// The one statement of a request's fields, behind the counter of a command and the cid.
package struct RequestSpec: Sendable {
  package let kind: FrameKind
  /// Name in Proto/frames.md.
  package let name: String
  /// All fields in order.
  package let fields: [RequestField]
  /// Maximum size in bytes of a reply's payload, besides names that the request also has; nil: `POST /v1/frames` does
  /// not accept the kind.
  package let replyBytesMax: Int?

  /// The fields after the cid and the counter, which have ranges where ``replyBytesMax`` is given.
  package var ranges: [RequestField.Range] { fields.compactMap(\.range) }

  private init(_ kind: FrameKind, _ name: String, _ fields: [RequestField], reply: Int? = nil) {
    self.kind = kind
    self.name = name
    self.fields = fields
    replyBytesMax = reply
  }

  /// A request that only gateways send: fields by their notations, separated by spaces outside of brackets.
  private init(_ kind: FrameKind, _ name: String, _ notation: String = "") {
    self.init(kind, name, notation.isEmpty ? [] : [RequestField(notation, nil)])
  }

  /// A request about a channel that `POST /v1/frames` accepts: the fields after the cid and the counter.
  private init(
    _ kind: FrameKind,
    _ name: String,
    _ fields: KeyValuePairs<String, RequestField.Range>,
    reply: Int
  ) {
    let start = kind.isCommand ? ["cid", "counter"] : ["cid"]
    self.init(
      kind,
      name,
      start.map { RequestField($0, nil) } + fields.map { RequestField($0.key, $0.value) },
      reply: reply
    )
  }

  private static let row = RowFields.byteCountMax
  /// A channel with the maximum number of roles in its options.
  private static let channel = 8 * 1_024
  /// A *delivery* without its names.
  package static let deliveryBytesMax = 32

  /// All requests, by their numbers.
  package static let all: [RequestSpec] = [
    RequestSpec(
      .putChannel,
      "put_channel",
      ["patch:[@option]": .options, "members:[user role]": .members],
      reply: channel
    ),
    RequestSpec(
      .changeMembers,
      "change_members",
      ["add:[user role]": .members, "remove:[user]": .removedMembers],
      reply: channel
    ),
    RequestSpec(
      .registerMessage,
      "register_message",
      [
        "message": .message, "user": .userOrNone, "created": .created,
        "flags mentions:[user]?flags=16...23": .registrationFlags,
      ],
      reply: 12
    ),
    RequestSpec(.deleteMessage, "delete_message", ["message": .message], reply: 5),
    RequestSpec(
      .markRead,
      "mark_read",
      ["user": .user, "message": .messageOrNone, "unread_epoch:optional": .optionalNumber],
      reply: row + 1
    ),
    RequestSpec(
      .markUnread,
      "mark_unread",
      ["user": .user, "message": .messageOrNone, "unread_epoch:optional": .optionalNumber],
      reply: row + 1
    ),
    RequestSpec(
      .markDelivered,
      "mark_delivered",
      ["user": .user, "message": .messageOrNone],
      reply: row + 1
    ),
    RequestSpec(.patchChannelType, "patch_channel_type", "type counter patch:[@option]"),
    RequestSpec(.assignChannelType, "assign_channel_type", "type counter version options:[@option]"),
    RequestSpec(
      .acknowledge,
      "acknowledge",
      ["user": .user, "note": .note, "messages:[message]": .messages],
      reply: 256
    ),
    RequestSpec(.patchUser, "patch_user", "user counter given values tokens_revoked_before"),
    RequestSpec(.assignUser, "assign_user", "user counter @settings"),
    RequestSpec(.settle, "settle", "name counter what:byte(settled) version"),
    RequestSpec(.deleteChannel, "delete_channel", [:], reply: 1),
    RequestSpec(.truncateChannel, "truncate_channel", ["message": .messageOrNone], reply: channel),
    RequestSpec(.eraseMember, "erase_member", "cid counter user"),
    RequestSpec(.getChannel, "get_channel", [:], reply: channel),
    RequestSpec(
      .readState,
      "read_state",
      ["@viewer": .viewer, "limit=100": .limit, "cursor:optional": .optionalNumber],
      reply: 100 * row
    ),
    RequestSpec(
      .statuses,
      "statuses",
      ["@viewer": .viewer, "messages:[message]": .messages],
      reply: 100 * 64
    ),
    RequestSpec(.getChannelType, "get_channel_type", "type"),
    RequestSpec(.listChannelTypes, "list_channel_types"),
    RequestSpec(.getUser, "get_user", "user"),
    RequestSpec(.listUnsettled, "list_unsettled"),
    RequestSpec(
      .listMembers,
      "list_members",
      [
        "@viewer": .viewer, "message": .message, "list:byte(list)": .memberList,
        "order:byte(order)": .listOrder, "limit=100": .limit, "cursor:string": .listCursor,
      ],
      reply: 100 * 1_200
    ),
    RequestSpec(
      .memberStatuses,
      "member_statuses",
      ["@viewer": .viewer, "message": .message, "users:[user]": .users],
      reply: 100 * 160
    ),
    RequestSpec(.listChannels, "list_channels", "user flags limit=100 cursor:optional since?flags=2...3"),
    RequestSpec(.unreadCounts, "unread_counts", "channels:[cid user row]"),
    RequestSpec(.purge, "purge", "round"),
    RequestSpec(.rebuildIndex, "rebuild_index", "phase:byte(asked_phase) epoch"),
    RequestSpec(.ticketPlace, "ticket_place", "cid user message"),
    RequestSpec(.webhookKnown, "webhook_known", "key"),
    RequestSpec(.subscribe, "subscribe", "flags since channels:[cid]"),
    RequestSpec(.unsubscribe, "unsubscribe", "channels:[cid]"),
    RequestSpec(.subscribeUser, "subscribe_user", "user on:byte=1"),
    RequestSpec(.announceRow, "announce_row", "user channels:[cid]"),
    RequestSpec(.getToken, "get_token", "jti"),
    RequestSpec(.listRevokedTokens, "list_revoked_tokens", "known=0 after=0"),
    RequestSpec(.threadReadState, "thread_read_state", "cid @viewer parent limit=100 cursor:string"),
    RequestSpec(
      .userReceipts,
      "user_receipts",
      "cid user state:byte(receipt_state) limit=100 cursor:optional"
    ),
    RequestSpec(.userThreads, "user_threads", "cid user threads:byte(threads) limit=100 cursor:optional"),
    RequestSpec(
      .setMember,
      "set_member",
      ["user": .user, "role": .roleOrNone, "flags": .memberFlags],
      reply: 128
    ),
    RequestSpec(
      .markUnreadSince,
      "mark_unread_since",
      ["user": .user, "since": .created, "unread_epoch:optional": .optionalNumber],
      reply: row + 1
    ),
    RequestSpec(
      .acknowledgePush,
      "acknowledge_push",
      ["user": .user, "message": .message, "acked": .acked, "flags": .namesFlag],
      reply: deliveryBytesMax
    ),
    RequestSpec(.redeemTicket, "redeem_ticket", "counter @place acked flags"),
    RequestSpec(.noteWebhook, "note_webhook", "key counter until"),
    RequestSpec(.presentTicket, "present_ticket", "counter ticket acked flags"),
    RequestSpec(.listRoster, "list_roster", "cid @viewer limit=100 cursor:optional"),
    RequestSpec(.listMessages, "list_messages", "cid limit=100 cursor:optional reply:optional"),
    RequestSpec(.revokeToken, "revoke_token", "jti counter revoked:byte until"),
    RequestSpec(.backupBegin, "backup_begin"),
    RequestSpec(.backupRead, "backup_read", "file offset count"),
    RequestSpec(.backupDigest, "backup_digest", "file offset count"),
    RequestSpec(.backupEnd, "backup_end"),
  ]
}
