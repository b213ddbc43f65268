internal import CNghttp2

/// The request bodies that one connection holds until they are complete and answered, against
/// ``HTTP2Limits/maxBufferedBodyBytes``. Streamed bodies do not count: their windows bound them.
///
/// HTTP/2's windows slow a client down that sends more than there is room for; no stream of a client that keeps to them
/// is refused. Three rules, so that neither a client nor the application can stop the other for good:
///
/// - Bodies under way: a stream may send ``HTTP2Limits/initialWindowSize`` at once, and has its window extended,
///   twofold each time, while what was granted to all streams in this way is within the limit. Past it the streams
///   wait, in order, for bodies that are answered.
/// - The first that would have to wait while no other is favoured is favoured: it is granted a whole body past the
///   limit. So one at least can always complete.
/// - Complete bodies, which wait for their answers: the connection's window is not given back for what comes beside
///   them, until they are gone.
struct BodyBudget {
  private let limit: Int
  /// What each stream may send without a grant.
  private let firstWindow: Int
  /// With all grants: one byte more than a body may have has to arrive to be refused.
  private let creditMax: Int
  private(set) var total = 0
  private var incomplete = 0
  /// Read, but not given back to the connection's window.
  fileprivate var withheld = 0
  /// The sum of what streams were granted beyond ``firstWindow``.
  private var granted = 0
  /// The stream that goes on past the limit, 0 if there is none.
  private var favoured: Int32 = 0
  /// Streams that wait to be granted more, oldest first. One that has ended meanwhile is passed over.
  fileprivate var waiting: [Int32] = []

  init(limits: HTTP2Limits) {
    limit = limits.maxBufferedBodyBytes
    firstWindow = Int(limits.initialWindowSize)
    creditMax = firstWindow + limits.maxBodyBytes
  }

  /// What a stream does after so many bytes of its body.
  fileprivate enum OnData {
    /// It stays within what it was granted.
    case goOn
    /// Its window is extended by this.
    case extend(Int)
    /// It has to wait until others are gone. What it was granted already may still come.
    case wait
    /// It sent more than it was granted: it need not know of its window yet (SETTINGS that were not acknowledged), and
    /// there is no room.
    case refuse
  }

  /// - Parameter held: bytes of the body, with those that have just come.
  @inline(__always)
  fileprivate mutating func received(_ slot: UnsafeMutablePointer<StreamSlot>, held: Int) -> OnData {
    if held <= (firstWindow + slot.pointee.grantedBodyBytes) / 2 { return .goOn }
    return extend(slot, held)
  }

  @inline(never)
  private mutating func extend(_ slot: UnsafeMutablePointer<StreamSlot>, _ held: Int) -> OnData {
    let credit = firstWindow + slot.pointee.grantedBodyBytes
    if credit >= creditMax { return .goOn }
    // Not past those that wait already; while one does, another is favoured.
    if waiting.isEmpty, let increment = grant(slot, held: held) { return .extend(increment) }
    return held > credit ? .refuse : .wait
  }

  /// Grants a stream more, if there is room or no other is favoured.
  ///
  /// - Returns: by how much its window is extended.
  fileprivate mutating func grant(_ slot: UnsafeMutablePointer<StreamSlot>, held: Int) -> Int? {
    let credit = firstWindow + slot.pointee.grantedBodyBytes
    var increment = min(creditMax, max(2 * credit, held + firstWindow)) - credit
    if granted + increment > limit {
      guard favoured == 0 else { return nil }
      favoured = slot.pointee.streamID
      increment = creditMax - credit
    }
    slot.pointee.grantedBodyBytes += increment
    granted += increment
    return increment
  }

  @inline(__always)
  fileprivate mutating func store(_ slot: UnsafeMutablePointer<StreamSlot>, _ length: Int) {
    slot.pointee.heldBodyBytes += length
    total += length
    incomplete += length
  }

  /// The body of a stream that was receiving is complete, or will not be.
  @inline(__always)
  fileprivate mutating func complete(_ slot: UnsafeMutablePointer<StreamSlot>) {
    incomplete -= slot.pointee.heldBodyBytes
  }

  /// - Returns: whether there may be room now for streams that wait.
  @inline(__always)
  fileprivate mutating func release(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    total -= slot.pointee.heldBodyBytes
    slot.pointee.heldBodyBytes = 0
    guard slot.pointee.grantedBodyBytes > 0 else { return false }
    granted -= slot.pointee.grantedBodyBytes
    slot.pointee.grantedBodyBytes = 0
    if favoured == slot.pointee.streamID { favoured = 0 }
    return !waiting.isEmpty
  }

  /// What comes now is not given back. Only while a complete body is there, whose end will give it back.
  @inline(__always)
  fileprivate var withholds: Bool { total > limit && total > incomplete }
}

extension ServerCore {
  /// Stores a piece of a body, which is within `maxBodyBytes`, or resets its stream if it may not have come.
  @inline(__always)
  mutating func storeBody(
    _ slot: UnsafeMutablePointer<StreamSlot>,
    _ data: UnsafePointer<UInt8>,
    _ length: Int
  ) {
    // The calls of nghttp2_session_consume and its kind only fail for lack of memory.
    switch bodies.received(slot, held: slot.pointee.heldBodyBytes + length) {
    case .goOn: break
    case .extend(let increment): extendWindow(slot, increment)
    case .wait: waitForRoom(slot)
    case .refuse:
      _ = nghttp2_session_consume(session, slot.pointee.streamID, length)
      counters.limitsHit += 1
      return abandon(slot, .enhanceYourCalm)
    }
    guard mayGrow(slot) else {
      _ = nghttp2_session_consume(session, slot.pointee.streamID, length)
      counters.limitsHit += 1
      return abandon(slot, .enhanceYourCalm)
    }
    slot.pointee.reserve(length)
    _ = slot.pointee.append(data, length)
    bodies.store(slot, length)
    charge(slot)
    // The stream's own window is extended by grants only.
    if bodies.withholds {
      bodies.withheld += length
    } else {
      _ = nghttp2_session_consume_connection(session, length)
    }
  }

  @inline(never)
  private mutating func extendWindow(_ slot: UnsafeMutablePointer<StreamSlot>, _ increment: Int) {
    let increment = Int32(clamping: increment)
    _ = nghttp2_submit_window_update(
      session,
      UInt8(NGHTTP2_FLAG_NONE.rawValue),
      slot.pointee.streamID,
      increment
    )
  }

  @inline(never)
  private mutating func waitForRoom(_ slot: UnsafeMutablePointer<StreamSlot>) {
    guard !slot.pointee.flags.contains(.awaitsRoom) else { return }
    slot.pointee.flags.insert(.awaitsRoom)
    bodies.waiting.append(slot.pointee.streamID)
    counters.bodiesDelayed += 1
  }

  @inline(never)
  private mutating func leaveQueue(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slot.pointee.flags.remove(.awaitsRoom)
    bodies.waiting.removeAll { $0 == slot.pointee.streamID }
  }

  /// Grants streams that wait what there is room for now.
  @inline(never)
  private mutating func grantToWaiting() {
    guard session != nil else { return }
    var count = 0
    for streamID in bodies.waiting {
      if let slot = lookup(streamID), slot.pointee.phase == .receiving {
        guard let increment = bodies.grant(slot, held: slot.pointee.heldBodyBytes) else { break }
        slot.pointee.flags.remove(.awaitsRoom)
        // The time in which it could not go on is not the client's.
        slot.pointee.openedAt = max(slot.pointee.openedAt, now)
        extendWindow(slot, increment)
      }
      count += 1
    }
    bodies.waiting.removeFirst(count)
  }

  /// A stream leaves `receiving`.
  @inline(__always)
  mutating func bodyCompleted(_ slot: UnsafeMutablePointer<StreamSlot>) { bodies.complete(slot) }

  /// The rest of a body is read and dropped: what was stored of it may not keep the stream's window closed.
  mutating func bodyPassedOver(_ slot: UnsafeMutablePointer<StreamSlot>) {
    _ = nghttp2_session_consume_stream(session, slot.pointee.streamID, slot.pointee.heldBodyBytes)
  }

  /// What is held of a body is there no more.
  @inline(__always)
  mutating func bodyReleased(_ slot: UnsafeMutablePointer<StreamSlot>) {
    // Not to be granted anything more, as its grants are given back now.
    if slot.pointee.flags.contains(.awaitsRoom) { leaveQueue(slot) }
    if bodies.release(slot) { grantToWaiting() }
    if bodies.withheld > 0 && !bodies.withholds { giveBack() }
  }

  @inline(never)
  private mutating func giveBack() {
    let withheld = bodies.withheld
    bodies.withheld = 0
    guard let session else { return }
    _ = nghttp2_session_consume_connection(session, withheld)
  }

  /// Resets a stream that is still receiving, of which the application has not heard and will not.
  @inline(never)
  mutating func abandon(_ slot: UnsafeMutablePointer<StreamSlot>, _ code: HTTP2ErrorCode) {
    bodyCompleted(slot)
    // From here on all that comes is dropped.
    slot.pointee.phase = .answered
    slot.pointee.flags.insert(.localEnded)
    if slot.pointee.heldBodyBytes > 0 {
      slot.pointee.releaseBuffers()
      slot.pointee.count = 0
      slot.pointee.headerEnd = 0
    }
    bodyReleased(slot)
    // Fails only for lack of memory.
    _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, code.rawValue)
  }
}
