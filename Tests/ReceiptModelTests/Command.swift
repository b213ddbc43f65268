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
  case post(cid: String, id: String, sender: String, created: Int, isSilent: Bool, wantsReceipt: Bool = false)
  case delete(cid: String, id: String)
  /// An empty message is the newest.
  case read(cid: String, user: String, message: String, epoch: Int?)
  case delivered(cid: String, user: String, message: String)
  case unread(cid: String, user: String, message: String, epoch: Int?)
  /// One message after the other; an empty note is none.
  case acknowledge(cid: String, user: String, messages: [String], note: String)
  case patchType(name: String, settings: Settings)
  case assignType(name: String, version: Int, settings: Settings)
  /// nil leaves what is there.
  case patchUser(String, showsRead: Bool?, showsDelivered: Bool?, revoked: Int?)
  case assignUser(UserView)
}

/// What a command came to.
enum Outcome: Hashable, Sendable {
  /// By the wire's name of the error.
  case refused(String)
  case row(RowView)
  /// `refusal`: why it has no receipt, where one was asked for; empty: it has one, or none was asked for.
  case message(sequence: Int, isNew: Bool, refusal: String = "")
  case position(Int)
  /// Per message `ok`, or the wire's name of the error.
  case acknowledged([String])
  case user(UserView)
  case channel(isNew: Bool, members: Int, newest: Int)
  case type(version: Int, settings: Settings)
}

/// A user's settings; times are milliseconds, 0 is none.
struct UserView: Hashable, Sendable {
  var user: String
  var version = 0
  var hidesRead = false
  var hidesDelivered = false
  var readShownSince = 0
  var deliveredShownSince = 0
  var revokedBefore = 0
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
  var receipt: String
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

/// The lists of the members of a message (R11), and their orders.
enum ListName: String, CaseIterable, Sendable {
  case readers, delivered, unread
}

enum OrderName: String, CaseIterable, Sendable {
  case joined, time
}

/// One member in a list.
struct EntryView: Hashable, Sendable {
  var user: String
  var at = 0
  var isExact = true
  var note = ""
}

/// What one member has of one message.
struct MemberStatusView: Hashable, Sendable {
  var word: String
  var readAt = 0
  var deliveredAt = 0
  var isExact = true
}

/// One member of a query for several: the wire's name of the error where there is no status.
enum MemberStatusResult: Hashable, Sendable {
  case status(MemberStatusView)
  case refused(String)
}

/// Who asks.
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
