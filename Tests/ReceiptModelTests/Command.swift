/// Commands and answers in plain text and integers: the language that the tests, the real shard (``TestShard``) and the
/// independent oracle (``NaiveModel``) have in common, so that neither has to know the other's types.

/// Options by the names of API.md; a key that is absent keeps its value.
typealias Settings = [String: String]

/// A member as a command names them; an empty role is none.
struct Seat: Hashable, Sendable, CustomStringConvertible {
  var user: String
  var role = ""

  var description: String { role.isEmpty ? user : "\(user)(\(role))" }
}

enum Command: Hashable, Sendable {
  case put(cid: String, settings: Settings, members: [Seat])
  case change(cid: String, add: [Seat], remove: [String])
  case post(cid: String, id: String, sender: String, created: Int, isSilent: Bool)
  case delete(cid: String, id: String)
  /// An empty message is the newest.
  case read(cid: String, user: String, message: String, epoch: Int?)
  case delivered(cid: String, user: String, message: String)
  case unread(cid: String, user: String, message: String, epoch: Int?)
  case patchType(name: String, settings: Settings)
  case assignType(name: String, version: Int, settings: Settings)
}

/// What a command came to.
enum Outcome: Hashable, Sendable {
  /// By the wire's name of the error.
  case refused(String)
  case row(RowView)
  case message(sequence: Int, isNew: Bool)
  case position(Int)
  case channel(isNew: Bool, members: Int, newest: Int)
  case type(version: Int, settings: Settings)
}

/// A read-state row. Positions are sequence numbers with the ids that they name; 0 and the empty id are "none".
struct RowView: Hashable, Sendable {
  var user: String
  var lastReadAt: Int
  var lastRead: Int
  var lastReadID: String
  var lastDeliveredAt: Int
  var lastDelivered: Int
  var lastDeliveredID: String
  var own: OwnView?

  struct OwnView: Hashable, Sendable {
    var unread: Int
    var firstUnreadID: String
    var epoch: Int
  }
}

struct StatusView: Hashable, Sendable {
  var sequence: Int
  var word: String
  var readCount: Int
  var deliveredCount: Int
  var unreadCount: Int
  var memberCount: Int
  var readEvents: Bool
  var deliveryEvents: Bool
  var createdAt: Int
}

/// The answer to a status query: the status, or the wire's name of the error.
enum StatusResult: Hashable, Sendable {
  case status(StatusView)
  case refused(String)
}

/// Who asks for a read state.
enum Viewer: Hashable, Sendable {
  /// A server that names nobody.
  case server
  case member(String)
  /// A server on behalf of a member: that member's row leads, and every row has own details.
  case serverFor(String)

  var user: String? {
    switch self {
    case .server: nil
    case .member(let user), .serverFor(let user): user
    }
  }

  var isServer: Bool {
    switch self {
    case .member: false
    case .server, .serverFor: true
    }
  }
}
