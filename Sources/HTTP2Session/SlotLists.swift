/// Open slots of one connection, oldest first. It owns the links ``StreamSlot/previous`` and ``StreamSlot/next`` of
/// open slots.
struct OpenSlots {
  private let pool: UnsafeMutablePointer<SlotPool>
  /// Index of the oldest slot; ``StreamSlot/none``: there is none.
  private(set) var oldest = StreamSlot.none
  private var newest = StreamSlot.none
  private(set) var count = 0

  init(pool: UnsafeMutablePointer<SlotPool>) { self.pool = pool }

  @inline(__always)
  mutating func append(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slot.pointee.previous = newest
    slot.pointee.next = StreamSlot.none
    if newest == StreamSlot.none {
      oldest = slot.pointee.index
    } else {
      pool.pointee.pointer(newest).pointee.next = slot.pointee.index
    }
    newest = slot.pointee.index
    count += 1
  }

  @inline(__always)
  mutating func remove(_ slot: UnsafeMutablePointer<StreamSlot>) {
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
    count -= 1
  }
}

/// Slots of one connection with a pending delegate call, in order. It owns the links ``StreamSlot/nextPending`` and
/// ``StreamSlot/isWaiting``.
struct PendingSlots {
  private let pool: UnsafeMutablePointer<SlotPool>
  private var first = StreamSlot.none
  private var last = StreamSlot.none

  init(pool: UnsafeMutablePointer<SlotPool>) { self.pool = pool }

  /// Reset the links of a slot that was taken from the pool.
  @inline(__always)
  func reset(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slot.pointee.nextPending = StreamSlot.none
    slot.pointee.isWaiting = false
  }

  /// Append a slot, unless it is in the list.
  @inline(__always)
  mutating func append(_ slot: UnsafeMutablePointer<StreamSlot>) {
    if slot.pointee.isWaiting { return }
    slot.pointee.isWaiting = true
    slot.pointee.nextPending = StreamSlot.none
    if last == StreamSlot.none {
      first = slot.pointee.index
    } else {
      pool.pointee.pointer(last).pointee.nextPending = slot.pointee.index
    }
    last = slot.pointee.index
  }

  @inline(__always)
  mutating func popFirst() -> UnsafeMutablePointer<StreamSlot>? {
    guard first != StreamSlot.none else { return nil }
    let slot = pool.pointee.pointer(first)
    first = slot.pointee.nextPending
    if first == StreamSlot.none { last = StreamSlot.none }
    slot.pointee.isWaiting = false
    return slot
  }
}
