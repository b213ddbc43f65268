/// Pool of the slots of one event loop, shared by its connections. Idle connections hold no slot, and slots in use stay
/// warm in the cache.
struct SlotPool {
  static let chunkSize = 64

  private var chunks: [UnsafeMutablePointer<StreamSlot>] = []
  private var freeHead = StreamSlot.none
  private(set) var freeCount = 0
  private let retainedBufferBytesMax: Int
  /// Number of free slots that keep their buffers.
  private let warmSlotsMax = 4_096

  init(retainedBufferBytesMax: Int) {
    self.retainedBufferBytesMax = retainedBufferBytesMax
  }

  @inline(__always)
  func pointer(_ index: UInt32) -> UnsafeMutablePointer<StreamSlot> {
    chunks[Int(index) / SlotPool.chunkSize] + Int(index) % SlotPool.chunkSize
  }

  /// Return the slot of a handle, if it still holds the stream that the handle was made for.
  @inline(__always)
  func find(_ handle: HTTP2StreamHandle) -> UnsafeMutablePointer<StreamSlot>? {
    guard Int(handle.slot) < chunks.count * SlotPool.chunkSize else { return nil }
    let slot = pointer(handle.slot)
    return slot.pointee.generation == handle.generation ? slot : nil
  }

  mutating func allocate() -> UnsafeMutablePointer<StreamSlot> {
    if freeHead == StreamSlot.none { addChunk() }
    let slot = pointer(freeHead)
    freeHead = slot.pointee.links.next
    freeCount -= 1
    return slot
  }

  /// Return a slot to the pool; its handles are stale from here on.
  mutating func put(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slot.pointee.free()
    slot.pointee.received.releaseBuffer(above: retainedBufferBytesMax)
    slot.pointee.outgoing.release(above: retainedBufferBytesMax)
    if freeCount >= warmSlotsMax { slot.pointee.releaseBuffers() }
    slot.pointee.links.next = freeHead
    freeHead = slot.pointee.index
    freeCount += 1
  }

  /// Free the buffers of all free slots.
  mutating func releaseFreeBuffers() {
    var index = freeHead
    while index != StreamSlot.none {
      let slot = pointer(index)
      slot.pointee.releaseBuffers()
      index = slot.pointee.links.next
    }
  }

  private mutating func addChunk() {
    let base = UInt32(chunks.count * SlotPool.chunkSize)
    let chunk = UnsafeMutablePointer<StreamSlot>.allocate(capacity: SlotPool.chunkSize)
    for offset in (0..<SlotPool.chunkSize).reversed() {
      (chunk + offset).initialize(to: StreamSlot(index: base + UInt32(offset)))
      (chunk + offset).pointee.links.next = freeHead
      freeHead = base + UInt32(offset)
    }
    chunks.append(chunk)
    freeCount += SlotPool.chunkSize
  }

  mutating func destroy() {
    for chunk in chunks {
      for offset in 0..<SlotPool.chunkSize { (chunk + offset).pointee.releaseBuffers() }
      chunk.deinitialize(count: SlotPool.chunkSize)
      chunk.deallocate()
    }
    chunks = []
  }
}
