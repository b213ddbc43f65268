internal import Foundation

/// Reads channel exports of Stream Chat: objects with `channel`, `messages`, `members` and `read`, one after the other,
/// in a list, or in `channels` as the API answers a query.
///
/// Sources, read in 2026-11:
/// - https://getstream.io/chat/docs/node/exporting_channels/: an export has the format of the API's answers; times such
///   as `2021-02-17T08:17:49.745857Z`. With `version: "v2"` it has a line for each entity, whose form the page does not
///   give: such lines are refused.
/// - https://getstream.io/chat/docs/sdk/react/state/channels-and-threads/read-state-and-unread-counts/: the fields of
///   `read`; posting a message counts as reading the channel; times may be numbers of nanoseconds.
/// - https://getstream.io/chat/docs/react-native/unread_messages/: `privacy_settings`.
/// - The answers of the API's channel query, shown in the same documentation: the other fields.
struct StreamReader: DumpReader {
  var framing: JSONFraming { .objects }

  private let decoder = JSONDecoder()

  mutating func read(_ object: DumpObject, into records: RecordCollector) throws {
    let origin = DumpOrigin(line: object.line)
    try records.attempt(origin) {
      let state = try decoder.decode(ChannelState.self, from: Data(object.bytes))
      if let channels = state.channels {
        try records.attempt(channels, of: "channels", at: origin) { try Self.read($0, at: $1, into: records) }
      } else {
        try Self.read(state, at: origin, into: records)
      }
    }
  }

  private static func read(_ state: ChannelState, at origin: DumpOrigin, into records: RecordCollector) throws {
    guard let channel = state.channel else {
      throw RecordRefusal("channel is missing: give an export of channels that was made without version v2")
    }
    let cid = try ForeignID.channel(type: channel.type, id: channel.id)
    records.addChannel(cid, createdAt: channel.createdAt?.time, at: origin)
    try records.attempt(state.messages ?? [], of: "messages", at: origin) { message, origin in
      try read(message, in: cid, at: origin, into: records)
    }
    try records.attempt(state.members ?? [], of: "members", at: origin) { member, origin in
      try read(member, in: cid, at: origin, into: records)
    }
    try records.attempt(state.read ?? [], of: "read", at: origin) { try read($0, in: cid, at: $1, into: records) }
    try records.attempt(state.reads ?? [], of: "reads", at: origin) { try read($0, in: cid, at: $1, into: records) }
  }

  private static func read(
    _ message: Message,
    in cid: String,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws {
    // What only its sender has seen.
    if message.type == "ephemeral" || message.type == "error" { return records.leftOut.add("ephemeral messages") }
    let parent = try message.parentID.nonEmpty.map(ForeignID.message)
    if parent != nil, message.showInChannel == true { records.leftOut.add("replies' places in the channel") }
    try read(message.user, at: origin, into: records)
    let sent = DumpMessage(
      key: try ForeignID.message(message.id),
      sender: try message.user.map { try ForeignID.user($0.id) },
      createdAt: try message.createdAt.time.required("created_at"),
      parent: parent,
      isSilent: message.silent ?? false,
      isDeleted: message.type == "deleted" || message.deletedAt?.time != nil,
      deletedAt: message.deletedAt?.time,
      mentions: records.mentions((message.mentionedUsers ?? []).map(\.id)),
      movesPosition: true,
      origin: origin
    )
    try records.add(.message(sent), to: cid, at: origin)
    records.leftOut.add(message.reactionCounts?.count ?? 0, "reactions")
    records.leftOut.add(message.attachments?.count ?? 0, "attachments")
  }

  private static func read(
    _ member: Member,
    in cid: String,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws {
    // Members that were invited and have not accepted.
    if let status = member.status.nonEmpty, status != "member" { return records.leftOut.add("invitations") }
    try read(member.user, at: origin, into: records)
    let stay = DumpMember(
      user: try ForeignID.user((member.userID.nonEmpty ?? member.user?.id).required("user_id")),
      role: member.channelRole.nonEmpty,
      joinedAt: member.createdAt?.time,
      isMuted: member.notificationsMuted ?? false,
      origin: origin
    )
    try records.add(.member(stay), to: cid, at: origin)
  }

  private static func read(
    _ state: ReadState,
    in cid: String,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws {
    try read(state.user, at: origin, into: records)
    let user = try ForeignID.user((state.user?.id ?? state.userID.nonEmpty).required("user"))
    let marks = [
      (DumpPosition.Kind.read, state.lastReadMessageID.nonEmpty, state.lastRead?.time),
      (.delivered, state.lastDeliveredMessageID.nonEmpty, state.lastDeliveredAt?.time),
    ]
    for (kind, message, time) in marks where message != nil || time != nil {
      // A channel is only read as a whole, so its time says as much as its message.
      let position = DumpPosition(kind: kind, user: user, message: message, at: time, isUpToTime: true, origin: origin)
      try records.add(.position(position), to: cid, at: origin)
    }
  }

  private static func read(_ user: User?, at origin: DumpOrigin, into records: RecordCollector) throws {
    guard let user, let settings = user.privacySettings else { return }
    records.addUser(
      try ForeignID.user(user.id),
      hidesRead: settings.readReceipts?.enabled == false,
      hidesDelivered: settings.deliveryReceipts?.enabled == false,
      at: origin
    )
  }
}

// MARK: - Answers of the API

/// A time of Stream: RFC 3339 or nanoseconds since 1970. Times before 1970 stand for none.
private struct StreamTime: Decodable {
  let time: DumpTime?

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    if let nanoseconds = try? container.decode(Int64.self) {
      time = nanoseconds > 0 ? DumpTime(microseconds: nanoseconds / 1_000) : nil
      return
    }
    let text = try container.decode(String.self)
    time = DumpTime(rfc3339: text)
    guard time != nil || text.hasPrefix("0001-01-01") else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "must be a time, as RFC 3339 has it")
    }
  }
}

extension StreamReader {
  private struct ChannelState: Decodable {
    struct Channel: Decodable {
      var type: String
      var id: String
      var createdAt: StreamTime?

      private enum CodingKeys: String, CodingKey {
        case type
        case id
        case createdAt = "created_at"
      }
    }

    var channel: Channel?
    var messages: [Lenient<Message>]?
    var members: [Lenient<Member>]?
    var read: [Lenient<ReadState>]?
    /// Another name for `read`.
    var reads: [Lenient<ReadState>]?
    /// Of the answer to a query.
    var channels: [Lenient<ChannelState>]?
  }

  private struct User: Decodable {
    struct Switch: Decodable {
      var enabled: Bool?
    }

    struct Settings: Decodable {
      var readReceipts: Switch?
      var deliveryReceipts: Switch?

      private enum CodingKeys: String, CodingKey {
        case readReceipts = "read_receipts"
        case deliveryReceipts = "delivery_receipts"
      }
    }

    var id: String
    var privacySettings: Settings?

    private enum CodingKeys: String, CodingKey {
      case id
      case privacySettings = "privacy_settings"
    }
  }

  private struct Message: Decodable {
    var id: String
    var type: String?
    var user: User?
    var createdAt: StreamTime
    var deletedAt: StreamTime?
    var parentID: String?
    var showInChannel: Bool?
    var silent: Bool?
    var mentionedUsers: [User]?
    var reactionCounts: FieldCount?
    var attachments: FieldCount?

    private enum CodingKeys: String, CodingKey {
      case id
      case type
      case user
      case createdAt = "created_at"
      case deletedAt = "deleted_at"
      case parentID = "parent_id"
      case showInChannel = "show_in_channel"
      case silent
      case mentionedUsers = "mentioned_users"
      case reactionCounts = "reaction_counts"
      case attachments
    }
  }

  private struct Member: Decodable {
    var userID: String?
    var user: User?
    var status: String?
    var createdAt: StreamTime?
    var channelRole: String?
    var notificationsMuted: Bool?

    private enum CodingKeys: String, CodingKey {
      case userID = "user_id"
      case user
      case status
      case createdAt = "created_at"
      case channelRole = "channel_role"
      case notificationsMuted = "notifications_muted"
    }
  }

  private struct ReadState: Decodable {
    var userID: String?
    var user: User?
    var lastRead: StreamTime?
    var lastReadMessageID: String?
    var lastDeliveredAt: StreamTime?
    var lastDeliveredMessageID: String?

    private enum CodingKeys: String, CodingKey {
      case userID = "user_id"
      case user
      case lastRead = "last_read"
      case lastReadMessageID = "last_read_message_id"
      case lastDeliveredAt = "last_delivered_at"
      case lastDeliveredMessageID = "last_delivered_message_id"
    }
  }
}
