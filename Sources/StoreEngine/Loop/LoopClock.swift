internal import ReceiptModel

/// Time of a loop: a wall clock that never falls, and the time that has passed.
struct LoopClock {
  /// Wall-clock time of this turn.
  private(set) var now = Timestamp.none
  private var reading: Int64 = 0
  /// Time since the loop was made, as far as the readings show it, robust against clock changes.
  private(set) var elapsedMilliseconds: Int64 = 0

  /// Take a reading of the wall clock.
  mutating func set(_ time: Timestamp) {
    // Ticks come every second, so a step of more than a minute is a clock that was set, not time that has passed.
    elapsedMilliseconds += min(max(0, time.milliseconds - reading), 60_000)
    reading = time.milliseconds
    if time > now { now = time }
  }
}
