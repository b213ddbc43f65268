internal import ReceiptWire
internal import StoreClient

extension Problem {
  /// Map a failed store request to the problem for the caller.
  ///
  /// - Parameters:
  ///   - isServer: whether a server asks. A server learns that the user it names is not a member; a user gets the same
  ///     answer as for a channel that does not exist.
  init(_ failure: StoreFailure, route: Route, isServer: Bool) {
    switch failure {
    case .busy: self.init(.storeBusy)
    case .unavailable: self.init(.storeUnavailable)
    case .outcomeUnknown: self.init(.outcomeUnknown)
    case .refused(let code, let retryAfterMilliseconds, let detail):
      self.init(Problem.code(of: code, isServer: isServer), Problem.shown(detail, of: code))
      // The list does not exist; this is no conflict.
      if code == .messageDeleted && route.listsMembers { status = 404 }
      if retryAfterMilliseconds > 0 && retryAfterSeconds != nil {
        retryAfterSeconds = Int((UInt64(retryAfterMilliseconds) + 999) / 1_000)
      }
    }
  }

  static func code(of code: ErrorCode, isServer: Bool) -> ProblemCode {
    switch code {
    case .busy: .storeBusy
    case .unavailable, .wrongShard, .notOwner: .storeUnavailable
    case .outcomeUnknown, .sessionExpired, .superseded: .outcomeUnknown
    case .notImplemented: .notImplemented
    case .clockJump: .clockJump
    case .dataDirectoryLost: .dataDirectoryLost
    case .invalidField: .invalidField
    case .channelNotFound: .channelNotFound
    case .notAMember: isServer ? .memberNotFound : .channelNotFound
    case .notInThread: .notInThread
    case .messageNotFound: .messageNotFound
    case .messageDeleted: .messageDeleted
    case .messageConflict: .messageConflict
    case .markUnreadOff: .markUnreadOff
    case .limitReached: .limitReached
    case .tokenRevoked: .tokenRevoked
    case .orderNotAvailable: .orderNotAvailable
    case .countsNotVisible: .countsNotVisible
    case .receiptNotRequested: .receiptNotRequested
    case .ownMessage: .ownMessage
    case .receiptExpired: .receiptExpired
    case .notExpected: .notExpected
    case .invalidCursor: .invalidCursor
    case .userErased: .userErased
    case .ticketInvalid: .ticketInvalid
    case .ticketExpired: .ticketExpired
    case .frameTooLarge: .bodyTooLarge
    case .malformedFrame, .unsupportedVersion, .authenticationFailed, .unknownKind, .handshakeRequired,
      .handshakeTimeout, .backupUnderWay, .backupNotFound, .backupFailed:
      .internalError
    }
  }

  /// Return the store's detail where it is about the caller's input; other details are internal to the store.
  private static func shown(_ detail: String, of code: ErrorCode) -> String {
    switch code {
    case .invalidField, .limitReached, .notImplemented: detail
    default: ""
    }
  }
}
