/// The store requests of a ``UserListJob``.
enum UserListStoreRequest {
  case list
  case locate
  /// The entries of a channel, by its index in the scan.
  case entries(channel: UInt32)
}

/// A request for a page of a user's own acknowledgement requests or threads (``UserListScan``).
final class UserListJob: Job {
  var request: ScanRequest
  var scan: UserListScan
  /// Requests to the store in flight.
  var inFlight = 0
  private(set) var isEnded = false
  var respondsToClient: Bool { true }

  init(_ context: RequestContext, _ route: Route, _ scan: UserListScan) {
    request = ScanRequest(context, route)
    self.scan = scan
  }

  func end() { isEnded = true }
}
