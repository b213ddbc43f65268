internal import CNghttp2

/// The request bodies that one connection holds until they are complete and answered, against
/// ``HTTP2Limits/maxBufferedBodyBytes``. Streamed bodies do not count: their windows bound them.
///
/// Two rules, so that neither a client nor the application can stop the other for good:
///
/// - Bodies under way: past the limit one stream only goes on, the first to pass it; the others are reset at
///   their next DATA, but for such as are small. Whoever is let on can complete.
/// - Complete ones, which wait for their answers: the connection's window is not given back for what comes
///   beside them, until they are gone.
struct BodyBudget {
  private let limit: Int
  /// Bodies up to here are never refused: as much is kept for each slot in any case.
  private let smallBytes: Int
  private(set) var total = 0
  private var incomplete = 0
  /// Read, but not given back to the connection's window.
  fileprivate var withheld = 0
  /// The stream that goes on past the limit, 0 if there is none.
  private var favoured: Int32 = 0

  init(limits: HTTP2Limits) {
    limit = limits.maxBufferedBodyBytes
    smallBytes = limits.maxKeptBufferBytes
  }

  /// Whether that many bytes more of a body may be stored.
  @inline(__always)
  fileprivate mutating func admits(_ slot: UnsafeMutablePointer<StreamSlot>, _ length: Int) -> Bool {
    if incomplete + length <= limit || slot.pointee.heldBodyBytes + length <= smallBytes { return true }
    if favoured == 0 { favoured = slot.pointee.streamID }
    return favoured == slot.pointee.streamID
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
    if favoured == slot.pointee.streamID { favoured = 0 }
  }

  @inline(__always)
  fileprivate mutating func release(_ slot: UnsafeMutablePointer<StreamSlot>) {
    total -= slot.pointee.heldBodyBytes
    slot.pointee.heldBodyBytes = 0
  }

  /// What comes now is not given back. Only while a complete body is there, whose end will give it back.
  @inline(__always)
  fileprivate var withholds: Bool { total > limit && total > incomplete }
}

extension ServerCore {
  /// Stores a piece of a body, or resets its stream if there is no room for it. The piece is within
  /// `maxBodyBytes`.
  @inline(__always)
  mutating func storeBody(
    _ slot: UnsafeMutablePointer<StreamSlot>,
    _ data: UnsafePointer<UInt8>,
    _ length: Int
  ) {
    // The calls of nghttp2_session_consume and its kind only fail for lack of memory.
    guard bodies.admits(slot, length) else {
      _ = nghttp2_session_consume(session, slot.pointee.streamID, length)
      counters.limitsHit += 1
      abandon(slot, .enhanceYourCalm)
      return
    }
    slot.pointee.reserve(length)
    _ = slot.pointee.append(data, length)
    bodies.store(slot, length)
    if bodies.withholds {
      bodies.withheld += length
      _ = nghttp2_session_consume_stream(session, slot.pointee.streamID, length)
    } else {
      _ = nghttp2_session_consume(session, slot.pointee.streamID, length)
    }
  }

  /// A stream leaves `receiving`.
  @inline(__always)
  mutating func bodyCompleted(_ slot: UnsafeMutablePointer<StreamSlot>) { bodies.complete(slot) }

  /// What is held of a body is there no more.
  @inline(__always)
  mutating func bodyReleased(_ slot: UnsafeMutablePointer<StreamSlot>) {
    bodies.release(slot)
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
