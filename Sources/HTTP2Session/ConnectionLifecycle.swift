/// The life of a connection, client's or server's: what has happened goes in, what is to be done comes out.
struct ConnectionLifecycle {
  /// idle → active, when the channel is.
  /// active → warned, when a graceful end is asked for; closing, when the session has ended or failed.
  /// warned → draining, when the grace is over; closing.
  /// draining → closing, when the last stream is done.
  /// closing → lingering, when all output is written and the output closed; closed.
  /// lingering → closed, when the peer closes too, or time is up.
  /// Every state → closed, when the channel is inactive.
  private(set) var state: State = .idle

  enum State: Equatable { case idle, active, warned, draining, closing, lingering, closed }

  enum OnShutdown: Equatable { case none, close, sendNoticeThenGoAway, sendGoAway }

  /// The owner wants the connection to end when its streams are done.
  mutating func shutdownRequested(hasGrace: Bool) -> OnShutdown {
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

  /// The notice has had its time: the binding GOAWAY is due (RFC 9113 section 6.8).
  mutating func graceElapsed() -> Bool {
    guard state == .warned else { return false }
    state = .draining
    return true
  }

  /// Output is written as far as the channel takes it. `sessionDone`: nghttp2 wants neither to read nor to
  /// write. True when the output is to be closed.
  mutating func flushed(sessionDone: Bool) -> Bool {
    switch state {
    case .active, .warned, .draining, .closing:
      guard sessionDone else { return false }
      state = .lingering
      return true
    case .idle, .lingering, .closed: return false
    }
  }

  /// The session takes no more input: a GOAWAY is queued.
  mutating func sessionFailed() {
    switch state {
    case .active, .warned, .draining: state = .closing
    case .idle, .closing, .lingering, .closed: break
    }
  }

  /// True when this is news.
  mutating func channelInactive() -> Bool {
    guard state != .closed else { return false }
    state = .closed
    return true
  }

  /// Whether bytes from the peer still mean anything.
  var takesInput: Bool {
    switch state {
    case .active, .warned, .draining: true
    case .idle, .closing, .lingering, .closed: false
    }
  }

  /// Whether output may still be written.
  var takesOutput: Bool {
    switch state {
    case .active, .warned, .draining, .closing: true
    case .idle, .lingering, .closed: false
    }
  }
}
