package import NIOCore

/// Puts answers that come in any order into the order of what was asked: those whose turn it is gather in ``inTurn``,
/// others wait. What waits is bounded, and so is what may be asked meanwhile. A pure state machine; one for each batch
/// or stream of acknowledgements.
package struct AckOrder {
  /// What may be under way.
  package struct Limits: Sendable {
    /// Entries without an answer, and those behind them; at least 1.
    package var entries: Int
    /// Bytes of answers that wait for others, or to be taken, from which on nothing more is begun. One answer more for
    /// each entry under way can come.
    package var bytes: Int

    package init(entries: Int = 4_096, bytes: Int = 256 << 10) {
      self.entries = entries
      self.bytes = bytes
    }
  }

  private struct Slot {
    /// Where the answer stands in `ahead`.
    var offset: UInt32 = 0
    /// Of the answer; `open`: there is none yet.
    var count: UInt32 = Slot.open
    var labels: AckLabels

    static let open = UInt32.max
  }

  private let limits: Limits
  /// A ring whose size is a power of two: entry n is at n modulo its size.
  private var slots: [Slot] = []
  /// The oldest entry without an answer; numbers wrap around.
  private var first: UInt32 = 0
  private var next: UInt32 = 0
  /// Answers before whose entry another has none; those that have had their turn stay until there is little else.
  private var ahead = ByteBuffer()
  private var aheadBytes = 0
  private var isHeld = false
  /// Answers in the order of their entries, to be taken.
  package private(set) var inTurn = ByteBuffer()

  package init(limits: Limits = Limits()) { self.limits = limits }

  /// Entries begun whose answers are not in turn yet.
  package var waiting: Int { Int(next &- first) }

  /// The number that the next entry will have.
  package var nextEntry: UInt32 { next }

  /// Bytes of answers held.
  package var heldBytes: Int { aheadBytes + inTurn.readableBytes }

  /// Whether another entry may be begun. Where not, not before half of what is under way is done: what has come of a
  /// body is looked at in few pieces then.
  package mutating func hasRoom() -> Bool {
    if isHeld {
      isHeld = waiting > limits.entries / 2 || heldBytes > limits.bytes / 2
    } else {
      isHeld = waiting >= limits.entries || heldBytes >= limits.bytes
    }
    return !isHeld
  }

  /// Begins an entry, ``nextEntry``.
  package mutating func begin(_ labels: AckLabels = AckLabels()) {
    if waiting == slots.count { grow() }
    slots[place(next)] = Slot(labels: labels)
    next &+= 1
  }

  /// What an entry without an answer was begun with.
  package func labels(_ entry: UInt32) -> AckLabels { slots[place(entry)].labels }

  /// Takes an entry's answer, once for each.
  package mutating func finish(_ entry: UInt32, _ write: (inout ByteBuffer) -> Void) {
    precondition(entry &- first < next &- first && isOpen(entry), "an answer to nothing that was asked")
    if entry == first {
      write(&inTurn)
      first &+= 1
      takeAhead()
      return
    }
    let offset = ahead.writerIndex
    write(&ahead)
    let count = ahead.writerIndex - offset
    slots[place(entry)].offset = UInt32(offset)
    slots[place(entry)].count = UInt32(count)
    aheadBytes += count
    if ahead.writerIndex > max(Self.compactBytesMin, 2 * aheadBytes) { compact() }
  }

  /// Forgets ``inTurn``, which somebody has taken.
  package mutating func taken() { inTurn = ByteBuffer() }

  // MARK: -

  private static let slotsMin = 16
  /// So little is not worth moving.
  private static let compactBytesMin = 64 << 10

  @inline(__always)
  private func place(_ entry: UInt32) -> Int { Int(entry) & (slots.count - 1) }

  private func isOpen(_ entry: UInt32) -> Bool { slots[place(entry)].count == Slot.open }

  private mutating func takeAhead() {
    while first != next, !isOpen(first) {
      let slot = slots[place(first)]
      Self.copy(slot.offset, slot.count, of: ahead, into: &inTurn)
      aheadBytes -= Int(slot.count)
      first &+= 1
    }
    if aheadBytes == 0 { ahead.clear() }
  }

  private static func copy(
    _ offset: UInt32,
    _ count: UInt32,
    of source: ByteBuffer,
    into target: inout ByteBuffer
  ) {
    source.withUnsafeReadableBytes { bytes in
      _ = target.writeBytes(UnsafeRawBufferPointer(rebasing: bytes[Int(offset)..<Int(offset + count)]))
    }
  }

  /// Leaves behind the answers that have had their turn.
  private mutating func compact() {
    var kept = ByteBuffer()
    kept.reserveCapacity(aheadBytes)
    var entry = first
    while entry != next {
      let at = place(entry)
      if !isOpen(entry) {
        let offset = kept.writerIndex
        Self.copy(slots[at].offset, slots[at].count, of: ahead, into: &kept)
        slots[at].offset = UInt32(offset)
      }
      entry &+= 1
    }
    ahead = kept
  }

  private mutating func grow() {
    let count = max(Self.slotsMin, slots.count * 2)
    var larger = Array(repeating: Slot(labels: AckLabels()), count: count)
    var entry = first
    while entry != next {
      larger[Int(entry) & (count - 1)] = slots[place(entry)]
      entry &+= 1
    }
    slots = larger
  }
}
