internal import CNghttp2
internal import NIOCore

/// One client session: the nghttp2 pointer and all that its callbacks touch, at a fixed address. See
/// ``ServerCore``.
struct ClientCore {
  /// Freed by ``destroy()``; nil after that.
  var session: OpaquePointer?
  let pool: UnsafeMutablePointer<SlotPool>
  let maxHeaderListBytes: Int
  let maxBodyBytes: Int

  var oldest = StreamSlot.none
  var newest = StreamSlot.none
  var openCount = 0
  var firstWaiting = StreamSlot.none
  var lastWaiting = StreamSlot.none

  /// The slot whose header block is being decoded; nil while nobody reads it (trailers).
  var decoding: UnsafeMutablePointer<StreamSlot>?
  var settingsSeen = false
  var settingsTold = false
  var goAwaySeen = false
  var counters = HTTP2Counters()

  @inline(__always)
  mutating func open() -> UnsafeMutablePointer<StreamSlot> {
    let slot = pool.pointee.take()
    slot.pointee.phase = .receiving
    slot.pointee.flags = []
    slot.pointee.streamID = 0
    slot.pointee.status = 0
    slot.pointee.count = 0
    slot.pointee.headerEnd = 0
    slot.pointee.headerListBytes = 0
    slot.pointee.declaredBodyBytes = 0
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
    return slot
  }

  /// The stream is no more; its slot waits until the delegate has been told.
  @inline(__always)
  mutating func close(_ slot: UnsafeMutablePointer<StreamSlot>, errorCode: UInt32) {
    guard slot.pointee.phase == .receiving || slot.pointee.phase == .streaming else { return }
    let complete = errorCode == 0 && slot.pointee.flags.contains(.remoteEnded) && slot.pointee.status >= 200
    slot.pointee.phase = complete ? .ready : .aborted
    if !complete { slot.pointee.status = Int32(bitPattern: errorCode) }
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
    wait(slot)
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

  /// Ends the session: every open stream has failed.
  mutating func destroy() {
    guard let session else { return }
    nghttp2_session_del(session)
    self.session = nil
    while oldest != StreamSlot.none {
      close(pool.pointee.pointer(oldest), errorCode: HTTP2ErrorCode.internalError.rawValue)
    }
  }
}
