/// The fields of each body (Proto/openapi.yaml), implemented or not. Implementing a field changes its line from
/// `.notImplemented("name")` to `"name"`; a new route adds a table.
/// APIDocumentTests compare the tables with Proto/openapi.yaml.
extension KnownFields {
  // MARK: Set-up

  static let options: KnownFields = [
    "read_events", "delivery_events", "mark_unread", "history", "read_acks_receipts", "receipt_ttl",
    "receipt_max_members", "receipt_daily_limit", "receipt_request_roles", "counts_visible_to", "status_rule",
    "kept_steps", .notImplemented("reminders"),
  ]
  /// A member given as an object.
  private static let member: KnownFields = ["user_id", "role"]
  static let putChannel: KnownFields = [.objects("members", member), .object("options", options)]
  static let putChannels: KnownFields = [.objects("channels", ["cid"] + putChannel)]
  static let changeMembers: KnownFields = [.objects("add", member), .objects("remove", member)]
  static let putMember: KnownFields = ["role", "muted"]
  static let truncateChannel: KnownFields = ["before", "all"]
  static let registerMessage: KnownFields = [
    "id", "user_id", "created_at", "silent", "receipt", "parent_id", "mentions",
    "moves_position", .notImplemented("reminders"),
  ]
  static let registerMessages: KnownFields = [.objects("messages", ["cid"] + registerMessage)]
  private static let privacySwitch: KnownFields = ["enabled"]
  static let putUser: KnownFields = [
    .object(
      "privacy_settings",
      [.object("read_receipts", privacySwitch), .object("delivery_receipts", privacySwitch)]
    ),
    "revoke_tokens_before",
  ]
  static let putToken: KnownFields = ["revoked", "expires_at"]
  static let putUsers: KnownFields = [.objects("users", ["id"] + putUser)]

  // MARK: Positions

  static let markRead: KnownFields = ["message_id", "thread_id", "unread_epoch", "user_id"]
  static let markUnread: KnownFields = [
    "message_id", "message_timestamp", "thread_id", "unread_epoch", "user_id",
  ]
  static let markDelivered: KnownFields = [
    .objects("latest_delivered_messages", ["cid", "id", "parent_id"]), "user_id",
  ]
  /// The names in the two maps are cids.
  static let markReadMany: KnownFields = [
    "read_by_channel", "unread_epochs", "all", "threads", "user_id",
  ]
  static let acknowledgeReceipts: KnownFields = ["message_ids", "note", "user_id"]

  // MARK: Queries

  static let readStates: KnownFields = ["cids", "user_id"]
  static let statuses: KnownFields = ["message_ids", "user_id"]
  static let unreadOfUsers: KnownFields = ["user_ids"]

  // MARK: Push

  static let issueTickets: KnownFields = [
    .objects("tickets", ["cid", "message_id", "user_id", "device"]), "ttl",
  ]
  /// An entry of `acks`, or a line.
  static let pushAck: KnownFields = [
    "ticket", "cid", "message_id", "user_id", "provider", "provider_message_id", "device", "acked_at",
  ]
  static let acknowledgePushes: KnownFields = ["tickets", .objects("acks", pushAck)]
}
