import Testing

@testable import StoreClient

/// The generations of slots, which tell a late reply from the reply to a slot's next request.
struct RequestSlotsTests {
  /// Generations of one slot, before they repeat.
  private static let generations = Int(UInt16.max)

  @Test func aGenerationWrapsToOneAndNeverToZero() throws {
    var slots = RequestSlots()
    var last: UInt32?
    for use in 0..<(2 * Self.generations + 2) {
      let correlation = slots.nextCorrelation()
      let index = slots.append(RequestSlot())
      // 65,535 rounds: one expectation for each takes too long.
      let isRight =
        index == 0 && correlation == UInt32(use % Self.generations + 1) << 16
        && slots.find(correlation)?.index == index && last.map { slots.find($0) == nil } ?? true
      try #require(isRight, "use \(use): \(correlation)")
      // Every third request is dropped, and its slot freed by the late reply.
      if use.isMultiple(of: 3) {
        slots.abandon(index)
        try #require(slots.find(correlation)?.slot.state == .abandoned)
        slots.removeAbandoned(index)
      } else {
        slots.remove(index)
      }
      last = correlation
    }
    #expect(slots.usedCount == 0)
    slots.checkInvariants { _, _ in Issue.record("no request is left") }
  }

  @Test func aRequestKeepsItsCorrelationWhileAnotherSlotGoesRound() throws {
    var slots = RequestSlots()
    let kept = slots.nextCorrelation()
    let keptIndex = slots.append(RequestSlot())
    for use in 0..<(Self.generations + 1) {
      let correlation = slots.nextCorrelation()
      let index = slots.append(RequestSlot())
      let isRight = index != keptIndex && correlation != kept && slots.find(kept)?.index == keptIndex
      try #require(isRight, "use \(use): \(correlation)")
      slots.remove(index)
    }
    #expect(slots.count == 1)
    slots.checkInvariants { index, _ in #expect(index == keptIndex) }
  }
}
