import Foundation

/// A live event, with the fields that the client uses (docs/api/events.md).
struct Event: Decodable, Sendable {
  struct User: Decodable, Sendable {
    var id: String
  }

  /// What `message.new` tells of its message.
  struct NewMessage: Decodable, Sendable {
    var id: String
    var seq: Int
    var silent: Bool?
    var parentID: String?

    private enum CodingKeys: String, CodingKey {
      case id, seq, silent
      case parentID = "parent_id"
    }
  }

  /// Which positions of its sender a message moves.
  struct Moves: Decodable, Sendable {
    var read: Bool
    var delivered: Bool
  }

  /// What `channel.updated` tells of its channel.
  struct Channel: Decodable, Sendable {
    struct Options: Decodable, Sendable {
      var readEvents: Bool
      var deliveryEvents: Bool

      private enum CodingKeys: String, CodingKey {
        case readEvents = "read_events"
        case deliveryEvents = "delivery_events"
      }
    }

    var options: Options
  }

  let type: String
  var cid: CID?
  var threadID: String?
  var user: String?
  var createdAt: Date?
  var message: NewMessage?
  var moves: Moves?
  var messageID: String?
  var seq: Int?
  var fromSeq: Int?
  var toSeq: Int?
  var status: String?
  /// Positions and counts: of a row where the event carries one, else those that it tells.
  var row: Row
  /// Whether the event tells the number of the newest message at the join.
  var hasJoinedSeq = false
  var totals: Totals?
  var receipt: ReceiptChange?
  /// Which kinds of receipts the channel shows now.
  var shown: ReceiptsShown?

  var thread: String? { threadID ?? message?.parentID }
  var place: Place? { cid.map { Place(cid: $0, thread: thread) } }

  private enum CodingKeys: String, CodingKey {
    case type, cid, user, message, seq, status, channel
    case threadID = "thread_id"
    case createdAt = "created_at"
    case moves = "moves_position"
    case messageID = "message_id"
    case fromSeq = "from_seq"
    case toSeq = "to_seq"
    case joinedSeq = "joined_seq"
  }

  init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: CodingKeys.self)
    type = try fields.decode(String.self, forKey: .type)
    row = Row(joinedSeq: 0)
    switch type {
    case "notification.totals": totals = try Totals(from: decoder)
    case "message.receipt": receipt = try ReceiptChange(from: decoder)
    case "message.read", "message.delivered", "read_state.changed", "member.added", "notification.mark_read",
      "notification.mark_unread":
      row = try Row(from: decoder)
      hasJoinedSeq = fields.contains(.joinedSeq)
    case "message.new":
      message = try fields.decode(NewMessage.self, forKey: .message)
      moves = try fields.decode(Moves.self, forKey: .moves)
    case "message.deleted":
      messageID = try fields.decode(String.self, forKey: .messageID)
      seq = try fields.decodeIfPresent(Int.self, forKey: .seq)
    case "channel.updated":
      let options = try fields.decode(Channel.self, forKey: .channel).options
      shown = ReceiptsShown(read: options.readEvents, delivered: options.deliveryEvents)
    case "channel.truncated": seq = try fields.decodeIfPresent(Int.self, forKey: .seq)
    case "message.status":
      fromSeq = try fields.decode(Int.self, forKey: .fromSeq)
      toSeq = try fields.decode(Int.self, forKey: .toSeq)
      status = try fields.decode(String.self, forKey: .status)
    case "member.removed", "channel.deleted": break
    // What else there is, or will be, changes no row.
    default: return
    }
    cid = try fields.decodeIfPresent(CID.self, forKey: .cid)
    threadID = try fields.decodeIfPresent(String.self, forKey: .threadID)
    user = try fields.decodeIfPresent(User.self, forKey: .user)?.id
    createdAt = try fields.decodeIfPresent(Date.self, forKey: .createdAt)
  }
}
