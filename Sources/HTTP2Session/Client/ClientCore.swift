internal import CNghttp2
internal import NIOCore

/// State of one client session: the nghttp2 pointer and all that its callbacks touch, at a fixed address. See
/// ``ServerCore``.
struct ClientCore {
  /// Freed by ``destroy()``, and nil after that.
  private(set) var session: OpaquePointer?
  let pool: UnsafeMutablePointer<SlotPool>
  let headerListBytesMax: Int
  let bodyBytesMax: Int

  private(set) var streams: OpenSlots
  var pending: PendingSlots

  /// Slot whose header block is being decoded; nil while the block is ignored.
  var decoding: UnsafeMutablePointer<StreamSlot>?
  /// Slot whose trailers are being decoded.
  var decodingTrailers: UnsafeMutablePointer<StreamSlot>?
  /// Trailers that were received and not delivered yet, by the index of their slot. Most responses have none.
  private var trailers: [UInt32: [HTTP2TrailerField]] = [:]
  var hasReceivedSettings = false
  var hasReceivedGoAway = false
  var counters = HTTP2Counters()

  init(pool: UnsafeMutablePointer<SlotPool>, headerListBytesMax: Int, bodyBytesMax: Int) {
    self.pool = pool
    self.headerListBytesMax = headerListBytesMax
    self.bodyBytesMax = bodyBytesMax
    streams = OpenSlots(pool: pool)
    pending = PendingSlots(pool: pool)
  }

  /// Begin the session, which the core owns from here on.
  mutating func begin(owned session: OpaquePointer) { self.session = session }

  @inline(__always)
  mutating func open(
    tag: UInt64,
    method: HTTP2Method,
    streaming: Bool,
    hasMoreBody: Bool
  ) -> UnsafeMutablePointer<StreamSlot> {
    let slot = pool.pointee.allocate()
    slot.pointee.open(tag: tag, method: method, streaming: streaming, hasMoreBody: hasMoreBody)
    pending.reset(slot)
    streams.append(slot)
    counters.streamsOpened += 1
    return slot
  }

  /// Close a stream; its slot stays until the delegate has been notified.
  @inline(__always)
  mutating func close(_ slot: UnsafeMutablePointer<StreamSlot>, errorCode: UInt32) {
    let hasFinalStatus = slot.pointee.received.status >= 200
    guard slot.pointee.clientState.closed(hasFinalStatus: hasFinalStatus, errorCode: errorCode) else { return }
    streams.remove(slot)
    pending.append(slot)
  }

  /// Store one trailer field. The caller has checked the limit.
  mutating func appendTrailer(_ field: HTTP2TrailerField, to slot: UnsafeMutablePointer<StreamSlot>) {
    trailers[slot.pointee.index, default: []].append(field)
  }

  /// Remove a slot's trailers, to deliver them.
  mutating func removeTrailers(of slot: UnsafeMutablePointer<StreamSlot>) -> [HTTP2TrailerField] {
    trailers.isEmpty ? [] : trailers.removeValue(forKey: slot.pointee.index) ?? []
  }

  /// End the session and fail every open stream.
  mutating func destroy() {
    guard let session else { return }
    nghttp2_session_del(session)
    self.session = nil
    while streams.oldest != StreamSlot.none {
      close(pool.pointee.pointer(streams.oldest), errorCode: HTTP2ErrorCode.internalError.rawValue)
    }
  }
}

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
  /// The error with which the stream closed; 0: none, which a response that is not whole may have too.
  private(set) var errorCode: UInt32 = 0

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

  /// Record that the stream closed, which completes it if its response is whole and there was no error. Returns false
  /// if it was closed already.
  @inline(__always)
  mutating func closed(hasFinalStatus: Bool, errorCode: UInt32) -> Bool {
    guard isOpen else { return false }
    phase = errorCode == 0 && hasFinalStatus && remoteEnded ? .complete : .failed
    self.errorCode = errorCode
    return true
  }

  // MARK: Questions

  /// Call to the delegate that a pending stream needs.
  enum PendingAction { case none, part, complete, fail }

  @inline(__always)
  var pendingAction: PendingAction {
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
