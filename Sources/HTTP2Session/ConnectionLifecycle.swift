/// State machine of a connection's life, for client and server: events go in, actions come out.
struct ConnectionLifecycle {
  /// idle → active, when the channel is active.
  /// active → warned, when a graceful shutdown is requested; closing, when the session has ended or failed.
  /// warned → draining, when the grace period is over; closing.
  /// draining → closing, when the last stream is done.
  /// closing → lingering, when all output is written and the output closed; closed.
  /// lingering → closed, when the peer closes too, or on timeout.
  /// Every state → closed, when the channel becomes inactive.
  private(set) var state: State = .idle

  enum State: Equatable { case idle, active, warned, draining, closing, lingering, closed }

  enum ShutdownAction: Equatable { case none, close, sendNoticeThenGoAway, sendGoAway }

  /// Request a shutdown once all streams are done.
  mutating func shutdownRequested(hasGrace: Bool) -> ShutdownAction {
    switch state {
    case .idle:
      state = .closed
      return .close
    case .active:
      state = hasGrace ? .warned : .draining
      return hasGrace ? .sendNoticeThenGoAway : .sendGoAway
    case .warned, .draining, .closing, .lingering, .closed: return .none
    }
  }

  mutating func activated() {
    if state == .idle { state = .active }
  }

  /// End the grace period. Returns true if the binding GOAWAY is due (RFC 9113 section 6.8).
  mutating func graceElapsed() -> Bool {
    guard state == .warned else { return false }
    state = .draining
    return true
  }

  /// Record that the output is written as far as the channel accepts it. `sessionDone`: nghttp2 wants neither to read
  /// nor to write. Returns true if the output is to be closed.
  mutating func flushed(sessionDone: Bool) -> Bool {
    switch state {
    case .active, .warned, .draining, .closing:
      guard sessionDone else { return false }
      state = .lingering
      return true
    case .idle, .lingering, .closed: return false
    }
  }

  /// Record that the session takes no more input: a GOAWAY is queued.
  mutating func sessionFailed() {
    switch state {
    case .active, .warned, .draining: state = .closing
    case .idle, .closing, .lingering, .closed: break
    }
  }

  /// Record that the channel is inactive. Returns false if it was already.
  mutating func channelInactive() -> Bool {
    guard state != .closed else { return false }
    state = .closed
    return true
  }

  /// Whether bytes from the peer are still processed.
  var acceptsInput: Bool {
    switch state {
    case .active, .warned, .draining: true
    case .idle, .closing, .lingering, .closed: false
    }
  }

  /// Whether output may still be written.
  var acceptsOutput: Bool {
    switch state {
    case .active, .warned, .draining, .closing: true
    case .idle, .lingering, .closed: false
    }
  }
}
