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

/// In a list of those whom a message mentions: everybody.
let everybody = "*"

enum Command: Hashable, Sendable {
  case put(cid: String, settings: Settings, members: [Seat])
  case change(cid: String, add: [Seat], remove: [String])
  case post(
    cid: String,
    id: String,
    sender: String,
    created: Int,
    isSilent: Bool,
    wantsReceipt: Bool = false,
    movesPosition: Bool = true,
    mentions: [String] = []
  )
  /// A member's role (empty: stays) and whether they mute the channel (nil: stays); `joins`: who is none becomes one.
  case member(cid: String, user: String, role: String, isMuted: Bool?, joins: Bool)
  case delete(cid: String, id: String)
  /// An empty message is the newest.
  case read(cid: String, user: String, message: String, epoch: Int?)
  case delivered(cid: String, user: String, message: String)
  /// An empty message is the whole channel, or all of a thread.
  case unread(cid: String, user: String, message: String, epoch: Int?)
  /// A push acknowledgement by names; `acked` 0: now.
  case push(cid: String, user: String, message: String, acked: Int)
  /// Makes a ticket, and acknowledges by one: by its place among those made for the cid.
  case ticket(cid: String, user: String, message: String)
  case redeem(cid: String, ticket: Int, acked: Int)
  /// One message after the other; an empty note is none.
  case acknowledge(cid: String, user: String, messages: [String], note: String)
  case patchType(name: String, settings: Settings)
  case assignType(name: String, version: Int, settings: Settings)
  /// nil leaves what is there.
  case patchUser(String, showsRead: Bool?, showsDelivered: Bool?, revoked: Int?)
  case assignUser(UserView)
  /// One that a thread can have (post, read, delivered, unread), in the thread of this parent message (R15).
  indirect case inThread(String, Command)
  /// Those before a message, or all where it is empty (R16).
  case truncate(cid: String, before: String)
  case deleteChannel(cid: String)
  case eraseMember(cid: String, user: String)
  /// The user is being erased from now on.
  case eraseUser(String)
  /// They are gone: from their home shard, as ``assignUser(_:)`` is.
  case assignErased(String, version: Int)
  /// Every channel that the user is a member of, each up to its newest message (R13).
  case readAll(String)
}

extension Command {
  /// For a tally.
  var name: String { "\(self)".prefix { $0 != "(" }.description }
}

/// What a command came to.
enum Outcome: Hashable, Sendable {
  /// By the wire's name of the error.
  case refused(String)
  case row(RowView)
  /// `refusal`: why it has no receipt, where one was asked for; empty: it has one, or none was asked for.
  case message(sequence: Int, isNew: Bool, refusal: String = "")
  case position(Int)
  /// What an acknowledgement came to; times are milliseconds, 0 is none.
  case delivery(isMoved: Bool, sentAt: Int, deliveredAt: Int)
  /// The place of a ticket among those made for its cid.
  case ticket(Int)
  /// Per message `ok`, or the wire's name of the error.
  case acknowledged([String])
  case user(UserView)
  case member(role: String, joinedAt: Int, isMuted: Bool, isNew: Bool)
  case channel(isNew: Bool, members: Int, newest: Int)
  /// Whether there was anything to do.
  case done(Bool)
  /// The channels that were marked, in the order of their names.
  case marked([String])
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
  /// Nothing new is made in their name (R16).
  var isErasing = false
  /// Nothing is left of them but the version.
  var isErased = false
}

/// One channel in a user's index: every one that knows their id (R13).
struct MembershipView: Hashable, Sendable {
  var cid: String
  /// Their last row; nil: they only sent messages there.
  var row: Int?
  var isMember: Bool
  var joinedAt: Int
}

/// What counts as unread for a member of one channel (R14).
struct UnreadView: Hashable, Sendable {
  var messages = 0
  var threads = 0
  var mentions = 0
  /// The channel is flagged unread as a whole (R4).
  var isFlagged = false
  /// It is in none of the member's totals.
  var isMuted = false
}

/// What counts as unread for a user in all their channels (R14).
struct TotalsView: Hashable, Sendable {
  var messages = 0
  var channels = 0
  var threads = 0
  var mentions = 0
}

/// A read-state row. Positions are sequence numbers with the ids that they name; 0 and the empty id are "none".
struct RowView: Hashable, Sendable {
  var user: String
  /// How many messages there were when they joined.
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
    /// For nobody else's eyes (R4).
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
  /// Of a message with a receipt.
  var acknowledgedCount: Int?
}

/// The answer to a status query: the status, or the wire's name of the error.
enum StatusResult: Hashable, Sendable {
  case status(StatusView)
  case refused(String)
}

/// The lists of the members of a message (R11), and their orders.
enum ListName: String, CaseIterable, Sendable {
  case readers, delivered, unread, acknowledged, unacknowledged
}

enum OrderName: String, CaseIterable, Sendable {
  case joined, time, timeDescending
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
  var readIsExact = true
  var deliveredIsExact = true
  var acknowledgedAt = 0
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
