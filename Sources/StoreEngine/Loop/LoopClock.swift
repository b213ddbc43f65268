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

/// Work that the shards of a loop may still do: index work until the next slice, and long queries in this turn.
struct TurnBudget {
  private let configuration: StoreLoopConfiguration
  /// Index changes that may still be applied, and entries left of ``StoreLoopConfiguration/entriesPerTurn``, until the
  /// next slice. Not until the turn ends: many turns may run before a socket is read again.
  private(set) var changes: Int
  private(set) var entries: Int
  /// Rows that long queries may still scan in this turn.
  private(set) var rows: Int
  /// Effects that erasures of users may still add in this turn.
  private(set) var effects: Int

  init(_ configuration: StoreLoopConfiguration) {
    self.configuration = configuration
    changes = configuration.changesPerTurn
    entries = configuration.entriesPerTurn
    rows = configuration.sliceRows
    effects = configuration.sliceEffects
  }

  mutating func beginTurn() {
    rows = configuration.sliceRows
    effects = configuration.sliceEffects
  }

  mutating func beginSlice() {
    changes = configuration.changesPerTurn
    entries = configuration.entriesPerTurn
  }

  mutating func useChanges(_ count: Int) { changes -= count }
  mutating func useEntries(_ count: Int) { entries -= count }
  mutating func useRows(_ count: Int) { rows -= count }
  mutating func useEffects(_ count: Int) { effects -= count }

  /// Allow at least one change.
  mutating func allowChange() { changes = max(changes, 1) }

  /// Allow a short query's rows at least.
  mutating func allowShortRows() { rows = max(rows, configuration.shortRows) }
}
