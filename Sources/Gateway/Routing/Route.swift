/// The routes of Proto/openapi.yaml.
package enum Route: UInt8, CaseIterable, Sendable {
  case markRead
  case markUnread
  case markDelivered
  case markReadMany
  case registerMessage
  case registerMessages
  case deleteMessage
  case putChannel
  case getChannel
  case changeMembers
  case putMember
  case putChannelType
  case getChannelType
  case listChannelTypes
  case apiDocument
  case readState
  case readStates
  case listRoster
  case listMessages
  case putChannels
  case putUsers
  case statuses
  case messageStatus
  case acknowledgeReceipts
  case listReaders
  case listDelivered
  case listUnread
  case listAcknowledged
  case listUnacknowledged
  case chosenMembers
  case putUser
  case getUser
  case putToken
  case getToken
  case deleteChannel
  case truncateChannel
  case deleteUser
  case unreadOfUser
  case channelsOfUser
  case receiptsOfUser
  case threadsOfUser
  case unreadOfUsers
  case events
  case frames
  case issueTickets
  case acknowledgePushes
  case receiveHook
  /// A route of the public API that is not implemented yet: 501.
  case notImplemented
  /// The same, without authentication.
  case notImplementedPublic

  /// The name in metrics and logs.
  package var name: StaticString {
    switch self {
    case .markRead: "mark_read"
    case .markUnread: "mark_unread"
    case .markDelivered: "mark_delivered"
    case .markReadMany: "mark_read_many"
    case .registerMessage: "register_message"
    case .registerMessages: "register_messages"
    case .deleteMessage: "delete_message"
    case .putChannel: "put_channel"
    case .getChannel: "get_channel"
    case .changeMembers: "change_members"
    case .putMember: "put_member"
    case .putChannelType: "put_channel_type"
    case .getChannelType: "get_channel_type"
    case .listChannelTypes: "list_channel_types"
    case .readState: "read_state"
    case .readStates: "read_states"
    case .listRoster: "list_roster"
    case .listMessages: "list_messages"
    case .putChannels: "put_channels"
    case .putUsers: "put_users"
    case .statuses: "statuses"
    case .messageStatus: "message_status"
    case .deleteChannel: "delete_channel"
    case .truncateChannel: "truncate_channel"
    case .putUser: "put_user"
    case .getUser: "get_user"
    case .putToken: "put_token"
    case .getToken: "get_token"
    case .deleteUser: "delete_user"
    case .apiDocument: "api_document"
    case .acknowledgeReceipts: "acknowledge_receipts"
    case .listReaders: "list_readers"
    case .listDelivered: "list_delivered"
    case .listUnread: "list_unread"
    case .listAcknowledged: "list_acknowledged"
    case .listUnacknowledged: "list_unacknowledged"
    case .chosenMembers: "chosen_members"
    case .unreadOfUser: "unread_of_user"
    case .channelsOfUser: "channels_of_user"
    case .receiptsOfUser: "receipts_of_user"
    case .threadsOfUser: "threads_of_user"
    case .unreadOfUsers: "unread_of_users"
    case .events: "events"
    case .issueTickets: "issue_tickets"
    case .acknowledgePushes: "acknowledge_pushes"
    case .receiveHook: "receive_hook"
    case .frames: "frames"
    case .notImplemented: "not_built"
    case .notImplementedPublic: "not_built_for_browsers"
    }
  }

  /// Whether this build implements the route.
  package var isImplemented: Bool { self != .notImplemented && self != .notImplementedPublic }

  /// Whether the route lists members of one message (R11).
  package var listsMembers: Bool {
    switch self {
    case .listReaders, .listDelivered, .listUnread, .listAcknowledged, .listUnacknowledged, .chosenMembers:
      true
    default: false
    }
  }

  /// The callers that a route admits.
  package enum Caller: Sendable {
    /// Servers only.
    case server
    /// Servers, and users for themselves.
    case user
    /// Anyone; a credential, if any, is in the body.
    case anyone
    /// Anyone; a credential is ignored.
    case everybody
  }

  /// Who may call the route, as Proto/openapi.yaml has it.
  package var caller: Caller {
    switch self {
    case .markRead, .markUnread, .markDelivered, .markReadMany, .readState, .statuses, .messageStatus,
      .acknowledgeReceipts, .listReaders, .listDelivered, .listUnread, .listAcknowledged, .listUnacknowledged,
      .chosenMembers, .unreadOfUser, .channelsOfUser, .receiptsOfUser, .threadsOfUser, .events, .putUser,
      .getUser, .readStates, .listRoster, .putMember, .notImplemented:
      .user
    case .registerMessage, .registerMessages, .deleteMessage, .putChannel, .getChannel, .changeMembers,
      .putChannelType, .getChannelType, .listChannelTypes, .deleteChannel, .truncateChannel, .deleteUser,
      .unreadOfUsers, .issueTickets, .frames, .listMessages, .putChannels, .putUsers, .putToken, .getToken:
      .server
    case .acknowledgePushes: .anyone
    // A webhook's credential is its signature.
    case .apiDocument, .receiveHook, .notImplementedPublic: .everybody
    }
  }
}

extension Route {
  /// How large the route's answer is, roughly.
  private enum AnswerSize: Int {
    case small = 0
    /// Up to a page of rows.
    case page = 12_288
    /// Many entries, or many pages.
    case batch = 49_152
  }

  /// Whether the route reads up to a page of rows.
  var isQuery: Bool { answerSize == .page }

  /// Approximate size of the route's answer in bytes, where it is more than small. It counts as held memory from the
  /// request on, so that clients which request much and read nothing are refused early
  /// (``HTTP2Limits/maxMemoryBytes``).
  var answerBytes: Int { answerSize.rawValue }

  private var answerSize: AnswerSize {
    switch self {
    case .readState, .listRoster, .listMessages, .statuses, .messageStatus, .listReaders, .listDelivered,
      .listUnread, .listAcknowledged, .listUnacknowledged, .chosenMembers, .channelsOfUser,
      .receiptsOfUser, .threadsOfUser, .getChannel, .listChannelTypes, .unreadOfUser:
      .page
    case .readStates, .unreadOfUsers, .issueTickets, .markReadMany: .batch
    case .markRead, .markUnread, .markDelivered, .registerMessage, .registerMessages, .deleteMessage,
      .putChannel, .changeMembers, .putMember, .putChannelType, .getChannelType, .apiDocument,
      .putChannels, .putUsers, .acknowledgeReceipts, .putUser, .getUser, .putToken, .getToken,
      .deleteChannel, .truncateChannel, .deleteUser, .events, .frames, .acknowledgePushes, .receiveHook,
      .notImplemented, .notImplementedPublic:
      .small
    }
  }
}
