/// A line of an import (docs/api/import-export.md), with the fields that a dump can fill.
enum DumpLine: Encodable, Hashable {
  case channel(Channel)
  case user(User)
  case message(Message)
  case member(Member)

  struct Channel: Encodable, Hashable {
    var cid: String
    var createdAt: String?

    private enum CodingKeys: String, CodingKey {
      case cid
      case createdAt = "created_at"
    }
  }

  struct User: Encodable, Hashable {
    struct Switch: Encodable, Hashable {
      var enabled: Bool
    }

    struct Settings: Encodable, Hashable {
      var readReceipts: Switch?
      var deliveryReceipts: Switch?

      private enum CodingKeys: String, CodingKey {
        case readReceipts = "read_receipts"
        case deliveryReceipts = "delivery_receipts"
      }
    }

    var id: String
    var settings: Settings

    private enum CodingKeys: String, CodingKey {
      case id
      case settings = "privacy_settings"
    }
  }

  struct Message: Encodable, Hashable {
    enum Mentions: Encodable, Hashable {
      case all
      case users([String])

      func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .all: try container.encode("all")
        case .users(let users): try container.encode(users)
        }
      }
    }

    var cid: String
    var id: String
    var user: String?
    var createdAt: String
    var parent: String?
    /// Flags are true or left out.
    var silent: Bool?
    var deleted: Bool?
    var deletedAt: String?
    var mentions: Mentions?
    var movesPosition: Bool?

    private enum CodingKeys: String, CodingKey {
      case cid
      case id
      case user = "user_id"
      case createdAt = "created_at"
      case parent = "parent_id"
      case silent
      case deleted
      case deletedAt = "deleted_at"
      case mentions
      case movesPosition = "moves_position"
    }
  }

  struct Member: Encodable, Hashable {
    var cid: String
    var user: String
    var thread: String?
    var role: String?
    var joinedAt: String?
    var leftAt: String?
    var muted: Bool?
    var read: String?
    var readAt: String?
    var readHidden: Bool?
    var delivered: String?
    var deliveredAt: String?
    var deliveredHidden: Bool?

    private enum CodingKeys: String, CodingKey {
      case cid
      case user = "user_id"
      case thread = "thread_id"
      case role
      case joinedAt = "joined_at"
      case leftAt = "left_at"
      case muted
      case read = "last_read_message_id"
      case readAt = "last_read_at"
      case readHidden = "last_read_hidden"
      case delivered = "last_delivered_message_id"
      case deliveredAt = "last_delivered_at"
      case deliveredHidden = "last_delivered_hidden"
    }
  }

  private enum CodingKeys: String, CodingKey {
    case channel
    case user
    case message
    case member
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    switch self {
    case .channel(let channel): try container.encode(channel, forKey: .channel)
    case .user(let user): try container.encode(user, forKey: .user)
    case .message(let message): try container.encode(message, forKey: .message)
    case .member(let member): try container.encode(member, forKey: .member)
    }
  }
}
