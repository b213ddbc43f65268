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
