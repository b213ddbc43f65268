internal import CNghttp2
internal import NIOCore

/// State of one server session: the nghttp2 pointer and all that its callbacks touch. It is one struct at a fixed
/// address, so that a callback costs neither a reference count nor an exclusivity check. ``HTTP2ServerConnection`` owns
/// it.
struct ServerCore {
  /// Freed by ``destroy()``, and nil after that.
  private(set) var session: OpaquePointer?
  let pool: UnsafeMutablePointer<SlotPool>
  private let bodyBytesMax: Int
  private let streamedWindowSize: Int32
  private let streamedContentTypes: [HTTP2ContentType]
  /// Returns the key of the client behind a request on a shared connection, before the caller is authenticated.
  private let clientKey: ((borrowing HTTP2Request) -> UInt64?)?

  /// The event loop's time at the start of the current read.
  private(set) var now: NIODeadline
  private(set) var streams: OpenStreams
  var pending: PendingSlots
  var headers: HeaderDecoding
  var bodies: BodyBudget
  var memory: ConnectionMemory
  var inbound: InboundFrames
  var progress = OutputProgress()
  var counters = HTTP2Counters()

  /// Whether the peer broke the protocol or a limit, which ended the connection.
  private(set) var hasFailed = false
  /// A binding GOAWAY is queued or sent. nghttp2 drops streams above it and all later frames on them.
  private(set) var goAwaySubmitted = false

  init(resources: HTTP2ServerResources, now: NIODeadline) {
    let limits = resources.limits
    pool = resources.pool
    bodyBytesMax = limits.bodyBytesMax
    streamedWindowSize = limits.streamedWindowSize
    streamedContentTypes = resources.streamedContentTypes
    clientKey = resources.clientKey
    self.now = now
    streams = OpenStreams(pool: resources.pool)
    pending = PendingSlots(pool: resources.pool)
    headers = HeaderDecoding(limits: limits, retainedHeaders: resources.retainedHeaders)
    bodies = BodyBudget(limits: limits)
    memory = ConnectionMemory(budget: resources.budget)
    inbound = InboundFrames(controlFrames: ControlFrameBudget(limits: limits, now: now))
  }

  /// Treat the connection as shared by many clients, or not, with these limits.
  mutating func setShared(_ isShared: Bool, limits: HTTP2Limits) {
    memory.setShared(isShared)
    headers.setLimits(limits)
    bodies = BodyBudget(limits: limits)
  }

  /// Begin the session, which the core owns from here on.
  mutating func begin(owned session: OpaquePointer) { self.session = session }

  /// Set the time at the start of a read, or of another turn.
  @inline(__always)
  mutating func advance(to now: NIODeadline) { self.now = now }

  // MARK: Input

  /// Return `count` bytes of a streamed body that were read or dropped to the stream's window. On a shared connection
  /// the connection's window was already returned when they arrived.
  mutating func consumeStreamed(_ streamID: Int32, _ count: Int) {
    // Both fail only for lack of memory.
    if memory.isShared {
      _ = nghttp2_session_consume_stream(session, streamID, count)
    } else {
      _ = nghttp2_session_consume(session, streamID, count)
    }
  }

  /// Handle a negative result of ``receive(_:_:)``: queue a GOAWAY.
  mutating func receiveFailed(_ result: Int) {
    counters.protocolErrors += 1
    hasFailed = true
    // Each of these is fatal, and the session takes no more input. BAD_CLIENT_MAGIC: no HTTP/2 preface. FLOODED: too
    // many acknowledgements queued. TOO_MANY_CONTINUATIONS. CALLBACK_FAILURE: one of our checks, which has queued its
    // GOAWAY. NOMEM.
    switch Int32(truncatingIfNeeded: result) {
    case Int32(NGHTTP2_ERR_BAD_CLIENT_MAGIC.rawValue): terminate(.protocolError)
    case Int32(NGHTTP2_ERR_FLOODED.rawValue), Int32(NGHTTP2_ERR_TOO_MANY_CONTINUATIONS.rawValue):
      counters.limitsHit += 1
      terminate(.enhanceYourCalm)
    case Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue): break
    default: terminate(.internalError)
    }
  }

  /// Record a GOAWAY that was sent, also those of errors that nghttp2 finds and answers itself.
  mutating func goAwaySent(_ code: UInt32) {
    counters.goAwaysSent += 1
    if code != HTTP2ErrorCode.noError.rawValue { hasFailed = true }
  }

  /// Queue the GOAWAY that ends the connection.
  mutating func terminate(_ code: HTTP2ErrorCode) {
    goAwaySubmitted = true
    guard let session else { return }
    _ = nghttp2_session_terminate_session(session, code.rawValue)
  }

  /// Queue the GOAWAY that binds: streams that the peer opens from here on are not processed.
  mutating func submitGoAway() {
    guard let session else { return }
    goAwaySubmitted = true
    let last = nghttp2_session_get_last_proc_stream_id(session)
    _ = nghttp2_submit_goaway(session, 0, last, HTTP2ErrorCode.noError.rawValue, nil, 0)
  }

  // MARK: Requests

  /// Handle the complete headers of a request.
  @inline(__always)
  mutating func headersReceived(_ slot: UnsafeMutablePointer<StreamSlot>, endsStream: Bool) {
    if slot.pointee.state.isRefused { return refuse(slot) }
    memory.charge(slot)
    if memory.isShared, !assignToClient(slot) { return refuse(slot) }
    let action = slot.pointee.state.headersReceived(
      endsStream: endsStream,
      streamsBody: !endsStream && streamsBody(slot),
      bodyExceedsLimit: slot.pointee.received.declaredBodyBytes > bodyBytesMax
    )
    switch action {
    case .deliver: deliver(slot)
    case .deliverAndStream:
      // Fails only for lack of memory.
      _ = nghttp2_session_set_local_window_size(session, 0, slot.pointee.streamID, streamedWindowSize)
      submitContinue(slot)
      deliver(slot)
    case .awaitBody:
      // The application may refuse the body of a peer that is not authenticated.
      if memory.isAuthenticated { submitContinue(slot) } else { pending.append(slot) }
    }
  }

  /// Refuse a stream for lack of room.
  @inline(never)
  private mutating func refuse(_ slot: UnsafeMutablePointer<StreamSlot>) {
    counters.limitsHit += 1
    resetUndelivered(slot, .refusedStream)
  }

  /// Charge a request on a shared connection to the client that it names, until the caller is authenticated.
  ///
  /// - Returns: false if that client holds too much.
  @inline(never)
  private func assignToClient(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    guard let clientKey, let key = clientKey(HTTP2Request(slot)) else { return true }
    return memory.assignUnauthenticated(slot, to: key)
  }

  /// Return whether the application reads bodies of this type as they arrive.
  @inline(__always)
  private func streamsBody(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    if streamedContentTypes.isEmpty { return false }
    let header = RawSpan(_unsafeBytes: slot.pointee.received.bytes(slot.pointee.received.fields.contentType))
    for type in streamedContentTypes where type.isNamed(by: header) { return true }
    return false
  }

  /// Send 100 (Continue) if the client waits for it and has not ended its request.
  @inline(__always)
  func submitContinue(_ slot: UnsafeMutablePointer<StreamSlot>) {
    if slot.pointee.state.takeExpectedContinue() { submitExpectedContinue(slot) }
  }

  @inline(never)
  private func submitExpectedContinue(_ slot: UnsafeMutablePointer<StreamSlot>) {
    guard let session else { return }
    var field = ResponseHeaders.field(":status", "100")
    // Fails only for lack of memory; the client then sends its body after a timeout of its own.
    _ = nghttp2_submit_headers(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), slot.pointee.streamID, nil, &field, 1, nil)
  }

  /// Handle bytes of a request's body.
  @inline(__always)
  mutating func bodyReceived(_ slot: UnsafeMutablePointer<StreamSlot>, _ data: UnsafePointer<UInt8>, _ length: Int) {
    switch slot.pointee.state.bodyReceived(fits: slot.pointee.bodyShare.held + length <= bodyBytesMax) {
    case .store: storeBody(slot, data, length)
    case .append:
      // The stream's window is the limit: unread bytes are not returned to it.
      slot.pointee.received.appendBody(data, length)
      memory.chargeRequest(slot)
      // On a shared connection the window belongs to all clients: unread bytes count against their own stream alone.
      if memory.isShared { _ = nghttp2_session_consume_connection(session, length) }
      pending.append(slot)
    case .drop: drop(slot, length)
    case .deliverWithoutBody:
      drop(slot, length)
      bodyDropped(slot)
      deliver(slot)
    }
  }

  /// Drop bytes of a body: it is over a limit, or its request is answered.
  private mutating func drop(_ slot: UnsafeMutablePointer<StreamSlot>, _ length: Int) {
    // Fails only for lack of memory.
    _ = nghttp2_session_consume(session, slot.pointee.streamID, length)
    slot.pointee.bodyShare.drop(length)
  }

  /// Handle the end of a request, by DATA or by trailers.
  @inline(__always)
  mutating func requestEnded(_ slot: UnsafeMutablePointer<StreamSlot>) {
    switch slot.pointee.state.requestEnded() {
    case .none: break
    case .deliver: deliver(slot)
    case .notify: pending.append(slot)
    }
  }

  /// Deliver a request without its body, if it is not complete; later bytes of the body are dropped.
  @inline(never)
  mutating func refuseBody(_ slot: UnsafeMutablePointer<StreamSlot>) {
    guard slot.pointee.state.bodyRefused() else { return }
    bodyDropped(slot)
    deliver(slot)
  }

  /// Deliver a request that has just become ready.
  @inline(__always)
  private mutating func deliver(_ slot: UnsafeMutablePointer<StreamSlot>) {
    bodyCompleted(slot)
    pending.append(slot)
  }

  // MARK: Slots

  /// Return the slot of an open stream, or nil if the stream is not open.
  @inline(__always)
  mutating func lookup(_ streamID: Int32) -> UnsafeMutablePointer<StreamSlot>? {
    streams.lookup(streamID, session)
  }

  @inline(__always)
  mutating func open(_ streamID: Int32, core: UnsafeMutablePointer<ServerCore>) -> UnsafeMutablePointer<StreamSlot> {
    let slot = pool.pointee.allocate()
    slot.pointee.open(streamID, openedAt: now, core: core, isRefused: !memory.canOpenStream)
    pending.reset(slot)
    streams.opened(slot)
    counters.streamsOpened += 1
    memory.charge(slot)
    return slot
  }

  /// Close a stream. Its slot is freed, after the delegate has been notified if necessary.
  mutating func close(_ slot: UnsafeMutablePointer<StreamSlot>) {
    streams.closed(slot)
    memory.discharge(slot)
    if slot.pointee.state.isReceiving { bodyCompleted(slot) }
    bodyReleased(slot)
    switch slot.pointee.state.closed(isPending: slot.pointee.links.isWaiting) {
    case .none: break
    case .free: pool.pointee.put(slot)
    case .notify: pending.append(slot)
    }
  }

  /// Charge the connection for the frames that nghttp2 has queued. Returns false if it holds too much with them: its
  /// peer provokes more frames than it reads.
  mutating func chargeOutboundQueue() -> Bool {
    guard let session else { return true }
    return memory.chargeQueue(nghttp2_session_get_outbound_queue_size(session))
  }

  /// End the session and close every open stream.
  mutating func destroy() {
    guard let session else { return }
    nghttp2_session_del(session)
    self.session = nil
    _ = memory.chargeQueue(0)
    while streams.oldest != StreamSlot.none { close(pool.pointee.pointer(streams.oldest)) }
  }
}

/// Open streams of a server session: the list of their slots, and the slot of the last frame.
struct OpenStreams {
  private var slots: OpenSlots
  /// Slot of the last frame: DATA mostly follows the HEADERS of its own stream.
  private var recentSlot: UnsafeMutablePointer<StreamSlot>?
  private var recentStreamID: Int32 = 0

  init(pool: UnsafeMutablePointer<SlotPool>) { slots = OpenSlots(pool: pool) }

  /// Number of open streams.
  var count: Int { slots.count }

  /// Index of the oldest stream's slot; ``StreamSlot/none``: no stream is open.
  var oldest: UInt32 { slots.oldest }

  /// Return the slot of an open stream, or nil if the stream is not open.
  @inline(__always)
  mutating func lookup(_ streamID: Int32, _ session: OpaquePointer?) -> UnsafeMutablePointer<StreamSlot>? {
    if streamID == recentStreamID { return recentSlot }
    guard let data = nghttp2_session_get_stream_user_data(session, streamID) else { return nil }
    let slot = data.assumingMemoryBound(to: StreamSlot.self)
    recentSlot = slot
    recentStreamID = streamID
    return slot
  }

  @inline(__always)
  mutating func opened(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slots.append(slot)
    recentSlot = slot
    recentStreamID = slot.pointee.streamID
  }

  @inline(__always)
  mutating func closed(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slots.remove(slot)
    if recentSlot == slot {
      recentSlot = nil
      recentStreamID = 0
    }
  }
}
