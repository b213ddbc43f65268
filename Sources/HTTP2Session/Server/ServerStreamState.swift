/// State machine of one stream of a server: events go in, actions come out. ``ServerCore``, its callbacks and
/// ``HTTP2ServerConnection`` perform the actions.
struct ServerStreamState {
  /// free → receiving, when the peer opens a stream.
  /// receiving → ready, when the request is complete, or delivered without the rest of its body; answered, when we
  /// reset the stream before the application knows it; free, when it closes.
  /// ready → delivered, when the application gets the request; aborted, when the stream closes.
  /// delivered → answered, by a whole response; streaming, by the start of a streaming one; aborted, when the stream
  /// closes.
  /// answered → free, when the stream closes.
  /// streaming → free, when the stream closes after the response's end; aborted, when it closes before.
  /// aborted → free, once the application has been notified.
  /// A stream that closes while a call to the application is pending is aborted, not free, until that call is due.
  private enum Phase: UInt8 {
    case free, receiving, ready, delivered, answered, streaming, aborted
  }

  /// How the request's body is taken.
  private enum Body: UInt8 {
    /// Stored whole before the request is delivered; after the response, dropped.
    case whole
    /// Larger than the limit, by its content-length or its bytes: dropped.
    case tooLarge
    /// Refused by the application: dropped.
    case refused
    /// Read by the application as it arrives.
    case streamed
    /// Streamed, and the application has read its end.
    case streamedToEnd
  }

  private struct Flags: OptionSet {
    let rawValue: UInt16
    /// The peer has ended its side.
    static let remoteEnded = Flags(rawValue: 1 << 0)
    static let headersTooLarge = Flags(rawValue: 1 << 1)
    /// The last bytes of the response have been passed to nghttp2, or the stream is reset.
    static let localEnded = Flags(rawValue: 1 << 2)
    /// The application has ended a streaming response.
    static let finished = Flags(rawValue: 1 << 3)
    /// nghttp2 waits for `resume_data`.
    static let deferred = Flags(rawValue: 1 << 4)
    /// The application got `full` for this queue and expects a drain callback.
    static let needsDrainCallback = Flags(rawValue: 1 << 5)
    /// The request has been delivered to the application.
    static let delivered = Flags(rawValue: 1 << 6)
    /// The request has an authorization header, possibly empty.
    static let hasAuthorization = Flags(rawValue: 1 << 7)
    /// The stream is refused for lack of room (``MemoryBudget``).
    static let refused = Flags(rawValue: 1 << 8)
    /// The client waits for 100 (Continue) before it sends the body (RFC 9110 section 10.1.1).
    static let expectsContinue = Flags(rawValue: 1 << 9)
  }

  private var phase = Phase.free
  private var body = Body.whole
  private var flags: Flags = []

  /// - Parameter isRefused: there is no room for the stream (``MemoryBudget``), so it is refused after its headers.
  @inline(__always)
  mutating func opened(isRefused: Bool) {
    phase = .receiving
    body = .whole
    flags = isRefused ? .refused : []
  }

  @inline(__always)
  mutating func freed() { phase = .free }

  // MARK: Request headers

  /// Record a header above the limit of the list.
  mutating func headerListExceeded() { flags.insert(.headersTooLarge) }

  /// Record an `authorization` header. Returns false if it is not the first.
  @inline(__always)
  mutating func authorizationReceived() -> Bool {
    guard !flags.contains(.hasAuthorization) else { return false }
    flags.insert(.hasAuthorization)
    return true
  }

  mutating func continueExpected() { flags.insert(.expectsContinue) }

  /// Remove the expectation of 100 (Continue). Returns false if there is none.
  @inline(__always)
  mutating func takeExpectedContinue() -> Bool {
    guard flags.contains(.expectsContinue) else { return false }
    flags.remove(.expectsContinue)
    return true
  }

  /// Action after the headers of a request.
  enum HeadersAction {
    /// Send 100 (Continue) if the client expects it, and wait for the body.
    case awaitBody
    /// Send 100 (Continue) if the client expects it, and deliver the request: its body is read as it arrives.
    case deliverAndStream
    /// Deliver the request.
    case deliver
  }

  /// - Parameters:
  ///   - streamsBody: the application reads the body as it arrives.
  ///   - bodyExceedsLimit: the declared content-length is too large for a body that is stored.
  @inline(__always)
  mutating func headersReceived(endsStream: Bool, streamsBody: Bool, bodyExceedsLimit: Bool) -> HeadersAction {
    assert(phase == .receiving)
    if endsStream { flags.insert(.remoteEnded) }
    if streamsBody && !endsStream {
      body = .streamed
      phase = .ready
      return .deliverAndStream
    }
    if bodyExceedsLimit { body = .tooLarge }
    // Do not wait for a body that will not be read.
    guard endsStream || bodyExceedsLimit || flags.contains(.headersTooLarge) else { return .awaitBody }
    if endsStream { flags.remove(.expectsContinue) }
    phase = .ready
    return .deliver
  }

  // MARK: Request body

  /// Action after bytes of a request's body.
  enum BodyAction {
    /// Append them to the bytes that the application has not read, and notify it.
    case append
    /// Store them with the request.
    case store
    /// Drop them.
    case drop
    /// Drop them and the stored part of the body, and deliver the request without its body.
    case deliverWithoutBody
  }

  /// - Parameter fits: the body is within its limit with these bytes.
  @inline(__always)
  mutating func bodyReceived(fits: Bool) -> BodyAction {
    if isBodyStreamed && phase != .answered { return .append }
    guard phase == .receiving else { return .drop }
    if fits { return .store }
    body = .tooLarge
    phase = .ready
    return .deliverWithoutBody
  }

  /// Refuse the body of a request that is being received. Returns false if the request is complete already; else the
  /// request is to be delivered.
  mutating func bodyRefused() -> Bool {
    guard phase == .receiving else { return false }
    body = .refused
    phase = .ready
    return true
  }

  /// Action after the end of a request.
  enum RequestEndAction {
    case none
    /// Deliver the request.
    case deliver
    /// Notify the application of the end of a streamed body.
    case notify
  }

  @inline(__always)
  mutating func requestEnded() -> RequestEndAction {
    flags.insert(.remoteEnded)
    if phase == .receiving {
      phase = .ready
      return .deliver
    }
    return isBodyStreamed ? .notify : .none
  }

  /// Record that the application has read a streamed body to its end.
  mutating func bodyReadToEnd() { body = .streamedToEnd }

  // MARK: Pending calls to the application

  /// Call to the application that a pending stream needs.
  enum PendingAction: Equatable {
    case none
    /// Ask whether the body of a request is wanted.
    case announce
    /// Deliver the request, then the bytes of its streamed body.
    case deliver(hasBody: Bool)
    /// Notify that the queue is drained, then of bytes of a streamed body.
    case notify(isDrained: Bool, hasBody: Bool)
    /// Free the slot. If the application knows the request and has not ended its response, notify that it is aborted.
    case free(isAborted: Bool)
  }

  /// - Parameter hasBytes: there are received bytes of the body that the application has not read.
  @inline(__always)
  mutating func takePendingAction(hasBytes: Bool) -> PendingAction {
    let hasBody = body == .streamed && (hasBytes || flags.contains(.remoteEnded))
    switch phase {
    case .receiving: return .announce
    case .ready:
      phase = .delivered
      flags.insert(.delivered)
      return .deliver(hasBody: hasBody)
    case .delivered: return .notify(isDrained: false, hasBody: hasBody)
    case .streaming:
      let isDrained = flags.contains(.needsDrainCallback)
      flags.remove(.needsDrainCallback)
      return .notify(isDrained: isDrained, hasBody: hasBody)
    case .aborted: return .free(isAborted: flags.contains(.delivered) && !flags.contains(.localEnded))
    case .free, .answered: return .none
    }
  }

  // MARK: Response

  /// Action after a whole response.
  enum AnswerAction {
    case none
    /// Drop what the application has not read of the request's streamed body.
    case dropUnreadBody
  }

  /// Answer the request with a whole response. The rest of its body is not needed.
  @inline(__always)
  mutating func answered(hasBody: Bool) -> AnswerAction {
    assert(phase == .delivered)
    phase = .answered
    if !hasBody { flags.insert(.localEnded) }
    guard isBodyStreamed else { return .none }
    body = .whole
    return .dropUnreadBody
  }

  /// Begin a streaming response. Without a body it has also ended.
  mutating func streamingStarted(hasBody: Bool) {
    assert(phase == .delivered)
    phase = .streaming
    if !hasBody { flags.formUnion([.finished, .localEnded]) }
  }

  /// Record that the queue of a streaming response is full.
  mutating func queueFilled() { flags.insert(.needsDrainCallback) }

  /// End a streaming response, once its queue is sent.
  mutating func finished() { flags.insert(.finished) }

  /// Wait for more bytes of a streaming response. Returns false if none follow.
  @inline(__always)
  mutating func outputDeferred() -> Bool {
    guard mayQueueOutput else { return false }
    flags.insert(.deferred)
    return true
  }

  /// Resume output. Returns false if nghttp2 does not wait for it.
  @inline(__always)
  mutating func outputResumed() -> Bool {
    guard flags.contains(.deferred) else { return false }
    flags.remove(.deferred)
    return true
  }

  /// Action after nghttp2 has taken all queued bytes of a response.
  enum OutputAction: Equatable {
    /// End the stream.
    case end
    /// Release the queue. `notifies`: the application waits for that.
    case release(notifies: Bool)
  }

  @inline(__always)
  mutating func outputTaken() -> OutputAction {
    if mayQueueOutput { return .release(notifies: flags.contains(.needsDrainCallback)) }
    flags.insert(.localEnded)
    return .end
  }

  // MARK: End of the stream

  /// Record a reset by the peer. ``closed(isPending:)`` follows.
  mutating func resetByPeer() { flags.insert(.remoteEnded) }

  /// Record a reset that the application requested. It gets no callback.
  mutating func resetByApplication() { flags.insert(.localEnded) }

  /// Record that a request being received is reset before the application knows it. Bytes that arrive are dropped.
  mutating func resetUndelivered() {
    assert(phase == .receiving)
    phase = .answered
    flags.insert(.localEnded)
  }

  /// Action after a stream has closed.
  enum CloseAction {
    /// Nothing: a pending call frees the slot.
    case none
    /// Free the slot.
    case free
    /// Notify the application, which frees the slot.
    case notify
  }

  /// - Parameter isPending: a call to the application is pending for the stream.
  @inline(__always)
  mutating func closed(isPending: Bool) -> CloseAction {
    switch phase {
    case .free, .aborted: return .none
    case .receiving, .answered: return free(isPending: isPending)
    case .ready:
      phase = .aborted
      return .none
    case .streaming where flags.contains(.localEnded): return free(isPending: isPending)
    case .delivered, .streaming:
      phase = .aborted
      return .notify
    }
  }

  @inline(__always)
  private mutating func free(isPending: Bool) -> CloseAction {
    guard isPending else { return .free }
    phase = .aborted
    return .none
  }

  // MARK: Questions

  /// Whether the request is still being received.
  @inline(__always)
  var isReceiving: Bool { phase == .receiving }

  /// Whether the application has the request and no response has begun.
  @inline(__always)
  var isUnanswered: Bool { phase == .delivered }

  /// Whether a streaming response has begun and its stream is open.
  @inline(__always)
  var isStreaming: Bool { phase == .streaming }

  /// Whether the application may read the request.
  @inline(__always)
  var isReadable: Bool { phase == .delivered || phase == .streaming }

  /// Whether the application may queue bytes of a streaming response.
  @inline(__always)
  var mayQueueOutput: Bool { phase == .streaming && !flags.contains(.finished) }

  /// Whether the application reads the body as it arrives.
  @inline(__always)
  var isBodyStreamed: Bool { body == .streamed || body == .streamedToEnd }

  var isBodyTooLarge: Bool { body == .tooLarge }
  var isBodyRefused: Bool { body == .refused }
  var areHeadersTooLarge: Bool { flags.contains(.headersTooLarge) }

  /// Whether the stream is refused for lack of room.
  @inline(__always)
  var isRefused: Bool { flags.contains(.refused) }

  /// Whether the peer has ended its side.
  @inline(__always)
  var hasRemoteEnded: Bool { flags.contains(.remoteEnded) }

  /// Whether the response is passed to nghttp2 to its end, or the stream is reset.
  var hasLocalEnded: Bool { flags.contains(.localEnded) }

  /// What the peer may delay now, and what a timeout therefore bounds.
  enum Awaited {
    case nothing
    /// The request, which the application gets once it is complete.
    case request
    /// The rest of a body that is not needed: the response is complete.
    case droppedBody
    /// Room in HTTP/2's windows for a response that the application has ended.
    case responseWindow
  }

  var awaited: Awaited {
    switch phase {
    case .receiving: .request
    case .answered: hasLocalEnded ? .droppedBody : .responseWindow
    case .streaming: flags.contains(.finished) && !hasLocalEnded ? .responseWindow : .nothing
    case .free, .ready, .delivered, .aborted: .nothing
    }
  }
}
