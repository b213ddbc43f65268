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
  package let answer: String
  /// Maximum size in bytes of a reply's payload, besides names that the request also has; nil: `POST /v1/frames` does
  /// not accept the kind.
  package let replyBytesMax: Int?

  /// The fields after the cid and the counter, which have ranges where ``replyBytesMax`` is given.
  package var ranges: [RequestField.Range] { fields.compactMap(\.range) }

  private init(
    _ kind: FrameKind,
    _ name: String,
    _ fields: [RequestField],
    bytesMax: Int? = nil,
    answer: String
  ) {
    self.kind = kind
    self.name = name
    self.fields = fields
    self.answer = answer
    replyBytesMax = bytesMax
  }

  /// A request that only gateways send: fields by their notations, separated by spaces outside of brackets.
  private init(_ kind: FrameKind, _ name: String, _ notation: String = "", answer: String = "") {
    self.init(kind, name, notation.isEmpty ? [] : [RequestField(notation, nil)], answer: answer)
  }

  /// A request about a channel that `POST /v1/frames` accepts: the fields after the cid and the counter.
  private init(
    _ kind: FrameKind,
    _ name: String,
    _ fields: KeyValuePairs<String, RequestField.Range>,
    bytesMax: Int,
    answer: String
  ) {
    let start = kind.isCommand ? ["cid", "counter"] : ["cid"]
    self.init(
      kind,
      name,
      start.map { RequestField($0, nil) } + fields.map { RequestField($0.key, $0.value) },
      bytesMax: bytesMax,
      answer: answer
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
      answer: "was_created:byte @channel"
    ),
    RequestSpec(
      .changeMembers,
      "change_members",
      ["add:[user role]": .members, "remove:[user]": .removedMembers],
      bytesMax: channel,
      answer: "@channel"
    ),
    RequestSpec(
      .registerMessage,
      "register_message",
      [
        "message": .message, "user": .userOrNone, "created": .created,
        "flags mentions:[user]?flags=16...23": .registrationFlags,
      ],
      bytesMax: 12,
      answer: "was_created:byte sequence status:byte(status) receipt_refusal:byte(receipt_refusal)"
    ),
    RequestSpec(.deleteMessage, "delete_message", ["message": .message], bytesMax: 5, answer: "sequence"),
    RequestSpec(
      .markRead,
      "mark_read",
      ["user": .user, "message": .messageOrNone, "unread_epoch:optional": .optionalNumber],
      bytesMax: row + 1,
      answer: "@row @uncounted"
    ),
    RequestSpec(
      .markUnread,
      "mark_unread",
      ["user": .user, "message": .messageOrNone, "unread_epoch:optional": .optionalNumber],
      bytesMax: row + 1,
      answer: "@row @uncounted"
    ),
    RequestSpec(
      .markDelivered,
      "mark_delivered",
      ["user": .user, "message": .messageOrNone],
      bytesMax: row + 1,
      answer: "@row @uncounted"
    ),
    RequestSpec(.patchChannelType, "patch_channel_type", "type counter patch:[@option]", answer: "@type"),
    RequestSpec(
      .assignChannelType,
      "assign_channel_type",
      "type counter version options:[@option]",
      answer: "@type"
    ),
    RequestSpec(
      .acknowledge,
      "acknowledge",
      ["user": .user, "note": .note, "messages:[message]": .messages],
      bytesMax: 256,
      answer: "codes:[code:varint(error)]"
    ),
    RequestSpec(
      .patchUser,
      "patch_user",
      "user counter given values tokens_revoked_before",
      answer: "user @settings"
    ),
    RequestSpec(.assignUser, "assign_user", "user counter @settings", answer: "user @settings"),
    RequestSpec(.settle, "settle", "name counter what:byte(settled) version", answer: "settled:byte"),
    RequestSpec(.deleteChannel, "delete_channel", [:], bytesMax: 1, answer: "deleted:byte"),
    RequestSpec(
      .truncateChannel,
      "truncate_channel",
      ["message": .messageOrNone],
      bytesMax: channel,
      answer: "@channel"
    ),
    RequestSpec(.eraseMember, "erase_member", "cid counter user", answer: "erased:byte"),
    RequestSpec(.getChannel, "get_channel", [:], bytesMax: channel, answer: "@channel"),
    RequestSpec(
      .readState,
      "read_state",
      ["@viewer": .viewer, "limit=100": .limit, "cursor:optional": .optionalNumber],
      bytesMax: 100 * row,
      answer: "rows:[@row] next_cursor:optional"
    ),
    RequestSpec(
      .statuses,
      "statuses",
      ["@viewer": .viewer, "messages:[message]": .messages],
      bytesMax: 100 * 64,
      answer: "statuses:[found:byte(error) @status]"
    ),
    RequestSpec(.getChannelType, "get_channel_type", "type", answer: "@type"),
    RequestSpec(.listChannelTypes, "list_channel_types", answer: "types:[@type]"),
    RequestSpec(.getUser, "get_user", "user", answer: "user @settings"),
    RequestSpec(.listUnsettled, "list_unsettled", answer: "types:[@type] users:[user @settings]"),
    RequestSpec(
      .listMembers,
      "list_members",
      [
        "@viewer": .viewer, "message": .message, "list:byte(list)": .memberList,
        "order:byte(order)": .listOrder, "limit=100": .limit, "cursor:string": .listCursor,
      ],
      bytesMax: 100 * 1_200,
      answer: "entries:[user time exact:byte note] next_cursor:string total~"
    ),
    RequestSpec(
      .memberStatuses,
      "member_statuses",
      ["@viewer": .viewer, "message": .message, "users:[user]": .users],
      bytesMax: 100 * 160,
      answer: "statuses:[@member_status]"
    ),
    RequestSpec(
      .listChannels,
      "list_channels",
      "user flags limit=100 cursor:optional since?flags=2...3",
      answer: "entries:[@entry] next_cursor:optional"
    ),
    RequestSpec(
      .unreadCounts,
      "unread_counts",
      "channels:[cid user row]",
      answer:
        "counts:[found:varint(error) (unread_messages unread_threads unread_mentions unread_flags:byte)?found=0]"
    ),
    RequestSpec(.purge, "purge", "round", answer: "round"),
    RequestSpec(
      .rebuildIndex,
      "rebuild_index",
      "phase:byte(asked_phase) epoch",
      answer: "phase:byte(done_phase) epoch channels_done channels entries"
    ),
    RequestSpec(.ticketPlace, "ticket_place", "cid user message", answer: "@place"),
    RequestSpec(.webhookKnown, "webhook_known", "key", answer: "known:byte"),
    RequestSpec(
      .subscribe,
      "subscribe",
      "flags since channels:[cid]",
      answer: "through complete:byte channels:[cid events:[@channel_event]]"
    ),
    RequestSpec(.unsubscribe, "unsubscribe", "channels:[cid]"),
    RequestSpec(.subscribeUser, "subscribe_user", "user on:byte=1", answer: "through"),
    RequestSpec(.announceRow, "announce_row", "user channels:[cid]"),
    RequestSpec(.getToken, "get_token", "jti", answer: "until version"),
    RequestSpec(
      .listRevokedTokens,
      "list_revoked_tokens",
      "known=0 after=0",
      answer: "version flags ended revocations:[jti until version]"
    ),
    RequestSpec(
      .threadReadState,
      "thread_read_state",
      "cid @viewer parent limit=100 cursor:string",
      answer: "rows:[@row] next_cursor:string"
    ),
    RequestSpec(
      .userReceipts,
      "user_receipts",
      "cid user state:byte(receipt_state) limit=100 cursor:optional",
      answer: "receipts:[@receipt] next_cursor:optional"
    ),
    RequestSpec(
      .userThreads,
      "user_threads",
      "cid user threads:byte(threads) limit=100 cursor:optional",
      answer: "threads:[@thread] next_cursor:optional"
    ),
    RequestSpec(
      .setMember,
      "set_member",
      ["user": .user, "role": .roleOrNone, "flags": .memberFlags],
      bytesMax: 128,
      answer: "joined:byte role joined_at muted:byte"
    ),
    RequestSpec(
      .markUnreadSince,
      "mark_unread_since",
      ["user": .user, "since": .created, "unread_epoch:optional": .optionalNumber],
      bytesMax: row + 1,
      answer: "@row @uncounted"
    ),
    RequestSpec(
      .acknowledgePush,
      "acknowledge_push",
      ["user": .user, "message": .message, "acked": .acked, "flags": .namesFlag],
      bytesMax: deliveryBytesMax,
      answer: "@delivery"
    ),
    RequestSpec(.redeemTicket, "redeem_ticket", "counter @place acked flags", answer: "@delivery"),
    RequestSpec(.noteWebhook, "note_webhook", "key counter until", answer: "noted:byte"),
    RequestSpec(.presentTicket, "present_ticket", "counter ticket acked flags", answer: "@delivery"),
    RequestSpec(
      .listRoster,
      "list_roster",
      "cid @viewer limit=100 cursor:optional",
      answer: "members:[user role joined_at muted:byte] next_cursor:optional"
    ),
    RequestSpec(
      .listMessages,
      "list_messages",
      "cid limit=100 cursor:optional reply:optional",
      answer:
        "messages:[sequence message parent sender created flags] next_cursor:optional next_reply:optional"
    ),
    RequestSpec(.revokeToken, "revoke_token", "jti counter revoked:byte until", answer: "until version"),
    RequestSpec(
      .backupBegin,
      "backup_begin",
      answer: "store:bytes(16) time indexes:[index] files:[name size]"
    ),
    RequestSpec(.backupRead, "backup_read", "file offset count", answer: "digest:bytes(32) bytes:rest"),
    RequestSpec(.backupDigest, "backup_digest", "file offset count", answer: "digest:bytes(32)"),
    RequestSpec(.backupEnd, "backup_end"),
  ]
}
