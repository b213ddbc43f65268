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
    token: UInt64,
    method: HTTP2Method,
    streaming: Bool,
    hasMoreBody: Bool
  ) -> UnsafeMutablePointer<StreamSlot> {
    let slot = pool.pointee.allocate()
    slot.pointee.open(token: token, method: method, streaming: streaming, hasMoreBody: hasMoreBody)
    pending.reset(slot)
    streams.append(slot)
    counters.streamsOpened += 1
    return slot
  }

  /// Close a stream; its slot stays until the delegate has been notified.
  @inline(__always)
  mutating func close(_ slot: UnsafeMutablePointer<StreamSlot>, errorCode: UInt32) {
    switch slot.pointee.clientState.closed(isSuccess: errorCode == 0 && slot.pointee.received.status >= 200) {
    case .none: return
    case .complete: break
    case .fail: slot.pointee.received.status = Int32(bitPattern: errorCode)
    }
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
