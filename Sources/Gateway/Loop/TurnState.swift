/// What a ``GatewayLoop`` has done since the start of the event loop's turn, and since its last flush to the store.
struct TurnState {
  /// Whether the end of the turn is scheduled.
  private var isEndScheduled = false
  /// Whether a request since the last flush has recorded its sending time.
  private var hasSample = false

  /// Return true for the first call of a turn: the caller schedules the turn's end.
  mutating func scheduleEnd() -> Bool {
    if isEndScheduled { return false }
    isEndScheduled = true
    return true
  }

  mutating func end() { isEndScheduled = false }

  /// Return true for the first request since the last flush, whose round trip is measured.
  mutating func takeSample() -> Bool {
    if hasSample { return false }
    hasSample = true
    return true
  }

  mutating func flushed() { hasSample = false }
}
