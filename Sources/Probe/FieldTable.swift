/// How a field is encoded: the notations of Proto/frames.md, "Fields".
package indirect enum FieldType: Sendable {
  /// Names stand for numbers where there are some.
  case varint(names: [UInt64: String] = [:])
  case byte(names: [UInt64: String] = [:])
  /// So many raw bytes, written in hexadecimal.
  case bytes(Int)
  case string
  /// A `string` that holds bytes rather than text: written in hexadecimal.
  case blob
  /// All bytes that are left, written in hexadecimal.
  case rest
  /// `none` or a number.
  case optional
  case list([FieldSpec])
}

/// One field of a frame.
package struct FieldSpec: Sendable {
  package var name: String
  package var type: FieldType
  /// The field is there only where the number of the field of this name, before it, is one of these.
  package var condition: (field: String, values: ClosedRange<UInt64>)?
  /// The last field, which may be missing.
  package var isTail = false
  /// The bits of that number which count.
  var mask = UInt64.max
  /// What stands in the field where a line does not give it; otherwise 0, empty, none.
  package var preset: String?

  init(
    _ name: String,
    _ type: FieldType,
    if condition: (field: String, value: UInt64)? = nil,
    preset: String? = nil
  ) {
    self.name = name
    self.type = type
    self.condition = condition.map { ($0.field, $0.value...$0.value) }
    self.preset = preset
  }

  /// The field is there only where the number of the field of that name, before it, is one of these.
  init(_ name: String, _ type: FieldType, if field: String, in values: ClosedRange<UInt64>) {
    self.init(name, type)
    condition = (field, values)
  }

  /// A last field, which may be missing.
  static func tail(_ name: String, _ type: FieldType) -> FieldSpec {
    var spec = FieldSpec(name, type)
    spec.isTail = true
    return spec
  }

  /// The field is there only where the number of the field of that name, before it, has this bit.
  init(_ name: String, _ type: FieldType, ifBit bit: UInt64, of field: String) {
    self.init(name, type)
    condition = (field, bit...bit)
    mask = bit
  }

  /// The field is there only where the number of the field of that name, before it, is not 0.
  init(_ name: String, _ type: FieldType, ifSet field: String) {
    self.init(name, type)
    condition = (field, 1...UInt64.max)
  }
}

/// One frame kind and its fields.
package struct FrameSpec: Sendable {
  package var number: UInt8
  package var name: String
  package var fields: [FieldSpec]

  init(_ number: UInt8, _ name: String, _ fields: [FieldSpec]) {
    self.number = number
    self.name = name
    self.fields = fields
  }
}

/// Proto/frames.md as a table. What encodes, decodes, prints and compares frames walks it; nothing else knows
/// a kind's fields.
package enum FrameTable {
  package static func spec(named name: String) -> FrameSpec? { byName[name] }
  package static func spec(numbered number: UInt8) -> FrameSpec? { byNumber[number] }

  private static let byName = Dictionary(uniqueKeysWithValues: all.map { ($0.name, $0) })
  private static let byNumber = Dictionary(uniqueKeysWithValues: all.map { ($0.number, $0) })

  package static let all: [FrameSpec] = [
    // The connection.
    FrameSpec(
      0x01,
      "hello",
      [
        FieldSpec("magic", .bytes(4), preset: "54444d4b"),
        FieldSpec("version_lowest", .varint(), preset: "1"),
        FieldSpec("version_highest", .varint(), preset: "1"), FieldSpec("session", .bytes(16)),
        FieldSpec("session_age", .optional), FieldSpec("nonce", .bytes(32)),
        FieldSpec("frame_length_max", .varint(), preset: "1048576"),
        FieldSpec("name", .string, preset: "probe"),
      ]
    ),
    FrameSpec(
      0x02,
      "challenge",
      [
        FieldSpec("version", .varint(), preset: "1"), FieldSpec("nonce", .bytes(32)),
        FieldSpec("proof", .blob),
        FieldSpec("frame_length_max", .varint(), preset: "1048576"),
        FieldSpec("window", .varint(), preset: "1024"),
        FieldSpec("shard_count", .varint(), preset: "16"), FieldSpec("store", .bytes(16)),
      ]
    ),
    FrameSpec(0x03, "proof", [FieldSpec("proof", .blob)]),
    FrameSpec(
      0x04,
      "ready",
      [
        FieldSpec("session", .byte(names: [0: "new", 1: "resumed"])),
        FieldSpec("session_lifetime", .varint(), preset: "600000"),
        FieldSpec(
          "shards",
          .list([
            FieldSpec("first", .varint()), FieldSpec("count", .varint()), FieldSpec("address", .string),
          ])
        ),
      ]
    ),
    FrameSpec(0x05, "ping", [FieldSpec("bytes", .bytes(8))]),
    FrameSpec(0x06, "pong", [FieldSpec("bytes", .bytes(8))]),
    FrameSpec(0x07, "drain", []),
    FrameSpec(
      0x08,
      "events",
      [FieldSpec("through", .varint()), FieldSpec("lost", .byte()), channelEvents, userEvents]
    ),
    FrameSpec(
      0x0F,
      "error",
      [
        FieldSpec("code", .varint(names: errorNames)), FieldSpec("retry_after", .varint()),
        FieldSpec("detail", .string),
      ]
    ),

    // Commands.
    FrameSpec(
      0x10,
      "put_channel",
      [cid, counter, FieldSpec("patch", options), FieldSpec("members", members)]
    ),
    FrameSpec(
      0x11,
      "change_members",
      [cid, counter, FieldSpec("add", members), FieldSpec("remove", .list([user]))]
    ),
    FrameSpec(
      0x12,
      "register_message",
      [
        cid, counter, message, user, FieldSpec("created", .varint()), FieldSpec("flags", .varint()),
        FieldSpec("mentions", .list([user]), if: "flags", in: 16...23),
      ]
    ),
    FrameSpec(0x13, "delete_message", [cid, counter, message]),
    FrameSpec(0x14, "mark_read", [cid, counter, user, message, FieldSpec("unread_epoch", .optional)]),
    FrameSpec(0x15, "mark_unread", [cid, counter, user, message, FieldSpec("unread_epoch", .optional)]),
    FrameSpec(0x16, "mark_delivered", [cid, counter, user, message]),
    FrameSpec(0x17, "patch_channel_type", [type, counter, FieldSpec("patch", options)]),
    FrameSpec(
      0x18,
      "assign_channel_type",
      [type, counter, FieldSpec("version", .varint()), FieldSpec("options", options)]
    ),
    FrameSpec(0x19, "acknowledge", [cid, counter, user, FieldSpec("note", .string), messages]),
    FrameSpec(
      0x1A,
      "patch_user",
      [
        user, counter, FieldSpec("given", .varint()), FieldSpec("values", .varint()),
        FieldSpec("tokens_revoked_before", .varint()),
      ]
    ),
    FrameSpec(0x1B, "assign_user", [user, counter] + userSettings.dropFirst()),
    FrameSpec(
      0x1C,
      "settle",
      [
        FieldSpec("name", .string), counter, FieldSpec("what", .byte(names: [0: "channel_type", 1: "user"])),
        FieldSpec("version", .varint()),
      ]
    ),
    FrameSpec(0x1D, "delete_channel", [cid, counter]),
    FrameSpec(0x1E, "truncate_channel", [cid, counter, message]),
    FrameSpec(0x1F, "erase_member", [cid, counter, user]),
    FrameSpec(
      0x40,
      "acknowledge_push",
      [cid, counter, user, message, FieldSpec("acked", .varint()), FieldSpec("flags", .varint())]
    ),
    FrameSpec(
      0x41,
      "redeem_ticket",
      [counter] + place + [FieldSpec("acked", .varint()), FieldSpec("flags", .varint())]
    ),
    FrameSpec(
      0x42,
      "note_webhook",
      [FieldSpec("key", .string), counter, FieldSpec("until", .varint())]
    ),
    FrameSpec(
      0x46,
      "revoke_token",
      [FieldSpec("jti", .string), counter, FieldSpec("revoked", .byte()), FieldSpec("until", .varint())]
    ),
    FrameSpec(0x34, "get_token", [FieldSpec("jti", .string)]),
    FrameSpec(
      0x35,
      "list_revoked_tokens",
      [FieldSpec("known", .varint(), preset: "0"), FieldSpec("after", .varint(), preset: "0")]
    ),
    FrameSpec(
      0x43,
      "present_ticket",
      [counter, FieldSpec("ticket", .string), FieldSpec("acked", .varint()), FieldSpec("flags", .varint())]
    ),
    FrameSpec(
      0x44,
      "list_roster",
      [cid] + viewer + [FieldSpec("limit", .varint(), preset: "100"), FieldSpec("cursor", .optional)]
    ),
    FrameSpec(
      0x45,
      "list_messages",
      [
        cid, FieldSpec("limit", .varint(), preset: "100"), FieldSpec("cursor", .optional),
        FieldSpec("reply", .optional),
      ]
    ),

    // Queries.
    FrameSpec(0x20, "get_channel", [cid]),
    FrameSpec(
      0x21,
      "read_state",
      [cid] + viewer + [FieldSpec("limit", .varint(), preset: "100"), FieldSpec("cursor", .optional)]
    ),
    FrameSpec(0x22, "statuses", [cid] + viewer + [messages]),
    FrameSpec(0x23, "get_channel_type", [type]),
    FrameSpec(0x24, "list_channel_types", []),
    FrameSpec(0x25, "get_user", [user]),
    FrameSpec(0x26, "list_unsettled", []),
    FrameSpec(
      0x27,
      "list_members",
      [cid] + viewer + [
        message,
        FieldSpec(
          "list",
          .byte(names: [0: "readers", 1: "delivered", 2: "unread", 3: "acknowledged", 4: "unacknowledged"])
        ),
        FieldSpec("order", .byte(names: [0: "joined", 1: "time", 2: "time_desc"])),
        FieldSpec("limit", .varint(), preset: "100"), FieldSpec("cursor", .string),
      ]
    ),
    FrameSpec(0x28, "member_statuses", [cid] + viewer + [message, FieldSpec("users", .list([user]))]),
    FrameSpec(
      0x29,
      "list_channels",
      [
        user, FieldSpec("flags", .varint()), FieldSpec("limit", .varint(), preset: "100"),
        FieldSpec("cursor", .optional), FieldSpec("since", .varint(), if: "flags", in: 2...3),
      ]
    ),
    FrameSpec(
      0x2A,
      "unread_counts",
      [FieldSpec("channels", .list([cid, user, FieldSpec("row", .varint())]))]
    ),
    FrameSpec(0x2B, "purge", [FieldSpec("round", .varint())]),
    FrameSpec(
      0x2C,
      "rebuild_index",
      [
        FieldSpec("phase", .byte(names: [0: "ask", 1: "send_again", 2: "sweep"])),
        FieldSpec("epoch", .varint()),
      ]
    ),
    FrameSpec(0x2D, "ticket_place", [cid, user, message]),
    FrameSpec(0x2E, "webhook_known", [FieldSpec("key", .string)]),

    // Subscriptions.
    FrameSpec(0x30, "subscribe", [FieldSpec("flags", .varint()), FieldSpec("since", .varint()), channels]),
    FrameSpec(0x31, "unsubscribe", [channels]),
    FrameSpec(0x32, "subscribe_user", [user, FieldSpec("on", .byte(), preset: "1")]),
    FrameSpec(0x33, "announce_row", [user, channels]),
    FrameSpec(
      0x3B,
      "mark_unread_since",
      [cid, counter, user, FieldSpec("since", .varint()), FieldSpec("unread_epoch", .optional)]
    ),
    FrameSpec(
      0x3A,
      "set_member",
      [cid, counter, user, FieldSpec("role", .string), FieldSpec("flags", .varint())]
    ),
    FrameSpec(
      0x37,
      "thread_read_state",
      [cid] + viewer + [
        FieldSpec("parent", .string), FieldSpec("limit", .varint(), preset: "100"),
        FieldSpec("cursor", .string),
      ]
    ),
    FrameSpec(
      0x38,
      "user_receipts",
      [
        cid, user, FieldSpec("state", .byte(names: [0: "pending", 1: "acknowledged"])),
        FieldSpec("limit", .varint(), preset: "100"), FieldSpec("cursor", .optional),
      ]
    ),
    FrameSpec(
      0x39,
      "user_threads",
      [
        cid, user, FieldSpec("threads", .byte(names: [0: "all", 1: "unread", 2: "read"])),
        FieldSpec("limit", .varint(), preset: "100"), FieldSpec("cursor", .optional),
      ]
    ),

    // Backup: of a connection, without counter.
    FrameSpec(0x4C, "backup_begin", []),
    FrameSpec(0x4D, "backup_read", backupPart),
    FrameSpec(0x4E, "backup_digest", backupPart),
    FrameSpec(0x4F, "backup_end", []),

    // Replies.
    FrameSpec(0x90, "put_channel_reply", [FieldSpec("was_created", .byte())] + channel),
    FrameSpec(0x91, "change_members_reply", channel),
    FrameSpec(
      0x92,
      "register_message_reply",
      [
        FieldSpec("was_created", .byte()), FieldSpec("sequence", .varint()),
        FieldSpec("status", .byte(names: statusNames)),
        FieldSpec(
          "receipt_refusal",
          .byte(names: [0: "none", 1: "receipt_limit_reached", 2: "receipt_not_allowed"])
        ),
      ]
    ),
    FrameSpec(0x93, "delete_message_reply", [FieldSpec("sequence", .varint())]),
    FrameSpec(0x94, "mark_read_reply", row + [uncounted]),
    FrameSpec(0x95, "mark_unread_reply", row + [uncounted]),
    FrameSpec(0x96, "mark_delivered_reply", row + [uncounted]),
    FrameSpec(0x97, "patch_channel_type_reply", typeRecord),
    FrameSpec(0x98, "assign_channel_type_reply", typeRecord),
    FrameSpec(
      0x99,
      "acknowledge_reply",
      [FieldSpec("codes", .list([FieldSpec("code", .varint(names: errorNames))]))]
    ),
    FrameSpec(0x9A, "patch_user_reply", userSettings),
    FrameSpec(0x9B, "assign_user_reply", userSettings),
    FrameSpec(0x9C, "settle_reply", [FieldSpec("settled", .byte())]),
    FrameSpec(0x9D, "delete_channel_reply", [FieldSpec("deleted", .byte())]),
    FrameSpec(0x9E, "truncate_channel_reply", channel),
    FrameSpec(0x9F, "erase_member_reply", [FieldSpec("erased", .byte())]),
    FrameSpec(0xA0, "get_channel_reply", channel),
    FrameSpec(
      0xA1,
      "read_state_reply",
      [FieldSpec("rows", .list(row)), FieldSpec("next_cursor", .optional)]
    ),
    FrameSpec(
      0xA2,
      "statuses_reply",
      [FieldSpec("statuses", .list([FieldSpec("found", .byte(names: errorNames))] + status))]
    ),
    FrameSpec(0xA3, "get_channel_type_reply", typeRecord),
    FrameSpec(0xA4, "list_channel_types_reply", [FieldSpec("types", .list(typeRecord))]),
    FrameSpec(0xA5, "get_user_reply", userSettings),
    FrameSpec(
      0xA6,
      "list_unsettled_reply",
      [FieldSpec("types", .list(typeRecord)), FieldSpec("users", .list(userSettings))]
    ),
    FrameSpec(
      0xA7,
      "list_members_reply",
      [
        FieldSpec(
          "entries",
          .list([user, FieldSpec("time", .varint()), FieldSpec("exact", .byte()), FieldSpec("note", .string)])
        ), FieldSpec("next_cursor", .string), .tail("total", .varint()),
      ]
    ),
    FrameSpec(0xA8, "member_statuses_reply", [FieldSpec("statuses", .list(memberStatus))]),
    FrameSpec(
      0xC4,
      "list_roster_reply",
      [
        FieldSpec(
          "members",
          .list([
            user, FieldSpec("role", .string), FieldSpec("joined_at", .varint()),
            FieldSpec("muted", .byte()),
          ])
        ),
        FieldSpec("next_cursor", .optional),
      ]
    ),
    FrameSpec(
      0xC5,
      "list_messages_reply",
      [
        FieldSpec(
          "messages",
          .list([
            FieldSpec("sequence", .varint()), message, FieldSpec("parent", .string),
            FieldSpec("sender", .string),
            FieldSpec("created", .varint()), FieldSpec("flags", .varint()),
          ])
        ), FieldSpec("next_cursor", .optional), FieldSpec("next_reply", .optional),
      ]
    ),
    FrameSpec(
      0xA9,
      "list_channels_reply",
      [
        FieldSpec(
          "entries",
          .list(channelEntry)
        ), FieldSpec("next_cursor", .optional),
      ]
    ),
    FrameSpec(
      0xAA,
      "unread_counts_reply",
      [
        FieldSpec(
          "counts",
          .list([
            FieldSpec("found", .varint(names: errorNames)),
            FieldSpec("unread_messages", .varint(), if: ("found", 0)),
            FieldSpec("unread_threads", .varint(), if: ("found", 0)),
            FieldSpec("unread_mentions", .varint(), if: ("found", 0)),
            FieldSpec("unread_flags", .byte(), if: ("found", 0)),
          ])
        )
      ]
    ),
    FrameSpec(0xAB, "purge_reply", [FieldSpec("round", .varint())]),
    FrameSpec(
      0xAC,
      "rebuild_index_reply",
      [
        FieldSpec("phase", .byte(names: [0: "none", 1: "send_again", 2: "sweep"])),
        FieldSpec("epoch", .varint()), FieldSpec("channels_done", .varint()),
        FieldSpec("channels", .varint()), FieldSpec("entries", .varint()),
      ]
    ),
    FrameSpec(0xAD, "ticket_place_reply", place),
    FrameSpec(0xAE, "webhook_known_reply", [FieldSpec("known", .byte())]),
    FrameSpec(
      0xB0,
      "subscribe_reply",
      [FieldSpec("through", .varint()), FieldSpec("complete", .byte()), channelEvents]
    ),
    FrameSpec(0xB1, "unsubscribe_reply", []),
    FrameSpec(0xB2, "subscribe_user_reply", [FieldSpec("through", .varint())]),
    FrameSpec(0xB3, "announce_row_reply", []),
    FrameSpec(
      0xB7,
      "thread_read_state_reply",
      [FieldSpec("rows", .list(row)), FieldSpec("next_cursor", .string)]
    ),
    FrameSpec(
      0xB8,
      "user_receipts_reply",
      [FieldSpec("receipts", .list(ownReceipt)), FieldSpec("next_cursor", .optional)]
    ),
    FrameSpec(
      0xB9,
      "user_threads_reply",
      [FieldSpec("threads", .list(ownThread)), FieldSpec("next_cursor", .optional)]
    ),
    FrameSpec(0xBB, "mark_unread_since_reply", row + [uncounted]),
    FrameSpec(
      0xBA,
      "set_member_reply",
      [
        FieldSpec("joined", .byte()), FieldSpec("role", .string), FieldSpec("joined_at", .varint()),
        FieldSpec("muted", .byte()),
      ]
    ),
    FrameSpec(0xC0, "acknowledge_push_reply", delivery),
    FrameSpec(0xC1, "redeem_ticket_reply", delivery),
    FrameSpec(0xC2, "note_webhook_reply", [FieldSpec("noted", .byte())]),
    FrameSpec(0xC3, "present_ticket_reply", delivery),
    FrameSpec(0xC6, "revoke_token_reply", tokenState),
    FrameSpec(0xB4, "get_token_reply", tokenState),
    FrameSpec(
      0xB5,
      "list_revoked_tokens_reply",
      [
        FieldSpec("version", .varint()), FieldSpec("flags", .varint()), FieldSpec("ended", .varint()),
        FieldSpec(
          "revocations",
          .list([FieldSpec("jti", .string), FieldSpec("until", .varint()), FieldSpec("version", .varint())])
        ),
      ]
    ),
    FrameSpec(
      0xCC,
      "backup_begin_reply",
      [
        FieldSpec("store", .bytes(16)), FieldSpec("time", .varint()),
        FieldSpec("indexes", .list([FieldSpec("index", .varint())])),
        FieldSpec("files", .list([FieldSpec("name", .string), FieldSpec("size", .varint())])),
      ]
    ),
    FrameSpec(0xCD, "backup_read_reply", [FieldSpec("digest", .bytes(32)), FieldSpec("bytes", .rest)]),
    FrameSpec(0xCE, "backup_digest_reply", [FieldSpec("digest", .bytes(32))]),
    FrameSpec(0xCF, "backup_end_reply", []),
  ]

  private static let backupPart = [
    FieldSpec("file", .varint()), FieldSpec("offset", .varint()), FieldSpec("count", .varint()),
  ]

  static let cid = FieldSpec("cid", .string)
  private static let type = FieldSpec("type", .string)
  private static let counter = FieldSpec("counter", .varint())
  static let user = FieldSpec("user", .string)
  static let message = FieldSpec("message", .string)
  private static let channels = FieldSpec("channels", .list([cid]))
  private static let messages = FieldSpec("messages", .list([message]))
  private static let place = [
    FieldSpec("channel", .varint()), FieldSpec("row", .varint()), FieldSpec("parent", .optional),
    FieldSpec("sequence", .varint()), FieldSpec("check", .bytes(8)),
  ]
  private static let delivery = [
    FieldSpec("moved", .byte(names: [2: "not_in_thread", 4: "registered_before"])),
    FieldSpec("sent", .varint()), FieldSpec("delivered", .varint()), cid, user,
    message,
  ]
  private static let tokenState = [FieldSpec("until", .varint()), FieldSpec("version", .varint())]
  private static let members = FieldType.list([user, FieldSpec("role", .string)])
  private static let options = FieldType.list([
    FieldSpec("option", .varint(names: optionNames)), FieldSpec("value", .blob),
  ])
  private static let viewer = [FieldSpec("viewer_flags", .varint()), FieldSpec("viewer", .string)]

  static let channel = [
    cid, FieldSpec("created", .varint()), FieldSpec("options", options), FieldSpec("member_count", .varint()),
    FieldSpec("newest_sequence", .varint()), FieldSpec("newest_message", .string),
    FieldSpec("newest_registered", .varint()),
  ]

  static let channelEntry = [
    cid, FieldSpec("row", .optional), FieldSpec("member", .byte()), FieldSpec("joined", .varint()),
    FieldSpec("deleted", .varint(), if: "member", in: 2...3),
  ]

  static let row = [
    user, FieldSpec("last_read", .varint()), FieldSpec("last_read_message", .string),
    FieldSpec("last_read_sequence", .varint()), FieldSpec("last_delivered", .varint()),
    FieldSpec("last_delivered_message", .string), FieldSpec("last_delivered_sequence", .varint()),
    FieldSpec("flags", .varint()), FieldSpec("unread_messages", .varint(), ifBit: 1, of: "flags"),
    FieldSpec("first_unread_message", .string, ifBit: 1, of: "flags"),
    FieldSpec("unread_epoch", .varint(), ifBit: 1, of: "flags"),
    FieldSpec("unread_mentions", .varint(), ifBit: 2, of: "flags"),
    FieldSpec("joined_sequence", .varint(), ifBit: 64, of: "flags"),
  ]

  private static let ownReceipt = [
    FieldSpec("sequence", .varint()), message, FieldSpec("sender", .string), FieldSpec("created", .varint()),
    FieldSpec("receipt_status", .byte(names: receiptStatusNames)), FieldSpec("expires", .varint()),
    FieldSpec("acknowledged", .varint()), FieldSpec("exact", .byte()), FieldSpec("note", .string),
  ]

  private static let ownThread = [
    FieldSpec("parent_sequence", .varint()), FieldSpec("parent", .string),
    FieldSpec("unread_messages", .varint()),
    FieldSpec("last_read_message", .string), FieldSpec("first_unread_message", .string),
    FieldSpec("newest_message", .string),
  ]

  private static let uncounted = FieldSpec.tail(
    "uncounted",
    .byte(names: [1: "not_in_thread", 2: "no_replies", 3: "registered_before"])
  )

  private static let status = [
    FieldSpec("sequence", .varint(), if: ("found", 0)),
    FieldSpec("status", .byte(names: statusNames), if: ("found", 0)),
    FieldSpec("receipt_status", .byte(names: receiptStatusNames), if: ("found", 0)),
    FieldSpec("read_count", .varint(), if: ("found", 0)),
    FieldSpec("delivered_count", .varint(), if: ("found", 0)),
    FieldSpec("unread_count", .varint(), if: ("found", 0)),
    FieldSpec("member_count", .varint(), if: ("found", 0)),
    FieldSpec("flags", .varint(), if: ("found", 0)), FieldSpec("created", .varint(), if: ("found", 0)),
    FieldSpec("acknowledged_count", .varint(), if: "flags", in: 4...7),
  ]

  private static let memberStatus = [
    user, FieldSpec("found", .varint(names: errorNames)),
    FieldSpec("status", .byte(names: statusNames), if: ("found", 0)),
    FieldSpec("read", .varint(), if: ("found", 0)), FieldSpec("delivered", .varint(), if: ("found", 0)),
    FieldSpec("flags", .byte(), if: ("found", 0)),
    FieldSpec("acknowledged", .varint(), if: "flags", in: 4...7),
  ]

  private static let userSettings = [
    user, FieldSpec("version", .varint()), FieldSpec("flags", .varint()),
    FieldSpec("read_shown_since", .varint()), FieldSpec("delivered_shown_since", .varint()),
    FieldSpec("tokens_revoked_before", .varint()),
  ]

  private static let typeRecord = [type, FieldSpec("version", .varint()), FieldSpec("options", options)]

  static let statusNames: [UInt64: String] = [0: "sent", 1: "delivered", 2: "read"]
  static let receiptStatusNames: [UInt64: String] = [
    0: "none", 1: "processing", 2: "done", 3: "expired",
  ]
  private static let optionNames: [UInt64: String] = [
    1: "read_events", 2: "delivery_events", 3: "mark_unread", 4: "history", 5: "read_acks_receipts",
    6: "receipt_ttl", 7: "receipt_max_members", 8: "receipt_daily_limit", 9: "receipt_request_roles",
    10: "counts_visible_to", 11: "status_rule", 12: "kept_steps",
  ]
  private static let errorNames: [UInt64: String] = [
    1: "malformed_frame", 2: "frame_too_large", 3: "unsupported_version", 4: "authentication_failed",
    5: "unknown_kind", 6: "session_expired", 7: "handshake_required", 8: "handshake_timeout", 9: "superseded",
    20: "wrong_shard", 21: "busy", 22: "unavailable", 23: "outcome_unknown", 24: "not_implemented",
    25: "clock_jump", 26: "data_directory_lost",
    30: "invalid_field", 31: "channel_not_found", 32: "not_a_member", 33: "message_not_found",
    34: "message_deleted", 35: "mark_unread_off", 36: "limit_reached", 37: "token_revoked",
    38: "order_not_available", 39: "counts_not_visible", 40: "receipt_not_requested", 41: "own_message",
    42: "receipt_expired", 43: "not_expected", 44: "invalid_cursor", 45: "user_erased",
    46: "ticket_invalid", 47: "ticket_expired", 48: "message_conflict", 49: "not_in_thread",
    61: "backup_under_way", 62: "backup_not_found", 63: "backup_failed",
  ]
}
