/// The routes of Proto/openapi.yaml. Each has a row in ``RouteSpec`` and a handler in `GatewayLoop.dispatch`. The
/// router compares paths in this order: busy routes come first, a literal part before a parameter.
package enum Route: UInt8, CaseIterable, Sendable {
  case markRead
  case readState
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
}
