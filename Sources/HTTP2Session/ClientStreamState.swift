/// State machine of one stream of a client: events go in, actions come out. ``ClientCore``, its callbacks and
/// ``HTTP2ClientConnection`` perform the actions.
struct ClientStreamState {
  /// free → open, or streaming if the delegate gets the response as it arrives.
  /// open, streaming → complete, when the stream closes after a whole response; failed, when it closes otherwise.
  /// complete, failed → free, once the delegate has been notified.
  private enum Phase: UInt8 {
    case free, open, streaming, complete, failed
  }

  private var phase = Phase.free
  /// The server has ended its side.
  private var remoteEnded = false
  /// The request's body is queued to its end.
  private var isFinished = false
  /// nghttp2 waits for `resume_data`.
  private var isDeferred = false

  @inline(__always)
  mutating func opened(streaming: Bool, hasMoreBody: Bool) {
    phase = streaming ? .streaming : .open
    remoteEnded = false
    isFinished = !hasMoreBody
    isDeferred = false
  }

  @inline(__always)
  mutating func freed() { phase = .free }

  // MARK: Request

  /// Record that the body is queued to its end.
  mutating func finished() { isFinished = true }

  /// Wait for more bytes of the body. Returns false if none follow.
  @inline(__always)
  mutating func outputDeferred() -> Bool {
    guard !isFinished else { return false }
    isDeferred = true
    return true
  }

  /// Resume output. Returns false if nghttp2 does not wait for it.
  mutating func outputResumed() -> Bool {
    defer { isDeferred = false }
    return isDeferred
  }

  // MARK: Response

  /// Record the end of the response.
  @inline(__always)
  mutating func responseEnded() { remoteEnded = true }

  /// Result of a stream that has closed.
  enum OnClose {
    /// Nothing: the stream was closed already.
    case none
    case complete
    case fail
  }

  /// - Parameter isSuccess: the stream closed without an error, and has a final status.
  @inline(__always)
  mutating func closed(isSuccess: Bool) -> OnClose {
    guard isOpen else { return .none }
    let isComplete = isSuccess && remoteEnded
    phase = isComplete ? .complete : .failed
    return isComplete ? .complete : .fail
  }

  // MARK: Questions

  /// Call to the delegate that a pending stream needs.
  enum PendingCall { case none, part, complete, fail }

  @inline(__always)
  var pendingCall: PendingCall {
    switch phase {
    case .free, .open: .none
    case .streaming: .part
    case .complete: .complete
    case .failed: .fail
    }
  }

  /// Whether the stream is open.
  @inline(__always)
  var isOpen: Bool { phase == .open || phase == .streaming }

  /// Whether the delegate gets more of the response as it arrives.
  @inline(__always)
  var isStreaming: Bool { phase == .streaming }

  /// Whether the request's body is queued to its end.
  @inline(__always)
  var hasFinished: Bool { isFinished }

  /// Whether more bytes of the request's body may be queued.
  var mayQueueOutput: Bool { isOpen && !isFinished }
}
