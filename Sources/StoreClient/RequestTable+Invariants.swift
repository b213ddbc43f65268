extension RequestTable {
  /// What has to hold between any two events. Tests call it after each; it looks at everything.
  func checkInvariants() {
    var listed = 0
    var onWire = 0
    var perBatch = [Int](repeating: 0, count: batches.count)
    var lastIssue: UInt64 = 0
    var lastCounter: UInt64 = 0
    var previous = Self.none
    var index = head
    var seenCursor = cursor == Self.none
    while index != Self.none {
      let slot = slots[Int(index)]
      precondition(slot.state == .waiting && slot.previous == previous && slot.issue > lastIssue)
      if index == cursor {
        precondition(slot.issue >= wireEnd, "the cursor is at what was written on this connection")
        seenCursor = true
      }
      precondition(
        (slot.issue < wireEnd) == (!seenCursor || cursor == Self.none),
        "what is written comes first"
      )
      precondition(wireEnd == 0 || wireEnd <= sentEnd, "what is on this connection's wire was sent")
      if slot.counter > 0, !unsentIsStale {
        precondition(slot.counter > lastCounter, "counters rise")
        lastCounter = slot.counter
      }
      if slot.issue < wireEnd { onWire += 1 }
      perBatch[Int(slot.batch)] += 1
      listed += 1
      lastIssue = slot.issue
      previous = index
      index = slot.next
    }
    precondition(seenCursor && previous == tail && listed == count)
    precondition(onWire + abandonedCount == self.onWire)
    precondition(slots.count { $0.state == .abandoned } == abandonedCount)
    var free = 0
    index = freeSlot
    while index != Self.none {
      precondition(slots[Int(index)].state == .free)
      free += 1
      index = slots[Int(index)].next
    }
    precondition(free + listed + abandonedCount == slots.count, "no slot is lost")
    var bytes = 0
    for (number, batch) in batches.enumerated() {
      precondition(batch.outstanding == perBatch[number], "a batch knows how many wait")
      precondition(UInt32(number) == openBatch || (batch.bytes > 0) == (batch.outstanding > 0))
      bytes += batch.bytes
    }
    precondition(bytes == retainedBytes)
    if !unsentIsStale, tail != Self.none { precondition(counterSent < counterNext) }
  }
}
