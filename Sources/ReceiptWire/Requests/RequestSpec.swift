/// A field of a request: its notation, and how `POST /v1/frames` validates it.
package struct RequestField: Sendable {
  /// The validation of a field, in a frame that `POST /v1/frames` accepts.
  package enum Validation: Sendable {
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
    /// 1: the reply names the channel, the user and the message.
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
  package let validation: Validation?

  fileprivate init(_ notation: String, _ validation: Validation?) {
    self.notation = notation
    self.validation = validation
  }
}

/// The statement of a request's fields and of its reply's. ReceiptWire/Requests has a typed reader and writer for each
/// request; tests check both against the golden vectors.
package struct RequestSpec: Sendable {
  package let kind: FrameKind
  /// Name in Proto/frames.md.
  package let name: String
  /// All fields in order, with the cid and a command's counter. A kind that only gateways send has one entry with the
  /// notations of all its fields, separated by spaces.
  package let fields: [RequestField]
  /// The notations of the reply's fields, separated by spaces.
  package let reply: String
  /// Maximum size in bytes of a reply's payload, besides names that the request also has; nil: `POST /v1/frames` does
  /// not accept the kind.
  package let replyBytesMax: Int?

  /// The validations of the fields after the cid and the counter, if ``replyBytesMax`` is given.
  package var validations: [RequestField.Validation] { fields.compactMap(\.validation) }

  private init(
    _ kind: FrameKind,
    _ name: String,
    _ fields: [RequestField],
    bytesMax: Int? = nil,
    reply: String
  ) {
    self.kind = kind
    self.name = name
    self.fields = fields
    self.reply = reply
    replyBytesMax = bytesMax
  }

  /// A request that only gateways send: fields by their notations, separated by spaces outside of brackets.
  private init(_ kind: FrameKind, _ name: String, _ notation: String = "", reply: String = "") {
    self.init(kind, name, notation.isEmpty ? [] : [RequestField(notation, nil)], reply: reply)
  }

  /// A request about a channel that `POST /v1/frames` accepts: the fields after the cid and the counter.
  private init(
    _ kind: FrameKind,
    _ name: String,
    _ fields: KeyValuePairs<String, RequestField.Validation>,
    bytesMax: Int,
    reply: String
  ) {
    let start = kind.isCommand ? ["cid", "counter"] : ["cid"]
    self.init(
      kind,
      name,
      start.map { RequestField($0, nil) } + fields.map { RequestField($0.key, $0.value) },
      bytesMax: bytesMax,
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
      bytesMax: channel,
      reply: "was_created:byte @channel"
    ),
    RequestSpec(
      .changeMembers,
      "change_members",
      ["add:[user role]": .members, "remove:[user]": .removedMembers],
      bytesMax: channel,
      reply: "@channel"
    ),
    RequestSpec(
      .registerMessage,
      "register_message",
      [
        "message": .message, "user": .userOrNone, "created": .created,
        "flags mentions:[user]?flags=16...23": .registrationFlags,
      ],
      bytesMax: 12,
      reply: "was_created:byte sequence status:byte(status) receipt_refusal:byte(receipt_refusal)"
    ),
    RequestSpec(.deleteMessage, "delete_message", ["message": .message], bytesMax: 5, reply: "sequence"),
    RequestSpec(
      .markRead,
      "mark_read",
      ["user": .user, "message": .messageOrNone, "unread_epoch:optional": .optionalNumber],
      bytesMax: row + 1,
      reply: "@row @uncounted"
    ),
    RequestSpec(
      .markUnread,
      "mark_unread",
      ["user": .user, "message": .messageOrNone, "unread_epoch:optional": .optionalNumber],
      bytesMax: row + 1,
      reply: "@row @uncounted"
    ),
    RequestSpec(
      .markDelivered,
      "mark_delivered",
      ["user": .user, "message": .messageOrNone],
      bytesMax: row + 1,
      reply: "@row @uncounted"
    ),
    RequestSpec(.patchChannelType, "patch_channel_type", "type counter patch:[@option]", reply: "@type"),
    RequestSpec(
      .assignChannelType,
      "assign_channel_type",
      "type counter version options:[@option]",
      reply: "@type"
    ),
    RequestSpec(
      .acknowledge,
      "acknowledge",
      ["user": .user, "note": .note, "messages:[message]": .messages],
      bytesMax: 256,
      reply: "codes:[code:varint(error)]"
    ),
    RequestSpec(
      .patchUser,
      "patch_user",
      "user counter given values tokens_revoked_before",
      reply: "user @settings"
    ),
    RequestSpec(.assignUser, "assign_user", "user counter @settings", reply: "user @settings"),
    RequestSpec(.markReplicated, "settle", "name counter what:byte(settled) version", reply: "settled:byte"),
    RequestSpec(.deleteChannel, "delete_channel", [:], bytesMax: 1, reply: "deleted:byte"),
    RequestSpec(
      .truncateChannel,
      "truncate_channel",
      ["message": .messageOrNone],
      bytesMax: channel,
      reply: "@channel"
    ),
    RequestSpec(.eraseMember, "erase_member", "cid counter user", reply: "erased:byte"),
    RequestSpec(.getChannel, "get_channel", [:], bytesMax: channel, reply: "@channel"),
    RequestSpec(
      .readState,
      "read_state",
      ["@viewer": .viewer, "limit=100": .limit, "cursor:optional": .optionalNumber],
      bytesMax: 100 * row,
      reply: "rows:[@row] next_cursor:optional"
    ),
    RequestSpec(
      .statuses,
      "statuses",
      ["@viewer": .viewer, "messages:[message]": .messages],
      bytesMax: 100 * 64,
      reply: "statuses:[found:byte(error) @status]"
    ),
    RequestSpec(.getChannelType, "get_channel_type", "type", reply: "@type"),
    RequestSpec(.listChannelTypes, "list_channel_types", reply: "types:[@type]"),
    RequestSpec(.getUser, "get_user", "user", reply: "user @settings"),
    RequestSpec(.listUnreplicated, "list_unsettled", reply: "types:[@type] users:[user @settings]"),
    RequestSpec(
      .listMembers,
      "list_members",
      [
        "@viewer": .viewer, "message": .message, "list:byte(list)": .memberList,
        "order:byte(order)": .listOrder, "limit=100": .limit, "cursor:string": .listCursor,
      ],
      bytesMax: 100 * 1_200,
      reply: "entries:[user time exact:byte note] next_cursor:string total~"
    ),
    RequestSpec(
      .memberStatuses,
      "member_statuses",
      ["@viewer": .viewer, "message": .message, "users:[user]": .users],
      bytesMax: 100 * 160,
      reply: "statuses:[@member_status]"
    ),
    RequestSpec(
      .listChannels,
      "list_channels",
      "user flags limit=100 cursor:optional since?flags=2...3",
      reply: "entries:[@entry] next_cursor:optional"
    ),
    RequestSpec(
      .unreadCounts,
      "unread_counts",
      "channels:[cid user row]",
      reply:
        "counts:[found:varint(error) (unread_messages unread_threads unread_mentions unread_flags:byte)?found=0]"
    ),
    RequestSpec(.purge, "purge", "round", reply: "round"),
    RequestSpec(
      .rebuildIndex,
      "rebuild_index",
      "phase:byte(asked_phase) epoch",
      reply: "phase:byte(done_phase) epoch channels_done channels entries"
    ),
    RequestSpec(.ticketPlace, "ticket_place", "cid user message", reply: "@place"),
    RequestSpec(.webhookKnown, "webhook_known", "key", reply: "known:byte"),
    RequestSpec(
      .subscribe,
      "subscribe",
      "flags since channels:[cid]",
      reply: "through complete:byte channels:[cid events:[@channel_event]]"
    ),
    RequestSpec(.unsubscribe, "unsubscribe", "channels:[cid]"),
    RequestSpec(.subscribeUser, "subscribe_user", "user on:byte=1", reply: "through"),
    RequestSpec(.announceRow, "announce_row", "user channels:[cid]"),
    RequestSpec(.getToken, "get_token", "jti", reply: "until version"),
    RequestSpec(
      .listRevokedTokens,
      "list_revoked_tokens",
      "known=0 after=0",
      reply: "version flags ended revocations:[jti until version]"
    ),
    RequestSpec(
      .threadReadState,
      "thread_read_state",
      "cid @viewer parent limit=100 cursor:string",
      reply: "rows:[@row] next_cursor:string"
    ),
    RequestSpec(
      .userReceipts,
      "user_receipts",
      "cid user state:byte(receipt_state) limit=100 cursor:optional",
      reply: "receipts:[@receipt] next_cursor:optional"
    ),
    RequestSpec(
      .userThreads,
      "user_threads",
      "cid user threads:byte(threads) limit=100 cursor:optional",
      reply: "threads:[@thread] next_cursor:optional"
    ),
    RequestSpec(
      .setMember,
      "set_member",
      ["user": .user, "role": .roleOrNone, "flags": .memberFlags],
      bytesMax: 128,
      reply: "joined:byte role joined_at muted:byte"
    ),
    RequestSpec(
      .markUnreadSince,
      "mark_unread_since",
      ["user": .user, "since": .created, "unread_epoch:optional": .optionalNumber],
      bytesMax: row + 1,
      reply: "@row @uncounted"
    ),
    RequestSpec(
      .acknowledgePush,
      "acknowledge_push",
      ["user": .user, "message": .message, "acked": .acked, "flags": .namesFlag],
      bytesMax: deliveryBytesMax,
      reply: "@delivery"
    ),
    RequestSpec(.redeemTicket, "redeem_ticket", "counter @place acked flags", reply: "@delivery"),
    RequestSpec(.noteWebhook, "note_webhook", "key counter until", reply: "noted:byte"),
    RequestSpec(.presentTicket, "present_ticket", "counter ticket acked flags", reply: "@delivery"),
    RequestSpec(
      .listRoster,
      "list_roster",
      "cid @viewer limit=100 cursor:optional",
      reply: "members:[user role joined_at muted:byte] next_cursor:optional"
    ),
    RequestSpec(
      .listMessages,
      "list_messages",
      "cid limit=100 cursor:optional reply:optional",
      reply:
        "messages:[sequence message parent sender created flags] next_cursor:optional next_reply:optional"
    ),
    RequestSpec(.revokeToken, "revoke_token", "jti counter revoked:byte until", reply: "until version"),
    RequestSpec(
      .backupBegin,
      "backup_begin",
      reply: "store:bytes(16) time indexes:[index] files:[name size]"
    ),
    RequestSpec(.backupRead, "backup_read", "file offset count", reply: "digest:bytes(32) bytes:rest"),
    RequestSpec(.backupDigest, "backup_digest", "file offset count", reply: "digest:bytes(32)"),
    RequestSpec(.backupEnd, "backup_end"),
  ]
}
