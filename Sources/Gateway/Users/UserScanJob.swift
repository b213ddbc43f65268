internal import NIOCore

/// The store requests of a ``UserScanJob``, with the index of the user, frame, mark or channel in its scan.
enum UserScanStoreRequest {
  /// The mark that the request itself asks for.
  case firstMark
  case list(user: UInt32)
  case count(frame: UInt32)
  case mark(UInt32)
  case threads(mark: UInt32)
  case markThread(mark: UInt32)
  case locate
  case detail(channel: UInt32)
  case announce(frame: UInt32)
}

/// A request that visits all channels of one or several users (``UserChannelScan``).
final class UserScanJob: Job {
  enum Stage {
    /// The user's position is moved first; the totals reflect the result. Becomes `scanning`.
    case marking
    case scanning
    /// Answered, or its client has disconnected.
    case ended
  }

  /// What the result is for.
  enum Purpose {
    /// The response to its request.
    case response
    /// `notification.totals` of this user.
    case totals(user: String)
    /// A privacy change of a user, whose PUT is this fan-out.
    case announcement(change: SlotIndex)
    /// A privacy change that ``SettlementRounds`` completes.
    case settlement(Int)
  }

  /// One of `user_ids`: the user's index in the scan, or why it was refused.
  enum Entry {
    case user(Int)
    /// Nil: the entry is no string.
    case refused(id: [UInt8]?, ProblemCode)
  }

  let purpose: Purpose
  var request: ScanRequest
  var scan: UserChannelScan
  /// In the order of the request.
  let entries: [Entry]
  var stage: Stage
  /// `{"read": row}` of the first mark; empty where there was none.
  var row = ByteBuffer()
  /// Requests to the store in flight.
  var inFlight = 0

  var isEnded: Bool {
    if case .ended = stage { true } else { false }
  }

  var respondsToClient: Bool {
    if case .response = purpose { true } else { false }
  }

  func end() { stage = .ended }

  init(
    _ context: RequestContext,
    route: Route,
    _ scan: UserChannelScan,
    stage: Stage,
    entries: [Entry] = []
  ) {
    purpose = .response
    request = ScanRequest(context, route)
    self.scan = scan
    self.stage = stage
    self.entries = entries
  }

  /// A job without an HTTP/2 request of its own.
  init(_ purpose: Purpose, _ scan: UserChannelScan) {
    self.purpose = purpose
    request = .none
    self.scan = scan
    stage = .scanning
    entries = []
  }
}
