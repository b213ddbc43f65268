internal import CNghttp2
internal import NIOCore

/// One server session: the nghttp2 pointer and all that its callbacks touch, in one struct at a fixed
/// address, so that a callback costs neither a reference count nor an exclusivity check.
/// ``HTTP2ServerConnection`` owns it.
struct ServerCore {
  /// Freed by ``destroy()``; nil after that.
  var session: OpaquePointer?
  let pool: UnsafeMutablePointer<SlotPool>
  let maxHeaderListBytes: Int
  let maxBodyBytes: Int
  let streamedWindowSize: Int32
  let streamedContentTypes: [HTTP2ContentType]

  /// The loop's time at the start of the current read.
  var now: NIODeadline

  // Open slots of this connection, oldest first.
  var oldest = StreamSlot.none
  var newest = StreamSlot.none
  var openCount = 0

  // Slots that the application has to be told about, in order.
  var firstWaiting = StreamSlot.none
  var lastWaiting = StreamSlot.none

  /// The slot whose header block is being decoded; nil while one is decoded that nobody reads (trailers,
  /// refused).
  var decoding: UnsafeMutablePointer<StreamSlot>?
  /// The slot of the last frame, as DATA mostly follows the HEADERS of its own stream.
  var recentSlot: UnsafeMutablePointer<StreamSlot>?
  var recentStreamID: Int32 = 0

  /// Answered before the request was complete: reset once the answer is out (RFC 9113 section 8.1).
  var answeredEarly: [HTTP2StreamHandle] = []

  /// Bytes of answers' bodies that nghttp2 has taken: while it grows, the peer takes what it is sent.
  var answerBytes: UInt64 = 0

  var bodies: BodyBudget
  /// Of the event loop.
  let memory: UnsafeMutablePointer<MemoryBudget>
  /// What this connection holds of it.
  var held = 0
  var isProven = false
  var isShared = false
  /// Bytes of the header block that is being decoded.
  var decodedHeaderBytes = 0
  var maxDecodedHeaderBytes: Int
  let keepsAllHeaders: Bool
  let keptHeaders: [[UInt8]]
  /// Whose a request on a shared connection is, until it is known who calls.
  let clientKey: ((borrowing HTTP2Request) -> UInt64?)?
  var identities = AuthorizationIdentities()
  var history = StreamHistory()
  var controlFrames: ControlFrameBudget
  var inbound = InboundFrames()
  var counters = HTTP2Counters()

  /// The client's SETTINGS have arrived: the preface is complete (RFC 9113 section 3.4).
  var prefaceSeen = false
  /// Input is not read any more: a GOAWAY is queued.
  var failed = false
  /// A binding GOAWAY is queued or sent: streams above it are dropped by nghttp2, and so is what follows on
  /// them.
  var goAwaySubmitted = false

  // MARK: Input

  /// Bytes of a streamed body were read, or dropped: their stream may send as many more. On a connection that clients
  /// share its window was given back as they came.
  mutating func consumeStreamed(_ streamID: Int32, _ count: Int) {
    // Both fail only for lack of memory.
    if isShared {
      _ = nghttp2_session_consume_stream(session, streamID, count)
    } else {
      _ = nghttp2_session_consume(session, streamID, count)
    }
  }

  /// What a negative result of ``receive(_:_:)`` means: a GOAWAY is queued and ``failed`` is set.
  mutating func receiveFailed(_ result: Int) {
    failed = true
    counters.protocolErrors += 1
    // All of these are fatal to the session, which will take no more input: BAD_CLIENT_MAGIC: no HTTP/2
    // preface. FLOODED: too many acknowledgements waiting. TOO_MANY_CONTINUATIONS. CALLBACK_FAILURE: a check
    // of ours, which has queued its GOAWAY. NOMEM.
    switch Int32(truncatingIfNeeded: result) {
    case Int32(NGHTTP2_ERR_BAD_CLIENT_MAGIC.rawValue): terminate(.protocolError)
    case Int32(NGHTTP2_ERR_FLOODED.rawValue), Int32(NGHTTP2_ERR_TOO_MANY_CONTINUATIONS.rawValue):
      counters.limitsHit += 1
      terminate(.enhanceYourCalm)
    case Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue): break
    default: terminate(.internalError)
    }
  }

  /// Queues the GOAWAY that ends the connection.
  mutating func terminate(_ code: HTTP2ErrorCode) {
    failed = true
    goAwaySubmitted = true
    guard let session else { return }
    _ = nghttp2_session_terminate_session(session, code.rawValue)
  }

  // MARK: Slots

  /// The slot of an open stream, nil for one that is not open.
  @inline(__always)
  mutating func lookup(_ streamID: Int32) -> UnsafeMutablePointer<StreamSlot>? {
    if streamID == recentStreamID { return recentSlot }
    guard let data = nghttp2_session_get_stream_user_data(session, streamID) else { return nil }
    let slot = data.assumingMemoryBound(to: StreamSlot.self)
    recentSlot = slot
    recentStreamID = streamID
    return slot
  }

  @inline(__always)
  mutating func open(_ streamID: Int32, core: UnsafeMutablePointer<ServerCore>) -> UnsafeMutablePointer<
    StreamSlot
  > {
    let slot = pool.pointee.take()
    slot.pointee.streamID = streamID
    slot.pointee.phase = .receiving
    slot.pointee.flags = []
    slot.pointee.method = .other
    slot.pointee.authorizationIdentity = 0
    slot.pointee.note = 0
    slot.pointee.openedAt = now
    slot.pointee.chargedBytes = 0
    slot.pointee.shareKey = 0
    slot.pointee.core = core
    slot.pointee.count = 0
    slot.pointee.headerEnd = 0
    slot.pointee.headerListBytes = 0
    slot.pointee.declaredBodyBytes = 0
    slot.pointee.heldBodyBytes = 0
    slot.pointee.grantedBodyBytes = 0
    slot.pointee.droppedBodyBytes = 0
    slot.pointee.unsentBytes = -1
    slot.pointee.fields = StreamSlot.Fields()
    slot.pointee.previous = newest
    slot.pointee.next = StreamSlot.none
    slot.pointee.nextWaiting = StreamSlot.none
    slot.pointee.isWaiting = false
    if newest == StreamSlot.none {
      oldest = slot.pointee.index
    } else {
      pool.pointee.pointer(newest).pointee.next = slot.pointee.index
    }
    newest = slot.pointee.index
    openCount += 1
    counters.streamsOpened += 1
    if !mayOpen { slot.pointee.flags.insert(.refused) }
    charge(slot)
    recentSlot = slot
    recentStreamID = streamID
    return slot
  }

  @inline(__always)
  mutating func unlink(_ slot: UnsafeMutablePointer<StreamSlot>) {
    let previous = slot.pointee.previous
    let next = slot.pointee.next
    if previous == StreamSlot.none {
      oldest = next
    } else {
      pool.pointee.pointer(previous).pointee.next = next
    }
    if next == StreamSlot.none {
      newest = previous
    } else {
      pool.pointee.pointer(next).pointee.previous = previous
    }
    openCount -= 1
    if recentSlot == slot {
      recentSlot = nil
      recentStreamID = 0
    }
  }

  @inline(__always)
  mutating func wait(_ slot: UnsafeMutablePointer<StreamSlot>) {
    if slot.pointee.isWaiting { return }
    slot.pointee.isWaiting = true
    slot.pointee.nextWaiting = StreamSlot.none
    if lastWaiting == StreamSlot.none {
      firstWaiting = slot.pointee.index
    } else {
      pool.pointee.pointer(lastWaiting).pointee.nextWaiting = slot.pointee.index
    }
    lastWaiting = slot.pointee.index
  }

  @inline(__always)
  mutating func popWaiting() -> UnsafeMutablePointer<StreamSlot>? {
    guard firstWaiting != StreamSlot.none else { return nil }
    let slot = pool.pointee.pointer(firstWaiting)
    firstWaiting = slot.pointee.nextWaiting
    if firstWaiting == StreamSlot.none { lastWaiting = StreamSlot.none }
    slot.pointee.isWaiting = false
    return slot
  }

  /// The stream is no more: its slot is free, unless the application has yet to hear of it.
  mutating func close(_ slot: UnsafeMutablePointer<StreamSlot>) {
    unlink(slot)
    discharge(slot)
    if slot.pointee.phase == .receiving { bodyCompleted(slot) }
    bodyReleased(slot)
    switch slot.pointee.phase {
    case .free, .aborted: break
    case .receiving, .answered: release(slot)
    case .ready: slot.pointee.phase = .aborted
    case .delivered:
      slot.pointee.phase = .aborted
      wait(slot)
    case .streaming:
      if slot.pointee.flags.contains(.localEnded) {
        release(slot)
      } else {
        slot.pointee.phase = .aborted
        wait(slot)
      }
    }
  }

  private mutating func release(_ slot: UnsafeMutablePointer<StreamSlot>) {
    // A slot in the list of those that wait is freed when it is taken from there.
    if slot.pointee.isWaiting { slot.pointee.phase = .aborted } else { pool.pointee.put(slot) }
  }

  /// Ends the session: every open stream counts as closed.
  mutating func destroy() {
    guard let session else { return }
    nghttp2_session_del(session)
    self.session = nil
    failed = true
    while oldest != StreamSlot.none { close(pool.pointee.pointer(oldest)) }
  }
}

/// The bytes of the last `authorization` header, so that a run of requests with the same one is recognised by
/// a single comparison. Comparing nghttp2's reference-counted buffers by address was tried instead: nghttp2's
/// own encoder never puts this header into the dynamic table (nor do Python's and others), so the address
/// differs every time.
struct AuthorizationIdentities {
  private static let keptBytesMax = 5 * 1_024

  private var last: [UInt8] = []
  private var current: UInt32 = 0

  @inline(__always)
  mutating func identity(_ value: UnsafePointer<UInt8>, _ count: Int) -> UInt32 {
    if count == last.count, current != 0,
      last.withUnsafeBufferPointer({
        count == 0 || equalBytes($0.baseAddress.unsafelyUnwrapped, value, count)
      })
    {
      return current
    }
    // What is longer than any token is not kept beside each connection.
    last.removeAll(keepingCapacity: last.capacity <= Self.keptBytesMax)
    if count <= Self.keptBytesMax { last.append(contentsOf: UnsafeBufferPointer(start: value, count: count)) }
    // 0 means none; after 2^32 - 1 changes a number comes again, for which a client would need hours of
    // trying.
    current &+= 1
    if current == 0 { current = 1 }
    return current
  }
}
