/// Commands and answers in plain text and integers. The tests, the real shard (``TestShard``) and the independent
/// oracle (``NaiveModel``) share them, so that neither shard nor oracle depends on the other's types.

/// Options under their names in Proto/openapi.yaml; an absent key keeps its value.
typealias Settings = [String: String]

/// A member as a command names it; an empty role means none.
struct MemberSpec: Hashable, Sendable, CustomStringConvertible {
  var user: String
  var role = ""

  var description: String { role.isEmpty ? user : "\(user)(\(role))" }
}

/// In a message's mentions: all members.
let everybody = "*"

enum Command: Hashable, Sendable {
  case put(cid: String, settings: Settings, members: [MemberSpec])
  case change(cid: String, add: [MemberSpec], remove: [String])
  case post(
    cid: String,
    id: String,
    sender: String,
    created: Int,
    isSilent: Bool,
    requestsAcknowledgement: Bool = false,
    movesPosition: Bool = true,
    mentions: [String] = []
  )
  /// Sets a member's role (empty: keep it) and mute flag (nil: keep it). `joins`: adds the user if they are no member.
  case member(cid: String, user: String, role: String, isMuted: Bool?, joins: Bool)
  case delete(cid: String, id: String)
  /// An empty message means the newest.
  case read(cid: String, user: String, message: String, epoch: Int?)
  case delivered(cid: String, user: String, message: String)
  /// An empty message means the whole channel, or all of a thread.
  case unread(cid: String, user: String, message: String, epoch: Int?)
  /// A push ack by channel, user and message; `acked` 0 means now.
  case push(cid: String, user: String, message: String, acked: Int)
  /// `ticket` creates a ticket; `redeem` acknowledges with one, given by its index among the tickets of the cid.
  case ticket(cid: String, user: String, message: String)
  case redeem(cid: String, ticket: Int, acked: Int)
  /// Acknowledges the messages one after the other; an empty note means none.
  case acknowledge(cid: String, user: String, messages: [String], note: String)
  case patchType(name: String, settings: Settings)
  case assignType(name: String, version: Int, settings: Settings)
  /// nil keeps the setting.
  case patchUser(String, showsRead: Bool?, showsDelivered: Bool?, revoked: Int?)
  case assignUser(UserView)
  /// A command that threads support (post, read, delivered, unread), in the thread of this parent message (R15).
  indirect case inThread(String, Command)
  /// Deletes the messages before this one, or all where it is empty (R16).
  case truncate(cid: String, before: String)
  case deleteChannel(cid: String)
  case eraseMember(cid: String, user: String)
  /// Starts the erasure of a user.
  case eraseUser(String)
  /// Ends the erasure: the record comes from the home shard, as in ``assignUser(_:)``.
  case assignErased(String, version: Int)
  /// Marks every channel of the user read, each up to its newest message (R13).
  case readAll(String)
}

extension Command {
  /// The case's name, for tallies.
  var name: String { "\(self)".prefix { $0 != "(" }.description }
}

/// The result of a command.
enum Outcome: Hashable, Sendable {
  /// The error's wire name.
  case refused(String)
  case row(RowView)
  /// `refusal`: why a requested acknowledgement was refused; empty where there is an acknowledgement request or none
  /// was requested.
  case message(sequence: Int, isNew: Bool, refusal: String = "")
  case position(Int)
  /// The result of a push ack; times are milliseconds, 0 means none.
  case delivery(isMoved: Bool, sentAt: Int, deliveredAt: Int)
  /// The ticket's index among those of its cid.
  case ticket(Int)
  /// For each message `ok`, or the error's wire name.
  case acknowledged([String])
  case user(UserView)
  case member(role: String, joinedAt: Int, isMuted: Bool, isNew: Bool)
  case channel(isNew: Bool, members: Int, newest: Int)
  /// Whether the command changed anything.
  case done(Bool)
  /// The marked channels, in the order of their cids.
  case marked([String])
  case type(version: Int, settings: Settings)
}

/// A user's settings; times are milliseconds, 0 means none.
struct UserView: Hashable, Sendable {
  var user: String
  var version = 0
  var hidesRead = false
  var hidesDelivered = false
  var readShownSince = 0
  var deliveredShownSince = 0
  var revokedBefore = 0
  /// Whether the user is being erased: then nothing new is created in their name (R16).
  var isErasing = false
  /// Whether only the version is left of the user.
  var isErased = false
}

/// One channel in a user's index, which lists every channel that knows the user's id (R13).
struct MembershipView: Hashable, Sendable {
  var cid: String
  /// The user's last row; nil if they only sent messages there.
  var row: Int?
  var isMember: Bool
  var joinedAt: Int
}

/// The unread counts of a member in one channel (R14).
struct UnreadView: Hashable, Sendable {
  var messages = 0
  var threads = 0
  var mentions = 0
  /// Whether the channel is flagged unread as a whole (R4).
  var isFlagged = false
  /// Whether the member muted the channel: then it counts in none of their totals.
  var isMuted = false
}

/// The unread counts of a user over all their channels (R14).
struct TotalsView: Hashable, Sendable {
  var messages = 0
  var channels = 0
  var threads = 0
  var mentions = 0
}

/// A read-state row. Positions are sequence numbers with the ids of their messages; 0 and the empty id mean none.
struct RowView: Hashable, Sendable {
  var user: String
  /// The number of messages when the member joined.
  var joined = 0
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
    /// Visible to the member only (R4).
    var isFlagged = false
    var mentions = 0
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
  /// For a message with an acknowledgement request.
  var acknowledgedCount: Int?
}

/// The answer to a status query: the status, or the error's wire name.
enum StatusResult: Hashable, Sendable {
  case status(StatusView)
  case refused(String)
}

/// The lists of a message's members (R11), and their orders.
enum ListName: String, CaseIterable, Sendable {
  case readers, delivered, unread, acknowledged, unacknowledged
}

enum OrderName: String, CaseIterable, Sendable {
  case joined, time, timeDescending
}

/// One entry of a list.
struct EntryView: Hashable, Sendable {
  var user: String
  var at = 0
  var isExact = true
  var note = ""
}

/// One member's status of one message.
struct MemberStatusView: Hashable, Sendable {
  var word: String
  var readAt = 0
  var deliveredAt = 0
  var readIsExact = true
  var deliveredIsExact = true
  var acknowledgedAt = 0
}

/// One member's answer in a query for several: the status, or the error's wire name.
enum MemberStatusResult: Hashable, Sendable {
  case status(MemberStatusView)
  case refused(String)
}

/// The caller of a query.
enum Viewer: Hashable, Sendable {
  /// A server that acts for no user.
  case server
  case member(String)
  /// A server on behalf of a member: that member's row comes first, and every row has own details.
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
