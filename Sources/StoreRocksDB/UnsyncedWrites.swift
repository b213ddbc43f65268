/// Whether a sync is due: writes that have ended since the last sync, and writes that are under way. A write that is
/// under way when a sync begins may miss it, so it is due again.
struct UnsyncedWrites {
  private var underWay = 0
  /// What an earlier run has written may be unsynced.
  private var hasEnded = true

  mutating func writeBegan() { underWay += 1 }

  mutating func writeEnded() {
    underWay -= 1
    hasEnded = true
  }

  /// Return whether a sync is due now. Call it before the sync, which covers all writes that have ended.
  mutating func takeDue() -> Bool {
    let isDue = hasEnded || underWay > 0
    hasEnded = false
    return isDue
  }
}
