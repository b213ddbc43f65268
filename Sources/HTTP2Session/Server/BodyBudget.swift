internal import CNghttp2

/// One stream's part of its connection's ``BodyBudget``, and what was dropped of its body.
struct BodyShare {
  /// Bytes that the budget has counted for the stream.
  private(set) var held = 0
  /// Bytes that the budget granted beyond the initial window.
  private(set) var granted = 0
  /// Body bytes dropped after the request was delivered.
  private(set) var dropped = 0
  /// The body waits until other requests are answered.
  fileprivate(set) var awaitsGrant = false

  @inline(__always)
  mutating func store(_ length: Int) { held += length }

  mutating func grant(_ increment: Int) { granted += increment }

  @inline(__always)
  mutating func drop(_ length: Int) { dropped += length }

  /// Give back what is held and granted.
  ///
  /// - Returns: both.
  @inline(__always)
  mutating func release() -> (held: Int, granted: Int) {
    let released = (held, granted)
    (held, granted) = (0, 0)
    return released
  }
}

/// Accounting of the request bodies that one connection buffers until they are complete and answered, against
/// ``HTTP2Limits/bufferedBodyBytesMax``. Streamed bodies do not count: their windows bound them.
///
/// HTTP/2's windows slow down a client that sends more than fits. No stream of a client that respects them is refused.
/// Three rules ensure that neither the client nor the application can block the other for good:
///
/// - Incomplete bodies: a stream may send ``HTTP2Limits/initialWindowSize`` at once. Its window then doubles each time,
///   as long as the grants of all streams stay within the limit. Above it, streams wait in order until bodies are
///   answered.
/// - The first stream that would have to wait while no other stream is favoured becomes the favoured one. It is granted
///   a whole body beyond the limit, so that at least one stream can always complete.
/// - Complete bodies, which wait for their responses: until they are gone, the connection's window is not returned for
///   bytes that arrive meanwhile.
struct BodyBudget {
  private let limit: Int
  /// Bytes that each stream may send without a grant.
  private let firstWindow: Int
  /// Bytes that a stream may send with all grants. One byte above the body limit must be able to arrive, to be refused.
  private let bodyWindowMax: Int
  private(set) var total = 0
  private var incomplete = 0
  /// Bytes read but not returned to the connection's window.
  private var unreturnedWindowBytes = 0
  /// Sum of the grants of all streams beyond ``firstWindow``.
  private var granted = 0
  /// Stream that may exceed the limit, 0 if there is none.
  private var favoured: Int32 = 0
  /// Streams that wait for a grant, oldest first. Streams that have ended meanwhile are skipped.
  private var waiting: [Int32] = []

  init(limits: HTTP2Limits) {
    limit = limits.bufferedBodyBytesMax
    firstWindow = Int(limits.initialWindowSize)
    bodyWindowMax = firstWindow + limits.bodyBytesMax
  }

  /// Action after bytes of a body have arrived.
  fileprivate enum DataAction {
    /// Continue: the stream is within its grant.
    case proceed
    /// Extend the stream's window by this number of bytes.
    case extend(Int)
    /// Wait until other bodies are gone. Bytes already granted may still arrive.
    case wait
    /// Refuse: the stream sent more than it was granted, and there is no room. This is legal before the client has
    /// acknowledged our SETTINGS, as it does not know its window yet.
    case refuse
  }

  /// - Parameter held: bytes of the body, including those that have just arrived.
  @inline(__always)
  fileprivate mutating func received(_ slot: UnsafeMutablePointer<StreamSlot>, held: Int) -> DataAction {
    if held <= (firstWindow + slot.pointee.bodyShare.granted) / 2 { return .proceed }
    return extend(slot, held)
  }

  @inline(never)
  private mutating func extend(_ slot: UnsafeMutablePointer<StreamSlot>, _ held: Int) -> DataAction {
    let credit = firstWindow + slot.pointee.bodyShare.granted
    if credit >= bodyWindowMax { return .proceed }
    // Streams that already wait come first; while any waits, another stream is favoured.
    if waiting.isEmpty, let increment = grant(slot, held: held) { return .extend(increment) }
    return held > credit ? .refuse : .wait
  }

  /// Grant a stream a larger window, if there is room or no stream is favoured.
  ///
  /// - Returns: the bytes by which its window grows, or nil.
  fileprivate mutating func grant(_ slot: UnsafeMutablePointer<StreamSlot>, held: Int) -> Int? {
    let credit = firstWindow + slot.pointee.bodyShare.granted
    var increment = min(bodyWindowMax, max(2 * credit, held + firstWindow)) - credit
    if granted + increment > limit {
      guard favoured == 0 else { return nil }
      favoured = slot.pointee.streamID
      increment = bodyWindowMax - credit
    }
    slot.pointee.bodyShare.grant(increment)
    granted += increment
    return increment
  }

  @inline(__always)
  fileprivate mutating func store(_ slot: UnsafeMutablePointer<StreamSlot>, _ length: Int) {
    slot.pointee.bodyShare.store(length)
    total += length
    incomplete += length
  }

  /// Record that the body of a receiving stream is complete, or never will be.
  @inline(__always)
  fileprivate mutating func complete(_ slot: UnsafeMutablePointer<StreamSlot>) {
    incomplete -= slot.pointee.bodyShare.held
  }

  /// - Returns: whether there may now be room for waiting streams.
  @inline(__always)
  fileprivate mutating func release(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    let released = slot.pointee.bodyShare.release()
    total -= released.held
    guard released.granted > 0 else { return false }
    granted -= released.granted
    if favoured == slot.pointee.streamID { favoured = 0 }
    return !waiting.isEmpty
  }

  /// Whether arriving bytes are not returned to the connection's window. True only while a complete body is buffered:
  /// its release returns them.
  @inline(__always)
  private var withholds: Bool { total > limit && total > incomplete }

  /// Withhold arrived bytes from the connection's window, if they must be. Returns whether they are.
  @inline(__always)
  fileprivate mutating func withhold(_ length: Int) -> Bool {
    guard withholds else { return false }
    unreturnedWindowBytes += length
    return true
  }

  /// Take the unreturned bytes that may be returned to the connection's window; 0: none.
  @inline(__always)
  fileprivate mutating func takeUnreturnedWindow() -> Int {
    if unreturnedWindowBytes == 0 || withholds { return 0 }
    let returned = unreturnedWindowBytes
    unreturnedWindowBytes = 0
    return returned
  }

  // MARK: Streams that wait

  /// Queue a stream for a grant. Returns false if it is queued already.
  fileprivate mutating func enqueue(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    guard !slot.pointee.bodyShare.awaitsGrant else { return false }
    slot.pointee.bodyShare.awaitsGrant = true
    waiting.append(slot.pointee.streamID)
    return true
  }

  /// Take a stream out of the queue.
  fileprivate mutating func dequeue(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slot.pointee.bodyShare.awaitsGrant = false
    waiting.removeAll { $0 == slot.pointee.streamID }
  }

  /// Return the stream at this position of the queue; nil at its end.
  fileprivate func waiting(at position: Int) -> Int32? { position < waiting.count ? waiting[position] : nil }

  fileprivate mutating func removeFirstWaiting(_ count: Int) { waiting.removeFirst(count) }
}

extension ServerCore {
  /// Store a piece of a body that is within `bodyBytesMax`, or reset its stream if the piece exceeds the grants.
  @inline(__always)
  mutating func storeBody(_ slot: UnsafeMutablePointer<StreamSlot>, _ data: UnsafePointer<UInt8>, _ length: Int) {
    // nghttp2_session_consume and its variants fail only for lack of memory.
    switch bodies.received(slot, held: slot.pointee.bodyShare.held + length) {
    case .proceed: break
    case .extend(let increment): extendWindow(slot, increment)
    case .wait: queueForGrant(slot)
    case .refuse:
      _ = nghttp2_session_consume(session, slot.pointee.streamID, length)
      counters.limitsHit += 1
      return resetUndelivered(slot, .enhanceYourCalm)
    }
    guard memory.isWithinLimit(slot) else {
      _ = nghttp2_session_consume(session, slot.pointee.streamID, length)
      counters.limitsHit += 1
      return resetUndelivered(slot, .enhanceYourCalm)
    }
    slot.pointee.received.appendBody(data, length)
    bodies.store(slot, length)
    memory.charge(slot)
    // The stream's own window grows by grants only.
    if !bodies.withhold(length) { _ = nghttp2_session_consume_connection(session, length) }
  }

  @inline(never)
  private mutating func extendWindow(_ slot: UnsafeMutablePointer<StreamSlot>, _ increment: Int) {
    let increment = Int32(clamping: increment)
    _ = nghttp2_submit_window_update(session, UInt8(NGHTTP2_FLAG_NONE.rawValue), slot.pointee.streamID, increment)
  }

  @inline(never)
  private mutating func queueForGrant(_ slot: UnsafeMutablePointer<StreamSlot>) {
    if bodies.enqueue(slot) { counters.bodiesDelayed += 1 }
  }

  /// Grant waiting streams the room that there is now.
  @inline(never)
  private mutating func grantToWaiting() {
    guard session != nil else { return }
    var count = 0
    while let streamID = bodies.waiting(at: count) {
      if let slot = lookup(streamID), slot.pointee.state.isReceiving {
        guard let increment = bodies.grant(slot, held: slot.pointee.bodyShare.held) else { break }
        slot.pointee.bodyShare.awaitsGrant = false
        // The time spent waiting for room does not count against the client's request timeout.
        slot.pointee.deadlines.restartRequest(at: now)
        extendWindow(slot, increment)
      }
      count += 1
    }
    bodies.removeFirstWaiting(count)
  }

  /// Record that a stream leaves `receiving`.
  @inline(__always)
  mutating func bodyCompleted(_ slot: UnsafeMutablePointer<StreamSlot>) { bodies.complete(slot) }

  /// Drop the rest of a body. Its stored bytes are returned to the stream's window, so that the rest can arrive.
  mutating func bodyDropped(_ slot: UnsafeMutablePointer<StreamSlot>) {
    _ = nghttp2_session_consume_stream(session, slot.pointee.streamID, slot.pointee.bodyShare.held)
  }

  /// Release the stored bytes of a body.
  @inline(__always)
  mutating func bodyReleased(_ slot: UnsafeMutablePointer<StreamSlot>) {
    // Leave the queue first: its grants are released now, and it must not get another.
    if slot.pointee.bodyShare.awaitsGrant { bodies.dequeue(slot) }
    if bodies.release(slot) { grantToWaiting() }
    let returned = bodies.takeUnreturnedWindow()
    if returned > 0, let session { _ = nghttp2_session_consume_connection(session, returned) }
  }

  /// Reset a stream in `receiving` that the application does not know and never will.
  @inline(never)
  mutating func resetUndelivered(_ slot: UnsafeMutablePointer<StreamSlot>, _ code: HTTP2ErrorCode) {
    bodyCompleted(slot)
    slot.pointee.state.resetUndelivered()
    if slot.pointee.bodyShare.held > 0 {
      slot.pointee.received.discard()
      slot.pointee.outgoing.release()
    }
    bodyReleased(slot)
    // Fails only for lack of memory.
    _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, code.rawValue)
  }
}
