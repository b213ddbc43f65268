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
