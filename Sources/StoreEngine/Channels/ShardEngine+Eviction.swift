internal import ReceiptModel

extension ShardEngine {
  /// Evict channels whose pages are all on storage. Requires that no commit is in flight: a page that is being written
  /// already counts as clean.
  ///
  /// - Parameters:
  ///   - wanted: bytes to free.
  ///   - scanBudget: slots that may be examined; decremented.
  /// - Returns: bytes that were freed.
  func evict(bytes wanted: Int, scanBudget: inout Int) -> Int {
    let slotCount = state.slotCount
    let before = state.residentBytes
    guard slotCount > 0 else { return 0 }
    // One round only: a second one would evict recently used channels too.
    var remaining = min(scanBudget, slotCount)
    while remaining > 0, before - state.residentBytes < wanted {
      remaining -= 1
      scanBudget -= 1
      guard let slot = eviction.advance(slotCount: slotCount), slot != eviction.last, state.isLoaded(slot),
        dirty.isClean(slot), dirty.last(slot) <= log.durable, !waiting.isSliced(slot),
        !rebuilds.isScanning(slot),
        !state[slot].isBeingDeleted, !events.hasUnsentEvents(slot)
      else { continue }
      events.clearSlot(slot)
      state.remove(slot)
      eviction.recordEviction()
    }
    return before - state.residentBytes
  }
}
