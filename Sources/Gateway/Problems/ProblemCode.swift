/// Every error `code`, with its status and title. Codes are stable: they may be added, not renamed. A test compares the
/// documentation with this table.
package enum ProblemCode: String, Error, CaseIterable, Sendable {
  // 400
  case invalidJSON = "invalid_json"
  case invalidField = "invalid_field"
  case invalidCID = "invalid_cid"
  case invalidMessageID = "invalid_message_id"
  case invalidUserID = "invalid_user_id"
  case invalidTokenID = "invalid_token_id"
  case invalidChannelType = "invalid_channel_type"
  case invalidOption = "invalid_option"
  case unknownField = "unknown_field"
  case invalidCursor = "invalid_cursor"
  case invalidQuery = "invalid_query"
  case userIDRequired = "user_id_required"
  case orderNotAvailable = "order_not_available"
  case ticketInvalid = "ticket_invalid"
  case webhookTooOld = "webhook_too_old"
  // 401
  case tokenMissing = "token_missing"
  case tokenMalformed = "token_malformed"
  case tokenTooLong = "token_too_long"
  case tokenAlgorithmNotAllowed = "token_algorithm_not_allowed"
  case tokenSignatureInvalid = "token_signature_invalid"
  case tokenExpired = "token_expired"
  case tokenNotYetValid = "token_not_yet_valid"
  case tokenWithoutUser = "token_without_user"
  case tokenUserInvalid = "token_user_invalid"
  case tokenIDInvalid = "token_id_invalid"
  case tokenRevoked = "token_revoked"
  case tokenIssuerNotAllowed = "token_issuer_not_allowed"
  case tokenAudienceNotAllowed = "token_audience_not_allowed"
  case tokenWithoutExpiry = "token_without_expiry"
  case tokenWithoutIssueTime = "token_without_issue_time"
  case webhookSignatureInvalid = "webhook_signature_invalid"
  case consoleCodeInvalid = "console_code_invalid"
  // 403
  case serverTokenRequired = "server_token_required"
  case userIDMismatch = "user_id_mismatch"
  case markUnreadOff = "mark_unread_off"
  case countsNotVisible = "counts_not_visible"
  case consoleReadOnly = "console_read_only"
  case ownMessage = "own_message"
  // 404
  case routeNotFound = "route_not_found"
  case channelNotFound = "channel_not_found"
  case memberNotFound = "member_not_found"
  case messageNotFound = "message_not_found"
  case hookNotFound = "hook_not_found"
  case consumerNotFound = "consumer_not_found"
  // 405
  case methodNotAllowed = "method_not_allowed"
  // 409
  /// For tickets only: requests with a user's token get `channel_not_found`.
  case notAMember = "not_a_member"
  case notInThread = "not_in_thread"
  case messageDeleted = "message_deleted"
  case messageConflict = "message_conflict"
  case userErased = "user_erased"
  case receiptNotRequested = "receipt_not_requested"
  case receiptExpired = "receipt_expired"
  case notExpected = "not_expected"
  case limitReached = "limit_reached"
  case feedOff = "feed_off"
  case consumerConflict = "consumer_conflict"
  case leaseLost = "lease_lost"
  case importConflict = "import_conflict"
  case importGap = "import_gap"
  case importOrder = "import_order"
  case timeInFuture = "time_in_future"
  case webhookReplayed = "webhook_replayed"
  // 410
  case ticketExpired = "ticket_expired"
  // 413, 415, 429, 431
  case bodyTooLarge = "body_too_large"
  case lineTooLong = "line_too_long"
  case contentTypeNotSupported = "content_type_not_supported"
  case rateLimited = "rate_limited"
  case headersTooLarge = "headers_too_large"
  // 5xx
  case internalError = "internal_error"
  case notImplemented = "not_implemented"
  case httpVersionNotSupported = "http_version_not_supported"
  case storeUnavailable = "store_unavailable"
  case storeBusy = "store_busy"
  case outcomeUnknown = "outcome_unknown"
  case clockJump = "clock_jump"
  case dataDirectoryLost = "data_directory_lost"
  case authenticationBusy = "authentication_busy"
  case overloaded

  /// The HTTP status of a response with this code. A batch with such an entry has its own status.
  package var status: Int {
    switch self {
    case .invalidJSON, .invalidField, .invalidCID, .invalidMessageID, .invalidUserID, .invalidTokenID,
      .invalidChannelType, .invalidOption, .unknownField, .invalidCursor, .invalidQuery, .userIDRequired,
      .orderNotAvailable, .ticketInvalid, .webhookTooOld:
      400
    case .tokenMissing, .tokenMalformed, .tokenTooLong, .tokenAlgorithmNotAllowed, .tokenSignatureInvalid,
      .tokenExpired, .tokenNotYetValid, .tokenWithoutUser, .tokenUserInvalid, .tokenIDInvalid, .tokenRevoked,
      .tokenIssuerNotAllowed, .tokenAudienceNotAllowed, .tokenWithoutExpiry, .tokenWithoutIssueTime,
      .webhookSignatureInvalid, .consoleCodeInvalid:
      401
    case .serverTokenRequired, .userIDMismatch, .markUnreadOff, .countsNotVisible, .ownMessage, .consoleReadOnly: 403
    case .routeNotFound, .channelNotFound, .memberNotFound, .messageNotFound, .hookNotFound, .consumerNotFound: 404
    case .methodNotAllowed: 405
    case .messageDeleted, .userErased, .limitReached, .receiptNotRequested, .receiptExpired, .notExpected,
      .messageConflict, .notAMember, .notInThread, .webhookReplayed, .feedOff, .consumerConflict, .leaseLost,
      .importConflict, .importGap, .importOrder, .timeInFuture:
      409
    case .ticketExpired: 410
    case .bodyTooLarge, .lineTooLong: 413
    case .contentTypeNotSupported: 415
    case .rateLimited: 429
    case .headersTooLarge: 431
    case .internalError: 500
    case .notImplemented: 501
    case .httpVersionNotSupported: 505
    case .storeUnavailable, .storeBusy, .outcomeUnknown, .clockJump, .dataDirectoryLost, .authenticationBusy,
      .overloaded:
      503
    }
  }

  /// The meaning of the code, the same for every occurrence (RFC 9457 section 3.1.3).
  package var title: StaticString {
    switch self {
    case .invalidJSON: "The body is not valid JSON for this route"
    case .invalidField: "A field is missing, of the wrong type or out of its range"
    case .invalidCID: "A channel id is not of the form type:id"
    case .invalidMessageID: "A message id is not 1 to 255 bytes of UTF-8 without control characters"
    case .invalidUserID: "A user id is not 1 to 255 bytes of UTF-8 without control characters"
    case .invalidTokenID: "A token id (jti) is not 1 to 255 bytes of UTF-8 without control characters"
    case .invalidChannelType: "A channel type is not 1 to 64 of A-Z a-z 0-9 _ -"
    case .invalidOption: "An option has an invalid value"
    case .unknownField: "There is no field, option or query parameter of that name"
    case .invalidCursor: "The cursor was not issued by this route"
    case .invalidQuery: "A query parameter is malformed"
    case .userIDRequired: "A server must name the user that it acts for (user_id)"
    case .tokenMissing: "A bearer token is required"
    case .tokenMalformed: "The token is not a valid JWT"
    case .tokenTooLong: "The token is too long"
    case .tokenAlgorithmNotAllowed: "The token is signed with an algorithm that is not accepted"
    case .tokenSignatureInvalid: "The token's signature does not match any accepted key"
    case .tokenExpired: "The token has expired"
    case .tokenNotYetValid: "The token is not valid yet"
    case .tokenWithoutUser: "The token names no user and is not a server token"
    case .tokenUserInvalid: "The token's user id is not 1 to 255 bytes of UTF-8 without control characters"
    case .tokenIDInvalid: "The token's id (jti) is not 1 to 255 bytes of UTF-8 without control characters"
    case .tokenRevoked: "The token has been revoked, by its id (jti) or with its user's tokens of that time"
    case .tokenIssuerNotAllowed: "The token's issuer (iss) is not one that this gateway accepts"
    case .tokenAudienceNotAllowed: "The token names no audience (aud) that this gateway accepts"
    case .tokenWithoutExpiry: "The token has no expiry (exp), which this gateway requires"
    case .tokenWithoutIssueTime: "The token has no issue time (iat), which this gateway requires"
    case .orderNotAvailable: "A list is ordered by time only in channels of up to 1,000 members"
    case .ticketInvalid: "The ticket is malformed, altered, or not signed by this service"
    case .ticketExpired: "The ticket has expired"
    case .countsNotVisible: "In this channel only a message's sender sees who has read it"
    case .consoleCodeInvalid: "The code of the link is not valid"
    case .consoleReadOnly: "This console is read-only: its gateway runs without --console-writes"
    case .ownMessage: "A sender cannot acknowledge their own message"
    case .receiptNotRequested: "The message was registered without an acknowledgement request"
    case .receiptExpired: "The message's acknowledgement request has expired"
    case .notExpected: "The member joined after the message was registered"
    case .notAMember: "The ticket's user has left the channel"
    case .notInThread: "The user is not in the thread; marking it read or replying joins it"
    case .serverTokenRequired: "Only a server may do this"
    case .userIDMismatch: "A user can only act for themselves"
    case .markUnreadOff: "Marking unread is off in this channel"
    case .routeNotFound: "There is no such route"
    case .channelNotFound: "There is no such channel, or the user is not a member of it"
    case .memberNotFound: "The user that the server named is not a member of the channel"
    case .messageNotFound: "There is no such message in the channel, or not yet"
    case .hookNotFound: "This gateway has no hook of that name"
    case .consumerNotFound: "The feed has no consumer of that name"
    case .feedOff: "The store keeps no change feed: it was started without --feed-retention"
    case .importConflict: "The line contradicts what is stored, or itself"
    case .importGap: "The message's seq is not the next one"
    case .importOrder: "The line needs one that comes later, or a member joined before the member of an earlier line"
    case .timeInFuture: "A time is later than the store's"
    case .consumerConflict: "The consumer exists with other filters, or its workers share other partitions"
    case .leaseLost: "A newer stream reads this partition; the commit was not applied"
    case .webhookSignatureInvalid: "The webhook is not signed with a secret of its hook"
    case .webhookTooOld: "The webhook's timestamp is more than five minutes off"
    case .webhookReplayed: "The webhook was already processed"
    case .methodNotAllowed: "The route does not take this method"
    case .messageDeleted: "The message has been deleted"
    case .messageConflict: "The message id is registered with another sender, parent or flag"
    case .userErased: "The user is being erased; nothing new can be created in their name"
    case .limitReached: "A limit is reached"
    case .bodyTooLarge: "The body is larger than this service takes"
    case .lineTooLong: "A line of the body exceeds this service's limit"
    case .contentTypeNotSupported: "The route does not take this content type; most take application/json"
    case .headersTooLarge: "The headers are larger than this service takes"
    case .internalError: "This service has failed"
    case .notImplemented: "Not implemented, or not enabled on this gateway; nothing was changed"
    case .httpVersionNotSupported: "Only HTTP/2 is supported"
    case .storeUnavailable: "The store cannot be reached; nothing was changed"
    case .storeBusy: "The store is overloaded; nothing was changed"
    case .outcomeUnknown: "The store did not answer; whether the change was made is not known"
    case .clockJump: "The store's clock jumped forward; writes are refused until it is corrected"
    case .dataDirectoryLost: "The store's data directory is gone; writes are refused until it is back"
    case .authenticationBusy: "Too many new tokens are being verified; nothing was changed"
    case .overloaded:
      "The gateway is short of memory, or this caller's requests exceed their part of it; nothing was changed"
    case .rateLimited: "The caller asks more often than this service allows; nothing was changed"
    }
  }

  /// Seconds after which a retry may succeed; nil where it would not.
  package var retryAfterSeconds: Int? {
    switch self {
    case .messageNotFound, .storeUnavailable, .storeBusy, .outcomeUnknown, .authenticationBusy, .overloaded,
      .rateLimited:
      1
    case .clockJump, .dataDirectoryLost: 10
    default: nil
    }
  }
}
