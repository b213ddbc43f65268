internal import Foundation

/// Reads answers of Sendbird's Platform API: channels, messages and members, singly or as pages, one after the other.
///
/// Sources, read in 2026-11:
/// - https://sendbird.com/docs/chat/v3/platform-api/message/message-overview: the fields of a message.
/// - https://sendbird.com/docs/chat/v3/platform-api/channel/listing-channels-in-an-application/get-a-group-channel:
///   `show_member`, `show_read_receipt` and `show_delivery_receipt`, and what receipts mean.
/// - The models of Sendbird's own SDKs of this API: `SendbirdMember` with `read_ts` and `delivered_ts`, of
///   github.com/sendbird/sendbird-platform-sdk-java; `SendBirdMessageResponse` with `is_removed` and
///   `parent_message_id`, of github.com/sendbird/sendbird-platform-sdk-typescript.
/// - "Mark messages as read" in the documentation of the JavaScript SDK (https://docs.sendbird.com/docs/chat/v4): a sent
///   message moves its sender's read receipt, and a receipt of 0 stands for nothing read.
///
/// The files of Sendbird's data export are not read: their fields were not found in public documentation.
struct SendbirdReader: DumpReader {
  /// The name of group channels in the API's paths. Only these have receipts.
  private static let channelType = "group_channels"

  var framing: JSONFraming { .objects }

  private let decoder = JSONDecoder()

  mutating func read(_ object: DumpObject, into records: RecordCollector) throws {
    let origin = DumpOrigin(line: object.line)
    try records.attempt(origin) {
      let answer = try decoder.decode(Answer.self, from: Data(object.bytes))
      if let channels = answer.channels {
        try records.attempt(channels, of: "channels", at: origin) { try Self.read($0, at: $1, into: records) }
      } else if let messages = answer.messages {
        try records.attempt(messages, of: "messages", at: origin) { try Self.read($0, at: $1, into: records) }
      } else if let users = answer.users {
        records.leftOut.add(users.count, "users' profiles")
      } else if answer.messageID != nil {
        try Self.read(try decoder.decode(Message.self, from: Data(object.bytes)), at: origin, into: records)
      } else if answer.channelURL != nil {
        try Self.read(try decoder.decode(Channel.self, from: Data(object.bytes)), at: origin, into: records)
      } else if answer.members != nil {
        throw RecordRefusal("channel_url is missing: add it to a page of members, or use show_member of a channel")
      } else {
        throw RecordRefusal("it is no answer with channels, messages or members of the Platform API")
      }
    }
  }

  private static func cid(_ url: String) throws -> String { try ForeignID.channel(type: channelType, id: url) }

  private static func read(_ channel: Channel, at origin: DumpOrigin, into records: RecordCollector) throws {
    let cid = try cid(channel.channelURL)
    records.addChannel(cid, createdAt: channel.createdAt?.time, at: origin)
    try records.attempt(channel.members ?? [], of: "members", at: origin) { member, origin in
      guard member.state != "invited" else { return records.leftOut.add("invitations") }
      let user = try ForeignID.user(member.userID)
      let role = member.role.nonEmpty.flatMap { $0 == "none" ? nil : $0 }
      try records.add(.member(DumpMember(user: user, role: role, origin: origin)), to: cid, at: origin)
      try add(.read, user, member.readAt, to: cid, at: origin, records)
      try add(.delivered, user, member.deliveredAt, to: cid, at: origin, records)
    }
    for (kind, name, receipts) in [
      (DumpPosition.Kind.read, "read_receipt", channel.readReceipt),
      (.delivered, "delivery_receipt", channel.deliveryReceipt),
    ] {
      for (user, time) in (receipts ?? [:]).sorted(by: { ExactID($0.key) < ExactID($1.key) }) {
        let origin = origin.within(name)
        try records.attempt(origin) {
          try add(kind, try ForeignID.user(user), time, to: cid, at: origin, records)
        }
      }
    }
  }

  private static func add(
    _ kind: DumpPosition.Kind,
    _ user: String,
    _ time: SendbirdTime?,
    to cid: String,
    at origin: DumpOrigin,
    _ records: RecordCollector
  ) throws {
    guard let time = time?.time else { return }
    let position = DumpPosition(kind: kind, user: user, at: time, isUpToTime: true, origin: origin)
    try records.add(.position(position), to: cid, at: origin)
  }

  private static func read(_ message: Message, at origin: DumpOrigin, into records: RecordCollector) throws {
    let parent = message.parentMessageID.flatMap { $0 > 0 ? String($0) : nil }
    if parent != nil, message.isReplyToChannel == true { records.leftOut.add("replies' places in the channel") }
    let sent = DumpMessage(
      key: String(message.messageID),
      // Admin messages have no user.
      sender: try (message.user?.userID).nonEmpty.map(ForeignID.user),
      createdAt: try message.createdAt.time.required("created_at"),
      parent: parent,
      isSilent: message.silent ?? false,
      isDeleted: message.isRemoved ?? false,
      mentions: records.mentions((message.mentionedUsers ?? []).map(\.userID)),
      mentionsAll: message.mentionType == "channel",
      movesPosition: true,
      origin: origin
    )
    try records.add(.message(sent), to: try cid(message.channelURL), at: origin)
    records.leftOut.add(message.reactions?.count ?? 0, "kinds of reactions")
    records.leftOut.add(message.type == "FILE" ? 1 : 0, "files")
  }
}

// MARK: - Answers of the API

/// A time of Sendbird: milliseconds since 1970, or seconds, as some answers have them for channels. A number below
/// 100,000,000,000 is one of seconds: as milliseconds it would be in 1973 or before. 0 stands for none.
private struct SendbirdTime: Decodable {
  let time: DumpTime?

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let number = try container.decode(Int64.self)
    time = number == 0 ? nil : DumpTime(milliseconds: number < 100_000_000_000 ? number * 1_000 : number)
    guard number == 0 || time != nil else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "must be a time in Unix milliseconds")
    }
  }
}

extension SendbirdReader {
  /// What an object is, by its fields.
  private struct Answer: Decodable {
    var channels: [Lenient<Channel>]?
    var messages: [Lenient<Message>]?
    var users: FieldCount?
    var members: Presence?
    var messageID: Presence?
    var channelURL: Presence?

    private enum CodingKeys: String, CodingKey {
      case channels
      case messages
      case users
      case members
      case messageID = "message_id"
      case channelURL = "channel_url"
    }
  }

  private struct Channel: Decodable {
    struct Member: Decodable {
      var userID: String
      var state: String?
      var role: String?
      var readAt: SendbirdTime?
      var deliveredAt: SendbirdTime?

      private enum CodingKeys: String, CodingKey {
        case userID = "user_id"
        case state
        case role
        case readAt = "read_ts"
        case deliveredAt = "delivered_ts"
      }
    }

    var channelURL: String
    var createdAt: SendbirdTime?
    var members: [Lenient<Member>]?
    var readReceipt: [String: SendbirdTime]?
    var deliveryReceipt: [String: SendbirdTime]?

    private enum CodingKeys: String, CodingKey {
      case channelURL = "channel_url"
      case createdAt = "created_at"
      case members
      case readReceipt = "read_receipt"
      case deliveryReceipt = "delivery_receipt"
    }
  }

  private struct Message: Decodable {
    struct User: Decodable {
      var userID: String

      private enum CodingKeys: String, CodingKey {
        case userID = "user_id"
      }
    }

    /// Admin messages may have an empty user.
    struct Sender: Decodable {
      var userID: String?

      private enum CodingKeys: String, CodingKey {
        case userID = "user_id"
      }
    }

    var messageID: Int64
    var channelURL: String
    var type: String?
    var user: Sender?
    var createdAt: SendbirdTime
    var parentMessageID: Int64?
    var isReplyToChannel: Bool?
    var isRemoved: Bool?
    var silent: Bool?
    var mentionType: String?
    var mentionedUsers: [User]?
    var reactions: FieldCount?

    private enum CodingKeys: String, CodingKey {
      case messageID = "message_id"
      case channelURL = "channel_url"
      case type
      case user
      case createdAt = "created_at"
      case parentMessageID = "parent_message_id"
      case isReplyToChannel = "is_reply_to_channel"
      case isRemoved = "is_removed"
      case silent
      case mentionType = "mention_type"
      case mentionedUsers = "mentioned_users"
      case reactions
    }
  }
}
