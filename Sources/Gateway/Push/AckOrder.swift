package import NIOCore

/// Buffer that puts answers, which arrive in any order, into request order. Answers whose turn has come are collected
/// in ``orderedResults``; others wait. The waiting results and the entries in flight are bounded. A pure state machine,
/// each batch or stream of push acks.
package struct AckOrder {
  /// In-flight limits.
  package struct Limits: Sendable {
    /// Entries in flight, including answered ones that wait for an earlier entry; at least 1.
    package var entries: Int
    /// Bytes of results that wait for earlier ones or to be taken; at this limit no entry is begun. Entries in flight
    /// may still add one result each.
    package var bytes: Int

    package init(entries: Int = 4_096, bytes: Int = 256 << 10) {
      self.entries = entries
      self.bytes = bytes
    }
  }

  private struct Slot {
    /// Offset of the result in `ahead`.
    var offset: UInt32 = 0
    /// Size of the result; `open`: not answered yet.
    var count: UInt32 = Slot.open
    var labels: AckLabels

    static let open = UInt32.max
  }

  private let limits: Limits
  /// A ring whose size is a power of two: entry n is at index n modulo the size.
  private var slots: [Slot] = []
  /// The oldest unanswered entry; numbers wrap around.
  private var first: UInt32 = 0
  private var next: UInt32 = 0
  /// Results that wait for an earlier entry. Answers already taken stay until compaction.
  private var ahead = ByteBuffer()
  private var aheadBytes = 0
  private var isHeld = false
  /// Answers in entry order, ready to be taken.
  package private(set) var orderedResults = ByteBuffer()

  package init(limits: Limits = Limits()) { self.limits = limits }

  /// Entries begun whose results are not in ``orderedResults`` yet.
  package var waiting: Int { Int(next &- first) }

  /// The number of the next entry.
  package var nextEntry: UInt32 { next }

  /// Bytes of all results in memory.
  package var heldBytes: Int { aheadBytes + orderedResults.readableBytes }

  /// Return whether another entry may begin. At a limit, not before half of the load is done, so that a body is read in
  /// few large pieces.
  package mutating func hasRoom() -> Bool {
    if isHeld {
      isHeld = waiting > limits.entries / 2 || heldBytes > limits.bytes / 2
    } else {
      isHeld = waiting >= limits.entries || heldBytes >= limits.bytes
    }
    return !isHeld
  }

  /// Begin an entry with the number ``nextEntry``.
  package mutating func begin(_ labels: AckLabels = AckLabels()) {
    if waiting == slots.count { grow() }
    slots[slotIndex(next)] = Slot(labels: labels)
    next &+= 1
  }

  /// Return the labels of an unanswered entry.
  package func labels(_ entry: UInt32) -> AckLabels { slots[slotIndex(entry)].labels }

  /// Record an entry's answer, once for each entry.
  package mutating func finish(_ entry: UInt32, _ write: (inout ByteBuffer) -> Void) {
    precondition(entry &- first < next &- first && isOpen(entry), "the entry is not waiting for a result")
    if entry == first {
      write(&orderedResults)
      first &+= 1
      takeReadyResults()
      return
    }
    let offset = ahead.writerIndex
    write(&ahead)
    let count = ahead.writerIndex - offset
    slots[slotIndex(entry)].offset = UInt32(offset)
    slots[slotIndex(entry)].count = UInt32(count)
    aheadBytes += count
    if ahead.writerIndex > max(Self.compactBytesMin, 2 * aheadBytes) { compact() }
  }

  /// Clear ``orderedResults`` after it was written.
  package mutating func clearOrderedResults() { orderedResults = ByteBuffer() }

  // MARK: -

  private static let slotsMin = 16
  /// Minimum size of `ahead` worth compacting.
  private static let compactBytesMin = 64 << 10

  @inline(__always)
  private func slotIndex(_ entry: UInt32) -> Int { Int(entry) & (slots.count - 1) }

  private func isOpen(_ entry: UInt32) -> Bool { slots[slotIndex(entry)].count == Slot.open }

  private mutating func takeReadyResults() {
    while first != next, !isOpen(first) {
      let slot = slots[slotIndex(first)]
      Self.copy(slot.offset, slot.count, of: ahead, into: &orderedResults)
      aheadBytes -= Int(slot.count)
      first &+= 1
    }
    if aheadBytes == 0 { ahead.clear() }
  }

  private static func copy(_ offset: UInt32, _ count: UInt32, of source: ByteBuffer, into target: inout ByteBuffer) {
    source.withUnsafeReadableBytes { bytes in
      _ = target.writeBytes(UnsafeRawBufferPointer(rebasing: bytes[Int(offset)..<Int(offset + count)]))
    }
  }

  /// Drop the results that were taken from `ahead`.
  private mutating func compact() {
    var kept = ByteBuffer()
    kept.reserveCapacity(aheadBytes)
    var entry = first
    while entry != next {
      let at = slotIndex(entry)
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
      larger[Int(entry) & (count - 1)] = slots[slotIndex(entry)]
      entry &+= 1
    }
    slots = larger
  }
}
