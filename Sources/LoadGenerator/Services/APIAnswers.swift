// Answers of the gateway's API, as far as a bench checks them. Property names are the API's.

struct UserAnswer: Decodable { var id: String }

// swift-format-ignore: AlwaysUseLowerCamelCase
struct ChannelAnswer: Decodable {
  struct Message: Decodable {
    var id: String
    var seq: Int
  }
  struct Channel: Decodable { var newest_message: Message? }
  var channel: Channel
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct ReadStateAnswer: Decodable {
  struct Row: Decodable {
    var user: UserAnswer
    var last_read_message_id: String?
    var last_read_seq: Int
    var last_delivered_seq: Int?
    var last_delivered_message_id: String?
  }
  var read: [Row]
  var next: String?
}

struct RowAnswer: Decodable { var read: ReadStateAnswer.Row }

struct MessageAnswer: Decodable {
  struct Message: Decodable {
    var id: String
    var cid: String
    var seq: Int
  }
  var message: Message
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct StatusAnswer: Decodable {
  var message_id: String
  var seq: Int
  var status: String
  var read_count: Int
  var delivered_count: Int?
  var unread_count: Int?
  var member_count: Int
}

struct StatusesAnswer: Decodable { var statuses: [StatusAnswer] }

struct MembersAnswer: Decodable {
  struct Member: Decodable { var user: UserAnswer }
  var members: [Member]
  var next: String?
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct TotalsAnswer: Decodable, Equatable {
  var total_unread_count: Int
  var unread_channels: Int
  var unread_threads: Int
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct BadgesAnswer: Decodable {
  struct Badge: Decodable {
    var user_id: String
    var total_unread_count: Int?
    var unread_channels: Int?
  }
  var users: [Badge]
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct MarkAllAnswer: Decodable {
  var channels_read: Int
  var failed: [String]
}

struct TicketsAnswer: Decodable { var tickets: [String] }
