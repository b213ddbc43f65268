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

/// Links of a slot in the lists below, and in the pool's list of free slots.
struct SlotLinks {
  /// Open slots of one connection, oldest first.
  fileprivate var previous = StreamSlot.none
  /// The same; also links the pool's free slots.
  var next = StreamSlot.none
  /// Links slots with a pending delegate call: ready, aborted or drained ones.
  fileprivate var nextPending = StreamSlot.none
  /// Whether the slot is in the list of pending calls.
  fileprivate(set) var isWaiting = false
}

/// Open slots of one connection, oldest first. It owns the links ``SlotLinks/previous`` and ``SlotLinks/next`` of open
/// slots.
struct OpenSlots {
  private let pool: UnsafeMutablePointer<SlotPool>
  /// Index of the oldest slot; ``StreamSlot/none``: there is none.
  private(set) var oldest = StreamSlot.none
  private var newest = StreamSlot.none
  private(set) var count = 0

  init(pool: UnsafeMutablePointer<SlotPool>) { self.pool = pool }

  @inline(__always)
  mutating func append(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slot.pointee.links.previous = newest
    slot.pointee.links.next = StreamSlot.none
    if newest == StreamSlot.none {
      oldest = slot.pointee.index
    } else {
      pool.pointee.pointer(newest).pointee.links.next = slot.pointee.index
    }
    newest = slot.pointee.index
    count += 1
  }

  @inline(__always)
  mutating func remove(_ slot: UnsafeMutablePointer<StreamSlot>) {
    let previous = slot.pointee.links.previous
    let next = slot.pointee.links.next
    if previous == StreamSlot.none {
      oldest = next
    } else {
      pool.pointee.pointer(previous).pointee.links.next = next
    }
    if next == StreamSlot.none {
      newest = previous
    } else {
      pool.pointee.pointer(next).pointee.links.previous = previous
    }
    count -= 1
  }
}

/// Slots of one connection with a pending delegate call, in order. It owns the links ``SlotLinks/nextPending`` and
/// ``SlotLinks/isWaiting``.
struct PendingSlots {
  private let pool: UnsafeMutablePointer<SlotPool>
  private var first = StreamSlot.none
  private var last = StreamSlot.none

  init(pool: UnsafeMutablePointer<SlotPool>) { self.pool = pool }

  /// Reset the links of a slot that was taken from the pool.
  @inline(__always)
  func reset(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slot.pointee.links.nextPending = StreamSlot.none
    slot.pointee.links.isWaiting = false
  }

  /// Append a slot, unless it is in the list.
  @inline(__always)
  mutating func append(_ slot: UnsafeMutablePointer<StreamSlot>) {
    if slot.pointee.links.isWaiting { return }
    slot.pointee.links.isWaiting = true
    slot.pointee.links.nextPending = StreamSlot.none
    if last == StreamSlot.none {
      first = slot.pointee.index
    } else {
      pool.pointee.pointer(last).pointee.links.nextPending = slot.pointee.index
    }
    last = slot.pointee.index
  }

  @inline(__always)
  mutating func popFirst() -> UnsafeMutablePointer<StreamSlot>? {
    guard first != StreamSlot.none else { return nil }
    let slot = pool.pointee.pointer(first)
    first = slot.pointee.links.nextPending
    if first == StreamSlot.none { last = StreamSlot.none }
    slot.pointee.links.isWaiting = false
    return slot
  }
}
