// Responses of the gateway's API, as far as a bench checks them. Property names are the API's.

struct UserResponse: Decodable { var id: String }

// swift-format-ignore: AlwaysUseLowerCamelCase
struct ChannelResponse: Decodable {
  struct Message: Decodable {
    var id: String
    var seq: Int
  }
  struct Channel: Decodable { var newest_message: Message? }
  var channel: Channel
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct ReadStateResponse: Decodable {
  struct Row: Decodable {
    var user: UserResponse
    var last_read_message_id: String?
    var last_read_seq: Int
    var last_delivered_seq: Int?
    var last_delivered_message_id: String?
  }
  var read: [Row]
  var next: String?
}

struct RowResponse: Decodable { var read: ReadStateResponse.Row }

struct MessageResponse: Decodable {
  struct Message: Decodable {
    var id: String
    var cid: String
    var seq: Int
  }
  var message: Message
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct StatusResponse: Decodable {
  var message_id: String
  var seq: Int
  var status: String
  var read_count: Int
  var delivered_count: Int?
  var unread_count: Int?
  var member_count: Int
}

struct StatusesResponse: Decodable { var statuses: [StatusResponse] }

struct MembersResponse: Decodable {
  struct Member: Decodable { var user: UserResponse }
  var members: [Member]
  var next: String?
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct TotalsResponse: Decodable, Equatable {
  var total_unread_count: Int
  var unread_channels: Int
  var unread_threads: Int
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct BadgesResponse: Decodable {
  struct Badge: Decodable {
    var user_id: String
    var total_unread_count: Int?
    var unread_channels: Int?
  }
  var users: [Badge]
}

// swift-format-ignore: AlwaysUseLowerCamelCase
struct MarkAllResponse: Decodable {
  var channels_read: Int
  var failed: [String]
}

struct TicketsResponse: Decodable { var tickets: [String] }
